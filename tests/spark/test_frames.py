"""DataFrames into a database and out of it, and snapshots, on a real broker and a real pipeline.

One database and one Spark session for all tests of this file; each test has keys of its own.
What `make test` runs is the page docs/dataframes.md (test_frames_docs.py).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as f

from streamydb import sql
from streamydb.backup.snapshots import SnapshotError, restore
from streamydb.errors import ConfigurationError
from streamydb.kafka import create
from streamydb.kafka.positions import look
from streamydb.kafka.reader import TopicMissingError
from streamydb.read_model import Follower, ReadModel, SnapshotGone, load
from streamydb.records import Change, decode_change
from streamydb.spark import (
    add,
    append,
    configure,
    content_id,
    delete,
    next_id,
    put,
    read_changes,
    read_results,
    read_snapshot,
    submit,
    transactions,
    write_snapshot,
)
from streamydb.spark import check as condition
from streamydb.spark import json as json_of
from streamydb.testing.database import Database, wait_for
from streamydb.verify.check import CheckOptions, check
from tests.support.bank import transfers
from tests.support.frames import model_of, settled
from tests.support.read_model import drained

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with Database(tmp_path_factory.mktemp("frames"), shards=2) as database:
        yield database


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    session = configure(builder.config("spark.driver.host", "127.0.0.1")).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def place(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database that the functions find when none is named."""
    monkeypatch.setenv("STREAMYDB_DATABASE", db.name)
    monkeypatch.setenv("STREAMYDB_BOOTSTRAP", db.broker.bootstrap)


def make_topics(db: Database, *names: str) -> None:
    """Topics of one partition, there when this returns."""
    admin = AdminClient({"bootstrap.servers": db.broker.bootstrap})
    for made in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        made.result(30)


def append_to(db: Database, topic: str, values: list[Any]) -> None:
    producer = Producer({"bootstrap.servers": db.broker.bootstrap})
    faults: list[Any] = []
    for value in values:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, data, on_delivery=lambda fault, _: faults.append(fault))
    producer.flush(30)
    assert faults == [None] * len(values)


def test_a_batch_is_submitted_once_however_often(db: Database, spark: SparkSession) -> None:
    rows = [Row(order=f"o{n}", item=n % 3, count=n, note='q"\\é\n', gone=None) for n in range(40)]
    frame = spark.createDataFrame(
        rows, "order string, item int, count int, note string, gone string"
    )
    key = f.concat(f.lit("once/"), f.col("item").cast("string"))
    updates = [
        add(key, "count"),
        put(f.concat(f.lit("once/order/"), "order"), f.struct("note", "count", "gone")),
        f.when(f.col("count") == 7, next_id(f.lit("once/n"))),
        append(f.lit("once/list"), "gone"),
    ]
    for _ in range(2):
        submit(frame, updates, id="order", name="once", reads=[key], key=key)
    settled(db)
    values = {
        row.key: json.loads(row.value)
        for row in read_snapshot(spark).where("key like 'once/%'").collect()
    }
    for item in range(3):
        assert values[f"once/{item}"] == sum(n for n in range(40) if n % 3 == item)
    assert values["once/order/o7"] == {"note": 'q"\\é\n', "count": 7, "gone": None}
    assert (values["once/n"], values["once/list"]) == (1, [None] * 40)
    found = read_results(spark).where("id like 'once:%'")
    counts = {row[0]: row[1] for row in found.groupBy("status").count().collect()}
    assert counts == {"committed": 80}
    repeated = found.where("duplicate_of is not null")
    assert repeated.count() == 40
    assert repeated.join(found.alias("o"), f.col("o.seq") == repeated.duplicate_of).count() == 40


