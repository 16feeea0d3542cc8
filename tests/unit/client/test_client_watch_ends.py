"""A watch that is closed, or whose client is, while somebody waits for the next change.

No heartbeat comes meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streamydb.client import (
    AsyncClient,
    Client,
    ClientError,
    ClosedError,
    Session,
    connect,
    connect_async,
)
from streamydb.client.portal import BlockingTransport, Portal
from streamydb.facade import FacadeSettings
from streamydb.facade.direct import DirectTransport
from streamydb.testing.database import wait_for
from streamydb.testing.in_process import scenario, until
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_feed import MemoryChanges
from tests.support.secured import Authority
from tests.support.served import serving

NO_HEARTBEAT = {"heartbeat_s": 600.0}

pytestmark = pytest.mark.timeout(60)


def direct() -> DirectTransport:
    """The parts of an empty database."""
    database, settings = MemoryDatabase(), FacadeSettings.model_validate(NO_HEARTBEAT)
    return DirectTransport(database.model, database.log, MemoryChanges(database.changes), settings)


@pytest.fixture(params=["http", "https", "direct"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """A client for threads."""
    if request.param == "direct":
        yield Client(BlockingTransport(Portal(), direct()), Session())
        return
    authority = Authority(tmp_path / "tls")
    issued = authority.issue("facade")
    tls = {"tls_certificate_file": issued.certificate, "tls_key_file": issued.key}
    secure = tls if request.param == "https" else {}
    settings = FacadeSettings.model_validate({"port": 0, **NO_HEARTBEAT, **secure})
    with serving(settings) as served, connect(served.url, verify=authority.file) as made:
        yield made


@asynccontextmanager
async def awaiting(kind: str) -> AsyncIterator[AsyncClient]:
    """A client for coroutines."""
    if kind == "direct":
        async with AsyncClient(direct(), Session()) as client:
            yield client
        return
    settings = FacadeSettings.model_validate({"port": 0, **NO_HEARTBEAT})
    with serving(settings) as served:
        async with connect_async(served.url) as client:
            yield client


class Reader:
    """A thread that takes changes."""

    def __init__(self, watch: Any) -> None:
        self.taken: list[Any] = []
        self.raised: Exception | None = None
        self._watch = watch
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.taken += [None]
            for change in self._watch:
                self.taken += [change.value]
        except ClientError as error:
            self.raised = error

    def ended(self) -> bool:
        self._thread.join(10)
        return not self._thread.is_alive()


def waiting(client: Client, watch: Any) -> Reader:
    """A thread that has taken a change, and waits for the next one, or is about to."""
    reader = Reader(watch)
    client.put("a", 1)
    wait_for(lambda: reader.taken == [None, 1], "the first change")
    return reader


def test_a_watch_that_another_thread_closes_ends(client: Client) -> None:
    with client.watch() as watch:
        reader = waiting(client, watch)
        watch.close()
        assert reader.ended()
        assert reader.raised is None
    assert list(watch) == [], "it has ended"
    later = client.watch()
    later.close()
    with pytest.raises(ClosedError, match="watch is closed"):
        later.__enter__()
    assert client.get("a") == 1, "the client has not ended"


def test_a_watch_whose_client_another_thread_closes_ends(client: Client) -> None:
    with client.watch() as watch:
        reader = waiting(client, watch)
        client.close()
        assert reader.ended()
        assert isinstance(reader.raised, ClosedError)


@pytest.mark.parametrize("kind", ["http", "direct"])
@pytest.mark.parametrize("ends", ["watch", "client"])
@scenario
async def test_the_same_for_tasks(kind: str, ends: str) -> None:
    async with awaiting(kind) as client, client.watch() as watch:
        taken: list[Any] = []
        note = taken.append

        async def take() -> None:
            async for change in watch:
                note(change.value)

        task = asyncio.create_task(take())
        await client.put("a", 1)
        await until(lambda: taken == [1])
        close: Callable[[], Any] = watch.close if ends == "watch" else client.close
        async with asyncio.timeout(10):
            await close()
            if ends == "watch":
                await task
            else:
                with pytest.raises(ClosedError):
                    await task
