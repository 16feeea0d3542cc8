"""Each invariant of an executing partition of `grouping=single` fires when its input is damaged."""

from __future__ import annotations

from typing import Any

import pytest

from streamydb.frames.lock_messages import Granted, Payload
from streamydb.key_processor.locking.messages import is_id_lock
from streamydb.txn_processor.gathering import checks
from streamydb.txn_processor.gathering.execution import Finished
from tests.support.seams import Damage, must_fire


def granted_twice(_payloads: Any, grants: list[Granted], *_: Any) -> None:
    grants.append(grants[0])


def payload_twice(payloads: list[Payload], *_: Any) -> None:
    payloads.insert(0, payloads[0])


def value_of_the_future(_payloads: Any, grants: list[Granted], *_: Any) -> None:
    grants[0].version = grants[0].seq


def absent_with_version(_payloads: Any, grants: list[Granted], *_: Any) -> None:
    grants[0].value, grants[0].version = None, grants[0].seq - 1
    if grants[0].seq == 1:
        raise IndexError


def large_value(_payloads: Any, grants: list[Granted], *_: Any) -> None:
    keys = [grant for grant in grants if not is_id_lock(grant.lock)]
    keys[0].value = b"x" * 262_145


def finished_backwards(txns: list[Finished]) -> None:
    txns[0], txns[1] = txns[1], txns[0]


def released_twice(txns: list[Finished]) -> None:
    rows = next(iter(txns[0].releases.values()))
    rows.append(rows[0])


def released_for_another(txns: list[Finished]) -> None:
    next(iter(txns[0].releases.values()))[0].seq += 1


@pytest.mark.parametrize(
    ("check", "damage", "fact"),
    [
        (checks.gathered, granted_twice, "granted once"),
        (checks.gathered, payload_twice, "payloads are in order"),
        (checks.gathered, value_of_the_future, "values are from before"),
        (checks.gathered, absent_with_version, "values are from before"),
        (checks.gathered, large_value, "values are within"),
        (checks.finished, finished_backwards, "transactions are in order"),
        (checks.finished, released_twice, "comes back once"),
        (checks.finished, released_for_another, "comes back once"),
    ],
)
def test_damaged_messages_stop_the_batch(check: Any, damage: Damage, fact: str) -> None:
    must_fire(check, damage, f"txn_processor/gathering .*{fact}", "single")
