"""Doing requests by the Python client and recording them: functions under `run`, or transactions.

Under `run` a write is a function that reads what it needs and puts whole values, so that only the
client's checks keep two of them apart. Otherwise it is one transaction, sent as the library sends
it: through a facade, or straight to Kafka.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeAlias

from histories.answers import AttemptAnswer
from histories.functions import answer_of, built, called, writes
from histories.recorder import PATIENCE_S, Recorder
from histories.records import (
    Answer,
    AppendOperation,
    Get,
    Line,
    Outcome,
    ReadOperation,
    Request,
    ScanOperation,
    Seen,
    WriteOperation,
)
from histories.workload import Shape
from streamydb.client.awaiting.client import AsyncClient
from streamydb.client.awaiting.http import AsyncHttpTransport
from streamydb.client.awaiting.views import AsyncView
from streamydb.client.connections import HttpOptions
from streamydb.client.connector import connect_async
from streamydb.client.errors import ClientError, OutcomeUnknownError
from streamydb.client.problems import (
    CheckFailedError,
    ConflictError,
    DeadlinePassedError,
    SnapshotGoneError,
    TransactionUnknownError,
)
from streamydb.client.requests import Entry
from streamydb.client.session import Options, Session
from streamydb.client.transactions import Committed

__all__ = ["FunctionRecorder", "TransactionRecorder", "make_recorders"]

_TIMEOUT_S: Final = 20.0
_PAUSE_S: Final = 0.2
_CONNECTIONS: Final = 1_000
_AGAIN: Final = 0.3
_NOT_DONE: Final = (ConflictError, DeadlinePassedError, SnapshotGoneError)
"""Errors that do not pass, and that promise that nothing was written."""

_Reading: TypeAlias = Get | ReadOperation | ScanOperation
_Way: TypeAlias = Callable[[], Awaitable[Answer]]
_Make: TypeAlias = Callable[[random.Random], Recorder]


class _LibraryRecorder(Recorder):
    """The common part of both recorders: reads, and how an unknown outcome is found out."""

    _refused: Outcome = "ok"
    """What a check that does not hold is for a client: its answer."""

    def __init__(
        self,
        clients: Sequence[AsyncClient],
        rng: random.Random,
        sink: Callable[[Line], None],
        shape: Shape,
    ) -> None:
        """Use one of the clients for each request."""
        super().__init__(rng, sink, shape)
        self._clients = clients
        self._again: list[_Way] = []

    @abstractmethod
    def _writing(self, request: WriteOperation | AppendOperation) -> Awaitable[Answer]:
        """Begin a write."""

    @abstractmethod
    def _ways(self, error: OutcomeUnknownError | None, /) -> list[_Way]:
        """Return how to find out what became of the last write: to ask, to send it again."""

    async def _do(self, request: Request, attempts: list[str]) -> AttemptAnswer:
        """Do a request."""
        if isinstance(request, WriteOperation | AppendOperation):
            last = await self._write(request, attempts)
        else:
            last = await self._told(self._read(request))
            attempts.append(last.note)
        return last

    async def _write(
        self, request: WriteOperation | AppendOperation, attempts: list[str]
    ) -> AttemptAnswer:
        """Send a write; find out what became of it."""
        self._again = []
        last = await self._told(self._writing(request), self._impatience_s())
        attempts.append(last.note)
        give_up = self._rng.random() < self._shape.give_up
        deadline = time.monotonic() + PATIENCE_S
        while (
            last.outcome == "unknown" and self._again and not give_up
            and time.monotonic() < deadline
        ):  # fmt: skip
            await asyncio.sleep(_PAUSE_S)
            way = self._again[-1 if self._rng.random() < _AGAIN else 0]
            last = await self._told(way(), sent=True)
            attempts.append(last.note)
        return last

    async def _told(
        self, answer: Awaitable[Answer], timeout_s: float | None = None, *, sent: bool = False
    ) -> AttemptAnswer:
        """Return the outcome of an attempt.

        Raises:
            ClientError: one that nothing which may happen explains.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return AttemptAnswer("ok", "ok", await answer)
        except TimeoutError:
            self._again = self._ways(None)
            return AttemptAnswer("unknown", "left")
        except OutcomeUnknownError as error:
            self._again = self._ways(error)
            return AttemptAnswer("unknown", type(error).__name__)
        except TransactionUnknownError as error:
            return AttemptAnswer("unknown", type(error).__name__)
        except CheckFailedError as error:
            refused = Answer(committed=False, seq=error.seq or None)
            return AttemptAnswer(self._refused, type(error).__name__, refused)
        except ClientError as error:
            if not error.retriable and not isinstance(error, _NOT_DONE):
                raise
            passing = sent and not isinstance(error, DeadlinePassedError)
            return AttemptAnswer("unknown" if passing else "failed", type(error).__name__)

    def _client(self) -> AsyncClient:
        return self._rng.choice(self._clients)

    async def _read(self, request: _Reading) -> Answer:
        """Read at one snapshot."""
        if isinstance(request, ScanOperation):
            return await self._scan(request)
        keys = [request.key] if isinstance(request, Get) else request.keys
        found = await self._client().read(keys, consistency=request.consistency)
        return Answer(seq=found.seq, seen={key: _seen(e) for key, e in found.entries.items()})

    async def _scan(self, request: ScanOperation) -> Answer:
        """Scan the snapshot of a read of nothing, through any facade."""
        snapshot = await self._client().read([], consistency=request.consistency)
        scanned = self._client().scan(request.prefix, at=snapshot.seq)
        entries = [entry async for entry in scanned]
        keys = [entry.key for entry in entries]
        pages = [(snapshot.seq, keys[n : n + request.limit])
                 for n in range(0, len(keys) or 1, request.limit)]  # fmt: skip
        seen = {entry.key: _seen(entry) for entry in entries}
        return Answer(seq=snapshot.seq, seen=seen, pages=pages)


