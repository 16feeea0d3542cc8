"""Limits of milliseconds in tests are met by what does not come, and not by a slow machine."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from streamydb.testing import in_process
from streamydb.testing.in_process import scenario, until

STOPPED_S = 0.7
"""For so long the machine has something else to do between any two looks at its clock."""


@pytest.fixture
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(1_000)
    monkeypatch.setattr(in_process, "monotonic", lambda: STOPPED_S * next(clock))


@pytest.mark.usefixtures("_slow")
@scenario
async def test_what_is_done_at_once_meets_no_limit_on_a_slow_machine() -> None:
    async with asyncio.timeout(0.02):
        for _ in range(15):
            await asyncio.sleep(0)


@pytest.mark.usefixtures("_slow")
@scenario
async def test_a_wait_is_no_longer_than_the_next_timer() -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.sleep(0.004)
    assert 0.004 <= loop.time() - began_s <= 0.01


@scenario
async def test_what_never_comes_meets_its_limit() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await asyncio.Event().wait()


@scenario
async def test_time_passes_for_who_looks_again_and_again() -> None:
    rung = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, rung.set)
    await until(rung.is_set)
    assert rung.is_set()
