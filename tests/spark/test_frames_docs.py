"""docs/dataframes.md runs as it stands, on a real broker, pipeline and Spark; and its snapshot does
what the page says: a read model and a new database start from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from streamydb import sql
from streamydb.backup.snapshots import restore
from streamydb.kafka import TopicNames, create
from streamydb.kafka.positions import look
from streamydb.kafka.reader import TopicReader
from streamydb.read_model import Follower, ReadModel, load
from streamydb.spark import configure
from streamydb.testing.database import Database, wait_for
from tests.support.read_model import drained

PAGE = (Path(__file__).parents[2] / "docs" / "dataframes.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CLICKS = ["home", "docs", "home", "x" * 500]


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    """The session that the page's `getOrCreate` finds."""
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1", "spark.sql.streaming.pollingDelay": "50ms",
    }  # fmt: skip
    builder = configure(SparkSession.builder.master("local[2]"))
    session = builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def caught_up(db: Database) -> int:
    """Wait until everything in the log, one partition without markers,
    is resolved; the last seq.
    """
    settings = db.settings
    with TopicReader(settings.client_config(), TopicNames(db.name).transactions) as log:
        count = log.spans()[0].high
    wait_for(lambda: look(settings).seq >= count, "everything resolved")
    return count


def clicked(db: Database) -> None:
    """Give the page's stream something to read."""
    producer = Producer({"bootstrap.servers": db.broker.bootstrap})
    for page in CLICKS:
        producer.produce("clicks", page.encode())
    assert producer.flush(30) == 0


def make_topics(db: Database) -> None:
    admin = AdminClient({"bootstrap.servers": db.broker.bootstrap})
    topics = [NewTopic(name, 1) for name in ("clicks", "clicks.rejected")]
    for made in admin.create_topics(topics).values():
        made.result(30)


def run_page(db: Database, folder: Path, between: Callable[[dict[str, Any]], None]) -> Any:
    """Run the examples; their relative paths would be those of the JVM, wherever it began."""
    names: dict[str, Any] = {}
    assert len(EXAMPLES) >= 7
    for example in EXAMPLES:
        text = example.replace("127.0.0.1:9092", db.broker.bootstrap)
        text = re.sub(r'"((checkpoints|out)/\w+|snapshots)"', rf'"{folder}/\1"', text)
        exec(compile(text, "docs/dataframes.md", "exec"), names)  # noqa: S102 - our own page
        between(names)
    return names


@pytest.mark.long
def test_the_page_runs_and_its_snapshot_is_a_beginning(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database(tmp_path / "db", shards=2) as db:
        monkeypatch.setenv("STREAMYDB_DATABASE", db.name)
        monkeypatch.setenv("STREAMYDB_BOOTSTRAP", db.broker.bootstrap)
        make_topics(db)

        def between(names: dict[str, Any]) -> None:
            query = names.pop("query", None)
            if query is not None:
                clicked(db)
                query.processAllAvailable()
                query.stop()
            caught_up(db)

        names = run_page(db, tmp_path, between)
        written = names["written"]
        assert written.manifest.seq == caught_up(db) == 8
        assert names["spark"] is spark
        with sql.open_snapshot(written.folder) as snapshot:
            text = "select key, value from kv where key >= 'board/' and key < 'i' order by key"
            assert snapshot.query(text).rows == (("board/docs", 1), ("board/home", 2), ("home", 2))
        agrees(db, written, tmp_path)
        assert db.assert_serial().ok
        begins(db, written)


def agrees(db: Database, written: Any, folder: Path) -> None:
    """A read model from the snapshot and one that reads everything are the same from there on."""
    db.load([{"id": "later", "updates": [{"op": "delete", "key": "home"}]}])
    last = caught_up(db)
    load(written.folder, folder / "loaded", db.name)
    with (
        ReadModel.open(folder / "loaded", db.name, write=True) as loaded,
        ReadModel.open(folder / "full", db.name, write=True) as full,
    ):
        for model in (loaded, full):
            drained(Follower(model, db.settings, retention_s=float("inf")), last)
        assert loaded.oldest() == written.manifest.seq
        assert loaded.latest() == full.latest()
        for seq in (written.manifest.seq, last):
            with loaded.snapshot(seq) as one, full.snapshot(seq) as other:
                assert (one.digest(), one.ts_ms) == (other.digest(), other.ts_ms)


def begins(db: Database, written: Any) -> None:
    """A new database's log gets the values once, however often the load is begun."""
    connection = db.settings.client_config()
    create(connection, "second")
    first = restore(written.folder, connection, "second")
    again = restore(written.folder, connection, "second")
    assert (first.rows, first.appended) == (written.manifest.rows, 1)
    assert again == first._replace(appended=0)
