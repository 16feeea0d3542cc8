"""Repeated ids in `grouping=single`: which transaction each repeats, and how the original ended.

Which transaction repeats which follows from the order alone: ids are occupied by valid records that
come in time, whatever becomes of them, for a window counted in seq and until their deadlines. So
that is decided when a record is released.
The original's verdict is known once its feedback has been applied.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamydb.frames.program import NOT_A_DUPLICATE, REUSED, WINDOW_DUPLICATE
from streamydb.frames.value_rows import Verdicts
from streamydb.key_processor.duplicates import result_of
from streamydb.key_processor.id_rows import HomeIds, IdUse, untimely
from streamydb.key_processor.idwindow import IdWindow


@dataclass(slots=True)
class FoundRepeats:
    """By seq: WINDOW_DUPLICATE, REUSED, TOO_LATE or TOO_FAR,
    and of the first the original's seq.
    """

    kind: dict[int, int] = field(default_factory=dict)
    original: dict[int, int] = field(default_factory=dict)


class Repeats:
    """The ids of one shard within one step."""

    def __init__(self, ids: IdWindow) -> None:
        """Look ids up in ``ids``, and remember them there."""
        self._ids = ids

    def find(self, own: HomeIds, before: int, resolved: tuple[int, int]) -> FoundRepeats:
        """Find the repetitions among released records, and remember the ids of the others.

        Args:
            own: the ids that live here, in seq order.
            before: the last seq that was released before them.
            resolved: (seq, ts); nobody asks any more about what was forgotten by then.
        """
        valid = own.valid()
        id0, id1 = np.where(valid, own.id0, 0), np.where(valid, own.id1, 0)
        last = self._ids.last_use(id0, id1, before).tolist()
        refused = untimely(own.deadline, own.ts_ms).tolist()
        repeats = FoundRepeats()
        fresh: dict[tuple[int, int], IdUse] = {}
        used = []
        keys = list(zip(id0.tolist(), id1.tolist(), strict=True))
        for i in np.flatnonzero(valid).tolist():
            row, key = own.use(i), keys[i]
            seq, ts = row.seq, row.ts_ms
            use = fresh.get(key)
            if use is None:
                use = self._ids.repeated(last[i], seq, ts)
            elif not self._ids.remembers((use.seq, use.deadline), seq, ts):
                use = None
            if use is None:
                if refused[i] == NOT_A_DUPLICATE:
                    fresh[key] = row
                    used.append(i)
                else:
                    repeats.kind[seq] = refused[i]
                continue
            same = use.payload == row.payload
            repeats.kind[seq] = WINDOW_DUPLICATE if same else REUSED
            if same:
                repeats.original[seq] = use.seq
        self._ids.remember(own.used(np.array(used, np.int64)), before + 1, *resolved)
        return repeats

    def conclude(self, results: list[tuple[int, bytes]]) -> None:
        """Remember results (seq, record) that are not those of plain commits."""
        self._ids.conclude(Verdicts.of(results))

    def verdict(self, id_: bytes, original: int) -> bytes:
        """The result of the finished transaction ``original``, whose id was ``id_``."""
        return result_of(self._ids, original, id_)
