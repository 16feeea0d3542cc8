"""Strong reads while the log grows: whatever a facade knows of partitions, it shows what was
answered.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.facade import FacadeSettings
from streamydb.facade.reads import Reader
from streamydb.testing.memory_model import MemoryResolved
from tests.unit.sorter.test_sorter_shown import Place, Step, grown, steps


class Grown:
    """A read model that follows a sorter's states, and the log that it is of.

    Args:
        states: it shows one after the other, with every look at it.
        ends: of all partitions when the read comes.
        known: how many of them the log knows without asking.
    """

    def __init__(self, states: list[Step], ends: dict[int, int], known: int) -> None:
        self._states, self._ends, self._known = states, ends, known

    def latest(self) -> MemoryResolved:
        """Show one state, and the next one when somebody looks again."""
        if len(self._states) > 1:
            self._states.pop(0)
        return MemoryResolved(len(self._states[0].released), 0, self._states[0].shown)

    def snapshot(self, at: int | None = None) -> frozenset[Place]:
        """Return what is shown now."""
        assert at is None
        return self._states[0].released

    def decided(self) -> MemoryResolved:
        """Return no result."""
        return MemoryResolved(0, 0, {})

    async def ends(self, *, fresh: bool = False) -> dict[int, int]:
        """Return the ends of all partitions, or of those that are known."""
        return self._ends if fresh else {n: self._ends[n] for n in range(self._known)}


@pytest.mark.parametrize("initial", [1, 2, 3])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_strong_read_shows_all_that_was_answered_however_many_partitions_are_known(
    initial: int, seed: int
) -> None:
    rng = random.Random(seed)
    log = grown(rng, initial)
    found = steps(rng, initial, log)
    whole = {q: len(records) for q, records in log.items()}
    everything = frozenset((q, offset) for q, end in whole.items() for offset in range(end))
    now = rng.randrange(len(found))  # as far as the pipeline has answered
    model: Any = Grown(
        [*found[rng.randint(0, now):], Step(whole, whole, everything)], found[now].read,
        rng.randint(initial, len(log)),
    )
    reader = Reader(model, model, FacadeSettings(poll_s=1e-6))
    shown: Any = asyncio.run(reader.snapshot())
    assert shown >= found[now].released
