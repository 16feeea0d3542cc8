"""The records that this process has opened last.

All shards get the same records, each with a part that only the home of an id needs. Where there are
more shards than cores, one process runs the tasks of several shards one after the other, and the
first of them opens what they share for all. What is kept is only spared work: it is used if all
bytes are equal, and opened anew otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from streamydb.frames.encoding import StoredArrays
from streamydb.frames.record_messages import LogRecords
from streamydb.frames.record_rows import CompiledRecords, HomeRows, SharedRows
from streamydb.frames.table import ChildRows


class _Kept(NamedTuple):
    """The records that all shards were told: as they lay in the blocks, and as tables."""

    given: list[StoredArrays]
    opened: _Opened


_Opened: TypeAlias = list[tuple[list[int], SharedRows]]
"""Tables of records, and which messages each is of."""


class LastRecords:
    """The records of one micro-batch, as all shards know them."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def forget(self) -> None:
        """Free the memory of what is kept: some 100 bytes a transaction."""
        self._kept = None

    def of(self, told: Sequence[LogRecords], shards: int) -> list[CompiledRecords]:
        """Open the records that a shard got; nobody may change an array of them.

        Records of one partition of the log are one table, in the order of their offsets, if there
        is no other partition; the order in which they are given does not matter. With one shard
        nothing is kept, as no other one asks for it.
        """
        blocks = [each.shared.stored for each in told]
        stored = [block for block in blocks if block is not None]
        if shards == 1 or len(stored) < len(told):
            opened = _opened([each.shared.rows() for each in told])
        else:
            own = [StoredArrays(names, bytes(data)) for names, data in stored]
            order = sorted(range(len(own)), key=own.__getitem__)
            told, given = [told[number] for number in order], [own[number] for number in order]
            kept = self._kept
            if kept is None or kept.given != given:
                rows = [SharedRows.unflatten(block.arrays()) for block in given]
                kept = self._kept = _Kept(given, _opened(rows))
            opened = kept.opened
        return [_completed(table, [told[number] for number in of]) for of, table in opened]


def _opened(tables: Sequence[SharedRows]) -> _Opened:
    there = [number for number, table in enumerate(tables) if len(table)]
    if len({part for number in there for part in _partitions(tables[number])}) > 1:
        return [([number], tables[number]) for number in there]
    order = sorted(there, key=lambda number: int(tables[number].offset.min()))
    return [(order, SharedRows.concat([tables[number] for number in order]))] if order else []


def _partitions(table: SharedRows) -> tuple[int, int]:
    return int(table.partition.min()), int(table.partition.max())


def _completed(shared: SharedRows, told: Sequence[LogRecords]) -> CompiledRecords:
    known = [each.known() for each in told]
    if len(known) == 1:
        return CompiledRecords.of(shared, *known[0])
    home = ChildRows(
        np.concatenate([own.counts for _, own in known]),
        HomeRows.concat([own.rows for _, own in known]),
    )
    return CompiledRecords.of(shared, np.concatenate([id1 for id1, _ in known]), home)
