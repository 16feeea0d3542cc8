"""DataFrames: a stream of files charged to accounts exactly once, then changes and snapshots.

    make up
    python examples/dataframes.py [URL]

This is a Spark job of its own. It finds the Kafka of `make up` by itself; elsewhere, name it with
STREAMYDB_BOOTSTRAP. Through the facade it waits for what it has submitted. It prints:

    accounts: ann 100, bob 20, cid 50
    6 calls are streamed in, and again after the checkpoint was lost: 12 records, 6 executed
    refused: call c3 of cid, 60 (bound-violated)
    accounts: ann 10, bob 1, cid 50
    the changes say: ann 90 in 3 calls, bob 19 in 2 calls
    170 at the opening, 61 now and 109 charged
    the opening as Parquet: 170
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from common import clear, connect
from streamydb.client import Client
from streamydb.spark import (
    add,
    configure,
    put,
    read_changes,
    read_results,
    read_snapshot,
    submit,
    value_as,
    write_snapshot,
)

ACCOUNTS = [("ann", 100), ("bob", 20), ("cid", 50)]
DAYS = [
    [("c1", "ann", 30), ("c2", "bob", 15), ("c3", "cid", 60)],
    [("c4", "ann", 10), ("c5", "bob", 4), ("c6", "ann", 50)],
]
CALL = "call string, caller string, cost bigint"
PREFIX = "phone/account/"


def account() -> Column:
    """Return the key of a caller's account."""
    return f.concat(f.lit(PREFIX), "caller")


def is_account() -> Column:
    """Return whether a key is one of those."""
    return f.col("key").startswith(PREFIX)


def session() -> SparkSession:
    """Start Spark with its Kafka connector."""
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    small = {"spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1"}
    builder = configure(SparkSession.builder.appName("calls").master("local[2]"))
    spark: SparkSession = builder.config(map={**quiet, **small}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def reached(db: Client) -> int:
    """Wait until all that was submitted can be read; return the last seq.

    What is submitted lies in the log until it is executed, and reads do not wait for it. But it
    comes before a transaction that is sent later.
    """
    db.transaction(reads=["phone/charged"])
    return db.read([]).seq


def open_accounts(spark: SparkSession, run: str) -> None:
    """Submit a batch: a row, a transaction."""
    frame = spark.createDataFrame(ACCOUNTS, "caller string, cost bigint")
    submit(frame, [put(account(), "cost")], id="caller", name=f"{run}-open")


def charge(spark: SparkSession, run: str, calls: Path, checkpoint: Path) -> None:
    """Submit a stream of files; a call that the account cannot pay changes nothing.

    The id of a call is in its row, so whatever reads it again makes the same transaction, and the
    database executes that once. `name` tells this day's calls from those of another run.
    """
    query = submit(
        spark.readStream.schema(CALL).json(str(calls)),
        [add(account(), -f.col("cost"), min=0), add(f.lit("phone/charged"), "cost")],
        id="call", name=run, checkpoint=checkpoint, trigger={"availableNow": True},
    )  # fmt: skip
    if query is not None:
        query.awaitTermination()


def show_results(spark: SparkSession, run: str) -> None:
    """Print how often calls were submitted and executed, and join the refused ones with theirs."""
    found = read_results(spark).where(f.col("id").startswith(f"{run}:")).cache()
    first = found.where("duplicate_of is null")
    print(
        f"{first.count()} calls are streamed in, and again after the checkpoint was lost: "
        f"{found.count()} records, {first.count()} executed"
    )
    calls = spark.createDataFrame([call for day in DAYS for call in day], CALL)
    of_call = f.col("id") == f.concat(f.lit(f"{run}:"), "call")
    for row in first.where("status = 'aborted'").join(calls, of_call).collect():
        print(f"refused: call {row.call} of {row.caller}, {row.cost} ({row.code})")


def show_accounts(state: DataFrame) -> int:
    """Print accounts; return their sum."""
    found = state.where(is_account()).collect()
    rows = sorted((row.key.removeprefix(PREFIX), row.value) for row in found)
    print("accounts:", ", ".join(f"{name} {left}" for name, left in rows))
    return int(sum(left for _, left in rows))


def show_changes(spark: SparkSession, since: int) -> None:
    """Print what each account paid, from the changes after a seq."""
    changes = read_changes(spark, schema="bigint").where(is_account() & (f.col("seq") > since))
    paid = changes.groupBy("key").agg(
        f.sum(f.col("before") - f.col("after")).alias("paid"), f.count("*").alias("calls")
    )
    rows = sorted((row.key.removeprefix(PREFIX), row.paid, row.calls) for row in paid.collect())
    said = ", ".join(f"{name} {sum_} in {calls} calls" for name, sum_, calls in rows)
    print("the changes say:", said)


def in_parquet(spark: SparkSession, at: int, folder: Path) -> int:
    """Write a snapshot as Parquet, which any program reads; return the sum of its accounts."""
    written = write_snapshot(spark, folder, at)
    kept = spark.read.parquet(f"{written.folder}/data").where(is_account())
    rows = kept.select(value_as("value", "bigint").alias("value")).collect()
    return int(sum(row.value for row in rows))


def write_calls(folder: Path) -> None:
    """Write a file of calls for each day, a line for each call."""
    folder.mkdir()
    for number, day in enumerate(DAYS):
        calls = [dict(zip(("call", "caller", "cost"), call, strict=True)) for call in day]
        (folder / f"{number}.json").write_text("\n".join(map(json.dumps, calls)), "utf-8")


def work(spark: SparkSession, db: Client, scratch: Path) -> None:
    """Charge two days of calls, and look at it from all sides."""
    run = f"calls-{reached(db)}"
    write_calls(scratch / "calls")
    open_accounts(spark, run)
    opened = reached(db)
    before = show_accounts(read_snapshot(spark, schema="bigint"))
    charge(spark, run, scratch / "calls", scratch / "first")
    charge(spark, run, scratch / "calls", scratch / "second")
    reached(db)
    show_results(spark, run)
    after = show_accounts(read_snapshot(spark, schema="bigint"))
    show_changes(spark, opened)
    print(f"{before} at the opening, {after} now and {db.get('phone/charged')} charged")
    print("the opening as Parquet:", in_parquet(spark, opened, scratch / "snapshots"))


def main() -> None:
    """Begin anew, and work."""
    spark = session()
    with connect() as db, TemporaryDirectory() as scratch:
        clear(db, "phone/")
        work(spark, db, Path(scratch))
    spark.stop()


if __name__ == "__main__":
    main()
