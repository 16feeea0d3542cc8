"""Each invariant of `grouping=single` fires when what it is about is damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamydb.frames.lock_messages import Granted, Payload, Released
from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.locking import checks
from streamydb.key_processor.locking.messages import is_id_lock
from streamydb.key_processor.locking.state import SingleMeta
from tests.support.seams import Damage, must_fire


def back_in_time(released: TimedRecords, meta: SingleMeta) -> None:
    meta.unresolved.clear()
    meta.resolved_ts = int(released.ts_ms[0]) + 1


def swapped(released: TimedRecords, meta: SingleMeta) -> tuple[Any, ...]:
    return released.take(np.array([1, 0])), meta


def key_twice(meta: SingleMeta, shard: int, writes: WrittenValues, verdicts: Verdicts) -> object:
    return meta, shard, writes.take(np.array([0, *range(len(writes))])), verdicts


def key_of_another_shard(
    meta: SingleMeta, shard: int, writes: WrittenValues, verdicts: Verdicts
) -> object:
    if meta.config.shards == 1 or not len(writes):
        raise IndexError
    return meta, (shard + 1) % meta.config.shards, writes, verdicts


def lock_of_another_shard(rows: list[Released], shard: int, shards: int) -> tuple[Any, ...]:
    [row for row in rows if not is_id_lock(row.lock)][0]  # noqa: RUF015 - there is one
    return rows, (shard + 1) % max(shards, 2), max(shards, 2)


def resolved_before(meta: SingleMeta, _: int, writes: WrittenValues, __: Verdicts) -> None:
    meta.resolved = int(writes.version[np.flatnonzero(writes.tag)[0]])


def verdict_of_the_future(meta: SingleMeta, _: int, __: Any, verdicts: Verdicts) -> None:
    verdicts.seq[0] = meta.seq + 1


def grant_of_the_future(_payloads: Any, grants: list[Granted], meta: SingleMeta) -> None:
    grants[0].seq = meta.seq + 1


def payload_of_the_past(payloads: list[Payload], _grants: Any, meta: SingleMeta) -> None:
    payloads[0].seq = meta.resolved


def granted_twice(_payloads: Any, grants: list[Granted], *_: Any) -> None:
    grants.append(grants[0])


def lost_transaction(meta: SingleMeta) -> None:
    meta.unresolved.pop()


@pytest.mark.parametrize(
    ("check", "damage", "fact"),
    [
        (checks.ordered, back_in_time, "time never goes back"),
        (checks.ordered, swapped, "total order"),
        (checks.addressed, lock_of_another_shard, "they live here"),
        (checks.released, key_twice, "each key is there once"),
        (checks.released, key_of_another_shard, "lives here"),
        (checks.released, resolved_before, "versions are"),
        (checks.released, verdict_of_the_future, "verdicts are"),
        (checks.sent, grant_of_the_future, "unresolved"),
        (checks.sent, payload_of_the_past, "unresolved"),
        (checks.sent, granted_twice, "granted once"),
        (checks.counted, lost_transaction, "seqs add up"),
    ],
)
def test_damaged_messages_stop_the_batch(check: Any, damage: Damage, fact: str) -> None:
    must_fire(check, damage, f"key_processor/locking .*{fact}", "single")