class TransactionRecorder(_LibraryRecorder):
    """Writes are transactions with ids of their own, which may be sent again by other clients."""

    async def _writing(self, request: WriteOperation | AppendOperation) -> Answer:
        self._built = built(self._client().atomic(request.id), request)
        return answer_of(await self._built.commit())

    def _ways(self, _error: OutcomeUnknownError | None) -> list[_Way]:
        built = self._built

        async def ask() -> Answer:
            return answer_of(await self._client().verdict(built.id))

        async def send() -> Answer:
            return answer_of(await built.commit())

        return [ask, send]


class FunctionRecorder(_LibraryRecorder):
    """Writes and reads of several keys are functions under `run`."""

    _refused: Outcome = "failed"
    """A conflict, in every attempt that it was allowed."""

    async def _writing(self, request: WriteOperation | AppendOperation) -> Answer:
        client = self._client()
        self._last = Answer()

        async def function(view: AsyncView) -> bool:
            self._last = await called(view, request)
            return self._last.committed

        if await client.run(function) and writes(request):
            self._last.seq = client.session.seq
        return self._last

    def _ways(self, error: OutcomeUnknownError | None) -> list[_Way]:
        if error is None:
            return []  # nobody knows its id
        last = self._last

        async def found(wait: Callable[[], Awaitable[Committed]]) -> Answer:
            last.seq = (await wait()).seq
            return last

        return [lambda: found(error.ask), lambda: found(error.send_again)]

    async def _read(self, request: _Reading) -> Answer:
        if not isinstance(request, ReadOperation):
            return await super()._read(request)
        keys = request.keys

        async def function(view: AsyncView) -> Answer:
            values = await view.read(keys)
            return Answer(seq=view.seq, seen={key: Seen(values[key]) for key in keys})

        return await self._client().run(function, consistency=request.consistency)


def _seen(entry: Entry) -> Seen:
    return Seen(entry.value, entry.version, entry.expires_ms)


@asynccontextmanager
async def make_recorders(
    urls: Iterable[str], sink: Callable[[Line], None], shape: Shape
) -> AsyncIterator[_Make]:
    """Return what makes a recorder for a client: of functions if the URLs are those of facades.

    Connections are shared. Clients of facades have a session each; those of Kafka share one, and a
    connection for each read model.
    """
    options = Options(timeout_s=_TIMEOUT_S, page_entries=shape.page)
    async with AsyncExitStack() as stack:
        shared = Session(options)
        direct: list[AsyncClient] = []
        served: list[AsyncHttpTransport] = []
        for url in urls:
            if url.startswith("kafka:"):
                made = connect_async(url, timeout_s=_TIMEOUT_S)
                direct.append(await stack.enter_async_context(made))
                direct[-1].session = shared
            else:
                served.append(AsyncHttpTransport(HttpOptions(url, connections_max=_CONNECTIONS)))
                stack.push_async_callback(served[-1].close)

        def make(rng: random.Random) -> Recorder:
            if direct:
                return TransactionRecorder(direct, rng, sink, shape)
            session = Session(options)
            clients = [AsyncClient(transport, session) for transport in served]
            return FunctionRecorder(clients, rng, sink, shape)

        yield make
