"""A client whose database was restored under its address: it hears of it, and forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from streamydb.client import Client, OtherGenerationError
from streamydb.client.portal import BlockingTransport
from streamydb.client.session import Generation, Options, Session
from streamydb.facade.direct import DirectTransport
from streamydb.testing import MemoryHost
from streamydb.testing.memory_feed import MemoryChanges

OTHER: Final = "3f9c01d2"
Call = Callable[[Client], Any]

CALLS: Final[dict[str, Call]] = {
    "read": lambda client: client.get("a"),
    "session": lambda client: client.read(["a"], consistency="session"),
    "scan": lambda client: list(client.scan("")),
    "past": lambda client: client.entry("a", at=1),
    "check": lambda client: client.atomic().check("a", version=1).put("a", 9).commit(),
    "put": lambda client: client.put("a", 9),
    "run": lambda client: client.run(lambda view: view.put("a", view.get("a"))),
    "query": lambda client: client.query("select 1"),
    "verdict": lambda client: client.verdict("first"),
    "watch": lambda client: next(client.watch(since=1)),
    "stream": lambda client: next(client.stream("m.s", after=1)),
}
"""All that a client asks; some bring seqs along."""


@contextmanager
def connected(kind: str) -> Iterator[tuple[MemoryHost, Client]]:
    """A client that has seen a transaction of a database, by HTTP or directly."""
    with MemoryHost() as host:
        session = Session(Options())
        if kind == "http":
            client = host.connect(session=session)
        else:
            database = host.database
            direct = DirectTransport(
                database.model,
                database.log,
                MemoryChanges(database.changes),
                history=session.history,
            )
            client = Client(BlockingTransport(host.portal, direct, owner=False), session)
            host.portal.call(direct._connected())
        client.atomic("first").put("a", 1).commit()
        assert client.get("a") == 1
        yield host, client
        if kind != "http":
            host.portal.call(direct.close())


@pytest.mark.parametrize("kind", ["http", "direct"])
@pytest.mark.parametrize("name", CALLS)
def test_a_client_of_a_lost_history_hears_of_it_once(kind: str, name: str) -> None:
    with connected(kind) as (host, client):
        assert (client.session.generation, client.session.seq) == ("0", 1)
        host.database.model.generation = OTHER
        with pytest.raises(OtherGenerationError):
            CALLS[name](client)
        assert len(host.database.log.records) == 1, "nothing was appended"
        assert (client.session.generation, client.session.seq) == (None, 0)
        assert client.get("a", consistency="session") == 1
        assert client.session.generation == OTHER
        assert client.put("a", 2).seq == 2
        assert client.session.seq == 2


@pytest.mark.parametrize("kind", ["http", "direct"])
def test_a_session_goes_on_in_another_process_with_its_generation(kind: str) -> None:
    with connected(kind) as (host, client):
        host.database.model.generation = OTHER
        with pytest.raises(OtherGenerationError):
            client.get("a")
        client.put("a", 2)
        seq, generation = client.session.seq, client.session.generation
        other = host.connect()
        other.session.saw(seq, generation=generation)
        assert other.get("a", consistency="session") == 2
        with other.watch(since=1) as changes:
            assert next(changes).value == 2
        stale = host.connect()
        stale.session.saw(seq, generation="0")
        with pytest.raises(OtherGenerationError):
            stale.get("a", consistency="session")


def test_a_session_without_a_generation_is_of_the_first_one() -> None:
    with MemoryHost() as host:
        host.database.model.generation = OTHER
        client = host.connect()
        client.session.saw(5)
        with pytest.raises(OtherGenerationError):
            client.get("a", consistency="session")
        assert client.session.seq == 0
        assert client.get("a", consistency="session") is None


def test_a_watch_ends_where_the_history_is_another_one() -> None:
    with connected("http") as (host, client), client.watch(since=0) as changes:
        assert next(changes).value == 1
        host.database.model.generation = OTHER
        changes._awaiting._watching._open = False  # the connection is lost, as by a restore
        with pytest.raises(OtherGenerationError):
            next(changes)


def test_coroutines_hear_of_it_too() -> None:
    async def run(host: MemoryHost) -> str | None:
        async with host.connect_async() as client:
            await client.put("a", 1)
            host.database.model.generation = OTHER
            with pytest.raises(OtherGenerationError):
                await client.get("a")
            await client.get("a")
            return client.session.generation

    with MemoryHost() as host:
        assert asyncio.run(run(host)) == OTHER


def test_only_answers_of_success_tell_a_generation() -> None:
    known = Generation()
    known.hear(502, {}, b"")
    known.hear(410, {"streamydb-generation": "a"}, b'{"type":"/problems/snapshot-gone"}')
    assert known.headers() == {}
    known.hear(200, {}, b"")
    assert known.headers() == {}
    known.hear(200, {"streamydb-generation": "a"}, b"")
    known.hear(200, {"streamydb-generation": "b"}, b"")
    assert known.headers() == {"Streamydb-Generation": "a"}