def test_a_stream_is_submitted_once_through_restarts(
    db: Database, spark: SparkSession, tmp_path: Path
) -> None:
    source, bad = f"{db.name}-orders", f"{db.name}-bad"
    make_topics(db, source, bad)
    orders = [{"stock": "s", "count": n} for n in range(30)]
    append_to(db, source, [*orders, b"no json", {"stock": "x" * 500, "count": 1}])

    def run(checkpoint: str) -> None:
        stream = spark.readStream.format("kafka").option("subscribe", source)
        stream = stream.option("kafka.bootstrap.servers", db.broker.bootstrap)
        stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "11")
        order = f.from_json(f.col("value").cast("string"), "stock string, count bigint")
        frame = stream.load().withColumn("order", order)
        updates = [add(f.concat(f.lit("stream/"), "order.stock"), "order.count")]
        query = submit(
            frame, updates, checkpoint=tmp_path / checkpoint, trigger={"availableNow": True},
            rejected_topic=bad,
        )  # fmt: skip
        assert query is not None
        assert query.awaitTermination(120)

    run("a")
    append_to(db, source, [{"stock": "s", "count": 1000}])
    run("a")  # goes on
    run("b")  # a checkpoint that was lost: everything again
    settled(db)
    found = {row.key: row.value for row in read_snapshot(spark, schema="bigint").collect()}
    assert found["stream/s"] == sum(range(30)) + 1000
    options = {"kafka.bootstrap.servers": db.broker.bootstrap, "subscribe": bad}
    told = spark.read.format("kafka").options(**options).load().select("key", "value").collect()
    rejected = {row.key.decode(): json.loads(row.value) for row in told}
    assert rejected[f"{source}:0:31"]["code"] == "invalid-key"
    assert rejected[f"{source}:0:30"]["id"] == f"{source}:0:30"
    assert len(rejected) == 2


def test_what_would_not_be_the_same_again_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "a")], "n int, k string")
    with pytest.raises(ConfigurationError, match="no source position"):
        submit(frame, [put("k", "n")])
    with pytest.raises(ConfigurationError, match="not deterministic"):
        submit(frame, [put("k", f.rand())], id="k")
    with pytest.raises(ConfigurationError, match="not deterministic"):
        submit(frame.withColumn("u", f.expr("uuid()")), [put("k", "n")], id="u")
    for deadline_s in (0, -1, 3601, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="deadlines up to 3600 s"):
            submit(frame, [put("k", "n")], id="k", deadline_s=deadline_s)
    with pytest.raises(ConfigurationError, match="checkpoint"):
        submit(spark.readStream.format("rate").load(), [], id="value")
    with pytest.raises(PySparkException, match="invalid-key"):
        submit(frame.withColumn("k", f.lit("")), [put("k", "n")], id=content_id("n", "k"))
    with pytest.raises((PySparkException, Py4JError), match="key"):
        submit(frame, [put("nothing", "n")], id="k")


def test_a_topic_that_does_not_exist_is_told_at_once(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "a")], "n int, k string")
    with pytest.raises(TopicMissingError, match=r"nope\.transactions does not exist"):
        submit(frame, [put("k", "n")], id="k", database="nope")
    with pytest.raises(ConfigurationError, match=r"rejected_topic='nope\.bad': there is"):
        submit(frame, [put("k", "n")], id="k", rejected_topic="nope.bad")
    with pytest.raises(TopicMissingError, match=r"nope\.results does not exist"):
        read_results(spark, "nope")
    with pytest.raises(TopicMissingError, match=r"nope\.changes does not exist"):
        read_changes(spark, "nope", stream=True)


