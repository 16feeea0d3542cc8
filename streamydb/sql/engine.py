"""Connections to DuckDB with the table `kv`, and the settings that shut a connection off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from streamydb.errors import StreamyError, install
from streamydb.records.table import Table

if TYPE_CHECKING:
    import duckdb

    from streamydb.read_model.ports import Scannable

_VIEW: Final = """
create view kv as
select key, value::json as value, version, make_timestamp(ts_ms * 1000) as ts from {source}
"""
"""The table of the queries; the time is in UTC."""

_SHUT: Final = {
    "temp_directory": "",
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "secret_directory": "none",
    "enable_external_access": "false",
}
"""No files, no network, no extensions, no variables of this program, nothing on disk.

The folder of secrets is shown as a setting; it would be in the home of this program's user.
"""


_OR_SET: Final = re.compile(
    r",? or SET \w+ ?=[^\n]*?(?=\.(?:\s|$))|"
    r"(?<=unrecognized configuration parameter)( \"[^\n]*)\n+Did you mean: [^\n]*"
)
"""Other ways by a setting, and the settings whose names are like one that there is not."""
_FOLDER: Final = re.compile(r'"[^"\n]*/\.duckdb/[^"\n]*"')
"""A folder of DuckDB in the home of this program's user."""
_SENTENCE: Final = re.compile(r"(?<=[.:;]) +")
_ADVICE: Final = re.compile(
    r"(?:\* )?(?:Use \"?SET |SET \w|INSTALL \w|LOAD \w|Please try installing|"
    r"Alternatively, consider enabling auto|Did you mean \"(?:enable|disable|force)_)"
)
"""Sentences of DuckDB's messages that begin so tell of settings and extensions."""


class SqlMissingError(StreamyError):
    """DuckDB is not installed."""

    def __init__(self) -> None:
        super().__init__(f"SQL needs DuckDB: {install('sql')}")


class Sql:
    """Queries of one snapshot in this process, by DuckDB; for one thread, a context manager.

    Attributes:
        seq: the transaction after which this is the state.
        connection: DuckDB's own connection, with the table `kv`: for data frames, Arrow, files.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, seq: int, close: Callable[[], None]
    ) -> None:
        self.connection = connection
        self.seq = seq
        self._close = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()
        self._close()

    def query(self, sql: str, params: Sequence[Any] = ()) -> Table:
        """Run one statement.

        Raises:
            duckdb.Error: the statement cannot be run.
            UnheldValueError: the result has a value that no value of Python is.
        """
        from streamydb.sql.answers import fetched, python_value

        done = self.connection.execute(sql, list(params))
        shown = done.description or []
        rows = (
            tuple(python_value(cell, column[1]) for cell, column in zip(row, shown, strict=True))
            for row in fetched(done)
        )
        return Table(self.seq, tuple(column[0] for column in shown), tuple(rows))


def open_read_model(folder: Path | str, database: str, at: int | None = None) -> Sql:
    """Query a read model at a seq, by default the latest.
    Raises SqlMissingError: DuckDB is not installed; ReadModelError: there is no such read model, or
    it has no such snapshot.
    """
    from streamydb.read_model import ReadModel

    connection = connect()
    model = ReadModel.open(Path(folder), database)
    try:
        snapshot = model.snapshot(at)
    except BaseException:
        model.close()
        raise

    def close() -> None:
        snapshot.close()
        model.close()

    show(connection, snapshot)
    return Sql(connection, snapshot.seq, close)


def open_snapshot(folder: Path | str, *, verify: bool = True) -> Sql:
    """Query a Parquet snapshot that `streamydb snapshot` wrote.

    ``verify``: read all rows first and compare them with the snapshot's digest, which takes some
    two seconds for a million rows. DuckDB does not see that a file is damaged.

    Raises:
        SqlMissingError: DuckDB is not installed.
        SnapshotError: the folder is no snapshot, or its rows are not those that were written.
    """
    from streamydb.backup.snapshots import read_manifest, require_whole

    connection = connect()
    manifest = read_manifest(folder)
    if verify:
        require_whole(folder, manifest)
    files = ", ".join("'" + path.replace("'", "''") + "'" for path in manifest.paths(folder))
    if files:
        connection.execute(_VIEW.format(source=f"read_parquet([{files}])"))
    else:
        connection.execute("create table rows (key text, value text, version bigint, ts_ms bigint)")
        connection.execute(_VIEW.format(source="rows"))
    return Sql(connection, manifest.seq, lambda: None)


def connect(settings: Mapping[str, str] | None = None) -> duckdb.DuckDBPyConnection:
    """A new database in memory. Raises SqlMissingError: DuckDB is not installed."""
    try:
        import duckdb
    except ImportError:
        raise SqlMissingError from None
    return duckdb.connect(":memory:", config=dict(settings or {}))


def show(
    connection: duckdb.DuckDBPyConnection, snapshot: Scannable, prefixes: Sequence[str] = ("",)
) -> None:
    """Make the table `kv` of a snapshot; ``prefixes`` as for `KeyValues`."""
    from streamydb.sql.dataset import KeyValues

    connection.register("entries", KeyValues(snapshot, prefixes))
    connection.execute(_VIEW.format(source="entries"))


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Shut a connection off from everything but its tables, for good."""
    for name, value in _SHUT.items():
        connection.execute(f"set {name} = '{value}'")
    connection.execute("set lock_configuration = true")


def message_of(error: Exception) -> str:
    """The message of an error of a locked connection, without the advice to change settings.

    Nobody can take that: DuckDB tells of `SET`, `INSTALL` and `LOAD`. A message with bytes that are
    no text comes from DuckDB as a `UnicodeDecodeError`.
    """
    text = str(error)
    if isinstance(error, UnicodeDecodeError):
        text = error.object.decode(errors="backslashreplace")
    text_before, line, excerpt = text.partition("\n\nLINE ")
    lines = []
    for each in _FOLDER.sub("of DuckDB", _OR_SET.sub(r"\1", text_before)).split("\n"):
        sentences = [one for one in _SENTENCE.split(each) if not _ADVICE.match(one)]
        if sentences or not each:
            lines.append(" ".join(sentences))
    return "\n".join(lines).rstrip() + line + excerpt
