"""What is sent again after the id window has passed: tasks of Spark, a client, on real parts.

FAULTS 38. One database with a window of 16 seqs, and one Spark session, for all tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from streamydb.client import connect
from streamydb.kafka import TopicNames
from streamydb.kafka.connection import watermarks
from streamydb.spark import add, configure, put, read_results, read_snapshot, submit
from streamydb.testing.database import Database, wait_for
from tests.support.frames import model_of, settled

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

WINDOW = 16
BATCH = 100
ROWS = 3_000
SENT = 500
ROW = "id bigint, pad string"
"""Rows of some kilobytes: all together are many times what waits between Spark and its workers."""
DEADLINE_S = 40
"""So long that what shall come in time does, however slowly Spark starts its workers."""


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    options = ["--id-window", str(WINDOW)]
    with Database(tmp_path_factory.mktemp("again"), options=options) as database:
        yield database


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Tasks that fail are repeated; rows come to the log before a task has made all of them.

    For that, Unix sockets: they hold 200 kB, while those of TCP grow to as much as all rows are.
    """
    builder = SparkSession.builder.master("local[2, 2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH))
    session = configure(builder.config("spark.driver.host", "127.0.0.1")).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def place(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database that the functions find when none is named."""
    monkeypatch.setenv("STREAMYDB_DATABASE", db.name)
    monkeypatch.setenv("STREAMYDB_BOOTSTRAP", db.broker.bootstrap)


def rows(spark: SparkSession) -> DataFrame:
    """The rows, in one task."""
    return spark.range(ROWS).coalesce(1).select("id", f.repeat(f.lit("x"), 2_000).alias("pad"))


def counted(key: str) -> list[Column]:
    """Each row counts, and writes its large value."""
    return [add(f.lit(key), f.lit(1)), put(f.lit(f"{key}/pad"), "pad")]


def failing_once(db: Database, lasting_s: float) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What passes rows on, and fails a task at its first attempt, when some of them are in the log.

    Before that, the id window passes, and some time since the attempt began.
    """
    bootstrap, log = db.broker.bootstrap, TopicNames(db.name).transactions

    def passed(batches: Iterator[Any]) -> Iterator[Any]:
        reader = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "failing"})

        def end() -> int:
            return watermarks(reader, log, 0, 30)[1]

        until_s, begun, attempt = time.time() + lasting_s, end(), TaskContext.get()
        for number, batch in enumerate(batches):
            yield batch
            is_first = attempt is not None and attempt.attemptNumber() == 0
            if is_first and (number + 3) * BATCH > ROWS:
                wait_for(lambda: end() >= begun + SENT, "rows in the log", 60)
                producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
                for other in range(4 * WINDOW):
                    producer.produce(log, b'{"id":"%d other %d"}' % (begun, other))
                producer.flush(30)
                wait_for(lambda: time.time() > until_s, "the time", 60)
                raise ValueError("the first attempt")
        reader.close()

    return passed


@pytest.mark.fault(
    38, "a Spark task fails when half of its rows are in the log, and is repeated after the id "
    "window", "each row is executed once",
)  # fmt: skip
def test_a_task_is_repeated_after_the_id_window(
    db: Database, spark: SparkSession, injected: Callable[..., None]
) -> None:
    frame = rows(spark).mapInArrow(failing_once(db, 0), ROW)
    submit(frame, counted("task/n"), id="id", name="task")
    injected(1)
    settled(db)
    (row,) = read_snapshot(spark).where("key = 'task/n'").collect()
    assert row.value == str(ROWS)
    found = read_results(spark).where("id like 'task:%'")
    assert found.where("duplicate_of is not null").count() >= SENT
    assert found.count() > ROWS


@pytest.mark.fault(
    38, "a Spark task is repeated after the deadline of its micro-batch, and of its batch",
    "what was executed is not executed again; the rest is rejected; a batch fails",
)  # fmt: skip
def test_a_task_is_repeated_after_its_deadline(
    db: Database, spark: SparkSession, tmp_path: Path, injected: Callable[..., None]
) -> None:
    rows(spark).write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(ROW).parquet(str(tmp_path / "rows"))
    frame = stream.mapInArrow(failing_once(db, DEADLINE_S), ROW)
    query = submit(
        frame, counted("late/n"), id="id", name="late", deadline_s=DEADLINE_S,
        checkpoint=tmp_path / "late", trigger={"availableNow": True},
    )  # fmt: skip
    assert query is not None
    assert query.awaitTermination(300)
    injected(2)
    settled(db)
    found = read_results(spark).where("id like 'late:%'")
    done = found.where("status = 'committed'").select("id").distinct().count()
    (row,) = read_snapshot(spark).where("key = 'late/n'").collect()
    assert row.value == str(done)
    assert SENT <= done < ROWS
    codes = found.where("code is not null").select("code").distinct().collect()
    assert [code[0] for code in codes] == ["deadline-passed"]
    assert found.where("status = 'committed' and duplicate_of is not null").count() == 0

    frame = rows(spark).mapInArrow(failing_once(db, DEADLINE_S), ROW)
    with pytest.raises(PySparkException, match="deadline of this batch has passed"):
        submit(frame, counted("lost/n"), id="id", name="lost", deadline_s=DEADLINE_S - 1)


@pytest.mark.fault(
    38, "a client sends the same again after the id window, and after its deadline, on real parts",
    "the first verdict; executed once",
)  # fmt: skip
def test_a_client_sends_again_after_the_id_window(
    db: Database, tmp_path: Path, injected: Callable[..., None]
) -> None:
    model_of(db, tmp_path).close()
    url = f"kafka://{db.broker.bootstrap}/{db.name}?read_model={tmp_path}"

    def others(name: str) -> None:
        db.load([{"id": f"{name}{n}"} for n in range(4 * WINDOW)])
        settled(db)

    until_s = time.time() + DEADLINE_S
    with connect(url) as client:
        built = client.atomic(deadline_ms=int(1_000 * until_s)).add("client/n", 1)
        made = built.commit()
        others("window")
        again = built.commit()
        assert time.time() < until_s
        assert (again.seq, again.repeated) == (made.seq, True)
    wait_for(lambda: time.time() > until_s, "the deadline")
    others("deadline")
    with connect(url) as client:  # which has seen nothing
        late = client.send(built.prepare())
        assert (late.seq, late.repeated) == (made.seq, False)
        assert client.verdict(made.id).seq == made.seq
    injected(2)
    with model_of(db, tmp_path / "new") as model, model.snapshot() as now:
        found = now.get("client/n")
        assert found is not None
        assert found.value == b"1"
