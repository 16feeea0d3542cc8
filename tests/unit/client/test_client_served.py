"""The client against a served facade: real sockets, reused connections, real cuts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from streamydb.client import AsyncView, NotConnectedError, connect, connect_async
from streamydb.facade import FacadeSettings
from streamydb.facade.server import listen
from tests.support.served import Served, serving


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as facade:
        yield facade


def test_a_connection_is_reused_and_a_cut_one_replaced(served: Served) -> None:
    with connect(served.url) as client:
        for number in range(5):
            client.put("n", number)
            assert client.get("n") == number
        assert len(served.connections) == 1
        served.cut()
        assert client.run(lambda view: view.get("n")) == 4
        assert [entry.key for entry in client.scan()] == ["n"]
        assert client.verdict(client.put("last", 1).id).seq == 6


def test_a_watch_goes_on_after_its_connection_was_cut(served: Served) -> None:
    with connect(served.url) as client, client.watch("a/") as watch:
        client.put("a/1", 1)
        assert next(watch).key == "a/1"
        served.cut()
        client.atomic().put("a/2", 2).put("a/3", 3).put("b", 4).commit()
        assert [next(watch).key, next(watch).key] == ["a/2", "a/3"]
        assert watch.seq == 2


def test_the_same_for_coroutines(served: Served) -> None:
    async def increment(view: AsyncView) -> int:
        value: int = await view.get("n", 0) + 1
        view.put("n", value)
        return value

    async def scenario() -> None:
        async with connect_async(served.url) as client, client.watch() as watch:
            taken = await asyncio.gather(*(client.run(increment) for _ in range(4)))
            assert sorted(taken) == [1, 2, 3, 4]
            served.cut()
            changes = [await anext(watch) for _ in range(4)]
            assert [change.value for change in changes] == [1, 2, 3, 4]
            assert [entry.value async for entry in client.scan()] == [4]

    asyncio.run(scenario())


def test_a_server_that_has_gone(served: Served) -> None:
    with listen(FacadeSettings(port=0)) as other:
        nobody = f"http://127.0.0.1:{other.getsockname()[1]}"
    with connect(nobody, timeout_s=0.1) as client, pytest.raises(NotConnectedError):
        client.put("a", 1)
    with connect(served.url) as client:
        assert client.get("a") is None
