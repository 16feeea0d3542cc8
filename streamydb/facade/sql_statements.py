"""Run transactions of SQL on tables, for a facade or for a client without one.

The statements are executed in a process of their own (`sql.tables`), which
asks for what it reads of one snapshot. What it wants to write becomes one transaction, which
commits if all that was read still holds, as a function under `run` of the client.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streamydb.client.session import new_id
from streamydb.errors import CHECK_FAILED
from streamydb.facade.auth import Caller
from streamydb.facade.ports import ModelSnapshot
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import Reader, ReadPoint, in_thread
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.sql_queries import QueryRunner, no_process
from streamydb.read_model.ports import pages
from streamydb.records import Result
from streamydb.records.ranges import ScanRange

if TYPE_CHECKING:
    from streamydb.sql.pool import DialoguePool

_PAGE_ENTRIES: Final = 1_000
_ATTEMPTS_MAX: Final = 30
_BACKOFF_S: Final = 0.02
_LATE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class SqlTransaction:
    """Statements that are one transaction, at a state as for a read.

    ``tables``: their name, a part of their keys. With a ``txn_id`` it is tried once, else again
    after a conflict. ``wait_s``: how long to wait for the state, if that is less than the settings
    say.
    """

    tables: str
    statements: tuple[tuple[str, Any], ...]
    txn_id: str | None
    point: ReadPoint
    wait_s: float = math.inf


Commit = Callable[[str, bytes], Awaitable[Result]]
"""Executes a transaction (id, payload): its verdict, `committed` or `aborted`."""


@dataclass(slots=True)
class _AttemptReads:
    """Reads one snapshot for an attempt; knows the versions of keys, and how many ranges had."""

    snapshot: ModelSnapshot
    bytes_left: int
    keys: dict[str, int] = field(default_factory=dict)
    ranges: dict[tuple[str, str], int] = field(default_factory=dict)

    async def answer(self, question: list[Any]) -> Any:
        if question[0] == "read":
            return await in_thread(self._read, question[1])
        return await in_thread(self._scan, question[1], question[2])

    def checks(self) -> list[dict[str, Any]]:
        """The conditions that all of it still holds."""
        keys = [{"key": key, "version": version} for key, version in self.keys.items()]
        at = self.snapshot.seq
        return keys + [
            {"range": {"start": start, "end": end}, "count": count, "version_le": at}
            for (start, end), count in self.ranges.items()
        ]

    def _read(self, keys: list[str]) -> list[bytes | None]:
        entries = self.snapshot.get_many(keys)
        pairs = zip(keys, entries, strict=True)
        self.keys |= {key: 0 if entry is None else entry.version for key, entry in pairs}
        values = [None if entry is None else bytes(entry.value) for entry in entries]
        self._take(sum(len(value) for value in values if value is not None))
        return values

    def _scan(self, start: str, end: str) -> list[tuple[str, bytes]]:
        rows: list[tuple[str, bytes]] = []
        for page in pages(self.snapshot, ScanRange(start=start, end=end), _PAGE_ENTRIES):
            rows += [(entry.key, bytes(entry.value)) for entry in page]
            self._take(sum(len(entry.key) + len(entry.value) for entry in page))
        self.ranges[start, end] = len(rows)
        return rows

    def _take(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise _costly()


class StatementRunner:
    """Runs transactions of SQL, a few at a time, together with queries."""

    def __init__(self, queries: QueryRunner, reader: Reader, settings: FacadeSettings) -> None:
        self._queries, self._reader, self._settings = queries, reader, settings
        self._pool: DialoguePool | None = None

    async def run(
        self, wanted: SqlTransaction, client: Caller, commit: Commit, asker: str = ""
    ) -> bytes:
        """Return the JSON of the answer: `seq`, `id` and `results`; `commit` executes what is
        written.

        The client is counted by the name `asker`, and its processes work for nobody else.
        Raises ProblemError: queries-off, query-invalid, query-costly, answer-too-large, forbidden,
        constraint-violated, aborted (a conflict), too-many-requests, overloaded, what a read may
        meet, and what `commit` raises.
        """
        pool = self._started()
        keys = f"sql/{wanted.tables}/"
        client.must_read(keys)
        until = time.monotonic() + self._settings.query_timeout_s
        for number in range(_ATTEMPTS_MAX):
            txn_id = wanted.txn_id or new_id()
            with self._queries.running.enter(asker):
                seq, outcome, checks = await self._executed(pool, wanted, asker)
            if not outcome["writes"]:
                return _body(seq, None, outcome)
            if wanted.point.at is not None:
                detail = "`at` shows the past: leave it out to write."
                raise ProblemError("invalid-parameter", detail, parameters=["at"])
            client.must_write(keys)
            result = await commit(txn_id, _payload(txn_id, checks, outcome["writes"]))
            if result.status == "committed":
                return _body(result.seq, result.id or txn_id, outcome)  # of the last attempt
            if result.code != CHECK_FAILED:
                raise _aborted(result, "The transaction was aborted; nothing was written.")
            if wanted.txn_id is not None or time.monotonic() > until:
                break
            await asyncio.sleep(min(_BACKOFF_S * 2**number, until - time.monotonic()))
        detail = (
            "Others have written what was read; nothing was written. Send it again, with a new id."
        )
        raise _aborted(result, detail)

    async def stop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _started(self) -> DialoguePool:
        from streamydb.sql import tables
        from streamydb.sql.pool import DialoguePool

        self._queries.must_run()
        if (package := tables.missing()) is not None:
            detail = f"This facade has no {package}; install it there: {tables.INSTALL}."
            raise ProblemError("queries-off", detail)
        if self._pool is None:
            self._pool = DialoguePool(tables.PROCESS, self._settings.queries_max)
        return self._pool

    async def _executed(
        self, pool: DialoguePool, wanted: SqlTransaction, asker: str
    ) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
        """The seq that was read, what came of the statements, and what must still hold."""
        from streamydb.sql.pool import TooMuch

        settings = self._settings
        job = {
            "tables": wanted.tables,
            "statements": wanted.statements,
            "memory_bytes": settings.query_memory_bytes_max,
            "cpu_s": round(settings.query_timeout_s + _LATE_S),
            "rows_max": settings.query_rows_max,
            "bytes_max": settings.answer_bytes_max,
        }
        with await self._reader.snapshot(wanted.point, wanted.wait_s) as snapshot:
            seen = _AttemptReads(snapshot, settings.query_memory_bytes_max)
            try:
                outcome = await pool.run(asker, job, seen.answer, settings.query_timeout_s)
            except TooMuch:
                raise _costly() from None
            except OSError:
                raise no_process() from None
            if outcome["kind"] != "done":
                raise _refused(outcome)
            return snapshot.seq, outcome, seen.checks()


def _payload(txn_id: str, checks: list[dict[str, Any]], writes: dict[str, bytes | None]) -> bytes:
    updates = [
        {"op": "delete", "key": key} if value is None
        else {"op": "put", "key": key, "value": msgspec.Raw(value)}
        for key, value in writes.items()
    ]  # fmt: skip
    return msgspec.json.encode({"id": txn_id, "checks": checks, "updates": updates})


def _body(seq: int, txn_id: str | None, outcome: dict[str, Any]) -> bytes:
    results = msgspec.Raw(outcome["results"])
    return msgspec.json.encode({"seq": seq, "id": txn_id, "results": results})


def _refused(outcome: dict[str, Any]) -> ProblemError:
    members = dict(outcome)
    kind = members.pop("kind")
    if kind == "large":
        return ProblemError("answer-too-large", "Ask for fewer rows or columns, with LIMIT.")
    if kind == "name":
        return ProblemError("invalid-parameter", members["error"], parameters=["tables"])
    if kind == "constraint":
        detail = "A row would violate a constraint of its table; nothing was written."
        return ProblemError("constraint-violated", detail, violated=members["error"], **members)
    detail = "A statement cannot be executed; `error` says why. Nothing was written."
    return ProblemError("query-invalid", detail, reason=kind, **members)


def _aborted(result: Result, detail: str) -> ProblemError:
    return ProblemError("aborted", detail, code=result.code, id=result.id, seq=result.seq)


def _costly() -> ProblemError:
    detail = "It was ended. Let it read and write less: more narrow conditions, an index."
    return ProblemError("query-costly", detail)
