"""Outputs that are given while later calls are executed, and the versions that calls see."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest

from streamydb import records as r
from streamydb.errors import InvariantViolation
from streamydb.frames.messages import Grant
from streamydb.frames.plans import Life
from streamydb.frames.readers import TO_SHARD
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.parser.core import parse_feedback, parse_transactions
from streamydb.procedures.modules import MemoryModules, Module, compile_module
from streamydb.records.rulings import UnruledFaults
from streamydb.txn_processor import checks, core, interpreter
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.plain_calls import PlainCalls
from tests.support.seeds import seeds
from tests.unit.txn_processor.test_plain_calls import Database, by_topic

KEYS = [f"k{i}" for i in range(8)]
TEXT = b"""
def change(db, does):
    seen = []
    for key, what, ttl in does:
        if what == "put":
            db.put(key, [key], ttl_ms=ttl)
        elif what == "delete":
            db.delete(key)
        elif what == "touch":
            db.touch(key)
        elif what == "version":
            seen.append(db.version(key))
        else:
            seen.append(db.get(key))
    return seen
"""


class Calls:
    """A database in which procedures change and look at keys."""

    def __init__(self) -> None:
        self.modules = MemoryModules()
        self.module: Module = compile_module("parts", TEXT)
        self.modules.put(TEXT)
        self.database = Database(self.modules)
        self.database.run([r.canonical({"id": "deploy", "deploy": self.module.record})], 1_000)

    def run(self, *transactions: dict[str, Any]) -> list[tuple[int, bytes, bytes]]:
        """All that a batch of transactions gives."""
        first = self.database.offset
        named = [{"id": f"t{first + i}", **each} for i, each in enumerate(transactions)]
        return self.database.run(list(map(r.canonical, named)), 1_000 + 10 * first)


def change(*does: tuple[str, str, int | None]) -> dict[str, Any]:
    """A call: of each key, what it does with it."""
    keys = list(dict.fromkeys(key for key, *_ in does))
    args = {"does": [list(each) for each in does]}
    return {"call": {"procedure": "parts.change", "args": args, "keys": keys}}


def history(seed: int) -> list[tuple[int, bytes, bytes]]:
    """All that random calls give, with kernel's transactions between some of them."""
    rng = random.Random(f"call parts {seed}")
    calls, found = Calls(), []
    for _ in range(4):
        batch = []
        ending = rng.random() < 0.5
        for _ in range(rng.choice([5, 40])):
            does = [
                (
                    rng.choice(KEYS),
                    rng.choice(["put", "put", "delete", "touch", "version", "get"]),
                    rng.randint(1, 90) if ending and rng.random() < 0.05 else None,
                )
                for _ in range(rng.choice([1, 3, 25]))
            ]
            failing = {"op": "add", "key": rng.choice(KEYS), "by": 1, "max": 0}
            plain = {"updates": [failing]} if rng.random() < 0.5 else {"reads": [rng.choice(KEYS)]}
            batch.append(change(*does) if rng.random() < 0.9 else plain)
        found += calls.run(*batch)
    return found


@pytest.mark.parametrize("seed", range(seeds(40, 10)))
def test_calls_see_the_versions_that_the_careful_path_sees(seed: int) -> None:
    whole = history(seed)
    with mock.patch.object(PlainCalls, "alone", return_value=None):
        assert history(seed) == whole
    with mock.patch.object(core, "_PART_CALLS", 1 + seed % 3):
        assert by_topic(history(seed)) == by_topic(whole)


def given(calls: Calls, *transactions: dict[str, Any], silent: bool = False) -> list[o.Output]:
    """What is given out of one batch, with parts of two calls, up to the error that ends it."""
    database, n = calls.database, len(transactions)
    named = [r.canonical({"id": f"t{i}", **each}) for i, each in enumerate(transactions)]
    columns = np.zeros(n, np.int32), np.arange(1, n + 1), 2_000 + np.arange(n)
    inputs = [each.block for each in parse_feedback(database.feedback, database.config)]
    inputs += [each.block for each in parse_transactions(*columns, named, 1)]
    shard = KeyTransactionProcessor(database.config, 0, *database.state, Life("parts"))
    granted = [emitted.message for emitted in shard.step(TO_SHARD.each(inputs))]
    grants = [each for each in granted if isinstance(each, Grant)]
    if silent:
        grants = [msgspec.structs.replace(grant, silent=True) for grant in grants]
    found: list[o.Output] = []
    processor = TransactionProcessor(database.config, 1, 1, calls.modules)
    with mock.patch.object(core, "_PART_CALLS", 2), suppress(UnruledFaults, InvariantViolation):
        found.extend(each for each in processor.step(grants))
    return found


def kinds(found: list[o.Output]) -> list[tuple[int, int]]:
    """The topic of each output, and how many records it has."""
    return [(each.topic, len(o.formatted(each, "calls").values)) for each in found]


def test_results_come_with_the_next_part() -> None:
    put = change(("k1", "put", None))
    outputs = given(Calls(), *[put] * 5)
    whole = [(o.CHANGES, 2), (o.RESULTS, 2), (o.CHANGES, 2), (o.CHANGES, 1), (o.RESULTS, 3)]
    assert kinds(outputs) == [*whole, (o.FEEDBACK, 1)]


def test_what_the_kernel_aborts_is_aborted_in_a_part() -> None:
    failing = {"updates": [{"op": "add", "key": "k1", "by": 1, "max": 0}]}
    outputs = given(Calls(), failing, *[change(("k2", "put", None))] * 6)
    results = [each for each in outputs if each.topic == o.RESULTS]
    assert len(results) > 1
    first = r.decode_value(o.formatted(results[0], "calls").values[0])
    assert (first["status"], first["code"]) == ("aborted", "bound-violated")


def test_a_plan_that_is_silent_gives_feedback_alone() -> None:
    outputs = given(Calls(), *[change(("k1", "put", None))] * 5, silent=True)
    assert kinds(outputs) == [(o.FEEDBACK, 1)]


def test_nothing_is_given_from_a_fault_on() -> None:
    """The second call fails; the first part would have both."""
    real, calls = PlainCalls.alone, Calls()

    def failing(self: PlainCalls, i: int) -> int | None:
        return None if self.id_of(i) == b"t1" else real(self, i)

    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError

    with (
        mock.patch.object(PlainCalls, "alone", failing),
        mock.patch.object(interpreter, "execute", broken),
    ):
        assert given(calls, *[change(("k1", "put", None))] * 7) == []


def test_a_part_is_checked_before_it_is_given() -> None:
    calls = Calls()
    with mock.patch.object(checks, "executed", side_effect=InvariantViolation("broken")):
        assert given(calls, *[change(("k1", "put", None))] * 5) == []
