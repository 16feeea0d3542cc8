"""Repeated ids in `grouping=single`: who repeats whom, and how the original ended.

Which transaction repeats which follows from the order alone: ids are occupied by valid records,
whatever becomes of them, for a window counted in seq. So that is decided when a record is released.
The original's verdict is known once its feedback has been applied.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamydb.columns import Ragged, Table
from streamydb.key_processor.idwindow import IdWindow
from streamydb.txn_processor import program as p
from streamydb.txn_processor.execution import REUSED, WINDOW_DUPLICATE
from streamydb.txn_processor.result import plain_result

__all__ = ["FoundRepeats", "Repeats"]

_USED = ("id0", "id1", "payload", "seq", "ts", "part", "off")


@dataclass(slots=True)
class FoundRepeats:
    """By seq: WINDOW_DUPLICATE or REUSED, and of the former the seq of the original."""

    kind: dict[int, int] = field(default_factory=dict)
    original: dict[int, int] = field(default_factory=dict)


class Repeats:
    """The ids of one shard within one step."""

    def __init__(self, ids: IdWindow) -> None:
        """Look ids up in ``ids``, and remember them there."""
        self._ids = ids

    def find(self, own: Table, before: int, resolved: int) -> FoundRepeats:
        """Find the repetitions among released records, and remember the ids of the others.

        Args:
            own: the records whose ids live here, in seq order: columns seq, ts, part, off, kind,
                id0, id1, payload.
            before: the last seq that was released before them.
            resolved: nobody asks any more about what had left the window by then.

        """
        cols = own.cols
        valid = cols["kind"] != p.REJECTED
        id0, id1 = np.where(valid, cols["id0"], 0), np.where(valid, cols["id1"], 0)
        last = self._ids.last_use(id0, id1, before).tolist()
        found = FoundRepeats()
        fresh: dict[tuple[int, int], tuple[int, int]] = {}
        used = []
        names = ("id0", "id1", "payload", "seq")
        rows = zip(*(cols[name].tolist() for name in names), strict=True)
        for i, (low, high, payload, seq) in enumerate(rows):
            if not valid[i]:
                continue
            original, known = fresh.get((low, high), (last[i], None))
            if original <= max(seq - self._ids.state.window, 0):
                fresh[low, high] = (seq, payload)
                used.append(i)
                continue
            if known is None:
                known = self._ids.use(original)["payload"]
            found.kind[seq] = WINDOW_DUPLICATE if known == payload else REUSED
            if known == payload:
                found.original[seq] = original
        remembered = Table({name: cols[name] for name in _USED}).take(np.array(used, np.int64))
        self._ids.remember(remembered, before + 1, resolved)
        return found

    def conclude(self, results: list[tuple[int, bytes]]) -> None:
        """Remember results (seq, record) that are not those of plain commits."""
        seqs = np.array([seq for seq, _ in results], np.int64)
        self._ids.conclude(Table({"seq": seqs}, {"result": Ragged.of([r for _, r in results])}))

    def verdict(self, id_: bytes, original: int) -> bytes:
        """The result of the finished transaction ``original``, whose id was ``id_``."""
        result = self._ids.verdict(original)
        if result is not None:
            return result
        use = self._ids.use(original)
        return plain_result(id_, original, use["ts"], use["part"], use["off"])
