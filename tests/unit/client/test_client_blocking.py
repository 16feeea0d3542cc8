"""The client for threads has what the one for coroutines has, with the same types."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator
from typing import Any, assert_type

import pytest

from streamydb.client import AsyncClient, AsyncView, Client, Committed, Entry, Snapshot, View, Watch
from streamydb.client.awaiting.views import AsyncAtomic, AsyncRecords, AsyncWatch
from streamydb.client.blocking.client import Atomic, Records
from streamydb.client.blocking.transports import complete

PAIRS: list[tuple[type[Any], type[Any]]] = [
    (AsyncClient, Client), (AsyncView, View), (AsyncAtomic, Atomic), (AsyncWatch, Watch),
    (AsyncRecords, Records),
]  # fmt: skip
OWN = {"lifetime", "later"}
"""Parts of the driver, which no caller of `AsyncClient` needs."""


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[1].__name__)
def test_each_method_has_its_twin(pair: tuple[type[Any], type[Any]]) -> None:
    awaiting, threads = pair
    names = {name for name in dir(awaiting) if not name.startswith("_")} - OWN - {"attempt"}
    assert names == {name for name in dir(threads) if not name.startswith("_")}
    for name in names:
        one, other = getattr(awaiting, name), getattr(threads, name)
        assert other.__doc__
        assert not inspect.iscoroutinefunction(other)
        if callable(one):
            given = inspect.signature(one).parameters
            assert list(given) == list(inspect.signature(other).parameters), name
            assert [each.kind for each in given.values()] == [
                each.kind for each in inspect.signature(other).parameters.values()
            ]


def types(client: Client) -> None:
    """What a type checker finds; nobody calls it."""
    assert_type(client.entry("a", at=1), Entry)
    assert_type(client.read(["a"], timeout_s=1), Snapshot)
    assert_type(client.put("a", 1, ttl_ms=1), Committed)
    assert_type(client.scan("a"), Iterator[Entry])
    assert_type(client.watch("a"), Watch)
    assert_type(client.run(lambda view: view.read(["a"])), dict[str, Any])
    client.get()  # type: ignore[call-arg]
    client.put("a", 1, ttl=1)  # type: ignore[call-arg]


async def _later() -> None:
    raise StopAsyncIteration


class _Waits:
    def __await__(self) -> Generator[None, None, None]:
        yield


async def _waits() -> None:
    await _Waits()


def test_what_waits_for_a_loop_is_refused() -> None:
    with pytest.raises(AssertionError, match="waits for an event loop"):
        complete(_waits())
    with pytest.raises(StopAsyncIteration):
        complete(_later())
