"""SQL tables by PEP 249, so that pandas, notebooks and other tools connect.

    connection = connect("http://127.0.0.1:8080", "shop")
    cursor = connection.cursor()
    cursor.execute("select id from orders where state = ?", ["open"])

A connection begins a transaction with its first statement, which ends with `commit` or `rollback`;
with `autocommit` each statement is one of its own. A conflict is an `OperationalError` at `commit`:
the whole transaction begins again, or not.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from sqlglot import exp

from streamydb.client import Client, ClientError, TooLargeError, UnsafeScanError
from streamydb.client import connect as connect_client
from streamydb.errors import StreamyError
from streamydb_layers.tables import errors
from streamydb_layers.tables.database import OpenTransaction, Tables
from streamydb_layers.tables.parsing import Parameters, bind, is_control, parse
from streamydb_layers.tables.schema import Relation
from streamydb_layers.tables.statements import Result

_P = ParamSpec("_P")
_T = TypeVar("_T")

apilevel: Final = "2.0"
threadsafety: Final = 1
"""Threads may share the module, not a connection."""

paramstyle: Final = "qmark"


class Warning(Exception):  # noqa: A001, N818 - PEP 249's name
    """Never raised."""


class Error(StreamyError):
    """Base of all others."""


class InterfaceError(Error):
    """The module was misused."""


class DatabaseError(Error):
    """The database refused."""


class DataError(DatabaseError):
    """A value does not fit."""


class OperationalError(DatabaseError):
    """A conflict, a connection, an outcome that is not known: the same may succeed again."""


class IntegrityError(DatabaseError):
    """A constraint would be violated."""


class InternalError(DatabaseError):
    """The database has a fault."""


class ProgrammingError(DatabaseError):
    """The statement is wrong."""


class NotSupportedError(DatabaseError):
    """The statement is not understood."""


_KINDS: Final[list[tuple[type[StreamyError], type[Error]]]] = [
    (errors.ConstraintViolationError, IntegrityError),
    (errors.DataRefusedError, DataError),
    (errors.StatementUnsupportedError, NotSupportedError),
    (errors.StatementInvalidError, ProgrammingError),
    (errors.TransactionConflictError, OperationalError),
    (errors.TransactionForeignError, OperationalError),
    (UnsafeScanError, NotSupportedError),
    (TooLargeError, DataError),
    (ClientError, OperationalError),
    (StreamyError, DatabaseError),
]


def _translated(method: Callable[Concatenate[Any, _P], _T]) -> Callable[Concatenate[Any, _P], _T]:
    """Make a method raise the errors of this module."""

    @wraps(method)
    def made(self: Any, /, *args: _P.args, **named: _P.kwargs) -> _T:
        try:
            return method(self, *args, **named)
        except Error:
            raise
        except StreamyError as error:
            kind = next(made for raised, made in _KINDS if isinstance(error, raised))
            raise kind(str(error)) from error

    return made


def connect(
    database: str | Client | Tables, name: str = "main", *, autocommit: bool = False, **options: Any
) -> Connection:
    """Connect to tables.

    Args:
        database: the URL of a facade; or a client, or tables, which stay their owner's.
        name: of the tables, as for `Tables`.
        autocommit: whether each statement is a transaction of its own.
        options: for `streamydb.connect`, as `token`.
    """
    if isinstance(database, Tables):
        return Connection(database, None, autocommit=autocommit)
    if isinstance(database, Client):
        return Connection(Tables(database, name), None, autocommit=autocommit)
    client = connect_client(database, **options)
    return Connection(Tables(client, name), client, autocommit=autocommit)


class Connection:
    """A connection; as a context manager it commits or rolls back, and stays open."""

    Warning = Warning
    Error = Error
    InterfaceError = InterfaceError
    DatabaseError = DatabaseError
    DataError = DataError
    OperationalError = OperationalError
    IntegrityError = IntegrityError
    InternalError = InternalError
    ProgrammingError = ProgrammingError
    NotSupportedError = NotSupportedError

    def __init__(self, tables: Tables, client: Client | None, *, autocommit: bool) -> None:
        self.tables = tables
        self.autocommit = autocommit
        self._client = client
        self._open: OpenTransaction | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def cursor(self) -> Cursor:
        """Return a new cursor; all of a connection share its transaction."""
        self._require_open()
        return Cursor(self)

    @property
    def in_transaction(self) -> bool:
        """A transaction is open."""
        return self._open is not None

    @_translated
    def commit(self) -> None:
        """Commit; `OperationalError` if others have written what was read."""
        self._require_open()
        opened, self._open = self._open, None
        if opened is not None:
            opened.commit()

    def rollback(self) -> None:
        """Forget what was written since the last commit."""
        self._require_open()
        self._open = None

    def close(self) -> None:
        """Roll back, and close."""
        if not self._closed:
            self._closed, self._open = True, None
            self.tables.close()
            if self._client is not None:
                self._client.close()

    def run(self, statement: exp.Expr) -> Result:
        """Execute a statement in the transaction, or BEGIN, COMMIT or ROLLBACK."""
        self._require_open()
        if is_control(statement):
            self._open = self.tables.controlled(statement, self._open)
            return Result()
        if self._open is None and self.autocommit:
            return self.tables.run(lambda view: view.execute(statement))
        if self._open is None:
            self._open = self.tables.begin()
        return self._open.execute(statement)

    @_translated
    def definitions(self) -> list[Relation]:
        """The definitions of all tables and views, as the connection's transaction sees them."""
        return self.tables.relations() if self._open is None else self._open.relations()

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("The connection is closed.")


