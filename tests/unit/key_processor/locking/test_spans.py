"""Names in spans and spans of names, against what is obvious, and at a cost of their number."""

from __future__ import annotations

import asyncio
import random

import pytest

from streamydb.key_processor.locking.locks import FirstWriters, LockTable, RangeLock, SpanSeqs
from tests.support.seeds import seeds
from tests.support.work import Counter, Work, grows_faster

pytestmark = pytest.mark.randomized

NAMES = [b"%c%c" % (one, two) for one in b"abc" for two in b"abcd"]


def span(rng: random.Random) -> tuple[bytes, bytes]:
    return rng.choice([*NAMES, b""]), rng.choice([*NAMES, b"d"])


@pytest.mark.parametrize("seed", range(seeds(200)))
def test_they_find_what_is_there(seed: int) -> None:
    rng = random.Random(f"spans {seed}")
    spans = [(rng.randint(1, 9), span(rng)) for _ in range(rng.randint(0, 9))]
    seqs = SpanSeqs(spans)
    for name in [*NAMES, b"", b"a", b"e"]:
        having = [seq for seq, (first, last) in spans if first <= name < last]
        assert seqs.has(name) is bool(having)
        for seq in range(11):
            assert seqs.earlier(name, seq) is any(each < seq for each in having)
    names = sorted(rng.sample(NAMES, rng.randint(0, len(NAMES))))
    writers = [rng.choice([0, rng.randint(1, 9)]) for _ in names]
    first_writers = FirstWriters(names, writers)
    for _ in range(20):
        asked, seq = span(rng), rng.randint(0, 10)
        inside = [w for n, w in zip(names, writers, strict=True) if asked[0] <= n < asked[1] and w]
        assert first_writers.earlier(asked, seq) is any(each < seq for each in inside)


async def cost(size: int, *, blocked: bool) -> Work:
    """What a grant costs with so many locks, and so many range locks that have them all."""
    names = [b"k%06d" % n for n in range(size)]

    async def grant() -> None:
        table = LockTable({})
        for number, name in enumerate(names):
            table.enqueue(name, number + 1, write=blocked and number == size - 1)
        for number in range(size):
            table.enqueue_range(RangeLock(2 * size + number, b"r", [(b"k", b"l")], [False], []))
        granted = table.grant()
        assert len(granted) == size + (0 if blocked else size)
        for name in names:
            table.enqueue(name, 4 * size, write=True)
        assert bool(table.grant()) is not blocked

    counter = Counter()
    try:
        return await counter.worked(grant)
    finally:
        counter.close()


@pytest.mark.parametrize("blocked", [False, True])
def test_a_grant_costs_as_the_locks_and_the_range_locks(
    blocked: bool,  # noqa: FBT001 - a parameter
) -> None:
    costs = [asyncio.run(cost(size, blocked=blocked)) for size in (100, 200, 400)]
    assert not grows_faster(costs), costs


def test_a_sweep_costs_as_its_keys_and_the_range_locks() -> None:
    """A sweep asks for each key whether an earlier range lock has it."""

    async def sweep(size: int) -> Work:
        async def ask() -> None:
            spans = SpanSeqs((n + 1, (b"k%06d" % n, b"l")) for n in range(size))
            assert all(spans.earlier(b"k%06d" % n, 2) for n in range(size))

        counter = Counter()
        try:
            return await counter.worked(ask)
        finally:
            counter.close()

    costs = [asyncio.run(sweep(size)) for size in (500, 1_000, 2_000)]
    assert not grows_faster(costs), costs
