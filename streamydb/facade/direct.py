"""The direct transport: the log, the results and the changes on Kafka, reads from a local folder.

It does in the client's process what a facade does for its requests, with the same parts: `Reader`
(a strong read waits until the read model shows all results that were published before it),
`TransactionWriter` (append, verdict, search of old verdicts) and `Feed` (the changes in the order
of their transactions). They are given by ports, so that a database in memory can stand behind them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, unquote
from weakref import WeakSet

import msgspec
from pydantic import ValidationError

from streamydb.client import requests
from streamydb.client.connector import split
from streamydb.client.errors import ClientError, ClosedError, ConnectionLostError
from streamydb.client.http import emissions, sql_answer, table
from streamydb.client.problems import problem
from streamydb.client.requests import MARGIN_S
from streamydb.client.session import Generation
from streamydb.client.watch_core import decode_event
from streamydb.errors import ConfigurationError, StreamyError
from streamydb.facade.auth import ANYBODY, Tokens
from streamydb.facade.feed import ChangeFilter, change_filter
from streamydb.facade.generations import require_generation
from streamydb.facade.headers import Preference
from streamydb.facade.kafka import KafkaLog
from streamydb.facade.kafka_changes import KafkaChanges
from streamydb.facade.kv import read_page
from streamydb.facade.payloads import parse, with_timely_deadline
from streamydb.facade.ports import (
    ChangeBatch,
    ChangeSource,
    ModelSnapshot,
    ServedModel,
    TransactionLog,
)
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import ReadPoint
from streamydb.facade.services import make_services
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.sql_queries import SqlQuery
from streamydb.facade.sql_statements import SqlTransaction
from streamydb.facade.streams import stream_page
from streamydb.facade.transactions import append_and_wait, position_in
from streamydb.facade.waiting import retrieve
from streamydb.facade.writes import PendingWrite
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.read_model import ReadModel
from streamydb.read_model.ports import StoredEntry
from streamydb.records import Result
from streamydb.records.generation import said, said_as
from streamydb.settings import Settings

_RETRY_AFTER_S: Final = 0.1
_GIVING_UP_S: Final = 0.5
"""How long before its end SQL is answered that it waits in vain, so that the answer counts."""

_Performable: TypeAlias = (
    requests.Read
    | requests.Scan
    | requests.Query
    | requests.SqlStatements
    | requests.Emissions
    | requests.Send
    | requests.Ask
)


class DirectTransport:
    """Performs requests on the parts of a database; see `AsyncTransport`.

    The first request that needs more than the read model starts the log.
    """

    def __init__(
        self,
        model: ServedModel,
        log: TransactionLog,
        changes: ChangeSource,
        settings: FacadeSettings | None = None,
        on_close: Callable[[], None] = lambda: None,
        history: Generation | None = None,
    ) -> None:
        self._history = Generation() if history is None else history
        settings = FacadeSettings() if settings is None else settings
        self._services = make_services(model, log, changes, settings, Tokens())
        self._on_close = on_close
        self._starting: asyncio.Task[None] | None = None
        self._streams: WeakSet[DirectStream] = WeakSet()

    async def send(self, request: requests.Request[Any]) -> Any:
        """Perform a request, within its time and the margin that a connection would have."""
        if not isinstance(request, _Performable):
            raise TypeError(f"{type(request).__name__} is not for a transport")
        with _translated():
            self._require_generation()
            if not _is_local(request) and not self._is_connected():
                begun = time.monotonic()
                await self._connected(request.timeout_s + MARGIN_S)
                left_s = request.timeout_s - (time.monotonic() - begun)
                request = replace(request, timeout_s=left_s)
            if isinstance(request, requests.Read):
                return await self._read(request)
            if isinstance(request, requests.Scan):
                return await self._scan(request)
            if isinstance(request, requests.Emissions):
                body = await stream_page(
                    self._services, request.stream, "", request.cursor, request.after,
                    self._services.settings.page_entries_max, request.wait_s,
                    request.timeout_s - request.wait_s + MARGIN_S,
                )  # fmt: skip
                return emissions(body)
            try:
                async with asyncio.timeout(request.timeout_s + MARGIN_S):
                    return await self._perform(request)
            except TimeoutError:
                raise ConnectionLostError("No answer came in time.") from None

    async def _perform(
        self, request: requests.Query | requests.SqlStatements | requests.Send | requests.Ask
    ) -> Any:
        if isinstance(request, requests.Query):
            query = SqlQuery(
                request.sql, request.params, request.prefix, _point_of(request),
                _wait_s(request.timeout_s),
            )  # fmt: skip
            return table(await self._services.queries.run(query, ANYBODY))
        if isinstance(request, requests.SqlStatements):
            return await self._statements(request)
        if isinstance(request, requests.Ask):
            return await self._ask(request)
        writer = self._services.writer
        pending = await writer.append(request.id, request.payload)
        result = await writer.verdict(pending, Preference(False, request.timeout_s))
        return _pending(pending) if result is None else result

    async def open(self, request: requests.Open) -> DirectStream:
        with _translated():
            self._require_generation()
            wanted = request.wanted
            selection = change_filter(wanted.keys, wanted.where, wanted.where_before)
            await self._connected()
            feed = self._services.feed
            await feed.start()
            await self._services.reader.admit(request.since, "since")
            feed.admit(request.since)
            pause_s = self._services.settings.heartbeat_s
            stream = DirectStream(feed.batches(request.since, pause_s), selection)
            self._streams.add(stream)
            return stream

    def _require_generation(self) -> None:
        """Refuse a client that has seen another generation, as a facade does."""
        present, known = said_as(self._services.model.generation), self._history.text
        if known is None:
            self._history.text = present
        elif known != present:
            self._history.lose()
            require_generation(said(known), said(present))

    async def close(self) -> None:
        """End all parts, whatever one of them raises; the log waits for what was appended."""
        services = self._services
        starting, self._starting = self._starting, None
        async with AsyncExitStack() as stack:
            stack.callback(self._on_close)
            if starting is not None:
                starting.cancel()
                await asyncio.wait([starting])
                for part in (services.log, services.reader, services.changes):
                    stack.push_async_callback(part.stop)
            stack.push_async_callback(services.queries.stop)
            stack.push_async_callback(services.statements.stop)
            for stream in tuple(self._streams):
                stack.push_async_callback(stream.close)

    def _is_connected(self) -> bool:
        starting = self._starting
        return starting is not None and starting.done() and starting.exception() is None

    async def _connected(self, wait_s: float | None = None) -> None:
        """Connect, once for all who wait for it; again after a failure. Raises
        KafkaUnavailableError: Kafka has not answered in time; ClosedError: it was closed meanwhile.
        """
        starting = self._starting
        if starting is None or (starting.done() and starting.exception() is not None):
            self._starting = starting = asyncio.create_task(self._start())
            starting.add_done_callback(retrieve)
        if not starting.done():
            await asyncio.wait([starting], timeout=wait_s)
        if not starting.done():
            raise KafkaUnavailableError("Kafka does not answer")
        if starting.cancelled():
            raise ClosedError("The client is closed.")
        starting.result()

    async def _start(self) -> None:
        await self._services.log.start()
        self._services.reader.begin()

    async def _snapshot(self, request: requests.Read | requests.Scan) -> ModelSnapshot:
        return await self._services.reader.snapshot(
            _point_of(request), request.timeout_s + MARGIN_S
        )

    async def _read(self, request: requests.Read) -> requests.Reading:
        with await self._snapshot(request) as snapshot:
            entries_read = snapshot.get_many(request.keys)
            pairs = zip(request.keys, entries_read, strict=True)
            entries = {key: None if e is None else _stored(e) for key, e in pairs}
            return requests.Reading(snapshot.seq, entries)

    async def _scan(self, request: requests.Scan) -> requests.Page:
        with await self._snapshot(request) as snapshot:
            keys = msgspec.structs.replace(request.keys, after=request.cursor)
            bytes_max = self._services.settings.answer_bytes_max
            page = await read_page(snapshot, keys, request.limit, bytes_max)
            entries = _decode_entries(b"[%b]" % page.items)
            return requests.Page(snapshot.seq, entries, page.last)

    async def _statements(self, request: requests.SqlStatements) -> requests.SqlAnswer:
        wanted = SqlTransaction(
            request.tables, request.statements, request.id, _point_of(request),
            _wait_s(request.timeout_s),
        )  # fmt: skip

        async def commit(txn_id: str, payload: bytes) -> Result:
            txn, otherwise = parse(payload), self._services.writer.deadline_ms()
            dated = with_timely_deadline(payload, txn, None, otherwise)
            wait = Preference(False, request.timeout_s)
            own = not txn.deadline
            pending, result = await append_and_wait(self._services, txn_id, dated, wait, own=own)
            if result is None:
                raise pending.problem()
            return result

        return sql_answer(await self._services.statements.run(wanted, ANYBODY, commit))

    async def _ask(self, request: requests.Ask) -> requests.Outcome:
        position, wait = position_in(request.position), Preference(False, request.timeout_s)
        outcome = await self._services.writer.ask(request.id, position, wait)
        return _pending(outcome) if isinstance(outcome, PendingWrite) else outcome


class DirectStream:
    """A stream of changes; see `AsyncStream`."""

    def __init__(
        self, batches: AsyncGenerator[ChangeBatch | None, None], wanted: ChangeFilter
    ) -> None:
        self._batches = batches
        self._wanted = wanted
        self._waits: asyncio.Future[ChangeBatch | str | None] | None = None
        self._closed = False

    async def receive(self) -> list[requests.Event]:
        with _translated():
            batch = await self._next()
        if isinstance(batch, str):
            raise ConnectionLostError(batch)
        if batch is None:
            return [requests.Alive()]
        wanted = filter(self._wanted.takes, batch.changes)
        return [*(decode_event(event.data) for event in wanted), requests.Progress(batch.resolved)]

    async def close(self) -> None:
        """End it; who waits for a batch waits no longer."""
        self._closed = True
        if self._waits is not None:
            self._waits.cancel()
            await asyncio.wait([self._waits])
        await self._batches.aclose()

    async def _next(self) -> ChangeBatch | str | None:
        self._waits = asyncio.ensure_future(anext(self._batches, _ENDED))
        try:
            return await self._waits
        except asyncio.CancelledError:
            if self._closed and self._waits.cancelled():
                return _ENDED
            raise
        finally:
            self._waits = None


_decode_entries: Final = msgspec.json.Decoder(list[requests.Stored]).decode
_ENDED: Final = "The stream of changes has ended."


def _point_of(
    request: requests.Read | requests.Scan | requests.Query | requests.SqlStatements,
) -> ReadPoint:
    freshness = request.freshness
    return ReadPoint(freshness.at, freshness.consistency, freshness.min_version)


def _wait_s(timeout_s: float) -> float:
    return max(0.0, timeout_s + MARGIN_S - _GIVING_UP_S)


def _is_local(request: _Performable) -> bool:
    return (
        isinstance(request, requests.Read | requests.Scan | requests.Query)
        and request.freshness.consistency != "strong"
    )


def _stored(entry: StoredEntry) -> requests.Stored:
    return requests.Stored(
        entry.key, msgspec.Raw(entry.value), entry.version, entry.ts_ms, entry.expires_ms
    )


def _pending(pending: PendingWrite) -> requests.Pending:
    at = pending.position
    return requests.Pending(None if at is None else f"{at.partition}:{at.offset}", pending.txn_id)


@contextmanager
def _translated() -> Generator[None, None, None]:
    """Raise what a facade would have answered."""
    try:
        yield
    except ProblemError as error:
        kind = error.problem
        retry_after_s = _RETRY_AFTER_S if "Retry-After" in error.headers else 0.0
        raise problem(kind.slug, kind.status, error.detail, retry_after_s, error.members) from error
    except KafkaUnavailableError as error:
        raise problem("log-unavailable", 503, f"{error}.", _RETRY_AFTER_S, {}) from error
    except ClientError:
        raise
    except StreamyError as error:
        raise problem("not-ready", 503, f"{error}.", _RETRY_AFTER_S, {}) from error


_KAFKA_FORM = "kafka://host:port[,host:port]/database?read_model=/folder"


def transport(
    url: str, token: str | None, timeout_s: float, history: Generation | None = None
) -> DirectTransport:
    """Return the transport of a URL. Raises ConfigurationError: the URL, or its read model, is
    none.
    """
    if token is not None:
        raise ConfigurationError("a token is for facades; Kafka has settings of its own")
    brokers, database, folder = kafka_parts(url)
    try:
        settings = Settings(database=database, bootstrap=brokers)
        facade = FacadeSettings(verdict_timeout_s=max(timeout_s, 30))
    except ValidationError as error:
        raise ConfigurationError(f"{_KAFKA_FORM}: {error.errors()[0]['msg']}") from None
    model = ReadModel.open(folder, database)
    log, changes = KafkaLog(settings, facade, model), KafkaChanges(settings, facade, model)
    return DirectTransport(model, log, changes, facade, on_close=model.close, history=history)


def kafka_parts(url: str) -> tuple[str, str, Path]:
    """Return the brokers, the database and the folder in a URL. Raises ConfigurationError."""
    parts = split(url)
    query = parse_qs(parts.query)
    folders = query.pop("read_model", [])
    database = unquote(parts.path.removeprefix("/"))
    if not parts.netloc or not database or len(folders) != 1 or query or parts.fragment:
        raise ConfigurationError(f"the URL of a database on Kafka is {_KAFKA_FORM}")
    return parts.netloc, database, Path(folders[0])
