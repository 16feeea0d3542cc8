"""DataFrames in and out of a database, for Spark programs of your own.

    spark = streamydb.spark.configure(SparkSession.builder).getOrCreate()
    submit(orders, updates=[add(concat(lit("stock/"), "item"), -col("count"), min=0)], id="order")
    read_snapshot(spark).where("key like 'stock/%'")

In: rows, which `submit` makes transactions of, each exactly once. Out: `read_changes`,
`read_results` and `read_snapshot`, batch or streaming, and `write_snapshot` (Parquet).

Invariants: an id is a function of the row's source, so a row that Spark writes twice is executed
once (within the database's id window); a row that is no transaction never reaches the log; changes
are given once each, in batches and in streams; a snapshot shows a seq and nothing after it.

`operations` puts transactions together (column expressions, JSON text), `payloads` and `rows`
are what runs in Python workers (plain functions on Arrow and numpy, no Spark),
`submission`, `readers` and `snapshots` are the queries, `positions` asks Kafka where a topic
ends. Everything runs on a cluster; the packages and jars of streamy-db must be on the executors.
"""

from __future__ import annotations

from streamydb.spark.operations import (
    add,
    append,
    check,
    content_id,
    delete,
    json,
    maximum,
    minimum,
    next_id,
    put,
    transaction,
)
from streamydb.spark.payloads import BadRowError
from streamydb.spark.readers import read_changes, read_results, value_as
from streamydb.spark.session import configure
from streamydb.spark.snapshots import read_snapshot, write_snapshot
from streamydb.spark.submission import submit, transactions

__all__ = [
    "BadRowError",
    "add",
    "append",
    "check",
    "configure",
    "content_id",
    "delete",
    "json",
    "maximum",
    "minimum",
    "next_id",
    "put",
    "read_changes",
    "read_results",
    "read_snapshot",
    "submit",
    "transaction",
    "transactions",
    "value_as",
    "write_snapshot",
]