def test_timestamps_keep_their_microseconds(spark: SparkSession) -> None:
    """Those without keep the text that they had before, and so do ids made of them."""
    frame = spark.sql(
        "select timestamp'2026-01-31 12:00:00.123456 UTC' us, timestamp'2026-01-31 12:00:00 UTC' s,"
        " timestamp_ntz'2026-01-31 12:00:00.000001' local, 'T12:00:00.123000Z' text"
    )
    kept: list[Column | str] = ["us", "s", "local", "text", f.struct("s", "us", "text")]
    values = [put(f.lit(f"k{n}"), value) for n, value in enumerate(kept)]
    (made,) = transactions(frame, values, id=content_id("us")).collect()
    assert [update["value"] for update in json.loads(made.payload)["updates"]] == [
        "2026-01-31T12:00:00.123456Z", "2026-01-31T12:00:00.000Z", "2026-01-31T12:00:00.000001",
        "T12:00:00.123000Z",
        {
            "s": "2026-01-31T12:00:00.000000Z", "us": "2026-01-31T12:00:00.123456Z",
            "text": "T12:00:00.123000Z",
        },
    ]  # fmt: skip
    ids = frame.select(content_id("us"), content_id(f.date_trunc("millisecond", "us").alias("us")))
    (exact, cut) = ids.collect()[0]
    usual = hashlib.sha256(b'{"us":"2026-01-31T12:00:00.123Z"}').hexdigest()
    assert (made.id, cut) == (exact, usual)


def test_transactions_can_be_looked_at_before(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1.5), ("", 2.0)], "k string, v double")
    checks = [condition("k", exists=False), condition("k", version=0, ne="v")]
    made = transactions(frame, [delete("k")], checks=checks, id=f.concat(f.lit("t"), "v"))
    good, bad = sorted(made.collect(), key=lambda row: str(row.id))
    assert json.loads(good.payload) == {
        "id": "t1.5",
        "checks": [{"key": "a", "exists": False}, {"key": "a", "version": 0, "ne": 1.5}],
        "updates": [{"op": "delete", "key": "a"}],
    }
    assert (good.code, bad.code) == (None, "invalid-key")
    text = '{"b":[1,2.5,null,"x"],"a":{"n":9007199254740993}}'
    kinds = spark.createDataFrame([(text,)], "t string").select(
        "t", f.lit(dt.datetime(2026, 1, 31, tzinfo=dt.UTC)).alias("ts"),
        f.lit(b"ab").alias("bytes"),
        f.lit(None).cast("int").alias("none"), f.create_map(f.lit("k"), f.lit(1.0)).alias("map"),
    )  # fmt: skip
    kept: list[Column | str] = [json_of("t"), "ts", "bytes"]
    values = [put(f.lit(f"k{n}"), value) for n, value in enumerate(kept)]
    values += [put(f.lit("k3"), f.struct("none", "map")), next_id(f.lit("k4"))]
    (only,) = transactions(kinds, values, id=content_id("t")).collect()
    assert only.code is None
    updates = json.loads(only.payload)["updates"]
    stored = {update["key"]: update.get("value") for update in updates}
    assert stored == {
        "k0": json.loads(text), "k1": "2026-01-31T00:00:00.000Z", "k2": "YWI=",
        "k3": {"none": None, "map": {"k": 1.0}}, "k4": None,
    }  # fmt: skip
    assert "key" in bad.meaning


