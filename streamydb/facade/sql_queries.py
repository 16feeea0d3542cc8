"""Run a query in SQL, for a facade or for a client without one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamydb.errors import install
from streamydb.facade.auth import Caller
from streamydb.facade.bounds import Limiter
from streamydb.facade.ports import ModelSnapshot, ServedModel
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import Reader, ReadPoint, in_thread
from streamydb.facade.settings import FacadeSettings
from streamydb.read_model.ports import pages
from streamydb.records.ranges import ScanRange

if TYPE_CHECKING:
    from streamydb.sql.pool import QueryPool
    from streamydb.sql.worker import Job, StoredRow

_PAGE_ROWS: Final = 1_000
_RETRY_AFTER_S: Final = 1
_LATE_S: Final = 1.0
"""The processor time that a query may take beyond its time, before the system ends it."""


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """A query: one SELECT, values of its parameters, which keys, which state.

    ``wait_s``: how long to wait for that state, if that is less than the settings say.
    """

    sql: str
    params: tuple[Any, ...]
    prefix: str
    point: ReadPoint
    wait_s: float = math.inf


class QueryRunner:
    """Runs queries, a few at a time."""

    def __init__(self, model: ServedModel, reader: Reader, settings: FacadeSettings) -> None:
        self._model = model
        self._reader = reader
        self._settings = settings
        self._pool: QueryPool | None = None
        self.running = Limiter("queries", max(1, settings.queries_max), settings.client_queries_max)

    async def run(self, query: SqlQuery, client: Caller, asker: str = "") -> bytes:
        """Return the JSON of the answer; the client is counted by the name `asker`.
        Raises ProblemError: queries-off, query-invalid, query-costly, answer-too-large, forbidden,
        too-many-requests, overloaded, and what a read may meet.
        """
        from streamydb.sql.keyspace import within

        pool = self._started()
        prefixes = within(query.prefix, client.scopes["read"])
        if not prefixes:
            client.must_read(query.prefix)
        with self.running.enter(asker):
            job = await self._job(query, prefixes)
            try:
                outcome = await pool.run(job, self._settings.query_timeout_s)
            except OSError:
                raise no_process() from None
        if outcome.kind == "invalid":
            detail = "The query cannot be run; `error` says why."
            raise ProblemError("query-invalid", detail, error=outcome.message)
        if outcome.kind == "costly":
            detail = "It was ended. Ask for less: a prefix, a range of keys, fewer joins."
            raise ProblemError("query-costly", detail)
        if outcome.kind == "large":
            raise ProblemError("answer-too-large", "Ask for fewer rows or columns, with LIMIT.")
        if outcome.kind == "gone":
            detail = f"The oldest snapshot is at seq {outcome.oldest}."
            raise ProblemError("snapshot-gone", detail, oldest=outcome.oldest)
        return bytes(outcome.body)

    async def stop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def must_run(self) -> None:
        """Refuse if nothing can be run here. Raises ProblemError: queries-off."""
        from streamydb.sql.pool import is_installed

        if not self._settings.queries_max:
            raise ProblemError("queries-off", "This facade runs no queries (queries_max is 0).")
        if not is_installed():
            detail = f"This facade has no DuckDB; install it there: {install('sql')}."
            raise ProblemError("queries-off", detail)

    def _started(self) -> QueryPool:
        from streamydb.sql.pool import QueryPool

        self.must_run()
        if self._pool is None:
            self._pool = QueryPool()
        return self._pool

    async def _job(self, query: SqlQuery, prefixes: list[str]) -> Job:
        from streamydb.read_model import ReadModel
        from streamydb.sql.worker import Job

        settings = self._settings
        with await self._reader.snapshot(query.point, query.wait_s) as snapshot:
            stored = self._model if isinstance(self._model, ReadModel) else None
            rows = [] if stored else await in_thread(_rows, snapshot, prefixes)
            return Job(
                sql=query.sql,
                params=list(query.params),
                prefixes=prefixes,
                folder=None if stored is None else str(stored.folder),
                database="" if stored is None else stored.database,
                at=query.point.at if stored else snapshot.seq,
                rows=rows,
                memory_bytes=settings.query_memory_bytes_max,
                threads=settings.query_threads_max,
                cpu_s=round(settings.query_threads_max * (settings.query_timeout_s + _LATE_S)),
                rows_max=settings.query_rows_max,
                bytes_max=settings.answer_bytes_max,
            )


def no_process() -> ProblemError:
    detail = "No process can be started for it now; try again later."
    return ProblemError("overloaded", detail, retry_after_s=_RETRY_AFTER_S)


def _rows(snapshot: ModelSnapshot, prefixes: list[str]) -> list[StoredRow]:
    from streamydb.sql.worker import StoredRow

    rows = []
    for prefix in prefixes:
        for page in pages(snapshot, ScanRange(prefix), _PAGE_ROWS):
            rows += [StoredRow(each.key, each.value, each.version, each.ts_ms) for each in page]
    return rows
