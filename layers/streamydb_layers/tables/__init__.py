"""SQL tables over keys: rows, indexes and constraints, read and written in one transaction.

    shop = Tables(client, "shop")
    shop.sql("create table orders (id bigint primary key, state text not null)")
    with shop.begin() as several:
        several.sql("insert into orders values (?, ?)", [7, "open"])

In: statements, parsed by sqlglot. Out: rows, computed by DuckDB over what the statement has read
and the transaction's own writes (the extra `sql`). Invariants: an index has exactly
the rows of its table, at every snapshot; constraints hold after each statement; a statement that
fails has written nothing; a transaction commits only if all it has read still holds.

`database` is what programs use, `statements` executes, `access` chooses what is read, `writing`
keeps indexes and constraints, `views` keeps queries with names, `keys` lays all out, `workbench`
has DuckDB. `process` executes for a facade (`POST /v1/sql`).
"""

from __future__ import annotations

from importlib.util import find_spec

from streamydb.errors import install

if find_spec("sqlglot") is None:
    raise ImportError(f"SQL tables need sqlglot and DuckDB: {install('sql', './layers')}")

from streamydb_layers.tables.database import OpenTransaction, Tables, TablesView
from streamydb_layers.tables.errors import (
    ConstraintViolationError,
    DataRefusedError,
    SqlError,
    StatementInvalidError,
    StatementUnsupportedError,
    TransactionConflictError,
    TransactionForeignError,
)
from streamydb_layers.tables.statements import Result

__all__ = [
    "ConstraintViolationError",
    "DataRefusedError",
    "OpenTransaction",
    "Result",
    "SqlError",
    "StatementInvalidError",
    "StatementUnsupportedError",
    "Tables",
    "TablesView",
    "TransactionConflictError",
    "TransactionForeignError",
]
