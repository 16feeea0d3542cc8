"""Leases: one holder at a commit time, greater tokens for later holders, on either client."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from streamydb.client import CheckFailedError, Client, View
from streamydb.facade.auth import Caller, Tokens
from streamydb.testing.clients import MemoryHost
from streamydb.testing.database import wait_for
from streamydb_layers.errors import (
    InvalidArgumentError,
    InvalidNameError,
    LeaseHeldError,
    LeaseLostError,
)
from streamydb_layers.leases import TTL_MS_MAX, Lease, Leases
from tests.support.layers import DRIVERS, QUICK, layer, together


@pytest.fixture
def host() -> Iterator[MemoryHost]:
    with MemoryHost() as running:
        running.database.tick_by_record(time.time_ns() // 1_000_000)
        yield running


@pytest.fixture(params=DRIVERS)
def leases(host: MemoryHost, request: pytest.FixtureRequest) -> Any:
    return layer(host, request.param, "leases", "jobs")


def passes(host: MemoryHost, ms: int) -> None:
    """Let commit time pass; nobody sends anything."""
    host.database.now_ms += ms


def test_one_holds_a_lease_until_it_ends(host: MemoryHost, leases: Any) -> None:
    first = leases.acquire("a", "ann", ttl_ms=1_000)
    assert (first.key, first.holder, leases.holder("a")) == ("lease/jobs/a", "ann", "ann")
    for _ in range(2):
        with pytest.raises(LeaseHeldError, match="'ann'") as refused:
            leases.acquire("a", "ann")  # nobody twice, either
        assert refused.value.holder == "ann"
    other = leases.acquire("b", "bob")
    passes(host, 900)
    kept = leases.renew(first)
    assert (kept.token, kept.value) == (first.token, first.value)
    passes(host, 900)
    assert leases.holder("a") == "ann"
    passes(host, 200)
    later = leases.acquire("a", "ann", ttl_ms=TTL_MS_MAX)
    assert later.token > other.token > first.token
    with pytest.raises(LeaseLostError):
        leases.renew(kept)
    assert not leases.release(kept), "an old lease of the same holder is not the new one"
    assert leases.holder("a") == "ann"
    assert leases.release(later)
    assert not leases.release(later)
    assert leases.holder("a") is None


def test_writes_are_guarded_at_their_commit_time(host: MemoryHost) -> None:
    with host.connect() as client:
        leases = Leases(client, "jobs")
        lease = leases.acquire("a", "ann", ttl_ms=1_000)
        lease.guard(client.atomic().put("x", 1)).commit()

        def adds(view: View) -> None:
            leases.require_in(view, lease)
            view.put("x", view.get("x") + 1)

        client.run(adds)
        assert client.get("x") == 2
        passes(host, 1_000)
        with pytest.raises(CheckFailedError) as over:
            lease.guard(client.atomic().put("x", 9)).commit()
        assert [failed.key for failed in over.value.failed] == [lease.key]
        with pytest.raises(LeaseLostError):
            client.run(adds)
        assert client.get("x") == 2


def test_a_lease_that_is_lost_inside_a_function_begins_it_again(host: MemoryHost) -> None:
    with host.connect() as client:
        leases = Leases(client, "jobs")
        lease, seen = leases.acquire("a", "ann", ttl_ms=1_000), []

        def slow(view: View) -> None:
            leases.require_in(view, lease)
            seen.append(lease.name)
            passes(host, 2_000)
            view.put("x", 1)

        with pytest.raises(LeaseLostError):
            client.run(slow)
        assert seen == ["a"]
        assert client.get("x") is None


def test_one_that_waits_gets_it_when_it_is_free(host: MemoryHost) -> None:
    with host.connect(options=QUICK) as client, host.connect(options=QUICK) as other:
        mine, theirs = Leases(client, "jobs"), Leases(other, "jobs")
        lease, got = mine.acquire("a", "ann"), []

        def release() -> None:
            wait_for(lambda: len(host.database.log.records) >= 4, "it is refused")
            assert mine.release(lease)

        together([lambda: got.append(theirs.acquire("a", "bob", timeout_s=60)), release])
        assert got[0].token > lease.token
        with pytest.raises(LeaseHeldError, match="'bob'"):
            mine.acquire("a", "ann", timeout_s=0.01)


@pytest.mark.parametrize("seed", range(6))
def test_never_two_at_a_time(host: MemoryHost, seed: int) -> None:
    """Many acquire, renew, release, sleep: a model of who holds it agrees with every answer."""
    dice = random.Random(f"leases {seed}")
    with host.connect() as client:
        leases = Leases(client, "jobs")
        held: Lease | None = None
        ends_ms, token, old = 0, 0, list[Lease]()
        for _ in range(150):
            passes(host, dice.choice([0, 1, 5, 50]))
            now = host.database.now_ms + 1  # of the next transaction
            if held is not None and now >= ends_ms:
                old.append(held)
                held = None
            act, ttl_ms = dice.choice(["acquire", "renew", "release", "old"]), dice.randint(1, 60)
            if act == "acquire" and held is not None:
                with pytest.raises(LeaseHeldError):
                    leases.acquire("a", "any", ttl_ms=ttl_ms)
            elif act == "acquire":
                held, ends_ms = leases.acquire("a", "any", ttl_ms=ttl_ms), now + ttl_ms
                assert held.token > token
                token = held.token
            elif act == "renew" and held is not None:
                held, ends_ms = leases.renew(held, ttl_ms=ttl_ms), now + ttl_ms
            elif act == "release" and held is not None:
                assert leases.release(held)
                old.append(held)
                held = None
            elif old:
                with pytest.raises(LeaseLostError):
                    leases.renew(dice.choice(old))
        assert len(old) > 10


def test_who_may_not_read_is_not_told_who_holds_it() -> None:
    known = [("admin", [""], [""]), ("writer", [], ["lease/"])]
    tokens = Tokens(
        (hashlib.sha256(name.encode()).digest(), Caller(name, reads, writes))
        for name, reads, writes in known
    )
    with MemoryHost(tokens=tokens) as host:
        Leases(host.connect(token="admin"), "jobs").acquire("a", "ann")  # noqa: S106
        with pytest.raises(LeaseHeldError) as refused:
            Leases(host.connect(token="writer"), "jobs").acquire("a", "bob")  # noqa: S106
        assert refused.value.holder == "somebody"


def test_what_is_out_of_bounds_is_refused_before_anything_is_sent(host: MemoryHost) -> None:
    with host.connect() as client:
        before = len(host.database.log.records)
        leases = Leases(client, "jobs")
        for ttl_ms in (0, TTL_MS_MAX + 1, 1.5, True):
            with pytest.raises(InvalidArgumentError, match="1 to 86400000 ms"):
                leases.acquire("a", "ann", ttl_ms=ttl_ms)  # type: ignore[arg-type]
        for name, holder in (("", "ann"), ("a", ""), ("a" * 129, "ann")):
            with pytest.raises(InvalidNameError):
                leases.acquire(name, holder)
        with pytest.raises(InvalidNameError):
            Leases(client, "a/b")
        assert len(host.database.log.records) == before


def test_what_is_left_is_counted_from_before_the_request(host: MemoryHost) -> None:
    client: Client
    with host.connect() as client:
        begun = time.monotonic()
        lease = Leases(client, "jobs").acquire("a", "ann", ttl_ms=60_000)
        assert begun + 60 <= lease.until_s <= time.monotonic() + 60
        kept = Leases(client, "jobs").renew(lease, ttl_ms=10)
        assert begun + 0.01 <= kept.until_s <= time.monotonic() + 0.01
