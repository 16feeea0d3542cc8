"""The client for coroutines: its public methods."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

from msgspec import UNSET, UnsetType

from streamydb.client import core, reads
from streamydb.client.attempts import run
from streamydb.client.awaiting.transports import AsyncTransport, Perform
from streamydb.client.awaiting.views import AsyncAtomic, AsyncRecords, AsyncView, AsyncWatch
from streamydb.client.calls import Procedure, ProcedureCall, call
from streamydb.client.errors import OutcomeUnknownError
from streamydb.client.lifetimes import AsyncLifetime
from streamydb.client.requests import (
    Consistency,
    Entry,
    Flow,
    Pause,
    Request,
    ResumeAttempt,
    Snapshot,
)
from streamydb.client.session import Session
from streamydb.client.statements import SqlResult, Statement, execute_sql, prepare_statements
from streamydb.client.transactions import Committed, Prepared, ReadItem, as_list, prepare
from streamydb.client.watch_core import After, FollowedStream, Watching, selection
from streamydb.records.ranges import Range, ScanRange
from streamydb.records.table import Table

_T = TypeVar("_T")


class AsyncClient:
    """A connection to a database, for one event loop; `streamydb.connect_async` makes it.

    Attributes:
        session: what it remembers; `session.seq` is the highest seq it has seen.
    """

    lifetime: ClassVar[type[AsyncLifetime]] = AsyncLifetime

    def __init__(
        self,
        transport: AsyncTransport,
        session: Session,
        sleep: Callable[[float], Any] | None = None,
    ) -> None:
        """Speak through `transport`; `sleep` stands in for real pauses."""
        self.session = session
        self._transport = transport
        self._lifetime = self.lifetime("client", sleep)

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Give back all connections."""
        self._lifetime.close()
        await self._transport.close()

    async def get(
        self,
        key: str,
        default: Any = None,
        *,
        at: int | None = None,
        consistency: Consistency | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Return the value of a key, `default` if it is absent.

        ``at``: the seq whose state to show, instead of a fresh one. ``consistency``: strong,
        session or snapshot. ``timeout_s``: how long to try. By default the last two are the
        client's.
        """
        entry = await self.entry(key, at=at, consistency=consistency, timeout_s=timeout_s)
        return entry.value if entry.exists else default

    async def entry(
        self,
        key: str,
        *,
        at: int | None = None,
        consistency: Consistency | None = None,
        timeout_s: float | None = None,
    ) -> Entry:
        """Return the value of a key with its version; see `get`."""
        snapshot = await self.read([key], at=at, consistency=consistency, timeout_s=timeout_s)
        return snapshot.entries[key]

    async def read(
        self,
        keys: Iterable[str],
        *,
        at: int | None = None,
        consistency: Consistency | None = None,
        timeout_s: float | None = None,
    ) -> Snapshot:
        """Read keys at one snapshot; see `get`."""
        freshness, wanted = self.session.freshness(consistency, at), as_list(keys)
        return Snapshot(await self._run(reads.read(self.session, wanted, freshness, timeout_s)))

    async def scan(
        self,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        limit: int | None = None,
        at: int | None = None,
        consistency: Consistency | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Entry]:
        """Yield the entries of a range at one snapshot, in the order of their keys' UTF-8 bytes;
        see `get`.

        The range is of keys with a prefix, from ``start`` on, before ``end``; ``timeout_s`` is for
        each page.
        """
        freshness = self.session.freshness(consistency, at)
        wanted = reads.RangeScan(self.session, ScanRange(prefix, start, end), freshness, limit)
        while page := await self._run(reads.scan_page(wanted, timeout_s)):
            for stored in page:
                yield stored.entry()

    async def query(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        prefix: str = "",
        at: int | None = None,
        consistency: Consistency | None = None,
        timeout_s: float | None = None,
    ) -> Table:
        """Run one SELECT over `kv(key, value, version, ts)` at one snapshot; see docs/queries.md.

        `?` or `$1` in DuckDB's SQL stand for parameters: text, numbers, booleans, None. The table
        has only keys that begin with ``prefix``; for the rest see `get`.

        Raises:
            QueryInvalidError: it cannot be run.
            QueryCostlyError: it takes too much.
            AnswerTooLargeError: it has too many rows.
            QueriesOffError: queries are not served.
        """
        freshness = self.session.freshness(consistency, at)
        flow = reads.query(self.session, sql, params, prefix, freshness, timeout_s)
        return await self._run(flow)

    async def sql(
        self,
        sql: str,
        params: Sequence[Any] | Mapping[str, Any] = (),
        *,
        tables: str = "main",
        at: int | None = None,
        consistency: Consistency | None = None,
        timeout_s: float | None = None,
    ) -> SqlResult:
        """Execute one statement on SQL tables, as a transaction of its own; see docs/tables.md.

        `?` or `$1` stand for parameters; a mapping has those of `$name`. ``tables``: the name of
        the tables, a part of their keys. With ``at``, see `get`, the statement only reads.

        Raises:
            QueryInvalidError: it cannot be executed.
            ConstraintViolatedError: a row would violate a constraint.
            ConflictError: others wrote what it read, in each attempt.
            OutcomeUnknownError: the answer is lost; it may be committed. `ask` looks for the
                verdict.
            QueryCostlyError, AnswerTooLargeError, QueriesOffError: as for `query`.
        """
        [result] = await self.sql_transaction(
            [(sql, params)], tables=tables, at=at, consistency=consistency, timeout_s=timeout_s
        )
        return result

    async def sql_transaction(
        self,
        statements: Iterable[Statement],
        *,
        tables: str = "main",
        at: int | None = None,
        consistency: Consistency | None = None,
        timeout_s: float | None = None,
    ) -> list[SqlResult]:
        """Execute statements, texts or pairs of a text and its parameters, as one transaction; see
        `sql`.
        """
        freshness = self.session.freshness(consistency, at)
        flow = execute_sql(
            self.session, tables, prepare_statements(statements), freshness, timeout_s
        )
        return await self._run(flow)

    async def put(
        self,
        key: str,
        value: Any,
        *,
        ttl_ms: int | UnsetType = UNSET,
        timeout_s: float | None = None,
    ) -> Committed:
        """Store a value, for ``ttl_ms`` or for good; raises as `transaction`."""
        return await self.atomic().put(key, value, ttl_ms=ttl_ms).commit(timeout_s=timeout_s)

    async def delete(self, key: str, *, timeout_s: float | None = None) -> Committed:
        """Remove a key, if it is there; raises as `transaction`."""
        return await self.atomic().delete(key).commit(timeout_s=timeout_s)

    def atomic(self, txn_id: str | None = None, *, deadline_ms: int | None = None) -> AsyncAtomic:
        """Begin a transaction that is put together call by call, then committed.

        With a ``txn_id`` it can be sent again later or from elsewhere. ``deadline_ms``: the last
        commit time at which it may be executed; by default, what the timeout of its first `commit`
        needs.
        """
        return AsyncAtomic(self, self.session.new_id if txn_id is None else txn_id, deadline_ms)

    async def transaction(
        self,
        *,
        asserts: Mapping[str, Any] | None = None,
        checks: Iterable[Mapping[str, Any]] = (),
        reads: Iterable[ReadItem] = (),
        updates: Iterable[Mapping[str, Any]] = (),
        call: Mapping[str, Any] | None = None,
        deploy: Mapping[str, Any] | None = None,
        constrain: Mapping[str, Any] | None = None,
        locks: Iterable[ReadItem] = (),
        txn_id: str | None = None,
        deadline_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> Committed:
        """Execute a transaction given as in docs/semantics.md.

        Its deadline is what the timeout needs, unless it is given.

        Raises:
            AbortedError: it was executed and wrote nothing; `failed` says why.
            DeadlinePassedError: it was not executed: it came to the log too late.
            OutcomeUnknownError: no verdict came in time.
            ClientError: it is not in the log.
        """
        dated = partial(self.session.deadline_ms, timeout_s) if deadline_ms is None else None
        txn = prepare(
            self.session.new_id() if txn_id is None else txn_id,
            asserts=asserts, checks=checks, reads=reads, updates=updates, call=call, deploy=deploy,
            constrain=constrain, locks=locks, deadline_ms=deadline_ms if dated is None else dated(),
        )  # fmt: skip
        return await self._send(txn, timeout_s, fresh=txn_id is None, dated=dated)

    async def call(
        self,
        procedure: Procedure,
        args: Mapping[str, Any] | None = None,
        /,
        *,
        keys: Iterable[str] | None = None,
        reads: Iterable[str] = (),
        ranges: Iterable[Range | Mapping[str, str] | str] = (),
        checks: Iterable[Mapping[str, Any]] = (),
        after: Iterable[ReadItem] = (),
        pinned: bool = False,
        calls_max: int | None = None,
        txn_id: str | None = None,
        timeout_s: float | None = None,
        **named: Any,
    ) -> Committed:
        """Call a stored procedure; the verdict's `returned` is what it returned.

        Without `keys`, its key function gives them, or else it is run on a snapshot here to find
        them, and called again when they have changed meanwhile.

        Args:
            procedure: `module.name`, or the function itself, imported from its file.
            args: its arguments, if one has the name of an option; else give them by name.
            keys: the keys that it may write.
            reads: keys that it may read besides.
            ranges: ranges that it may scan; a text is a prefix.
            checks: conditions on the state before, as in docs/semantics.md.
            after: keys whose values the verdict gives, and ranges.
            pinned: let it abort, and try again, if any value seen on the snapshot has changed.
            calls_max: how often it is tried when its keys change.
            txn_id: the transaction's id, for a call with `keys`.
            timeout_s: how long each try may last.
            named: its arguments.

        Raises:
            AbortedError: it was executed and wrote nothing; `reason` says why.
            ConflictError: its keys were others in every attempt.
            OutcomeUnknownError: no verdict came in time.
        """
        request = ProcedureCall(
            procedure, {**(args or {}), **named}, keys, reads, ranges, checks, after, pinned,
            calls_max, txn_id, timeout_s,
        )  # fmt: skip
        return await self._run(call(self.session, request))

    async def send(self, txn: Prepared, *, timeout_s: float | None = None) -> Committed:
        """Send a prepared transaction; however often that is done, it is executed once."""
        return await self._send(txn, timeout_s)

    async def _send(
        self,
        txn: Prepared,
        timeout_s: float | None,
        *,
        fresh: bool = False,
        dated: Callable[[], int] | None = None,
    ) -> Committed:
        return await self._run(core.execute(self.session, txn, timeout_s, fresh=fresh, dated=dated))

    async def verdict(self, txn_id: str, *, timeout_s: float | None = None) -> Committed:
        """Look for the verdict of a transaction that was sent before.

        If it lacked locks, that of the last attempt with them counts.

        Raises:
            AbortedError: it was executed and wrote nothing.
            TransactionUnknownError: none was found.
            OutcomeUnknownError: it did not come in time, or lacks locks and may be sent with them.
        """
        return await self._ask(Prepared(txn_id, b""), timeout_s)

    async def run(
        self,
        function: Callable[[AsyncView], Awaitable[_T]],
        *,
        consistency: Consistency | None = None,
        conflicts_max: int | None = None,
    ) -> _T:
        """Execute a function as a transaction and return what it returns.

        It may be called several times, so it must have no effect but by its view. Without writes,
        it is a read-only transaction at its snapshot, and nothing is sent to the log.

        Args:
            function: a coroutine function; reads and writes through the view that it is given.
            consistency: of the first snapshot; strong makes read-only functions strictly
                serializable too.
            conflicts_max: how often it is called at most.

        Raises:
            ConflictError: it was called so often in vain.
            OutcomeUnknownError: no verdict came in time; its writes may be committed or not.
        """
        flow = run(self.session, consistency, conflicts_max)
        value: _T = await self._run(flow, lambda request: self._perform_run(request, function))
        return value

    def watch(
        self,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        where: Mapping[str, Any] | None = None,
        where_before: Mapping[str, Any] | None = None,
        since: int | None = None,
    ) -> AsyncWatch:
        """Follow the changes of a range of keys, in their order, without an end.

        ``where``: a check, without its key, of the value after a change: `{"ge": 100}`;
        ``where_before``: of the value before it. ``since``: begin after this seq; by default now:
        when the watch is entered, or else when the first change is asked for.
        Raises InvalidParameterError: one of them makes no sense.
        """
        wanted = selection(ScanRange(prefix, start, end), where, where_before)
        watching = Watching(self.session, wanted, since)
        return AsyncWatch(self._perform, self._transport, watching, self._lifetime)

    def stream(self, name: str, *, after: After = None, end: bool = False) -> AsyncRecords:
        """Follow what procedures emit to a stream: in order, each record once; waits for more.

        ``name``: `module.stream`. ``after``: begin after this seq, or after a record's (seq,
        index). ``end``: stop when there are no more.
        """
        return AsyncRecords(self._perform, FollowedStream(self.session, name, after, end=end))

    async def _run(self, flow: Flow[_T], perform: Perform | None = None) -> _T:
        try:
            return await core.drive(flow, perform or self._perform)
        except OutcomeUnknownError as error:
            # Let the error ask later, and send again what was sent, if that is known here.
            # Statements of SQL are not: executed again, they might find their own work done.
            txn = Prepared(error.id, error.payload)
            error.ask = self.later(lambda: self._ask(txn))
            error.send_again = self.later(lambda: self.send(txn)) if txn.payload else error.ask
            raise error from error.__cause__

    @staticmethod
    def later(call: Callable[[], Coroutine[Any, Any, Committed]]) -> Callable[[], Any]:
        """Return a call as an error offers it."""
        return call

    async def _perform(self, request: Request[Any]) -> Any:
        self._lifetime.check()
        if isinstance(request, Pause):
            return await self._lifetime.pause(request.seconds)
        return await self._transport.send(request)

    async def _perform_run(
        self, request: Request[Any], function: Callable[[AsyncView], Awaitable[Any]]
    ) -> Any:
        if isinstance(request, ResumeAttempt):
            return await function(AsyncView(self._perform, request.attempt))
        return await self._perform(request)

    async def _ask(self, txn: Prepared, timeout_s: float | None = None) -> Committed:
        return await self._run(core.ask(self.session, txn, timeout_s))
