"""The stretch of a log that is executed, and the way to where it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from streamydb.backup.pieces import LogSource
from streamydb.backup.state import State
from streamydb.errors import StreamyError
from streamydb.frames import program as p
from streamydb.frames.hashing import ID_SEED, KEY_SEED, hash_bytes
from streamydb.procedures.modules import Modules
from streamydb.records.expiry import ending
from streamydb.sorter.state import PartitionState
from streamydb.verify.check.logorder import LogOrder
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.order import LogRecord, Ordered

Progress = Callable[[str, int, int], None]  # is told what is done, and how much of how much


class WhatIfError(StreamyError):
    """The question cannot be answered; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class History:
    """A log, and what else decides what it means.

    Attributes:
        ends: per partition, one past the last record.
        partitions: of the log when the database was created.
        id_window: for how many seqs an id is remembered.
        modules: where the code of stored procedures is.
        states: gives the newest known state at or before a seq, if there is one.
    """

    database: str
    source: LogSource
    ends: Mapping[int, int]
    partitions: int
    id_window: int
    modules: Modules
    states: Callable[[int], State | None] = lambda _seq: None


class Stretch(NamedTuple):
    """The transactions from one seq to another, both included; None: to the log's end."""

    first: int = 1
    last: int | None = None


class RememberedIds:
    """The ids that a state remembers, by their hashes."""

    def __init__(self, state: State | None, id_window: int) -> None:
        self._window = id_window
        self._known: dict[tuple[int, int], tuple[int, int]] = {}
        if state is not None:
            ids = state.ids
            columns = ids.id0, ids.id1, ids.seq, ids.deadline
            for id0, id1, seq, deadline in zip(
                *(column.tolist() for column in columns), strict=True
            ):
                self._known[id0, id1] = seq, deadline

    def __bool__(self) -> bool:
        return bool(self._known)

    def has(self, name: str, seq: int, ts_ms: int) -> bool:
        """Return True if the id was used before the state, and is remembered at a place."""
        raw = name.encode()
        use = self._known.get((hash_bytes(raw, ID_SEED), hash_bytes(raw, KEY_SEED)))
        if use is None:
            return False
        in_time = use[1] > 0 and ts_ms <= use[1]
        return in_time or use[0] > seq - self._window


def released_after(
    history: History, positions: Mapping[int, PartitionState]
) -> Iterator[list[Ordered]]:
    """The released records behind what is covered, in the total order, in batches.

    ``positions``: of each partition, where what is covered ends; empty: at the log's beginning.
    """
    order = LogOrder.resumed(history.partitions, positions)
    starts = {n: positions[n].position if n in positions else 0 for n in history.ends}
    parts = {
        number: history.source.pieces(number, starts[number], end)
        for number, end in history.ends.items()
    }
    unfinished = {number for number, end in history.ends.items() if end > starts[number]}

    def batch(number: int) -> list[LogRecord] | None:
        piece = next(parts[number], None)
        rows = None if piece is None else piece.rows()
        return None if rows is None else [LogRecord(at, ms, value) for at, ms, _, value in rows]

    return order.released(unfinished, batch)


def take_over(oracle: Oracle, state: State) -> None:
    for piece in state.values:
        columns = piece.tag.tolist(), piece.number.tolist(), piece.version.tolist()
        texts = piece.key.tolist(), piece.text.tolist()
        for tag, number, version, key, text in zip(*columns, *texts, strict=True):
            value = str(number).encode() if tag == p.INT else text
            ends = number if tag == p.EXPIRING else None
            oracle.state[key.decode()] = ending(value, ends), version
    oracle.next_seq = state.about.seq + 1
