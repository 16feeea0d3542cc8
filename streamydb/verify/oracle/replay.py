"""Replay a whole log: all that a pipeline makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from streamydb import limits
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records.rulings import NO_RULINGS, Rulings
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.order import LogRecord, Ordered, released
from streamydb.verify.oracle.outputs import OutputRecord


class Replay(NamedTuple):
    """The meaning of a log: its outputs in order, the final state, the seq of the next record."""

    outputs: list[OutputRecord]
    state: dict[str, tuple[bytes, int]]
    next_seq: int


def replay(
    log: Mapping[int, Sequence[LogRecord]],
    *,
    database: str,
    initial_partitions: int,
    id_window: int = limits.ID_WINDOW_DEFAULT,
    rulings: Rulings = NO_RULINGS,
    modules: Modules = NO_MODULES,
) -> Replay:
    """All that a pipeline makes of a log, as it is released (see ``released``)."""
    oracle = Oracle(database, id_window, rulings, modules)
    outputs = list(run(oracle, released(log, initial_partitions)))
    return Replay(outputs, oracle.state, oracle.next_seq)


def run(oracle: Oracle, records: Iterable[Ordered]) -> Iterator[OutputRecord]:
    """The outputs of records in the total order, one by one: for logs too long for a list."""
    for record in records:
        yield from oracle.apply(record.value, record.partition, record.offset, record.ts_ms)
