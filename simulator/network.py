"""Facades that are killed and restarted over one database, and a network that loses and doubles.

Everything on the way of a request is production code, from the client's transport to the log's
port: the facade's application, its reads and writes. Below the ports is a database in memory whose
batches, stalls and failures are drawn.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpx

from streamydb.facade.app import create_app
from streamydb.facade.results import ResultIndex
from streamydb.facade.settings import FacadeSettings
from streamydb.testing.in_process import InProcess
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_feed import MemoryChanges

__all__ = ["Network", "World"]

_REFUSALS: Final = (429, 502, 503, 504)
_INDEX_BYTES: Final = 1 << 24
_FAILED: Final = 500
_T = TypeVar("_T")


@dataclass(slots=True)
class World:
    """The faults of the moment; `clean` ends them all.

    Attributes:
        lost: share of the requests that do not arrive.
        unanswered: share of those that arrive and whose answers do not.
        doubled: share of those that arrive once more, later.
        refused: share that something in between refuses.
        silent: whether what is lost is noticed only when the time is up.
        stalled: whether nothing is executed.
        killed: how often a facade was killed.
    """

    lost: float = 0
    unanswered: float = 0
    doubled: float = 0
    refused: float = 0
    silent: bool = False
    stalled: bool = False
    killed: int = 0

    def clean(self) -> None:
        """Nothing is wrong."""
        self.lost = self.unanswered = self.doubled = self.refused = 0
        self.silent = self.stalled = False

    def spoil(self, rng: random.Random, *, silent: bool) -> None:
        """Something is wrong."""
        self.lost, self.unanswered = rng.choice([0, 0.2, 0.6]), rng.choice([0, 0.3, 0.9])
        self.doubled, self.refused = rng.choice([0, 0.3]), rng.choice([0, 0, 0.5, 1])
        self.silent = silent and rng.random() < 0.5
        self.stalled = rng.random() < 0.3


class Network(httpx.AsyncBaseTransport):
    """Carries httpx's requests to the facade that runs, if one does.

    Attributes:
        world: what is wrong.
        database: what the facades serve.
        late: copies of requests that are still on their way.
    """

    def __init__(self, rng: random.Random, database: MemoryDatabase) -> None:
        """Nothing runs yet."""
        self.world = World()
        self.database = database
        self.late: dict[asyncio.Task[Any], None] = {}
        self._rng = rng
        self._facade: InProcess | None = None
        self._serving: dict[asyncio.Task[Any], None] = {}  # in order: a set's is its addresses'

    async def start(self) -> None:
        """Start a facade; it knows some of the results, or none."""
        database, rng = self.database, self._rng
        log = database.log
        log.index = ResultIndex(_INDEX_BYTES)
        log.forgetful = rng.random() < 0.3
        changes = MemoryChanges(database.changes)
        settings = FacadeSettings(read_timeout_s=rng.choice([2, 10]))
        app = create_app(database.model, log, changes, settings)
        self._facade = await InProcess(app).__aenter__()

    async def kill(self) -> None:
        """End the facade; what it was about to do is not done, what it has done remains."""
        facade, self._facade = self._facade, None
        for task in list(self._serving):
            task.cancel()
        if facade is not None:
            self.world.killed += 1
            await facade.__aexit__(None, None, None)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Serve a request, or fail as networks do."""
        rng, world = self._rng, self.world
        body = await request.aread()
        await asyncio.sleep(rng.random() * 0.01)
        if self._facade is None:
            raise httpx.ConnectError("refused", request=request)
        if rng.random() < world.refused:
            return _refusal(rng)
        ends_s = asyncio.get_running_loop().time() + request.extensions["timeout"]["read"]
        if rng.random() < world.lost:
            await self._lose(request, ends_s)
        copy = None
        if rng.random() < world.doubled:
            copy = self._later(self._again(request, body, rng.expovariate(0.1)))
        serving = asyncio.create_task(self._serve(request, body))
        self._serving[serving] = None
        serving.add_done_callback(self._serving.pop)
        try:
            answer = await _heard(serving, request.extensions["timeout"]["read"], request)
        except httpx.ReadTimeout:
            serving.cancel()
            raise
        if copy is not None and answer.status_code >= _FAILED:
            # Who sends a request twice tells no failure before both have been answered. Else a
            # client would be told that nothing was written, and the copy would write it later.
            left_s = max(0.0, ends_s - asyncio.get_running_loop().time())
            again = await _heard(copy, left_s, request)
            answer = again or answer
        if rng.random() < world.unanswered:
            await self._lose(request, ends_s)
        return answer

    async def _lose(self, request: httpx.Request, ends_s: float) -> None:
        """Break the connection, or be silent until the client's time for an answer is up.

        That time begins when the request has been sent, not when the answer that is lost was.
        """
        if self.world.silent:
            await asyncio.sleep(ends_s - asyncio.get_running_loop().time())
            raise httpx.ReadTimeout("silence", request=request)
        raise httpx.ReadError("reset", request=request)

    async def _serve(self, request: httpx.Request, body: bytes) -> httpx.Response:
        facade = self._facade
        if facade is None:
            raise httpx.ConnectError("refused", request=request)
        headers = {name.lower(): value for name, value in request.headers.items()}
        target = request.url.raw_path.decode()
        answer = await facade.request(request.method, target, body, headers)
        await asyncio.sleep(self._rng.random() * 0.01)
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)

    def _later(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self.late[task] = None
        task.add_done_callback(self.late.pop)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # heard
        return task

    async def _again(
        self, request: httpx.Request, body: bytes, delay_s: float
    ) -> httpx.Response | None:
        """Deliver a copy of a request, later; None if no facade is there, or it is killed."""
        await asyncio.sleep(delay_s)
        if self._facade is None:
            return None
        serving = asyncio.ensure_future(self._serve(request, body))
        await asyncio.wait([serving])
        return serving.result()


async def _heard(task: asyncio.Task[_T], timeout_s: float, request: httpx.Request) -> _T:
    """Return the answer that a task gets, or fail as a client does that waits for it."""
    done, _ = await asyncio.wait([task], timeout=timeout_s)
    if not done:
        raise httpx.ReadTimeout("silence", request=request)
    if task.cancelled() or task.exception() is not None:
        raise httpx.ReadError("reset", request=request)
    return task.result()


def _refusal(rng: random.Random) -> httpx.Response:
    """Return the refusal of something between client and facade."""
    headers = {"Retry-After": "1"} if rng.random() < 0.5 else {}
    return httpx.Response(rng.choice(_REFUSALS), headers=headers, content=b"no")
