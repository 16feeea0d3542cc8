"""The process of one query: reads a `Job` from standard input, writes an `QueryOutcome`, ends.

It has no secrets and no network of its own accord; DuckDB in it sees only the table. What a query
may use is bounded by the operating system as well, since a bound inside the same address space is
only as good as the program in it. `process` begins it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import duckdb
import msgspec

from streamydb.read_model import ReadModel, SnapshotAhead, SnapshotGone
from streamydb.read_model.ports import Scannable
from streamydb.records.ranges import ALL_KEYS, ScanRange
from streamydb.sql.answers import AnswerTooLargeError, UnheldValueError, answer
from streamydb.sql.child import READY, hold
from streamydb.sql.engine import connect, lock, message_of, show

Kind = Literal["done", "invalid", "costly", "large", "gone"]

_MESSAGE_CHARACTERS_MAX: Final = 1_000
_REFUSED: Final = "Send one SELECT."


class StoredRow(NamedTuple):
    """A row that comes with the job; queries do not see ends."""

    key: str
    value: bytes
    version: int
    ts_ms: int
    expires_ms: int | None = None


class Job(msgspec.Struct, kw_only=True):
    """A query and its bounds.

    Attributes:
        prefixes: the keys that it sees; in order, none covers another.
        folder: of the read model; None: `rows` are the data.
        at: the seq; None: the latest one, which is not before what the sender has seen.
        rows: the data at `at`, in the order of the keys.
        memory_bytes, threads: for DuckDB.
        cpu_s: processor time.
    """

    sql: str
    params: list[Any]
    prefixes: list[str]
    folder: str | None
    database: str
    at: int | None
    rows: list[StoredRow] = []
    memory_bytes: int
    threads: int
    cpu_s: int
    rows_max: int
    bytes_max: int


class QueryOutcome(msgspec.Struct):
    """The end of a query; `body` is the answer's JSON, `message` says what was wrong."""

    kind: Kind
    body: msgspec.Raw = msgspec.Raw(b"null")
    message: str = ""
    oldest: int = 0


class _Rows:
    def __init__(self, job: Job) -> None:
        self.seq = job.at or 0
        self._rows = job.rows

    def scan(self, keys: ScanRange = ALL_KEYS, *, limit: int = 1000) -> Sequence[StoredRow]:
        return [row for row in self._rows if keys.has(row.key)][:limit]


def main() -> int:
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing else gets into the outcome
        output.write(READY)
        output.flush()
        data = sys.stdin.buffer.read()
        if not data:  # a spare process that was not needed
            return 0
        try:
            job = msgspec.msgpack.decode(data, type=Job)
            outcome = run(job, bound=True)
        except MemoryError:
            outcome = QueryOutcome("costly")
        output.write(msgspec.json.encode(outcome))
        return 0


def run(job: Job, *, bound: bool = False) -> QueryOutcome:
    """Run a job; ``bound``: let the operating system hold this process to it."""
    try:
        with _snapshot(job) as (snapshot, seq):
            connection = connect(
                {"memory_limit": f"{job.memory_bytes}B", "threads": str(job.threads)}
            )
            show(connection, snapshot, job.prefixes)
            lock(connection)
            if bound:
                hold(job.memory_bytes, job.cpu_s)
            return _query(connection, job, seq)
    except SnapshotGone as fault:
        return QueryOutcome("gone", oldest=fault.oldest)
    except SnapshotAhead:
        return QueryOutcome("gone")


def _query(connection: duckdb.DuckDBPyConnection, job: Job, seq: int) -> QueryOutcome:
    try:
        query = _only_query(connection, job.sql)
        if query is None:
            return QueryOutcome("invalid", message=_REFUSED)
        done = connection.execute(query, job.params)
        body = answer(done, seq, rows_max=job.rows_max, bytes_max=job.bytes_max)
        return QueryOutcome("done", msgspec.Raw(body))
    except AnswerTooLargeError:
        return QueryOutcome("large")
    except (duckdb.OutOfMemoryException, MemoryError):
        return QueryOutcome("costly")
    except (duckdb.InternalException, duckdb.FatalException):
        return QueryOutcome("invalid", message="DuckDB failed on this query.")
    except (duckdb.Error, UnheldValueError, UnicodeDecodeError) as fault:
        return QueryOutcome("invalid", message=message_of(fault)[:_MESSAGE_CHARACTERS_MAX])
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as fault:
        return QueryOutcome("invalid", message=str(fault)[:_MESSAGE_CHARACTERS_MAX])


def _only_query(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement | None:
    """The query that a text is; None if it is more than one, or something else. DuckDB makes
    several statements of a PIVOT by the values that there are. So does it of a `create table` of
    one; but in brackets there can be nothing but a query.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        return None
    [statement] = statements
    if statement.type == duckdb.StatementType.SELECT:
        return statement
    if statement.type != duckdb.StatementType.MULTI:
        return None
    try:
        inner = connection.extract_statements(f"from (\n{_without_end(sql)}\n)")
    except duckdb.ParserException:
        return None
    return statement if len(inner) == 1 else None


def _without_end(sql: str) -> str:
    """A statement without the semicolons at its end, and what stands behind them."""
    text, end = sql.encode(), len(sql.encode())
    for at, kind in reversed(duckdb.tokenize(sql)):
        if text[at : at + 1] == b";" and kind == duckdb.token_type.operator:
            end = at
        elif kind != duckdb.token_type.comment:
            break
    return text[:end].decode()


@contextmanager
def _snapshot(job: Job) -> Iterator[tuple[Scannable, int]]:
    if job.folder is None:
        rows = _Rows(job)
        yield rows, rows.seq
        return
    with (
        ReadModel.open(Path(job.folder), job.database) as model,
        model.snapshot(job.at) as snapshot,
    ):
        snapshot.scan(limit=1)  # loads what it needs, as long as the process may write files
        yield snapshot, snapshot.seq
