"""Calls that are executed one after the other, held against the careful path."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import numpy as np
import pytest

from simulator.procedures import MODULES, Calls
from streamydb import records as r
from streamydb.columns.plans import Life
from streamydb.columns.readers import TO_SHARD
from streamydb.columns.shards import ShardConfig
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.procedures.modules import compile_module
from streamydb.records.rulings import NO_RULINGS
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.parser import parse_feedback, parse_transactions
from streamydb.txn_processor.plain_calls import PlainCalls

KEYS = [f"k{i}" for i in range(7)]
SIM = compile_module("sim", next(t for t in MODULES.texts.values() if b"VERSION = 1" in t))
DEPLOY = {
    "deploy": {
        "module": "sim",
        "hash": SIM.hash,
        "procedures": {name: list(args) for name, args in SIM.procedures.items()},
    }
}


def odd(rng: random.Random, parts: dict[str, Any]) -> dict[str, Any]:
    """Transactions of other kinds between the calls, and calls that are not plain."""
    kind = rng.random()
    key = rng.choice(KEYS)
    if kind < 0.3:
        by = rng.choice([1, 0.5])
        return {"updates": [{"op": "add", "key": key, "by": by}]}
    if kind < 0.4:
        return {"updates": [{"op": "put", "key": key, "value": rng.choice([{"version": 1}, 7])}]}
    if kind < 0.45:
        return {"updates": [{"op": "put", "key": key, "value": 1, "ttl_ms": rng.randint(1, 40)}]}
    if "call" not in parts:
        return parts
    if kind < 0.5:
        return {**parts, "deadline_ms": 10**15}
    if kind < 0.55:
        return {**parts, "asserts": {key: rng.choice([None, 7])}}
    if kind < 0.6:
        args = {"named": {"prefix": "k"}, "into": key}
        scan = {"procedure": "sim.scan", "args": args, "keys": [key], "ranges": [{"prefix": "k"}]}
        return {"call": scan}
    if kind < 0.7:
        lease = {"procedure": "sim.lease", "args": {"key": key, "ttl": rng.randint(1, 40)}}
        return {"call": {**lease, "keys": [key]}}
    return parts


class Database:
    """One shard in memory: batches of transactions in, all that is written out."""

    def __init__(self) -> None:
        self.config = ShardConfig("calls", "calls", 1, 1, 4)
        self.state = MemoryBlobs(), MemoryValues(), MemoryIdTables()
        self.rulings = NO_RULINGS
        self.feedback: list[bytes] = []
        self.offset = 0

    def run(self, values: list[bytes], ts_ms: int) -> list[tuple[int, bytes, bytes]]:
        n = len(values)
        offsets = np.arange(self.offset, self.offset + n)
        columns = np.zeros(n, np.int32), offsets, ts_ms + np.arange(n)
        self.offset += n
        inputs = [routed.block for routed in parse_feedback(self.feedback, self.config)]
        routed = parse_transactions(*columns, values, 1, rulings=self.rulings)
        inputs += [each.block for each in routed]
        shard = KeyTransactionProcessor(self.config, 0, *self.state, Life("calls"))
        granted = [emitted.message for emitted in shard.step(TO_SHARD.each(inputs))]
        items = TransactionProcessor(self.config, 1, 1, MODULES, self.rulings).step(granted)
        records = [o.formatted(item, "calls") for item in items]
        fed = [each for each in records if each.topic == o.FEEDBACK]
        self.feedback = [block for each in fed for block in each.values.tolist()]
        return [
            (each.topic, key, value) for each in records
            for key, value in zip(each.keys.tolist(), each.values.tolist(), strict=True)
        ]  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_what_is_written_is_what_the_careful_path_writes(seed: int) -> None:
    real = PlainCalls.alone
    taken = []

    def count(self: PlainCalls, i: int) -> int | None:
        made = real(self, i)
        taken.append(made is not None)
        return made

    assert logged(seed, count) == logged(seed, lambda _self, _i: None)
    assert sum(taken) > len(taken) // 5
    assert not all(taken)


def logged(seed: int, alone: Any) -> list[tuple[int, bytes, bytes]]:
    """All that a random log gives."""
    rng = random.Random(f"plain calls {seed}")
    database = Database()
    calls = Calls(rng, KEYS, 1.0)
    found, number = [], 0
    with mock.patch.object(PlainCalls, "alone", alone):
        for batch in range(6):
            values = []
            for _ in range(rng.choice([1, 5, 40])):
                parts = calls.parts() if number else DEPLOY
                parts = odd(rng, parts) if number and rng.random() < 0.5 else parts
                values.append(r.canonical({"id": f"t{number}", **parts}))
                number += 1
            found += database.run(values, 1_000 + 100 * batch)
    return found
