"""The lock table: who is granted when, and the anomalies of the first streamy-db at its level."""

from __future__ import annotations

import random

import msgspec
import pytest

from streamydb.errors import InvariantViolation
from streamydb.key_processor.locking.locks import Lock, LockTable, RangeLock
from tests.support.seeds import seeds

A, B = b"ka", b"kb"


def table(*wishes: tuple[bytes, int, bool]) -> LockTable:
    """A table with transactions enqueued: (lock, seq, writes)."""
    locks = LockTable({})
    for name, seq, write in wishes:
        locks.enqueue(name, seq, write=write)
    return locks


def test_readers_are_granted_together_until_a_writer_is_ahead() -> None:
    locks = table((A, 1, False), (A, 2, False), (A, 3, True), (A, 4, False), (A, 5, True))
    assert locks.grant() == [(1, A), (2, A), (3, A)]
    assert locks.grant() == []
    assert locks.release(A, 3)
    assert locks.grant() == [(4, A), (5, A)]
    assert locks.release(A, 5)
    assert locks.grant() == []
    assert locks.state == {}


@pytest.mark.fault(11, "feedback out of order between keys", "no G0")
def test_blind_writers_whose_results_return_in_the_other_order() -> None:
    """Two blind writers of two keys: the second is granted neither before the first is back.

    The feedback of the first comes to B before it comes to A; the second may then have B, but what
    comes back for it at A before it was granted there cannot be, and stops everything.
    """
    locks = table((A, 1, True), (B, 1, True), (A, 2, True), (B, 2, True))
    assert locks.grant() == [(1, A), (1, B)]
    with pytest.raises(InvariantViolation, match="does not hold"):
        locks.release(A, 2)
    assert locks.release(B, 1)
    assert locks.grant() == [(2, B)]
    assert locks.release(A, 1)
    assert locks.grant() == [(2, A)]


def test_a_reader_never_sees_a_newer_and_then_an_older_value() -> None:
    """A reader behind a writer waits for it, also when an earlier reader's grant is repeated."""
    locks = table((A, 1, False), (A, 2, True), (A, 3, False))
    assert locks.grant() == [(1, A), (2, A)]
    assert not locks.release(A, 1)
    assert locks.grant() == []
    assert locks.release(A, 2)
    assert locks.grant() == [(3, A)]


def test_a_lock_is_not_free_while_its_holder_is_open() -> None:
    """Repeated feedback of an earlier holder does not free the lock of the present one."""
    locks = table((A, 1, True), (A, 2, True), (A, 3, True))
    locks.grant()
    assert locks.release(A, 1)
    assert not locks.release(A, 1)
    assert locks.grant() == [(2, A)]
    assert not locks.release(A, 1)
    assert locks.grant() == []
    assert locks.state[A].holder == 2


def test_feedback_between_release_and_grant_is_a_violation() -> None:
    locks = table((A, 1, True), (A, 2, True))
    locks.grant()
    locks.release(A, 1)
    with pytest.raises(InvariantViolation, match="does not hold"):
        locks.release(A, 2)


def test_the_order_of_a_queue_is_that_of_the_seqs() -> None:
    locks = table((A, 2, True))
    with pytest.raises(InvariantViolation, match="enqueued"):
        locks.enqueue(A, 2, write=False)
    locks.grant()
    with pytest.raises(InvariantViolation, match="enqueued"):
        locks.enqueue(A, 1, write=True)


@pytest.mark.parametrize("seed", range(seeds(30, 10)))
def test_any_history_keeps_the_order_and_ends(seed: int) -> None:
    """Writers alone, readers before later writers, whatever the order of releases."""
    rng = random.Random(seed)
    state: dict[bytes, Lock] = {}
    names = [b"k%d" % i for i in range(rng.choice([1, 2, 5]))]
    wishes = {
        seq: {name: rng.random() < 0.5 for name in rng.sample(names, rng.randint(1, len(names)))}
        for seq in range(1, 80)
    }
    next_seq, held, got = 1, set[tuple[int, bytes]](), dict[bytes, list[int]]()
    while next_seq < 80 or held:
        locks = LockTable(state)
        for seq, name in rng.sample(sorted(held), rng.randint(0, len(held))):
            assert locks.release(name, seq)
            held.discard((seq, name))
        for seq in range(next_seq, min(80, next_seq + rng.randint(0, 9))):
            for name, write in wishes[seq].items():
                locks.enqueue(name, seq, write=write)
            next_seq = seq + 1
        for seq, name in locks.grant():
            got.setdefault(name, []).append(seq)
            if wishes[seq][name]:
                assert not any(other == name for _, other in held)
                held.add((seq, name))
        assert len(locks) >= len(held)
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=dict[bytes, Lock])
    assert state == {}
    assert got == {n: [s for s in wishes if n in wishes[s]] for n in names if n in got}


def ranged(seq: int, *spans: tuple[bytes, bytes]) -> RangeLock:
    return RangeLock(seq, b"r0", list(spans), [False] * len(spans), [])


def test_a_range_waits_for_the_writers_before_it_and_holds_back_those_after() -> None:
    locks = table((A, 1, True), (B, 2, True), (A, 3, False))
    locks.enqueue_range(ranged(4, (b"ka", b"kb")))
    for name, seq, write in ((A, 5, True), (b"kaa", 5, True), (B, 5, True), (b"kab", 6, False)):
        locks.enqueue(name, seq, write=write)
    assert locks.grant() == [(1, A), (2, B), (6, b"kab")]
    assert locks.release(B, 2)
    assert locks.grant() == [(5, B)]
    assert locks.release(A, 1)
    assert locks.grant() == [(3, A), (4, b"r0")]
    assert locks.grant() == [(5, A), (5, b"kaa")]


def test_a_range_does_not_wait_for_its_own_transaction() -> None:
    locks = table((A, 3, True), (A, 7, True))
    locks.enqueue_range(ranged(3, (b"k", b"l")))
    locks.enqueue_range(ranged(5, (b"kz", b"l"), (b"ka", b"kb")))
    assert locks.grant() == [(3, A), (3, b"r0")]
    assert locks.release(A, 3)
    assert locks.grant() == [(5, b"r0")]
    assert locks.grant() == [(7, A)]
    assert len(locks) == 1


def test_a_range_that_does_not_fit_holds_back_later_writers() -> None:
    locks = table((A, 2, True))
    locks.enqueue_range(ranged(1, (b"k", b"l")))
    locks.enqueue_range(ranged(3, (b"k", b"l")))
    assert locks.grant(lambda _: 0) == []
    assert locks.grant() == [(1, b"r0")]
    assert locks.grant() == [(2, A)]
    with pytest.raises(InvariantViolation, match="after later ones"):
        locks.enqueue_range(ranged(3, (b"k", b"l")))