class Cursor:
    """Executes statements, and holds the rows of the last one.

    Attributes:
        description: for each column its name and type, and five times None; None without rows.
        rowcount: rows that were found or written; -1 if that means nothing.
        arraysize: how many rows `fetchmany` returns.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1
        self._rows: Iterator[tuple[Any, ...]] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @_translated
    def execute(self, operation: str, parameters: Parameters | None = ()) -> Self:
        """Execute one statement."""
        self._require_open()
        found = parse(operation)
        if len(found) != 1:
            raise ProgrammingError(f"There are {len(found)} statements: execute them one by one.")
        self._show(self.connection.run(bind(found[0], parameters)))
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Parameters]) -> Self:
        """Execute one statement with each of some values; an error names the row that has it."""
        total = 0
        for number, parameters in enumerate(seq_of_parameters, 1):
            try:
                total += max(0, self.execute(operation, parameters).rowcount)
            except Error as error:
                raise type(error)(f"Row {number} of the values: {error}") from error
        self.rowcount = total
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row; None if there are no more."""
        return next(self._found(), None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows."""
        wanted = self.arraysize if size is None else size
        rows = self._found()
        return [row for _, row in zip(range(wanted), rows, strict=False)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that are left."""
        return list(self._found())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._found()

    def close(self) -> None:
        """Forget the rows."""
        self._closed, self._rows = True, None

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows."""

    def _show(self, result: Result) -> None:
        self._rows = iter(result.rows) if result.columns else None
        self.rowcount = len(result.rows) if result.changed is None else result.changed
        self.description = [
            (name, kind, None, None, None, None, None)
            for name, kind in zip(result.columns, result.types, strict=True)
        ] or None
        if self.description is None and result.changed is None:
            self.rowcount = -1

    def _found(self) -> Iterator[tuple[Any, ...]]:
        self._require_open()
        if self._rows is None:
            raise ProgrammingError("There are no rows: the last statement returned none.")
        return self._rows

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("The cursor is closed.")


class _Kind:
    """A type object: equal to the names of its types in `description`."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return other is self or str(other).partition("(")[0] in self._names

    __hash__ = None  # type: ignore[assignment]


STRING: Final = _Kind("VARCHAR", "JSON")
BINARY: Final = _Kind("BLOB")
NUMBER: Final = _Kind(
    "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "DECIMAL", "BOOLEAN", "TINYINT"
)
DATETIME: Final = _Kind("DATE", "TIMESTAMP", "TIME")
ROWID: Final = _Kind()

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802 - PEP 249's name
    """The date, UTC, so many seconds after 1970."""
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802 - PEP 249's name
    """The time of day, UTC, so many seconds after 1970."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802 - PEP 249's name
    """The time, UTC, so many seconds after 1970."""
    return dt.datetime.fromtimestamp(ticks, dt.UTC).replace(tzinfo=None)
