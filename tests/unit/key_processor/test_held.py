"""State that is held as objects: the same outputs as from blobs, and little work for a group."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
import numpy as np
import pytest

from simulator.gear_bases import _Ids, _Values
from streamydb.errors import InvariantViolation
from streamydb.frames.messages import Feedback
from streamydb.frames.plans import Life
from streamydb.frames.readers import ToShard
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.base import decode_base
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.id_rows import UsedIds
from streamydb.key_processor.memory import (
    HeldBlobs,
    MemoryBlobs,
    MemoryIdTables,
    MemoryValues,
    table_of,
)
from streamydb.parser.core import parse_transactions
from streamydb.pipeline.realtime.core import OpenBase, RealTimeShard, Surroundings, TailRecord
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.outputs import ShardMessage, formatted

_CONFIG = ShardConfig("bank", "x" * 16, 1, 1, 1_000_000)
_CALLS_MAX = 2_700
"""Of Python and C, for a group of five transfers; 3,700 before it had fast exits."""


def _record(rng: random.Random, number: int) -> bytes:
    keys = rng.sample(range(20), 2)
    updates = [
        {"op": "add", "key": f"a{key}", "by": by} for key, by in zip(keys, (-1, 1), strict=True)
    ]
    if not number % 7:
        updates = [{"op": "append", "key": "text", "value": ["x" * rng.randrange(50)]}]
    again = max(0, number - 5) if not number % 11 else number
    return msgspec.json.encode({"id": f"id{again}", "updates": updates})


class _Shard:
    """One shard over some blobs, which executes group after group."""

    def __init__(self, blobs: MemoryBlobs) -> None:
        self.blobs, self.values, self.tables = blobs, MemoryValues(), MemoryIdTables()
        self.position = 0

    def group(self, values: Sequence[bytes]) -> list[bytes]:
        """Execute some records; return the bytes of all outputs."""
        n, first = len(values), self.position
        self.position += n
        partitions, times = np.zeros(n, np.int32), np.full(n, 1_000)
        routed = parse_transactions(partitions, np.arange(first, first + n), times, values, 1)
        messages: Iterable[ToShard] = [each.message for each in routed]
        found: list[bytes] = []
        processor = TransactionProcessor(_CONFIG, 1, 1)
        while messages:
            shard = KeyTransactionProcessor(
                _CONFIG, 0, self.blobs, self.values, self.tables, Life("life")
            )
            granted = [each.message for each in shard.step(messages)]
            fed: list[Feedback] = []
            for item in processor.step(granted):
                records = formatted(item, "bank")
                found += [*records.keys.tolist(), *records.values.tolist()]
                if isinstance(item, ShardMessage) and isinstance(item.message, Feedback):
                    fed.append(item.message)
            messages = fed
        return found


@pytest.mark.parametrize("seed", range(4))
def test_state_that_is_held_leads_to_the_same_bytes(seed: int) -> None:
    """Random groups, with texts, aborts and repeated ids."""
    rng = random.Random(seed)
    held, packed = _Shard(HeldBlobs()), _Shard(MemoryBlobs())
    number = 0
    for _ in range(30):
        group = [_record(rng, number + i) for i in range(rng.randrange(1, 12))]
        number += len(group)
        outputs = packed.group(group)
        assert outputs
        assert held.group(group) == outputs
    assert held.values.data == packed.values.data


def test_a_table_that_is_not_held_is_missing() -> None:
    with pytest.raises(InvariantViolation, match="ids/1 is missing"):
        table_of(HeldBlobs(), "ids/1", UsedIds)


def _gear() -> RealTimeShard:
    """The real-time gear over a base of some records."""
    shard = _Shard(MemoryBlobs())
    shard.group([_record(random.Random(0), i) for i in range(1, 7)])
    opened = OpenBase(
        decode_base(shard.values.base or b""),
        _Values(dict(shard.values.data)),
        _Ids([table.copy() for table in shard.tables.tables.values()]),
    )
    own = msgspec.structs.replace(_CONFIG, incarnation="y" * 16)
    gear = RealTimeShard(Surroundings(own, Life("rt"), 1), opened)
    gear.play(leads=True, covered=gear.seq)
    return gear


def _calls_of(work: Callable[[], object]) -> int:
    count = 0

    def called(_frame: object, event: str, _of: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_small_group_costs_few_calls() -> None:
    """Fixed costs are the costs of a group of five; they are paid a hundred times a second."""
    gear = _gear()
    transfer = (
        b'{"id":"t%d","updates":[{"op":"add","key":"a%d","by":-1},{"op":"add","key":"a%d","by":1}]}'
    )

    def group(start: int) -> list[TailRecord]:
        numbers = range(start, start + 5)
        return [TailRecord(i, 2_000, transfer % (i, i, i + 1)) for i in numbers]

    first = gear.position
    for at in range(4):  # names are found, and tables are made
        gear.take(group(first + 5 * at))
    found = [_calls_of(partial(gear.take, group(first + 5 * at))) for at in range(4, 20)]
    assert sorted(found)[len(found) // 2] < _CALLS_MAX, found
