"""The last record read, known again by its hash: what a shard keeps, and when a start refuses."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamydb.backup.pieces import Piece, advance
from streamydb.errors import InvariantViolation
from streamydb.frames.plans import Life
from streamydb.frames.record_rows import LastRead
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Ragged
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.locking.core import SingleShard
from streamydb.key_processor.locking.state import SingleMeta
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.key_processor.state import ShardState, load
from streamydb.parser.core import parse_transactions
from streamydb.parser.last_reads import last_reads, mark_of
from streamydb.sorter.state import LogEnd, PartitionState


def test_the_highest_offset_of_each_partition_counts() -> None:
    rng = random.Random(1)
    for _ in range(50):
        rows = [(q, o) for q in range(3) for o in rng.sample(range(100), rng.randint(0, 4))]
        if rng.random() < 0.5:
            rng.shuffle(rows)
        values = [b"%d/%d" % row if rng.random() < 0.8 else None for row in rows]
        partitions = np.array([q for q, _ in rows], np.int32)
        offsets = np.array([o for _, o in rows], np.int64)
        found = last_reads(partitions, offsets, offsets * 2, values)
        expected = {}
        for row, value in sorted(zip(rows, values, strict=True), key=lambda item: item[0]):
            expected[row[0]] = LastRead(*row, row[1] * 2, mark_of(value))
        assert {each.partition: each for each in found} == expected
        ragged = Ragged.of([value or b"" for value in values])
        assert last_reads(partitions, offsets, offsets * 2, ragged) == found


@pytest.mark.parametrize("grouping", ["planner", "single"])
def test_a_shard_keeps_it_and_refuses_another(grouping: str) -> None:
    config = ShardConfig("bank", "i", 1, 1, 100, grouping)
    kind = SingleShard if grouping == "single" else KeyTransactionProcessor
    blobs, life = MemoryBlobs(), Life("a")

    def shard() -> KeyTransactionProcessor | SingleShard:
        return kind(config, 0, blobs, MemoryValues(), MemoryIdTables(), life)

    values = [b'{"id": "a"}', b"not a transaction"]
    routed = parse_transactions(
        np.zeros(2, np.int32),
        np.array([3, 5]),
        np.array([70, 60]),
        values,
        1,
        whole=grouping == "single",
    )
    list(shard().step([each.message for each in routed]))
    data = blobs.get("meta") or b""
    meta = load(SingleMeta if grouping == "single" else ShardState, data)
    state = meta.sorter.partitions[0]
    assert (state.position, state.stamp, state.mark) == (6, 60, mark_of(values[1]))

    same = LogEnd(6, 5, 60, mark_of(values[1]))
    shard().require_log({0: same, 1: LogEnd(3, 2, 1, "unread")})
    shard().require_log({0: same._replace(end=8)})
    shard().require_log({0: LogEnd(5, 4, 1, "the shard has read past it")})
    for other in (
        same._replace(mark=mark_of(b"x")),
        same._replace(append_ms=61),
        same._replace(offset=4),
        LogEnd(6, -1, -1, ""),
        LogEnd(8, 7, 90, mark_of(b"x")),
    ):
        with pytest.raises(InvariantViolation, match="The end of the log is lost"):
            shard().require_log({0: other})


def test_a_state_of_an_earlier_release_is_not_judged() -> None:
    LogEnd(6, 5, 60, "mark").require(0, PartitionState(60, 6, []))
    LogEnd(6, 5, 60, "mark").require(0, None)


def test_a_backup_keeps_it_too() -> None:
    piece = Piece(0, np.array([3, 5]), np.array([70, 60]), [None, None], [b"a", None])
    found = advance(PartitionState(), piece)
    assert found == PartitionState(70, 6, [], 60, mark_of(None))


@pytest.mark.parametrize("grouping", ["planner", "single"])
def test_feedback_that_never_comes_stops_the_shard(grouping: str) -> None:
    config = ShardConfig("bank", "i", 1, 1, 100, grouping)
    kind = SingleShard if grouping == "single" else KeyTransactionProcessor
    blobs, life = MemoryBlobs(), Life("a")

    def step(offset: int) -> None:
        value, single = b'{"id": "%d"}' % offset, grouping == "single"
        routed = parse_transactions(
            np.zeros(1, np.int32), np.array([offset]), np.array([1]), [value], 1, whole=single
        )
        shard = kind(config, 0, blobs, MemoryValues(), MemoryIdTables(), life)
        list(shard.step([each.message for each in routed]))

    for offset in range(51):
        step(offset)
    with pytest.raises(InvariantViolation, match=r"after seq 0 has not .* `streamydb rebuild`"):
        step(51)
