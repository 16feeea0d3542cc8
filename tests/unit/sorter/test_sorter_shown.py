"""What a resolved record shows of partitions is enough for a reader who knows the older ones only.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.key_processor.memory import MemoryBlobs
from streamydb.sorter.core import KeyedEventTimeSorter
from streamydb.sorter.state import SorterState
from streamydb.verify.oracle.order import LogRecord
from tests.unit.sorter.test_sorter import feed, marker, transaction

Place = tuple[int, int]


class Step(NamedTuple):
    """A state of the sorter: what was read, what it shows, and what was released by then."""

    read: dict[int, int]
    shown: dict[int, int]
    released: frozenset[Place]


def grown(rng: random.Random, initial: int) -> dict[int, list[LogRecord]]:
    """A log to which partitions were added; most transactions lie in the newest, and markers
    without transactions between them in the others.
    """
    log: dict[int, list[LogRecord]] = {q: [] for q in range(initial)}
    now = 100
    for i in range(40):
        now += rng.randint(0, 3)
        if rng.random() < 0.1 and len(log) < initial + 2:
            log[len(log)] = []
        if rng.random() < 0.4:
            for records in log.values():
                if rng.random() < 0.9:
                    records.append(LogRecord(len(records), now, marker(now, len(log))))
        if rng.random() < 0.4:
            q = rng.choice([rng.randrange(len(log)), len(log) - 1])
            log[q].append(LogRecord(len(log[q]), now, transaction(f"t{i}")))
    return log


def steps(rng: random.Random, initial: int, log: dict[int, list[LogRecord]]) -> list[Step]:
    """The states of a sorter that reads some of each partition at a time, the last ones late."""
    sorter = KeyedEventTimeSorter(SorterState(initial), MemoryBlobs())
    read, released = dict.fromkeys(log, 0), set[Place]()
    found: list[Step] = []
    while read != {q: len(records) for q, records in log.items()}:
        for q, records in log.items():
            if q >= initial and len(found) < 10 * q:
                continue
            end = min(len(records), read[q] + rng.choice([0, 0, 1, 4]))
            feed(sorter, q, records[read[q] : end])
            read[q] = end
        while (some := sorter.release(1000)) is not None:
            places = zip(some.cols["part"].tolist(), some.cols["off"].tolist(), strict=True)
            released |= set(places)
        found.append(Step(dict(read), sorter.shown(), frozenset(released)))
    return found


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3), st.integers(0, 2**32))
def test_who_knows_the_older_partitions_misses_nothing_that_was_answered(
    initial: int, seed: int
) -> None:
    """As a facade reads: ends of the partitions that it knows, and of those that are shown to it.

    What was released in ``later`` was answered before the ends were looked at. So a state that has
    passed the ends, and shows no other partition, has released all of it.
    """
    rng = random.Random(seed)
    found = steps(rng, initial, grown(rng, initial))
    for later in found:
        for known in range(initial, len(later.read) + 1):
            ends = {q: later.read[q] for q in range(known)}
            for state in found:
                passed = all(state.shown.get(q, 0) >= end for q, end in ends.items())
                if passed and state.shown.keys() <= ends.keys():
                    assert state.released >= later.released
