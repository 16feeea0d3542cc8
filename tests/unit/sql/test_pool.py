"""The processes that are kept ready: none is left behind."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.sql import pool
from streamydb.testing.in_process import scenario


@scenario
async def test_a_process_that_gets_ready_as_its_taker_is_cancelled_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[Any] = []
    ended: list[Any] = []

    async def start(_: str) -> Any:
        process = SimpleNamespace(returncode=None)
        begun.append(process)
        if len(begun) > 1:  # the next one, which is still being made
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        taker.cancel()
        return process

    async def end(process: Any) -> None:
        ended.append(process)

    monkeypatch.setattr(pool.Spare, "ahead", True)
    monkeypatch.setattr(pool, "_start", start)
    monkeypatch.setattr(pool, "end", end)
    spare = pool.Spare("any")
    taker = asyncio.create_task(spare.take())
    with pytest.raises(asyncio.CancelledError):
        await taker
    assert ended == begun[:1]
    await spare.close()
