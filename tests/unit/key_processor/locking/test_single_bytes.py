"""`grouping=single`: what one micro-batch grants, gathers and executes is bounded in bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from streamydb import limits
from streamydb.frames.plans import PlanShape
from streamydb.frames.readers import ToGatherer, ToSingleShard
from streamydb.key_processor.locking.core import SingleShard
from streamydb.key_processor.state import ShardOutput
from streamydb.txn_processor.gathering.core import Gatherer
from tests.unit.key_processor.locking.test_single import Single, txn

BOUND, SIZE = 40_000, 5_000
BIG = [f"big{i}" for i in range(30)]


class Watched:
    """The bytes that each step of a shard grants, and that each step of a gatherer executes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.granted: list[int] = []
        self.blocks: list[int] = []
        self.executed: list[int] = []
        step, executed = SingleShard.step, Gatherer._executed

        def watched(
            shard: SingleShard, messages: Iterable[ToSingleShard]
        ) -> Iterator[ShardOutput[ToGatherer]]:
            found = list(step(shard, messages))
            sizes = [len(each.message.block()) for each in found]
            self.blocks += sizes
            self.granted.append(sum(sizes))
            return iter(found)

        def counted(gatherer: Any, *args: Any) -> Any:
            found = executed(gatherer, *args)
            self.executed.append(sum(txn.size for txn in found))
            return found

        monkeypatch.setattr(SingleShard, "step", watched)
        monkeypatch.setattr(Gatherer, "_executed", counted)


def filled(shards: int) -> Single:
    """A database with large values."""
    db = Single(shards, 1_000, PlanShape(values_bytes_max=BOUND))
    puts = [{"op": "put", "key": key, "value": "x" * SIZE} for key in BIG]
    db.batch([txn(f"w{i}", updates=[put]) for i, put in enumerate(puts)])
    db.settle()
    return db


@pytest.mark.fault(
    37, "grouping=single: 100 transactions read 15 MB, then wait for one key",
    "granted, gathered and executed over many micro-batches; equal to the oracle",
)  # fmt: skip
@pytest.mark.parametrize("shards", [1, 3])
def test_a_micro_batch_is_bounded(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 8_000)
    db, seen = filled(shards), Watched(monkeypatch)
    hot = txn("hot", updates=[{"op": "put", "key": "hot", "value": 1}])
    db.batch([hot, *(txn(f"r{i}", reads=[BIG[i % 30], "hot"]) for i in range(100))])
    db.settle()
    overhead = 100 * 200
    assert max(seen.granted) < BOUND // shards + SIZE + overhead
    assert max(seen.blocks) < 8_000 + SIZE + overhead
    assert max(seen.executed) < BOUND + 2 * SIZE
    assert sum(size > 0 for size in seen.executed) > 10


@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_too_much_for_one_transaction_is_not_even_read(
    shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_VALUES_BYTES_MAX", 2 * SIZE)
    db, seen = filled(shards), Watched(monkeypatch)
    db.batch([txn("over", reads=BIG), txn("fits", reads=BIG[:1])])
    db.settle()
    results = [json.loads(value or b"") for name, _, value in db.written if name == "results"]
    codes = {result["id"]: result["code"] for result in results}
    assert (codes["over"], codes["fits"]) == ("values-too-large", None)
    assert sum(seen.granted) < 4 * SIZE + 5_000


def test_an_executing_partition_gets_so_many_bytes_from_each_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No shard knows what the others send, so each may send all that one transaction may meet."""
    most = 20 * SIZE
    monkeypatch.setattr(limits, "TRANSACTION_VALUES_BYTES_MAX", most)
    db, seen = filled(3), Watched(monkeypatch)
    other = [txn(f"other{i}", reads=[key]) for i, key in enumerate(BIG)]
    db.batch([txn("wide", reads=BIG), *other])
    db.settle()
    results = [json.loads(value or b"") for name, _, value in db.written if name == "results"]
    codes = {result["id"]: result["code"] for result in results}
    assert codes["wide"] == "values-too-large"
    assert {codes[f"other{i}"] for i in range(30)} == {None}
    overhead = 31 * 200
    assert BOUND // 3 + SIZE + overhead < max(seen.granted) < most + overhead
    assert sum(seen.granted[:3]) > most