def test_changes_come_once_each_in_batches_and_streams(
    db: Database, spark: SparkSession, tmp_path: Path
) -> None:
    db.load(transfers(200, prefix="c"))
    settled(db)
    # What a pipeline does that is killed before it commits a batch: it writes changes again.
    from streamydb.kafka.reader import TopicReader

    name = f"{db.name}.changes"
    with TopicReader(db.settings.client_config(), name) as reader:
        records = list(reader.whole())
    producer = Producer({"bootstrap.servers": db.broker.bootstrap})
    expected = set()
    for record in records:
        value = record.value()
        if value is None or record.key() is None:
            continue
        change = decode_change(value)
        assert isinstance(change, Change)
        expected.add((change.source.seq, change.transaction.total_order, record.key()))
        producer.produce(name, value, key=record.key(), partition=record.partition() or 0)
    assert producer.flush(60) == 0

    def taken(rows: list[Row]) -> list[tuple[int, int, bytes]]:
        return sorted((row["seq"], row["index"], row["key"].encode()) for row in rows)

    assert taken(read_changes(spark).collect()) == sorted(expected)
    for _ in range(2):  # the second time it goes on from its checkpoint, with its state
        stream = read_changes(spark, stream=True, max_offsets=97, schema="bigint")
        query = (
            stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(200)
    streamed = spark.read.parquet(str(tmp_path / "out"))
    assert taken(streamed.collect()) == sorted(expected)
    row = streamed.where("key = 'acct/1'").orderBy("seq").tail(1)[0]
    now = read_snapshot(spark, schema="bigint").where("key = 'acct/1'").collect()[0]
    assert (row.after, row.seq, row.ts) == (now.value, now.version, now.ts)


def test_snapshots_agree_with_a_read_model_at_every_seq(
    db: Database, spark: SparkSession, tmp_path: Path
) -> None:
    ends = [("ending", 3_600_000), ("ended", 1)]
    puts = [{"op": "put", "key": key, "value": 1, "ttl_ms": ttl_ms} for key, ttl_ms in ends]
    db.load([{"id": "ends", "updates": puts}])
    db.load(transfers(150, prefix="s"))
    db.load([{"id": "del", "updates": [{"op": "delete", "key": "acct/3"}]}])
    first = settled(db)
    middle = first - 70
    old = write_snapshot(spark, tmp_path, middle)
    assert old.fresh
    assert not write_snapshot(spark, tmp_path, middle).fresh
    db.load(transfers(60, prefix="later", seed=5))
    last = settled(db)
    new = write_snapshot(spark, tmp_path, base=old.folder)
    whole = write_snapshot(spark, tmp_path / "whole")
    assert new.manifest.seq == whole.manifest.seq == last
    assert (new.manifest.digest, new.manifest.rows) == (whole.manifest.digest, whole.manifest.rows)
    with model_of(db, tmp_path / "full") as full:
        for snapshot in (old, new, whole):
            folder = tmp_path / f"model-{snapshot.manifest.seq}-{Path(snapshot.folder).parent.name}"
            load(snapshot.folder, folder, db.name)
            with ReadModel.open(folder, db.name, write=True) as model:
                with model.snapshot() as a, full.snapshot(snapshot.manifest.seq) as b:
                    assert (a.seq, a.ts_ms, a.digest()) == (b.seq, b.ts_ms, b.digest())
                drained(Follower(model, db.settings, retention_s=float("inf")), last)
                assert model.latest() == full.latest()
                with model.snapshot(last) as a, full.snapshot(last) as b:
                    assert a.digest() == b.digest()
                with pytest.raises(SnapshotGone):
                    model.snapshot(snapshot.manifest.seq - 1)
        with full.snapshot(middle) as there, sql.open_snapshot(old.folder) as here:
            rows = here.query("select key, value, version from kv order by key").rows
            entries = there.scan(limit=10_000)
            assert rows == tuple((e.key, json.loads(e.value), e.version) for e in entries)
        with full.snapshot(middle) as there:
            at = dt.datetime.fromtimestamp(there.ts_ms / 1000, dt.UTC)
        by_time = {r.key: (r.version, r.expires_ms) for r in read_snapshot(spark, at).collect()}
        with full.snapshot(full.seq_at(round(at.timestamp() * 1000))) as then:
            entries = then.scan(limit=10_000)
        assert by_time == {e.key: (e.version, e.expires_ms) for e in entries}
        assert by_time["ending"][1] is not None
    left = read_changes(spark).selectExpr("key", "op", "expires_ms - unix_millis(ts) as left")
    told = {(row.key, row.op): row.left for row in left.where("key like 'end%'").collect()}
    assert told == {("ending", "c"): 3_600_000, ("ended", "c"): 1, ("ended", "d"): None}
    with pytest.raises(SnapshotError, match="not resolved"):
        read_snapshot(spark, last + 1)
    with pytest.raises(SnapshotError, match="time zone"):
        read_snapshot(spark, dt.datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(SnapshotError, match="after seq"):
        read_snapshot(spark, 1, base=old.folder)


def test_an_empty_database_has_a_snapshot(
    db: Database, spark: SparkSession, tmp_path: Path
) -> None:
    connection = db.settings.client_config()
    create(connection, "empty")
    settings = db.settings.model_copy(update={"database": "empty"})
    assert read_snapshot(spark, settings=settings).count() == 0
    written = write_snapshot(spark, tmp_path / "new [1] {x,y}*?", settings=settings)
    assert (written.manifest.seq, written.manifest.rows) == (0, 0)
    load(written.folder, tmp_path / "model", "empty")
    create(connection, "empty-too")
    assert restore(written.folder, connection, "empty-too") == (0, 0, 0, 0)
    with sql.open_snapshot(written.folder) as nothing:
        assert nothing.query("select count(*) from kv").rows == ((0,),)


def commanded(db: Database, *words: str) -> Any:
    """What a command prints as JSON."""
    home = ("--home", str(db.folder / "home"), "--bootstrap", db.broker.bootstrap)
    done = subprocess.run(
        [sys.executable, "-m", "streamydb.cli", *words, *home, "--json"],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_commands(db: Database, tmp_path: Path) -> None:
    db.load([{"id": "command", "updates": [{"op": "put", "key": "command", "value": 1}]}])
    seq = settled(db)
    words = ("snapshot", "--database", db.name, "--to", str(tmp_path), "--master", "local[2]")
    told = commanded(db, *words)
    assert (told["seq"], told["fresh"], told["database"]) == (seq, True, db.name)
    assert not commanded(db, *words, "--at", str(seq))["fresh"]
    new = ("create", "--database", "commanded", "--from-snapshot", told["folder"])
    assert commanded(db, *new)["restored"]["rows"] == told["rows"]
    assert commanded(db, *new)["restored"]["appended"] == 0
    with subprocess.Popen(
        [sys.executable, "-m", "streamydb.cli", "read-model", "--database", db.name,
         "--bootstrap", db.broker.bootstrap, "--folder", str(tmp_path / "model"),
         "--from-snapshot", told["folder"]],
        stderr=subprocess.PIPE, text=True,
    ) as following:  # fmt: skip
        try:
            assert following.stderr is not None
            assert any(f"following {db.name}.changes" in line for line in following.stderr)
            with ReadModel.open(tmp_path / "model", db.name) as model:
                assert model.latest().seq >= seq
                with model.snapshot(seq) as snapshot:
                    assert snapshot.get("command") is not None
        finally:
            following.terminate()
    assert following.returncode == 0


def test_a_new_database_starts_from_a_snapshot(
    db: Database, spark: SparkSession, tmp_path: Path
) -> None:
    for n in range(4):
        big = {"op": "put", "key": f"big/{n}", "value": "x" * 200_000}
        db.load([{"id": f"big{n}", "updates": [big]}])
    settled(db)
    written = write_snapshot(spark, tmp_path)
    connection = db.settings.client_config()
    create(connection, "second")
    first = restore(written.folder, connection, "second")
    assert first.appended == first.transactions >= 2
    again = restore(written.folder, connection, "second")
    assert (again.rows, again.transactions, again.appended) == (first.rows, first.transactions, 0)
    with pytest.raises(SnapshotError, match="not of this snapshot"):
        restore(written.folder, connection, db.name)
    other = Database(tmp_path / "other")
    other.name, other.broker = "second", db.broker
    other.place = type(other.place)(tmp_path / "home", "second")
    other.folder.mkdir()
    other.start_pipeline()
    try:
        report = check(
            CheckOptions(
                connection=connection, database="second", initial_partitions=1, timeout_s=120
            )
        )
        assert report.ok
        assert report.keys == written.manifest.rows
        wait_for(lambda: look(other.settings).seq >= report.transactions, "everything resolved")
        theirs = read_snapshot(spark, settings=other.settings)
        ours = read_snapshot(spark, written.manifest.seq)
        columns = ("key", "value")
        assert theirs.select(*columns).exceptAll(ours.select(*columns)).count() == 0
        assert theirs.count() == ours.count() == first.rows
    finally:
        other.kill_pipeline()
