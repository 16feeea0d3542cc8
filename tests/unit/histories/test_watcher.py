"""Watchers leave while there is load, and stay when it has ended."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator

import httpx
import pytest

from histories.records import Delivery, Line, WatchOperation
from histories.watcher import Watcher
from streamydb.testing.in_process import scenario, until

LAST = 60


class Feed(httpx.AsyncByteStream):
    """The changes after a seq, an event for each; the stream goes on without an end."""

    def __init__(self, since: int) -> None:
        self._since = since

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for seq in range(self._since + 1, LAST + 1):
            await asyncio.sleep(0)
            change = json.dumps({"key": f"k{seq}", "before": None, "after": seq})
            yield f"event: change\ndata: {change}\n\nevent: resolved\nid: {seq}\n\n".encode()
        await asyncio.Event().wait()


def answer(request: httpx.Request) -> httpx.Response:
    since = request.headers.get("last-event-id", request.url.params.get("since"))
    return httpx.Response(200, stream=Feed(int(since)))


@pytest.mark.parametrize("seed", range(8))
@scenario
async def test_each_change_is_delivered_once_and_who_stays_connects_no_more(seed: int) -> None:
    dice, lines = random.Random(seed), list[Line]()
    stays_at = dice.randrange(20, LAST)
    watcher: Watcher

    def sink(line: Line) -> None:
        lines.append(line)
        if isinstance(line, Delivery) and line.seq == stays_at:
            watcher.stay()

    watch = WatchOperation(watcher=0, prefix="", since=0, began_ns=0)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        watcher = Watcher(http, ["http://facade"], dice, sink, watch, leave=0.5)
        task = asyncio.create_task(watcher.run())
        await until(lambda: watcher.seq == LAST)
        task.cancel()
    delivered = [line for line in lines if isinstance(line, Delivery)]
    assert [line.seq for line in delivered] == list(range(1, LAST + 1))
    assert [c.after for line in delivered for c in line.changes] == list(range(1, LAST + 1))
    assert delivered[-1].connection == delivered[stays_at - 1].connection > 1
