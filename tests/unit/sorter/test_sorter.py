"""The sorter against the total order of the whole log, and what the simulator once found."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.errors import InvariantViolation
from streamydb.frames.record_rows import CompiledRecords
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.parser.compile import compile_records
from streamydb.sorter.core import KeyedEventTimeSorter
from streamydb.sorter.state import SorterState
from streamydb.verify.check.logorder import LogOrder
from streamydb.verify.oracle.order import LogRecord, Ordered, released
from tests.support.seeds import seeds


def feed(sorter: KeyedEventTimeSorter, partition: int, records: list[LogRecord]) -> None:
    if records:
        sorter.add([piece(partition, records)])


def piece(partition: int, records: list[LogRecord]) -> CompiledRecords:
    return compile_records(
        np.full(len(records), partition, np.int32),
        np.array([r.offset for r in records], np.int64),
        np.array([r.append_ms for r in records], np.int64),
        [r.value for r in records],
    )


def transaction(name: str) -> bytes:
    return json.dumps({"id": name}).encode()


def marker(number: int, partitions: int) -> bytes:
    return json.dumps({"marker": number, "partitions": partitions, "sequencer": "s"}).encode()


def test_a_partition_that_has_not_joined_is_held_back() -> None:
    """The simulator's seed 47: with one known partition everything was released at once."""
    sorter = KeyedEventTimeSorter(SorterState(1), MemoryBlobs())
    feed(sorter, 1, [LogRecord(0, 5, transaction("late"))])
    assert sorter.release(100) is None
    feed(sorter, 0, [LogRecord(0, 7, transaction("early"))])
    found = sorter.release(100)
    assert found is not None
    assert found.partition.tolist() == [0]


def test_a_record_that_is_read_twice_stops_everything() -> None:
    sorter = KeyedEventTimeSorter(SorterState(1), MemoryBlobs())
    feed(sorter, 0, [LogRecord(4, 5, transaction("a"))])
    with pytest.raises(InvariantViolation, match="read twice"):
        feed(sorter, 0, [LogRecord(4, 5, transaction("a"))])


def test_what_nobody_has_asked_for_yet_is_not_covered() -> None:
    """A follower at its leader's end takes records, and releases none."""
    sorter = KeyedEventTimeSorter(SorterState(1), MemoryBlobs())
    feed(sorter, 0, [LogRecord(0, 5, transaction("a"))])
    feed(sorter, 0, [LogRecord(3, 6, transaction("b")), LogRecord(4, 7, transaction("c"))])
    assert sorter.covered() == {0: 0}
    assert sorter.release(1) is not None
    assert sorter.covered() == {0: 3}


@pytest.mark.fault(8, "the same log in micro-batches of all sizes", "one order")
@pytest.mark.parametrize("seed", range(seeds(60, 20)))
def test_any_batching_gives_the_total_order(seed: int) -> None:
    rng = random.Random(seed)
    initial = rng.randint(1, 4)
    log: dict[int, list[LogRecord]] = {q: [] for q in range(initial)}
    number = 100
    for i in range(120):
        if rng.random() < 0.03 and len(log) < 6:
            log[len(log)] = []
        if rng.random() < 0.15 and len(log) > 1:
            number = max([number, *(r.append_ms for rs in log.values() for r in rs)]) + 1
            for records in log.values():
                if rng.random() < 0.9:
                    records.append(LogRecord(len(records), number, marker(number, len(log))))
        q = rng.randrange(len(log))
        stamp = max(0, number + rng.randint(-30, 5))
        log[q].append(LogRecord(len(log[q]), stamp, transaction(f"t{i}")))
    blobs, state = MemoryBlobs(), SorterState(initial)
    read = dict.fromkeys(log, 0)
    got: list[tuple[int, int, int]] = []
    settled = 0
    while True:
        sorter = KeyedEventTimeSorter(state, blobs)
        for q, records in log.items():
            end = rng.randint(read[q], len(records)) if rng.random() < 0.9 else len(records)
            feed(sorter, q, records[read[q] : end])
            read[q] = end
        found = sorter.release(rng.choice([3, 20, 1000]))
        sorter.save()
        if found is not None:
            places = found.ts_ms, found.partition, found.offset
            columns = (column.tolist() for column in places)
            got += list(zip(*columns, strict=True))
        elif all(read[q] == len(records) for q, records in log.items()):
            settled += 1
            if settled == 2:
                break
    assert got == [record[:3] for record in released(log, initial)]


_STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 5), st.integers(-5, 5)),
    st.tuples(st.just("round"), st.integers(0, 63), st.integers(-3, 20)),
    st.tuples(st.just("grow"), st.just(0), st.just(0)),
)


@settings(max_examples=seeds(100))
@given(st.integers(1, 3), st.lists(_STEPS, max_size=40))
def test_all_three_release_alike_while_partitions_are_half_announced(
    initial: int, steps: list[tuple[str, int, int]]
) -> None:
    """Record by record; a round of markers reaches some of the partitions only."""
    log: dict[int, list[LogRecord]] = {q: [] for q in range(initial)}
    sorter = KeyedEventTimeSorter(SorterState(initial), MemoryBlobs())
    now, got = 100, set[tuple[int, int, int]]()

    def append(q: int, stamp: int, value: bytes) -> None:
        log[q].append(LogRecord(len(log[q]), stamp, value))
        feed(sorter, q, log[q][-1:])
        while (found := sorter.release(1000)) is not None:
            places = found.ts_ms, found.partition, found.offset
            columns = (column.tolist() for column in places)
            got.update(zip(*columns, strict=True))

    for kind, which, change in steps:
        if kind == "grow" and len(log) < 6:
            log[len(log)] = []
        elif kind == "append":
            append(which % len(log), now + change, transaction(f"t{now}"))
        elif kind == "round":
            now += max(0, change)
            for q in log:
                if which >> q & 1:
                    append(q, now, marker(now + min(0, change), len(log)))
        expected = [record[:3] for record in released(log, initial)]
        assert sorted(got) == expected
        assert [record[:3] for record in streamed(log, initial)] == expected


def streamed(log: dict[int, list[LogRecord]], initial: int) -> list[Ordered]:
    """As `streamydb check` orders a log."""
    found, unfinished = LogOrder(initial), set(log)
    taken: list[Ordered] = []
    while (number := found.hungriest(unfinished)) is not None:
        unfinished.remove(number)
        found.feed(number, log[number])
        taken += found.take()
    return taken


def test_pieces_of_a_partition_come_in_any_order() -> None:
    """On a cluster, a shard gets what its own machine read first, whatever its offsets."""
    rng = random.Random(3)
    log = [LogRecord(i, 5, transaction(str(i))) for i in range(30)]
    sorter = KeyedEventTimeSorter(SorterState(1), MemoryBlobs())
    pieces = [piece(0, log[start : start + 10]) for start in (0, 10, 20)]
    rng.shuffle(pieces)
    assert pieces[0].offset[0] > 0
    sorter.add(pieces)
    found = sorter.release(100)
    assert found is not None
    assert found.offset.tolist() == list(range(30))
