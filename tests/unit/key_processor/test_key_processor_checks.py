"""Each invariant of the key processor fires when what it is about is damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import Blob
from streamydb.frames.grant_rows import GrantedTransactions, SlotRows
from streamydb.frames.messages import Feedback, Token
from streamydb.frames.plans import OpenPlan
from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.table import ChildRows, Ragged
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor import checks
from streamydb.key_processor.value_store import FileOrder
from streamydb.limits import SHARDS_MAX
from tests.support.seams import Damage, must_fire


def other_shard(told: Feedback | Token, plan: OpenPlan, shard: int, shards: int) -> object:
    if not isinstance(told, Feedback):
        raise IndexError
    return replace(told, shard=shard + 1), plan, shard, shards


def other_partition(told: Feedback | Token, *rest: Any) -> tuple[Any, ...]:
    return replace(told, proc=2 * SHARDS_MAX), *rest


def other_chunk(told: Feedback | Token, *rest: Any) -> tuple[Any, ...]:
    return replace(told, chunk=told.chunks), *rest


def missing_chunk(_: OpenPlan, told: list[Feedback], *__: Any) -> None:
    del told[0]


def block_twice(_: OpenPlan, told: list[Feedback], *__: Any) -> None:
    told.append(told[0])


def key_twice(keys: Ragged, _: FileOrder) -> tuple[Any, ...]:
    more = keys.take(np.array([0, *range(len(keys))]))
    return more, FileOrder.of(more)


def key_of_another_shard(
    plan: OpenPlan, told: Any, writes: WrittenValues, verdicts: Verdicts, at: tuple[int, int]
) -> tuple[Any, ...]:
    if at[1] == 1 or not len(writes):
        raise IndexError
    return plan, told, writes, verdicts, ((at[0] + 1) % at[1], at[1])


def early_version(plan: OpenPlan, _: Any, writes: WrittenValues, *__: Any) -> None:
    writes.version[np.flatnonzero(writes.tag)[0]] = plan.after


def late_version(plan: OpenPlan, _: Any, writes: WrittenValues, *__: Any) -> None:
    writes.version[np.flatnonzero(writes.tag)[0]] = plan.seq + 1


def deleted_with_version(plan: OpenPlan, _: Any, writes: WrittenValues, *__: Any) -> None:
    writes.tag[0], writes.version[0] = 0, plan.seq


def unknown_tag(_: OpenPlan, __: Any, writes: WrittenValues, *___: Any) -> None:
    writes.tag[0] = 4


def large_value(plan: OpenPlan, told: Any, writes: WrittenValues, *rest: Any) -> tuple[Any, ...]:
    texts = writes.text.tolist()
    texts[0] = b"x" * 262_145
    return plan, told, replace(writes, text=Ragged.of(texts)), *rest


def late_verdict(plan: OpenPlan, _: Any, __: Any, verdicts: Verdicts, ___: Any) -> None:
    verdicts.seq[0] = plan.seq + 1


def verdict_twice(
    plan: OpenPlan, told: Any, writes: WrittenValues, verdicts: Verdicts, at: Any
) -> tuple[Any, ...]:
    return plan, told, writes, verdicts.take(np.array([0, *range(len(verdicts))])), at


def empty_verdict(
    plan: OpenPlan, told: Any, writes: WrittenValues, verdicts: Verdicts, at: Any
) -> tuple[Any, ...]:
    results = verdicts.result.tolist()
    results[0] = b""
    return plan, told, writes, replace(verdicts, result=Ragged.of(results)), at


def back_in_time(released: TimedRecords, before: tuple[int, int]) -> tuple[Any, ...]:
    return released, (before[0], int(released.ts_ms[0]) + 1)


def out_of_order(released: TimedRecords, *_rest: Any) -> None:
    for column in (released.offset, released.ts_ms, released.partition):
        column[1] = column[0]


def seq_of_another_plan(plan: OpenPlan, _: int, txns: GrantedTransactions, __: SlotRows) -> None:
    txns.seq[-1] = plan.seq + 1


def seq_twice(_: OpenPlan, __: int, txns: GrantedTransactions, ___: SlotRows) -> None:
    txns.seq[1] = txns.seq[0]


def offset_twice(_: OpenPlan, __: int, txns: GrantedTransactions, ___: SlotRows) -> None:
    for column in (txns.ts_ms, txns.partition, txns.offset):
        column[1] = column[0]


def value_of_the_future(plan: OpenPlan, _: int, __: Any, slots: SlotRows) -> None:
    slots.tag[0], slots.version[0] = 1, plan.after + 1


def slot_twice(_: OpenPlan, __: int, ___: Any, slots: SlotRows) -> None:
    slots.slot[1] = slots.slot[0]


def stray_step(_: OpenPlan, __: int, txns: GrantedTransactions, ___: SlotRows) -> None:
    txns.steps.rows.key[0] = 10_001


def lost_step(
    plan: OpenPlan, chunk: int, txns: GrantedTransactions, slots: SlotRows
) -> tuple[Any, ...]:
    counts, steps = txns.steps
    steps.key[0]
    fewer = ChildRows(counts, steps.part(0, len(steps) - 1))
    return plan, chunk, replace(txns, steps=fewer), slots


def lost_key(
    plan: OpenPlan, chunk: int, txns: GrantedTransactions, slots: SlotRows
) -> tuple[Any, ...]:
    counts, keys = txns.keys
    keys.slot[0]
    fewer = ChildRows(counts, keys.part(0, len(keys) - 1))
    return plan, chunk, replace(txns, keys=fewer), slots


@pytest.mark.parametrize(
    ("check", "damage", "fact"),
    [
        (checks.addressed, other_shard, "for this shard"),
        (checks.addressed, other_partition, "partition of the plan"),
        (checks.addressed, other_chunk, "chunks are numbered"),
        (checks.fed, missing_chunk, "every chunk of every partition"),
        (checks.fed, block_twice, "every chunk of every partition"),
        (checks.written, key_twice, "each key is there once"),
        (checks.fed, key_of_another_shard, "lives here"),
        (checks.fed, early_version, "versions are"),
        (checks.fed, late_version, "versions are"),
        (checks.fed, deleted_with_version, "versions are"),
        (checks.fed, unknown_tag, "versions are"),
        (checks.fed, large_value, "values are within"),
        (checks.fed, late_verdict, "verdicts are of the plan's"),
        (checks.fed, verdict_twice, "each verdict is there once"),
        (checks.fed, empty_verdict, "results are within"),
        (checks.ordered, back_in_time, "time never goes back"),
        (checks.ordered, out_of_order, "total order"),
        (checks.granted, seq_of_another_plan, "seqs are the plan's"),
        (checks.granted, seq_twice, "seqs are the plan's"),
        (checks.granted, offset_twice, "total order"),
        (checks.granted, value_of_the_future, "versions are"),
        (checks.granted, slot_twice, "each slot is there once"),
        (checks.granted, stray_step, "steps are on keys"),
        (checks.granted, lost_step, "add up"),
        (checks.granted, lost_key, "add up"),
    ],
)
def test_damaged_feedback_or_grants_stop_the_batch(check: Any, damage: Damage, fact: str) -> None:
    must_fire(check, damage, f"key_processor .*{fact}")


@pytest.mark.parametrize("alike", [1, 2, 9, 10, 11, 500])
def test_a_key_that_is_there_twice_is_found_however_many_begin_alike(alike: int) -> None:
    keys = [b"%d/12345678/%d" % (i // alike, i % alike) for i in range(500)]
    for row in (0, 1, 250, 499):
        single, double = Ragged.of(keys), Ragged.of([*keys, keys[row]])
        checks.written(single, FileOrder.of(single))
        with pytest.raises(InvariantViolation, match=r"feedback .*each key is there once"):
            checks.written(double, FileOrder.of(double))


def test_nothing_is_resolved_before_it_is_applied() -> None:
    checks.applied(7, 7, in_flight=False)
    for resolved, in_flight in ((8, False), (7, True)):
        with pytest.raises(InvariantViolation, match=r"hands on a resolved seq .*it was applied"):
            checks.applied(resolved, 7, in_flight=in_flight)


def test_no_plan_is_missing_between_two_blobs() -> None:
    blobs = [Blob("a", 9, 1, 4, "x"), Blob("b", 9, 5, 5, "y")]
    checks.indexed(blobs, 5, "y")
    for others, last, digest in ((blobs, 6, "y"), (blobs[1:], 5, "y"), (blobs, 5, "z")):
        with pytest.raises(InvariantViolation, match="index of blobs"):
            checks.indexed(others, last, digest)
