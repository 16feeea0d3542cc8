"""SQL over one consistent snapshot, by DuckDB (the extra `sql`).

A snapshot is the table `kv(key VARCHAR, value JSON, version BIGINT, ts TIMESTAMP)`: every key that
exists right after one seq. It comes from a read model (`open_read_model`, any seq that it keeps) or
from a Parquet snapshot (`open_snapshot`), in the caller's own process.

What strangers send (`POST /v1/query`) runs elsewhere: `pool` gives each query a process of its own
(`worker`), which has no secrets, sees only the keys that the asker may read, cannot open files or
load extensions, is bounded in memory, and is killed when its time is over. Transactions of SQL on
tables (`POST /v1/sql`) run likewise, in processes that ask for what they read.

`keyspace` says which keys a scan must look at, `dataset` shows a snapshot to DuckDB as Arrow
batches, `engine` makes connections, `answers` turns results into bounded JSON.
"""

from __future__ import annotations

from streamydb.records.table import Table
from streamydb.sql.answers import UnheldValueError, fetched, json_value, python_value
from streamydb.sql.engine import (
    Sql,
    SqlMissingError,
    connect,
    lock,
    message_of,
    open_read_model,
    open_snapshot,
)

__all__ = [
    "Sql", "SqlMissingError", "Table", "UnheldValueError", "connect", "fetched", "json_value",
    "lock", "message_of", "open_read_model", "open_snapshot", "python_value",
]  # fmt: skip
