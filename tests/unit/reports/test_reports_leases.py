"""What users of locks and leases report, tried here; `tests/reports.md` names the reports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from streamydb.client import CheckFailedError, Client
from streamydb.testing.clients import MemoryHost
from streamydb_layers.errors import LeaseHeldError, LeaseLostError
from streamydb_layers.leases import Leases

TTL_MS = 1_000


@pytest.fixture
def host() -> Iterator[MemoryHost]:
    with MemoryHost() as running:
        running.database.tick_by_record(time.time_ns() // 1_000_000)
        yield running


@pytest.fixture
def client(host: MemoryHost) -> Iterator[Client]:
    with host.connect() as made:
        yield made


def test_one_that_lets_go_again_does_not_end_the_lease_of_the_next(client: Client) -> None:
    """The answer to the first release is lost for good; the holder's name and key are the same."""
    leases = Leases(client, "jobs")
    old = leases.acquire("a", "ann", ttl_ms=TTL_MS)
    assert leases.release(old)
    new = leases.acquire("a", "ann", ttl_ms=TTL_MS)
    assert not leases.release(old)
    with pytest.raises(LeaseLostError):
        leases.renew(old)
    assert leases.holder("a") == "ann"
    assert leases.renew(new).token == new.token > old.token


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_an_answer_that_was_lost_gives_the_lease_once(
    host: MemoryHost, client: Client, lost: int
) -> None:
    leases = Leases(client, "jobs")
    host.faults.lost = lost
    lease = leases.acquire("a", "ann", ttl_ms=TTL_MS)
    host.faults.lost = lost
    assert leases.release(lease)
    assert leases.holder("a") is None


def test_who_was_away_writes_nothing(host: MemoryHost, client: Client) -> None:
    """Two believe that they hold it, after a pause of one: only one writes."""
    leases = Leases(client, "jobs")
    old = leases.acquire("a", "ann", ttl_ms=TTL_MS)
    host.database.now_ms += TTL_MS  # `old.until_s` has not come: that clock stood still
    assert time.monotonic() < old.until_s
    new = leases.acquire("a", "bob", ttl_ms=TTL_MS)
    with pytest.raises(CheckFailedError):
        old.guard(client.atomic().put("x", "ann")).commit()
    new.guard(client.atomic().put("x", "bob")).commit()
    assert client.get("x") == "bob"


def test_a_lease_that_ended_while_one_waited_is_not_given(host: MemoryHost, client: Client) -> None:
    """A lease that is over is over, whoever renews it, and whether or not anybody else came."""
    leases = Leases(client, "jobs")
    lease = leases.acquire("a", "ann", ttl_ms=TTL_MS)
    host.database.now_ms += TTL_MS - 2
    lease = leases.renew(lease)
    host.database.now_ms += TTL_MS
    with pytest.raises(LeaseLostError):
        leases.renew(lease)
    assert leases.holder("a") is None


@pytest.mark.parametrize("jump_ms", [-3_600_000, -1, 0])
def test_a_clock_that_goes_back_ends_and_prolongs_nothing(
    host: MemoryHost, client: Client, jump_ms: int
) -> None:
    database: Any = host.database
    leases = Leases(client, "jobs")
    lease = leases.acquire("a", "ann", ttl_ms=TTL_MS)
    begin_ms = database.now_ms
    database.clock = lambda: begin_ms + jump_ms  # commit times stand still meanwhile
    for _ in range(5):
        with pytest.raises(LeaseHeldError):
            leases.acquire("a", "bob")
    database.clock = lambda: begin_ms + TTL_MS - 1
    with pytest.raises(LeaseHeldError):
        leases.acquire("a", "bob")
    database.clock = lambda: begin_ms + TTL_MS
    assert leases.acquire("a", "bob").token > lease.token


def test_the_changes_tell_who_let_go_and_whose_lease_has_ended(
    host: MemoryHost, client: Client
) -> None:
    leases = Leases(client, "jobs")
    with client.watch("lease/jobs/") as watch:
        leases.release(leases.acquire("a", "ann", ttl_ms=TTL_MS))
        leases.acquire("b", "bob", ttl_ms=TTL_MS)
        host.database.now_ms += TTL_MS
        client.put("other", 1)
        told = [next(watch) for _ in range(4)]
    assert [(each.key[-1], each.op, each.txn_id[:1] == "$") for each in told] == [
        ("a", "c", False), ("a", "d", False), ("b", "c", False), ("b", "d", True),
    ]  # fmt: skip
    assert told[3].before["holder"] == "bob"
