"""The total order as a function of the whole log: markers, watermark, partitions that join."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.records import Marker, encode_marker
from streamydb.verify.oracle.core import replay
from streamydb.verify.oracle.order import LogRecord, order, released

Log = dict[int, list[LogRecord]]


def log_of(*partitions: list[int | tuple[int, int, int]]) -> Log:
    """A log: an int is a transaction's append time, (append time, number, partitions) a marker."""
    return {
        number: [
            LogRecord(offset, entry, b"%d/%d" % (number, offset))
            if isinstance(entry, int)
            else LogRecord(offset, entry[0], encode_marker(Marker(entry[1], entry[2], "s")))
            for offset, entry in enumerate(entries)
        ]
        for number, entries in enumerate(partitions)
    }


def places(log: Log, initial: int, *, only_released: bool = False) -> list[tuple[int, int, int]]:
    find = released if only_released else order
    return [(record.ts_ms, record.partition, record.offset) for record in find(log, initial)]


def test_one_partition_is_offset_order_and_released_at_once() -> None:
    log = log_of([5, 3, (4, 9, 1), 7, 12])
    expected = [(5, 0, 0), (5, 0, 1), (9, 0, 3), (12, 0, 4)]
    assert places(log, 1) == places(log, 1, only_released=True) == expected


@pytest.mark.fault(8, "equal append times in several partitions", "one order")
def test_ties_are_broken_by_partition_and_offset() -> None:
    assert places(log_of([7, 7], [7, 6, 8]), 2) == [
        (7, 0, 0),
        (7, 0, 1),
        (7, 1, 0),
        (7, 1, 1),
        (8, 1, 2),
    ]


def test_records_below_the_watermark_are_released() -> None:
    log = log_of([1, 2, 9], [2, 3])
    assert places(log, 2, only_released=True) == [(1, 0, 0), (2, 0, 1), (2, 1, 0)]
    assert places(log_of([1, 2], []), 2, only_released=True) == []


def test_a_marker_lifts_a_partition() -> None:
    log = log_of([100, (3, 101, 2)], [1, (4, 101, 2), 5])
    assert places(log, 2) == [(1, 1, 0), (100, 0, 0), (101, 1, 2)]
    assert places(log, 2, only_released=True) == [(1, 1, 0), (100, 0, 0)]


def test_a_later_partition_joins_at_the_first_markers_that_count_it() -> None:
    log = log_of([1, (2, 10, 2), 3, (4, 20, 3), 5], [1, (2, 10, 2), 4, (5, 30, 3), 6], [2, 40, 1])
    assert places(log, 2) == [
        (1, 0, 0),
        (1, 1, 0),
        (10, 0, 2),
        (10, 1, 2),
        (20, 0, 4),
        (30, 1, 4),
        (30, 2, 0),
        (40, 2, 1),
        (40, 2, 2),
    ]
    assert places(log, 2, only_released=True)[-1] == (10, 1, 2)


def test_a_partition_whose_join_is_undecided_is_left_out() -> None:
    log = log_of([1, (2, 10, 3), 11], [1, 20], [2])
    assert places(log, 2) == [(1, 0, 0), (1, 1, 0), (11, 0, 2), (20, 1, 1)]
    assert places(log, 2, only_released=True) == [(1, 0, 0), (1, 1, 0)]


def test_a_partition_that_was_counted_and_is_empty_holds_back_at_its_join() -> None:
    log = log_of([1, (2, 10, 2), 11])
    assert places(log, 1) == [(1, 0, 0), (11, 0, 2)]
    assert places(log, 1, only_released=True) == [(1, 0, 0)]


def test_what_partition_zero_held_while_alone_stays_released() -> None:
    assert places(log_of([10, (2, 10, 2), 10]), 1, only_released=True) == [(10, 0, 0)]


def test_an_invalid_marker_is_a_transaction() -> None:
    bad = LogRecord(0, 5, b'{"marker":-1,"partitions":1,"sequencer":"s"}')
    made = replay({0: [bad]}, database="db", initial_partitions=1)
    assert made.next_seq == 2


ENTRIES = st.lists(
    st.one_of(
        st.integers(0, 6), st.tuples(st.integers(0, 6), st.integers(0, 8), st.integers(1, 4))
    ),
    max_size=6,
)


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.integers(1, 3), st.data())
def test_what_is_released_never_changes_when_the_log_grows(
    partitions: list[list[int | tuple[int, int, int]]], initial: int, data: st.DataObject
) -> None:
    log = log_of(*partitions)
    cuts = [data.draw(st.integers(0, len(entries))) for entries in partitions]
    earlier = {number: log[number][:cut] for number, cut in enumerate(cuts)}
    before = places(earlier, initial, only_released=True)
    assert places(log, initial)[: len(before)] == before
    assert places(earlier, initial)[: len(before)] == before
    assert places(log, initial, only_released=True)[: len(before)] == before
