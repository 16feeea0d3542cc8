"""SQL tables, if the distribution streamydb-layers is installed: the only place that knows of it.

The facade executes statements in a process of its module `PROCESS`, and the command line opens a
connection. Whoever calls is told what to install if that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from streamydb.errors import StreamyError, install

if TYPE_CHECKING:  # exported for annotations only
    from streamydb_layers.tables import Result  # noqa: TC004
    from streamydb_layers.tables.dbapi import Connection  # noqa: TC004
    from streamydb_layers.tables.parsing import TypedLines  # noqa: TC004
    from streamydb_layers.tables.schema import Relation  # noqa: TC004

__all__ = [
    "INSTALL", "PROCESS", "Connection", "Relation", "Result", "TablesMissingError", "TypedLines",
    "connect", "describe", "execute", "missing", "require", "typed_lines",
]  # fmt: skip

PROCESS: Final = "streamydb_layers.tables.process"
"""The module of a process that executes statements; see `DialoguePool`."""

INSTALL: Final = install("sql", "./layers")  # the command that installs what SQL tables need

_PACKAGES: Final = {
    "streamydb_layers": "streamydb-layers", "sqlglot": "sqlglot", "duckdb": "DuckDB"
}  # fmt: skip


class TablesMissingError(StreamyError):
    """A package that SQL tables need is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"SQL tables need the package {package}: {INSTALL}")


def missing() -> str | None:
    """Return the name of a package that SQL tables need and that is not installed."""
    return next((name for module, name in _PACKAGES.items() if find_spec(module) is None), None)


def require() -> None:
    """Raise if SQL tables cannot be used. Raises TablesMissingError: a package is not installed."""
    if (package := missing()) is not None:
        raise TablesMissingError(package)


def connect(address: str, tables: str, token: str | None) -> Connection:
    """Open a connection to the tables of a facade; each statement is a transaction of its own."""
    from streamydb_layers.tables import dbapi

    return dbapi.connect(address, tables, token=token, autocommit=True)


def execute(connection: Connection, text: str) -> Iterator[Result]:
    """Execute the statements of a text one after the other; yield what each answers.
    Raises StreamyError: the text is no SQL, or a statement fails; later ones are not executed.
    """
    from streamydb_layers.tables.parsing import parse

    return map(connection.run, parse(text))


def typed_lines() -> TypedLines:
    """Return the lines that somebody types, none yet, until they are whole statements."""
    from streamydb_layers.tables.parsing import TypedLines

    return TypedLines()


def describe(relation: Relation) -> list[str]:
    """Return the columns, keys and checks of a table, or the query of a view, in lines."""
    from streamydb_layers.tables import schema

    return schema.describe(relation)
