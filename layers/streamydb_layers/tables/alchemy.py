"""SQL tables as a dialect of SQLAlchemy: `create_engine("streamydb://127.0.0.1:8080/shop")`.

The URL has the facade's host and port and the name of the tables; `?tls=1` means https, a password
is the token. Without a host, the tables are in this process's memory, for tests. A conflict is an
`OperationalError` at commit. Constraint names, defaults and identity columns are reflected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from sqlalchemy import types
from sqlalchemy.engine import URL, default, reflection
from sqlalchemy.exc import CompileError, NoSuchTableError
from sqlalchemy.sql import compiler
from sqlglot.dialects.duckdb import DuckDB

from streamydb.client import canonical
from streamydb.errors import ValueRejected
from streamydb.sql import connect
from streamydb_layers.tables import dbapi
from streamydb_layers.tables.database import Tables
from streamydb_layers.tables.schema import Check, ForeignKey, Index, Relation, Table, View

_Named = TypeVar("_Named", Check, ForeignKey, Index)

_MEMORY: Final[dict[str, Tables]] = {}
"""Tables in memory, by name: all connections of this process share them."""


class _Compiler(compiler.SQLCompiler):
    def limit_clause(self, select: Any, **named: Any) -> str:
        """Write LIMIT and OFFSET, each only if it is there."""
        text = ""
        if select._limit_clause is not None:
            text += f"\n LIMIT {self.process(select._limit_clause, **named)}"
        if select._offset_clause is not None:
            text += f"\n OFFSET {self.process(select._offset_clause, **named)}"
        return text

    def for_update_clause(self, select: Any, **named: Any) -> str:
        """Nothing is locked: what was read is checked at the commit."""
        return ""

    def visit_now_func(self, fn: Any, **named: Any) -> str:
        """The time without a zone."""
        return "CAST(CURRENT_TIMESTAMP AS TIMESTAMP)"

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **named: Any) -> str:
        """Match a part of a text."""
        return self._regexp("regexp_matches", binary, named)

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **named: Any) -> str:
        """Match no part of a text."""
        return f"NOT {self._regexp('regexp_matches', binary, named)}"

    def visit_regexp_replace_op_binary(self, binary: Any, operator: Any, **named: Any) -> str:
        """Replace the first part of a text that matches."""
        return self._regexp("regexp_replace", binary, named)

    def _regexp(self, function: str, binary: Any, named: dict[str, Any]) -> str:
        parts = [binary.left, *getattr(binary.right, "clauses", [binary.right])]
        cells = [self.process(part, **named) for part in parts]
        if flags := binary.modifiers["flags"]:
            cells.append(self.render_literal_value(flags, types.STRINGTYPE))
        return f"{function}({', '.join(cells)})"

    def update_from_clause(
        self, update_stmt: Any, from_table: Any, extra_froms: Any, from_hints: Any, **named: Any
    ) -> str:
        """UPDATE ... FROM."""
        return f"FROM {self._others(extra_froms, from_hints, named)}"

    def delete_extra_from_clause(
        self, delete_stmt: Any, from_table: Any, extra_froms: Any, from_hints: Any, **named: Any
    ) -> str:
        """DELETE ... USING."""
        return f"USING {self._others(extra_froms, from_hints, named)}"

    def _others(self, tables: Any, hints: Any, named: dict[str, Any]) -> str:
        named["asfrom"] = True
        return ", ".join(t._compiler_dispatch(self, fromhints=hints, **named) for t in tables)


@cache
def _words() -> frozenset[str]:
    """The words of the grammar, which have quotes as names: those of DuckDB and of sqlglot."""
    with connect() as duckdb:
        found = duckdb.execute("select keyword_name from duckdb_keywords()").fetchall()
    words = {word for (word,) in found} | {word.lower() for word in DuckDB.Tokenizer.KEYWORDS}
    return frozenset(words | compiler.RESERVED_WORDS)


class _Preparer(compiler.IdentifierPreparer):
    def _requires_quotes(self, value: str) -> bool:
        """Return True for a word of the grammar, too."""
        return bool(super()._requires_quotes(value)) or value.lower() in _words()


class _DDLCompiler(compiler.DDLCompiler):
    def visit_identity_column(self, identity: Any, **_: Any) -> str:
        """Number the rows from 1 on; refuse what says more."""
        unknown = {
            "always": identity.always, "cycle": identity.cycle,
            "start": identity.start not in {None, 1}, "cache": identity.cache is not None,
            "increment": identity.increment not in {None, 1},
            "minvalue": identity.minvalue not in {None, 1},
            "maxvalue": identity.maxvalue is not None,
        }  # fmt: skip
        for name, said in unknown.items():
            if said:
                raise CompileError(f"streamydb numbers rows from 1 on: Identity has no {name!r}.")
        return "GENERATED BY DEFAULT AS IDENTITY"

    def visit_computed_column(self, generated: Any, **_: Any) -> str:
        """Refuse it."""
        raise CompileError(
            f"streamydb has no computed columns: leave Computed away from "
            f"{generated.column.name!r}, and select the expression, or create a view."
        )

    def get_column_specification(self, column: Any, **_: Any) -> str:
        """Write a column; what numbers itself is an identity column."""
        kind = self.dialect.type_compiler_instance.process(column.type, type_expression=column)
        text = f"{self.preparer.format_column(column)} {kind}"
        given = self.get_column_default_string(column)
        numbered = column is column.table._autoincrement_column
        if column.computed is not None:
            text += f" {self.process(column.computed)}"
        elif column.identity is not None:
            text += f" {self.process(column.identity)}"
        elif numbered and column.server_default is None:
            text += " GENERATED BY DEFAULT AS IDENTITY"
        elif given is not None:
            text += f" DEFAULT {given}"
        return text + ("" if column.nullable else " NOT NULL")


class _TypeCompiler(compiler.GenericTypeCompiler):
    def visit_datetime(self, type_: Any, **_: Any) -> str:
        """A time without a zone."""
        return "TIMESTAMP"

    def visit_unicode(self, type_: Any, **_: Any) -> str:
        """Text; a length would not be enforced."""
        return "TEXT"

    def visit_JSON(self, type_: Any, **_: Any) -> str:
        """JSON."""
        return "JSON"


class _Json(types.JSON):
    """JSON, which the driver has decoded."""

    def result_processor(self, dialect: Any, coltype: object) -> None:
        """Take it as it is."""


def _json_text(value: Any) -> str:
    """JSON as it is stored, so that `=` finds it; as it is, if it cannot be stored."""
    text = json.dumps(value)
    try:
        return canonical(json.loads(text)).decode()
    except ValueRejected:
        return text


class TablesDialect(default.DefaultDialect):
    """See the module."""

    name = "streamydb"
    driver = "rest"
    statement_compiler = _Compiler
    ddl_compiler = _DDLCompiler
    type_compiler_cls = _TypeCompiler
    preparer = _Preparer
    colspecs: Any = {types.JSON: _Json}
    default_paramstyle = "qmark"
    max_identifier_length = 64
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_alter = False
    supports_default_values = True
    cte_follows_insert = True
    supports_default_metavalue = True
    supports_multivalues_insert = True
    supports_identity_columns = True
    supports_sane_rowcount_returning = True
    insert_returning = True
    update_returning = True
    delete_returning = True
    postfetch_lastrowid = False
    use_insertmanyvalues = True
    div_is_floordiv = False
    _json_deserializer = None
    _json_serializer = staticmethod(_json_text)

    @classmethod
    def import_dbapi(cls) -> Any:
        """The module of PEP 249."""
        return dbapi

    def create_connect_args(self, url: URL) -> Any:
        """The arguments of `dbapi.connect`."""
        name = url.database or "main"
        if url.host is None:
            return [_MEMORY.setdefault(name, Tables.in_memory(name))], {}
        scheme = "https" if url.query.get("tls") else "http"
        host = f"[{url.host}]" if ":" in url.host else url.host
        port = "" if url.port is None else f":{url.port}"
        options: dict[str, Any] = {} if url.password is None else {"token": url.password}
        return [f"{scheme}://{host}{port}", name], options

    def get_isolation_level_values(self, dbapi_conn: Any) -> Any:
        """There is one level, with or without transactions of several statements."""
        return ["SERIALIZABLE", "AUTOCOMMIT"]

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        """The one level."""
        return "SERIALIZABLE"

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        """The level of a connection."""
        return "AUTOCOMMIT" if dbapi_connection.autocommit else "SERIALIZABLE"

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        """Return True if each statement is a transaction of its own."""
        found: bool = dbapi_conn.autocommit
        return found

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        """Set the level of a connection."""
        dbapi_connection.autocommit = level == "AUTOCOMMIT"

    @reflection.cache
    def get_schema_names(self, connection: Any, **_: Any) -> list[str]:
        """There are no schemas."""
        return []

    @reflection.cache
    def get_view_names(self, connection: Any, schema: Any = None, **_: Any) -> list[str]:
        """The views."""
        return [each.name for each in _relations(connection) if isinstance(each, View)]

    @reflection.cache
    def get_view_definition(
        self, connection: Any, view_name: str, schema: Any = None, **_: Any
    ) -> str:
        """The query of a view."""
        found = _required(connection, view_name)
        if isinstance(found, Table):
            raise NoSuchTableError(view_name)
        return found.query

    @reflection.cache
    def has_table(self, connection: Any, table_name: str, schema: Any = None, **_: Any) -> bool:
        """Return True if there is a table or view of this name."""
        return _relation(connection, table_name) is not None

    @reflection.cache
    def get_table_names(self, connection: Any, schema: Any = None, **_: Any) -> list[str]:
        """The tables."""
        return [each.name for each in _relations(connection) if isinstance(each, Table)]

    @reflection.cache
    def get_columns(self, connection: Any, table_name: str, schema: Any = None, **_: Any) -> Any:
        """The columns of a table or view."""
        table = _required(connection, table_name)
        return [
            {
                "name": column.name,
                "type": _type(column.type),
                "nullable": not column.not_null,
                "default": column.default,
                "autoincrement": column.identity,
                **({"identity": {"always": False, "start": 1}} if column.identity else {}),
            }
            for column in table.columns
        ]

    @reflection.cache
    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: Any = None, **_: Any
    ) -> Any:
        """The primary key of a table."""
        found = _constrained(connection, table_name)
        return {"constrained_columns": list(found.primary_key), "name": None}

    @reflection.cache
    def get_foreign_keys(
        self, connection: Any, table_name: str, schema: Any = None, **_: Any
    ) -> Any:
        """The foreign keys of a table."""
        return [
            {
                "name": key.name,
                "constrained_columns": list(key.columns),
                "referred_schema": None,
                "referred_table": key.parent,
                "referred_columns": list(key.parent_columns),
                "options": {} if key.on_delete == "no action"
                else {"ondelete": key.on_delete.upper()},
            }
            for key in _by_name(_constrained(connection, table_name).foreign_keys)
        ]  # fmt: skip

    @reflection.cache
    def get_indexes(self, connection: Any, table_name: str, schema: Any = None, **_: Any) -> Any:
        """The indexes of a table, but for those of its foreign keys."""
        table = _constrained(connection, table_name)
        keys = {key.name for key in table.foreign_keys}
        return [
            {"name": index.name, "column_names": list(index.columns), "unique": index.unique}
            for index in _by_name(table.indexes)
            if index.name not in keys
        ]

    @reflection.cache
    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: Any = None, **_: Any
    ) -> Any:
        """The unique indexes of a table."""
        return [
            {"name": index.name, "column_names": list(index.columns),
             "duplicates_index": index.name}
            for index in _by_name(_constrained(connection, table_name).indexes)
            if index.unique
        ]  # fmt: skip

    @reflection.cache
    def get_check_constraints(
        self, connection: Any, table_name: str, schema: Any = None, **_: Any
    ) -> Any:
        """The checks of a table."""
        return [
            {"name": check.name, "sqltext": check.expression}
            for check in _by_name(_constrained(connection, table_name).checks)
        ]


_TYPES: Final[Mapping[str, Any]] = {
    "BOOLEAN": types.BOOLEAN, "SMALLINT": types.SMALLINT, "INTEGER": types.INTEGER,
    "BIGINT": types.BIGINT, "DOUBLE": types.DOUBLE, "VARCHAR": types.VARCHAR, "DATE": types.DATE,
    "TIMESTAMP": types.TIMESTAMP, "JSON": types.JSON, "TINYINT": types.SMALLINT,
    "HUGEINT": types.NUMERIC, "FLOAT": types.FLOAT, "TIME": types.TIME, "BLOB": types.BLOB,
}  # fmt: skip


def _type(name: str) -> Any:
    """The type of a column; of a view's, it may be one that tables do not have."""
    if found := re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", name):
        return types.DECIMAL(int(found[1]), int(found[2]))
    return _TYPES.get(name, types.NullType)()


def _relations(connection: Any) -> list[Relation]:
    found: list[Relation] = connection.connection.dbapi_connection.definitions()
    return found


def _relation(connection: Any, name: str) -> Relation | None:
    folded = name.lower()
    return next((each for each in _relations(connection) if each.name.lower() == folded), None)


def _required(connection: Any, name: str) -> Relation:
    found = _relation(connection, name)
    if found is None:
        raise NoSuchTableError(name)
    return found


def _constrained(connection: Any, name: str) -> Table:
    """A table; a view is one without keys, indexes and checks."""
    found = _required(connection, name)
    return found if isinstance(found, Table) else Table(found.name, 0, found.columns)


def _by_name(named: Sequence[_Named]) -> list[_Named]:
    return sorted(named, key=lambda each: each.name)


if find_spec("alembic") is not None:  # it finds the dialect's class among those that are imported
    import_module("streamydb_layers.tables.migrations")
