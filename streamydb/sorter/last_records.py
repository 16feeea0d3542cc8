"""The records that this process has opened last.

All shards get the same records, each with a part that only the home of an id needs. Where there are
more shards than cores, one process runs the tasks of several shards one after the other, and the
first of them opens what they share for all. What is kept is only spared work: it is used if all
bytes are equal, and opened anew otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TypeAlias

from streamydb.columns.blocks import halves, open_home, open_records
from streamydb.columns.encoding import Stored
from streamydb.columns.table import Columns

__all__ = ["LastRecords"]

_Opened: TypeAlias = list[tuple[list[int], Columns]]
"""Tables of records, and which blocks each is of."""


class LastRecords:
    """The records of one micro-batch, as all shards know them."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self._kept: tuple[list[Stored], _Opened] | None = None

    def forget(self) -> None:
        """Free the memory of what is kept: some 100 bytes a transaction."""
        self._kept = None

    def of(self, blocks: Sequence[Stored], shards: int) -> list[Columns]:
        """Open the blocks of records that a shard got; nobody may change an array of them.

        Blocks of one partition of the log are one table, in the order of their offsets, if there is
        no other partition; the order in which they are given does not matter. With one shard
        nothing is kept, as no other one asks for it.
        """
        divided = [halves(block) for block in blocks]
        if shards == 1:
            opened = _opened([shared for shared, _ in divided])
        else:
            copies = [(Stored(names, bytes(data)), own) for (names, data), own in divided]
            divided = sorted(copies, key=itemgetter(0))
            given, kept = [shared for shared, _ in divided], self._kept
            if kept is None or kept[0] != given:
                kept = self._kept = given, _opened(given)
            opened = kept[1]
        return [
            _completed(table, Columns.concat([open_home(divided[block][1]) for block in of]))
            for of, table in opened
        ]


def _opened(blocks: Sequence[Stored]) -> _Opened:
    tables = [open_records(block) for block in blocks]
    there = [number for number, table in enumerate(tables) if len(table)]
    if len({part for number in there for part in _partitions(tables[number])}) > 1:
        return [([number], tables[number]) for number in there]
    order = sorted(there, key=lambda number: int(tables[number].cols["off"].min()))
    return [(order, Columns.concat([tables[number] for number in order]))] if order else []


def _partitions(table: Columns) -> tuple[int, int]:
    """The lowest and the highest partition of records."""
    parts = table.cols["part"]
    return int(parts.min()), int(parts.max())


def _completed(shared: Columns, own: Columns) -> Columns:
    """The rows with what one shard knows of them."""
    children = {**shared.children, **own.children}
    return Columns({**shared.cols, **own.cols}, dict(shared.texts), children)
