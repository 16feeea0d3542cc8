"""Calls that are executed one after the other, held against the careful path."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from typing import Any
from unittest import mock

import numpy as np
import pytest

from simulator.procedures import MODULES, Calls
from streamydb import records as r
from streamydb.frames.plans import Life
from streamydb.frames.readers import TO_SHARD
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.parser.core import parse_feedback, parse_transactions
from streamydb.procedures.core import Called, Guesser
from streamydb.procedures.modules import MemoryModules, Modules, compile_module
from streamydb.records.rulings import NO_RULINGS
from streamydb.txn_processor import core
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.outcome import ExecutionOutcome
from streamydb.txn_processor.plain_calls import PlainCalls
from tests.support.seeds import seeds

KEYS = [f"k{i}" for i in range(7)]
SIM = compile_module("sim", next(t for t in MODULES.texts.values() if b"VERSION = 1" in t))
DEPLOY = {
    "deploy": {
        "module": "sim",
        "hash": SIM.hash,
        "procedures": {name: list(args) for name, args in SIM.procedures.items()},
    }
}
_NUMBERS = count()


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

    def __init__(self, modules: Modules = MODULES) -> None:
        self.modules = modules
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
        items = TransactionProcessor(self.config, 1, 1, self.modules, self.rulings).step(granted)
        records = [o.formatted(item, "calls") for item in items]
        fed = [each for each in records if each.topic == o.FEEDBACK]
        self.feedback = [block for each in fed for block in each.values.tolist()]
        return [
            (each.topic, key, value) for each in records
            for key, value in zip(each.keys.tolist(), each.values.tolist(), strict=True)
        ]  # fmt: skip


@pytest.mark.parametrize("seed", range(seeds(30, 6)))
def test_what_is_written_is_what_the_careful_path_writes(seed: int) -> None:
    real = PlainCalls.alone
    taken = []

    def noted(self: PlainCalls, i: int) -> int | None:
        made = real(self, i)
        taken.append(made is not None)
        return made

    assert logged(seed, noted) == logged(seed, lambda _self, _i: None)
    assert sum(taken) > len(taken) // 5
    assert not all(taken)


def test_outputs_are_the_same_if_they_are_given_in_parts() -> None:
    """Each topic has the same records in the same order."""
    given: list[int] = []

    def part(self: o.OutputProgress, outcome: ExecutionOutcome) -> Iterator[o.OutputRows]:
        given.append(outcome.executed)
        yield from PART(self, outcome)

    for seed in range(seeds(30, 12)):
        whole = logged(seed, PlainCalls.alone)
        with (
            mock.patch.object(core, "_PART_CALLS", random.Random(seed).randint(1, 3)),
            mock.patch.object(o.OutputProgress, "part", part),
        ):
            parts = logged(seed, PlainCalls.alone)
        assert by_topic(parts) == by_topic(whole)
    assert len(given) > 30


PART = o.OutputProgress.part


def by_topic(found: list[tuple[int, bytes, bytes]]) -> dict[int, list[tuple[bytes, bytes]]]:
    """The records of each topic, in order."""
    topics: dict[int, list[tuple[bytes, bytes]]] = {}
    for topic, key, value in found:
        topics.setdefault(topic, []).append((key, value))
    return topics


def logged(seed: int, alone: Any) -> list[tuple[int, bytes, bytes]]:
    """All that a random log gives."""
    rng = random.Random(f"plain calls {seed}")
    database = Database()
    calls = Calls(rng, KEYS, 1.0)
    found, number = [], 0
    with mock.patch.object(PlainCalls, "alone", alone):
        for batch in range(6):
            values = []
            for _ in range(rng.choice([1, 5, 40]) if batch else 40):
                parts = calls.parts() if number else DEPLOY
                parts = odd(rng, parts) if number and rng.random() < 0.5 else parts
                values.append(r.canonical({"id": f"t{number}", **parts}))
                number += 1
            found += database.run(values, 1_000 + 100 * batch)
    return found


_PAIR = b"""
def both(db, key, ends):
    seen = db.get(key, 0)
    db.get(ends)
    db.put(key, seen + 1)

