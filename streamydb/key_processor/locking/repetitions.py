"""Repeated ids in `grouping=single`: which transaction each repeats, and how the original ended.

Which transaction repeats which follows from the order alone: ids are occupied by valid records that
come in time, whatever becomes of them, for a window counted in seq and until their deadlines. So
that is decided when a record is released.
The original's verdict is known once its feedback has been applied.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamydb.columns import program as p
from streamydb.columns.program import NOT_A_DUPLICATE, REUSED, WINDOW_DUPLICATE
from streamydb.columns.table import Columns, Ragged
from streamydb.key_processor.deadlines import untimely
from streamydb.key_processor.idwindow import IdWindow
from streamydb.txn_processor.result import plain_result

__all__ = ["FoundRepeats", "Repeats"]

_USED = ("id0", "id1", "payload", "seq", "ts", "part", "off", "deadline")


@dataclass(slots=True)
class FoundRepeats:
    """By seq: WINDOW_DUPLICATE, REUSED, TOO_LATE or TOO_FAR, and of the first the original's seq.
    """

    kind: dict[int, int] = field(default_factory=dict)
    original: dict[int, int] = field(default_factory=dict)


class Repeats:
    """The ids of one shard within one step."""

    def __init__(self, ids: IdWindow) -> None:
        """Look ids up in ``ids``, and remember them there."""
        self._ids = ids

    def find(self, own: Columns, before: int, resolved: tuple[int, int]) -> FoundRepeats:
        """Find the repetitions among released records, and remember the ids of the others.

        Args:
            own: the records whose ids live here, in seq order: columns seq, ts, part, off, kind,
                id0, id1, payload, deadline.
            before: the last seq that was released before them.
            resolved: (seq, ts); nobody asks any more about what was forgotten by then.

        """
        cols = own.cols
        valid = cols["kind"] != p.REJECTED
        id0, id1 = np.where(valid, cols["id0"], 0), np.where(valid, cols["id1"], 0)
        last = self._ids.last_use(id0, id1, before).tolist()
        refused = untimely(cols["deadline"], cols["ts"]).tolist()
        found = FoundRepeats()
        fresh: dict[tuple[int, int], dict[str, int]] = {}
        used = []
        columns = {name: cols[name].tolist() for name in _USED}
        for i in np.flatnonzero(valid).tolist():
            row = {name: column[i] for name, column in columns.items()}
            key, seq, ts = (row["id0"], row["id1"]), row["seq"], row["ts"]
            use = fresh.get(key)
            if use is None:
                use = self._ids.repeated(last[i], seq, ts)
            elif not self._ids.remembers((use["seq"], use["deadline"]), seq, ts):
                use = None
            if use is None:
                if refused[i] == NOT_A_DUPLICATE:
                    fresh[key] = row
                    used.append(i)
                else:
                    found.kind[seq] = refused[i]
                continue
            same = use["payload"] == row["payload"]
            found.kind[seq] = WINDOW_DUPLICATE if same else REUSED
            if same:
                found.original[seq] = use["seq"]
        remembered = Columns({name: cols[name] for name in _USED}).take(np.array(used, np.int64))
        self._ids.remember(remembered, before + 1, *resolved)
        return found

    def conclude(self, results: list[tuple[int, bytes]]) -> None:
        """Remember results (seq, record) that are not those of plain commits."""
        seqs = np.array([seq for seq, _ in results], np.int64)
        self._ids.conclude(Columns({"seq": seqs}, {"result": Ragged.of([r for _, r in results])}))

    def verdict(self, id_: bytes, original: int) -> bytes:
        """The result of the finished transaction ``original``, whose id was ``id_``."""
        result = self._ids.verdict(original)
        if result is not None:
            return result
        use = self._ids.use(original)
        return plain_result(id_, original, use["ts"], use["part"], use["off"])
