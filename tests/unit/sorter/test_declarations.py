"""What writes reads the constraints' key from the first declaration in the order on, not before."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from streamydb.frames.record_rows import TimedRecords
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.sorter.core import KeyedEventTimeSorter
from streamydb.sorter.state import SorterState
from streamydb.verify.oracle.order import LogRecord
from tests.unit.sorter.test_sorter import piece

KEY = "$constraints"
DECLARE = {"constrain": {"declare": {"name": "c", "prefix": "k", "min": 0}}}
PUT = {"updates": [{"op": "put", "key": "k1", "value": 1}]}
ADD = {"updates": [{"op": "add", "key": "k2", "by": 1}, {"op": "delete", "key": "k3"}]}
READ = {"reads": ["k1"]}
OWN = {"reads": [KEY], **PUT}


def sorter(partitions: int = 1) -> KeyedEventTimeSorter:
    return KeyedEventTimeSorter(SorterState(partitions), MemoryBlobs())


def feed(into: KeyedEventTimeSorter, partition: int, first: int, *wanted: dict[str, Any]) -> None:
    records = [
        LogRecord(first + i, 10 + first + i, json.dumps({"id": f"{first + i}", **fields}).encode())
        for i, fields in enumerate(wanted)
    ]
    into.add([piece(partition, records)])


def touched(released: TimedRecords | None) -> list[list[str]]:
    """The keys of each record."""
    assert released is not None
    counts, keys = released.keys
    names = iter(keys.key.tolist())
    return [[next(names).decode() for _ in range(count)] for count in counts.tolist()]


def test_from_the_first_declaration_on_what_writes_reads_the_key() -> None:
    one = sorter()
    feed(one, 0, 0, PUT, READ, OWN)
    assert touched(one.release(100)) == [["k1"], ["k1"], [KEY, "k1"]]
    assert not one.state.declares
    feed(one, 0, 3, ADD, DECLARE, ADD, READ, OWN, DECLARE, PUT)
    assert touched(one.release(100)) == [
        ["k2", "k3"], [KEY], ["k2", "k3", KEY], ["k1"], [KEY, "k1"], [KEY], ["k1", KEY]
    ]  # fmt: skip
    feed(one, 0, 10, PUT, READ)
    assert touched(one.release(100)) == [["k1", KEY], ["k1"]]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_however_releases_are_cut(limit: int) -> None:
    """By a limit, and by what fits: a declaration that stays behind counts when it is released."""
    for count_max in (6, 2):
        one, found = sorter(), []
        feed(one, 0, 0, PUT, ADD, DECLARE, PUT, READ, ADD)
        while (candidates := one.peek(limit)) is not None:
            count = min(len(candidates.records), count_max)
            found += touched(one.take(candidates, count))
        assert found == [["k1"], ["k2", "k3"], [KEY], ["k1", KEY], ["k1"], ["k2", "k3", KEY]]


def test_the_order_counts_not_the_partition() -> None:
    """Of two partitions: what lies behind a declaration in the order reads the key."""
    both = sorter(2)
    feed(both, 1, 0, PUT, PUT, PUT, PUT)
    feed(both, 0, 1, DECLARE, READ, READ, READ)
    assert touched(both.release(100)) == [["k1"], [KEY], ["k1", KEY], ["k1"], ["k1", KEY]]


def test_what_is_given_back_is_released_alike() -> None:
    one = sorter()
    feed(one, 0, 0, DECLARE, PUT)
    released = one.release(100)
    assert released is not None
    one.give_back(released.released(np.arange(1, len(released) + 1)))
    assert touched(one.release(1)) == [[KEY]]
    assert touched(one.release(100)) == [["k1", KEY]]


def test_records_that_were_held_by_an_earlier_release_have_the_key_once() -> None:
    """It gave every write the key when it parsed it, in a database created for constraints."""
    one = sorter()
    one.state.declares = True
    feed(one, 0, 0, PUT)
    released = one.release(100)
    assert released is not None
    one.give_back(released.released(np.arange(1, len(released) + 1)))
    assert touched(one.release(100)) == [["k1", KEY]]