def one(db, key):
    db.put(key, db.get(key, 0) + 1)
    return db.get(key)
"""


def test_a_call_sees_what_the_careful_path_has_written_before_it() -> None:
    """The first call is begun here, meets a key that ends, and is executed carefully."""
    modules, module = MemoryModules(), compile_module("pair", _PAIR)
    modules.put(_PAIR)
    database = Database(modules)
    ending = {"op": "put", "key": "ends", "value": 1, "ttl_ms": 10**6}
    database.run([_record({"deploy": module.record}), _record({"updates": [ending]})], 1_000)
    both = {"procedure": "pair.both", "args": {"key": "k", "ends": "ends"}, "keys": ["k", "ends"]}
    one = {"procedure": "pair.one", "args": {"key": "k"}, "keys": ["k"]}
    found = database.run([_record({"call": call}) for call in (both, one, both, one)], 2_000)
    results = [r.decode_value(value) for topic, _, value in found if topic == o.RESULTS]
    assert [result.get("returned") for result in results] == [None, 2, None, 4]


def _record(parts: dict[str, Any]) -> bytes:
    return r.canonical({"id": f"t{next(_NUMBERS)}", **parts})


MOVES = b"""
from streamydb.procedures import Abort

def move(db, source, target, by):
    left = db.get(source, 0)
    if left < by:
        raise Abort(f"{source} has {left}")
    db.put(source, left - by)
    db.put(target, db.get(target, 0) + by)
    return {"left": left - by, "at": db.now, "id": db.id}

def note(db, key, items):
    db.put(key, [])
    for item in items:
        db.append(key, item)
    db.delete(f"k{len(items)}")
    return db.get(key)
"""


def moved(seed: int) -> tuple[list[tuple[int, bytes, bytes]], list[bool]]:
    """All that a random log of calls gives, and which of them guesses have executed."""
    rng = random.Random(f"guessed calls {seed}")
    modules, module = MemoryModules(), compile_module("moves", MOVES)
    digest = modules.put(MOVES)
    database, ended = Database(modules), list[bool]()
    real = Guesser.call

    def noted(self: Guesser, *given: Any) -> Called | None:
        called = real(self, *given)
        ended.append(called is not None)
        return called

    deploy = {"module": "moves", "hash": digest, "procedures": module.procedures}
    found = database.run([r.canonical({"id": "deploy", "deploy": deploy})], 1_000)
    with mock.patch.object(Guesser, "call", noted):
        for batch in range(5):
            values = []
            for place in range(30):
                source, target = rng.sample(KEYS, 2)
                amount = rng.choice([1, 2, 5, -70, 0.5, "t", True, 2**62])
                args = {"source": source, "target": target, "by": amount}
                call = {"procedure": "moves.move", "args": args, "keys": [source, target]}
                if rng.random() < 0.3:
                    items = [rng.randint(0, 9) for _ in range(rng.randint(0, 6))]
                    keys = list(dict.fromkeys([source, f"k{len(items)}"]))
                    noting = {"key": source, "items": items}
                    call = {"procedure": "moves.note", "args": noting, "keys": keys}
                parts = odd(rng, {"call": call}) if rng.random() < 0.1 else {"call": call}
                values.append(r.canonical({"id": f"{batch}-{place}", **parts}))
            found += database.run(values, 2_000 + 100 * batch)
    return found, ended


@pytest.mark.parametrize("seed", range(10))
def test_what_guesses_write_is_what_the_metered_form_writes(seed: int) -> None:
    found, ended = moved(seed)
    assert any(ended)
    assert not all(ended)
    with mock.patch.object(Guesser, "pays", return_value=False):
        assert moved(seed) == (found, [])
