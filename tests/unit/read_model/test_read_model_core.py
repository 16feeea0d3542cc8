"""What a batch of records means, without a store."""

from __future__ import annotations

import math

import pytest
from msgspec import Raw

from streamydb.frames.addresses import bytes_at
from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.read_model.core import (
    PartitionProgress,
    ResolvedPoint,
    Retention,
    TopicProgress,
    plan,
)
from streamydb.read_model.rows import Ints, Row, row_bytes, unpack_row
from streamydb.records import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    encode_change,
    encode_resolved,
)
from streamydb.records import Resolved as ResolvedRecord


def change(offset: int, seq: int, value: bytes) -> OneRecord:
    """A change of the key k in partition 0."""
    source, transaction = ChangeOrigin("streamydb", "bank", 0, 0, seq), ChangeTransaction("t", 1, 1)
    data = encode_change(Change("c", Raw(b"null"), Raw(value), seq, source, transaction))
    return OneRecord(0, offset, b"k", data)


def rows(addresses: Ints) -> list[Row]:
    """What lies at addresses."""
    return [unpack_row(bytes_at(row, int(row_bytes(row)))) for row in addresses.tolist()]


def resolved(offset: int, seq: int) -> OneRecord:
    """A resolved record in partition 0."""
    return OneRecord(0, offset, None, encode_resolved(ResolvedRecord(seq, seq, {"0": seq})))


def test_records_before_the_position_are_left_out_and_do_not_move_it_back() -> None:
    progress = TopicProgress("id", {0: PartitionProgress(6)})
    records = RecordColumns.of([change(4, 1, b"1"), change(6, 2, b"2"), change(5, 3, b"3")])
    batch = plan(records, {}, progress, "bank")
    assert [row.seq for row in rows(batch.rows)] == [2]
    assert batch.progress.parts[0].position == 7
    assert progress.parts[0].position == 6, "what was given is not changed"
    assert plan(RecordColumns.of([]), {0: 3}, progress, "bank").progress == progress


def test_what_comes_after_its_resolved_record_is_only_compared() -> None:
    records = [change(0, 1, b"1"), resolved(1, 1), change(2, 1, b"1"), change(3, 2, b"2")]
    progress = TopicProgress("id", {0: PartitionProgress()})
    batch = plan(RecordColumns.of(records), {}, progress, "bank")
    assert [row.seq for row in rows(batch.rows)] == [1, 2]
    assert rows(batch.repeats) == rows(batch.rows)[:1]


def test_nothing_is_resolved_without_partitions_and_copies_are_apart() -> None:
    assert TopicProgress().resolved() == ResolvedPoint()
    progress = TopicProgress("id", {0: PartitionProgress(1, ResolvedPoint(1, 1, {0: 1}))}, 5)
    copy = progress.copy()
    assert copy == progress
    copy.parts[0].position = 2
    assert progress.parts[0].position == 1


@pytest.mark.parametrize(
    ("seconds", "seqs", "bounds"),
    [(0, 0, (100, 5000)), (2, 30, (70, 3000)), (math.inf, 0, (-1, -1)), (0, math.inf, (-1, -1))],
)
def test_retention_counts_back_from_the_latest(
    seconds: float, seqs: float, bounds: tuple[int, int]
) -> None:
    assert Retention(seconds, seqs).bounds(ResolvedPoint(100, 5000)) == bounds


@pytest.mark.parametrize("wrong", [-1, -0.5, math.nan])
def test_no_retention_is_negative(wrong: float) -> None:
    with pytest.raises(ValueError, match="retention_s must be 0 or more"):
        Retention(wrong, 0)
    with pytest.raises(ValueError, match="retention_seqs must be 0 or more"):
        Retention(0, wrong)
