"""Each invariant of the transaction processor fires when what it is about is damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamydb.errors import InvariantViolation
from streamydb.frames.plans import PlanName
from streamydb.txn_processor import checks
from tests.support.seams import Damage, must_fire


def missing_chunk(name: PlanName, parts: Any, chunks: Any, members: int) -> object:
    return name, parts, [(shard, chunk + 1) for shard, chunk in chunks], members


def missing_shard(_name: PlanName, parts: list[Any], _chunks: Any, members: int) -> None:
    del parts[[len(txns) > 0 for _, txns, _ in parts].index(True) if members else 9]


def slot_of_two_shards(_name: PlanName, parts: list[Any], *_: Any) -> None:
    one, other = parts[0][2].slot, parts[1][2].slot
    one[-1] = other[-1] = max(int(one[-1]), int(other[-1]))


def seq_of_another_plan(name: PlanName, parts: list[Any], *_: Any) -> None:
    parts[0][1].seq[0] = name.first - 1


def value_of_the_future(name: PlanName, parts: list[Any], *_: Any) -> None:
    slots = parts[0][2]
    slots.tag[0], slots.version[0] = 1, name.first


def swapped(_name: PlanName, parts: list[Any], *_: Any) -> None:
    seqs = parts[0][1].seq
    seqs[[0, 1]] = seqs[[1, 0]]


def write_without_transaction(_: Any, outcome: Any, __: Any) -> None:
    outcome.writes["txn"][-1] = len(outcome.txns)


def write_before_the_last(_: Any, outcome: Any, __: Any) -> None:
    outcome.writes["txn"][-1] += 1
    outcome.writes["txn"][0] = outcome.writes["txn"][-1]
    outcome.writes["txn"][1]
    outcome.writes["txn"][-1] = 0


def key_written_twice(_name: Any, outcome: Any, _parts: Any) -> None:
    slots, txns = outcome.writes["slot"], outcome.writes["txn"]
    again = np.flatnonzero((slots[1:] == slots[:-1]) & (txns[1:] > txns[:-1]))[0]
    txns[again] = txns[again + 1]


def lost_write(_name: Any, outcome: Any, _parts: Any) -> None:
    slots = outcome.writes["slot"]
    twice = np.flatnonzero(np.bincount(slots) > 1)[0]
    outcome.writes = np.delete(outcome.writes, np.flatnonzero(slots == twice)[0])


def stale_before(_name: Any, outcome: Any, _parts: Any) -> None:
    outcome.writes["before_tag"][0] = 1 + (outcome.writes["before_tag"][0] == 1)


def wrong_version(_name: Any, outcome: Any, _parts: Any) -> None:
    there = np.flatnonzero(outcome.slots["dirty"] & (outcome.slots["tag"] > 0))
    outcome.slots["version"][there[0]] += 1


def wrong_value(_name: Any, outcome: Any, _parts: Any) -> None:
    there = np.flatnonzero(outcome.slots["dirty"] & (outcome.slots["tag"] == 1))
    outcome.slots["number"][there[0]] += 1


def untold_write(_name: Any, outcome: Any, _parts: Any) -> None:
    outcome.slots["dirty"][np.flatnonzero(outcome.slots["dirty"])[0]] = 0


def stray_read(_name: Any, outcome: Any, _parts: Any) -> None:
    outcome.reads["txn"][-1] = len(outcome.txns)


def lost_feedback(_name: Any, _outcome: Any, chunks: list[Any]) -> None:
    writes = chunks[-1].writes
    writes.tag[0]
    chunks[-1] = chunks[-1]._replace(writes=writes.part(1, len(writes)))


def version_of_another_plan(name: PlanName, _outcome: Any, chunks: list[Any]) -> None:
    writes = chunks[0].writes
    writes.version[np.flatnonzero(writes.tag)[0]] = name.last + 1


def verdict_of_another_plan(name: PlanName, _outcome: Any, chunks: list[Any]) -> None:
    chunks[0].verdicts.seq[0] = name.first - 1


@pytest.mark.parametrize(
    ("check", "damage", "fact"),
    [
        (checks.granted, missing_chunk, "every chunk"),
        (checks.granted, missing_shard, "each transaction is there once"),
        (checks.granted, slot_of_two_shards, "each slot is of one shard"),
        (checks.granted, seq_of_another_plan, "seqs are the plan's"),
        (checks.granted, value_of_the_future, "versions are"),
        (checks.granted, swapped, "seqs are the plan's, each once, in order"),
        (checks.executed, write_without_transaction, "writes are of its transactions"),
        (checks.executed, write_before_the_last, "writes are of its transactions"),
        (checks.executed, key_written_twice, "writes a key once"),
        (checks.executed, lost_write, "what the one before it has left"),
        (checks.executed, stale_before, "what the one before it has left"),
        (checks.executed, wrong_version, "the version of who wrote it"),
        (checks.executed, wrong_value, "what its last write has left"),
        (checks.executed, untold_write, "each slot holds"),
        (checks.executed, stray_read, "reads are of its transactions"),
        (checks.fed, lost_feedback, "each written key is told"),
        (checks.fed, version_of_another_plan, "versions are"),
        (checks.fed, verdict_of_another_plan, "verdicts are of the plan's"),
    ],
)
def test_damaged_grants_or_outcomes_stop_the_batch(check: Any, damage: Damage, fact: str) -> None:
    must_fire(check, damage, f"txn_processor .*{fact}")


def test_shards_that_plan_otherwise_stop_the_batch() -> None:
    one = PlanName(1, "life", 1, 9, "layout")
    checks.one_plan([one, one])
    with pytest.raises(InvariantViolation, match="all shards make one plan"):
        checks.one_plan([one, one._replace(layout="another")])
