"""Records reach Python packed: once, in order, none held back, and their thread ends with its task.

A Python function before the packing is the source; it goes on when files say so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamydb.pipeline.realtime.packing import PACK_RECORDS_MAX, Packing
from streamydb.pipeline.realtime.query import real_time_session
from streamydb.pipeline.session import PIPELINED, session
from streamydb.testing.database import wait_for
from tests.support.drawn_packs import problems

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

RECORD = "offset BIGINT, append_ms BIGINT, value BINARY"
SEEN = "records INT, offset BIGINT, append_ms BIGINT, value BINARY"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with the settings of the real-time query."""
    made = session("packing", "local[2,1]", {PIPELINED: "true", "spark.ui.enabled": "false"})
    yield real_time_session(made)
    made.stop()


def source(folder: Path, *, wait: bool, error_at: int = -1) -> Callable[..., Iterator[object]]:
    """Return a function that yields the records of its rows, each when the last one was seen."""

    def records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streamydb.local.launcher import wait_until
        from streamydb.pipeline.realtime.wire import of_this_worker

        for batch in batches:
            for offset in batch.column(0).to_pylist():
                if offset == error_at:
                    raise LookupError("planned")
                value = None if offset % 7 == 3 else b"v%d" % offset
                columns = [[offset], [offset * 2], [value]]
                types = [pa.int64(), pa.int64(), pa.binary()]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(c, t) for c, t in zip(columns, types, strict=True)],
                    names=["offset", "append_ms", "value"],
                )
                of_this_worker().flush()
                if wait and not wait_until((folder / str(offset)).exists, 60, 0.001):
                    raise TimeoutError(f"the record at offset {offset} is held back")

    return records


def seen(folder: Path) -> Callable[..., Iterator[object]]:
    """Return a function that yields the records, and leaves a file for each."""

    def see(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streamydb.pipeline.realtime.rows import records_of

        for batch in batches:
            records = records_of(batch)
            for record in records:
                (folder / str(record.offset)).touch()
            if records:
                rows = [(len(records), *record) for record in records]
                types = (pa.int32(), pa.int64(), pa.int64(), pa.binary())
                yield pa.RecordBatch.from_arrays(
                    [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)],
                    names=["records", "offset", "append_ms", "value"],
                )

    return see


def read(rows: DataFrame, packing: Packing, folder: Path) -> list[tuple[object, ...]]:
    """Return what Python sees."""
    return [tuple(row) for row in packing.rows(rows).mapInArrow(seen(folder), SEEN).collect()]


def threads(spark: SparkSession) -> list[str]:
    """The threads that read ahead."""
    found = spark._jvm.java.lang.Thread.getAllStackTraces().keySet()  # type: ignore[union-attr]
    return [each.getName() for each in found if each.getName().startswith("streamydb-packing")]


def expected(n: int) -> list[tuple[object, ...]]:
    return [(i, i * 2, None if i % 7 == 3 else b"v%d" % i) for i in range(n)]


def all_come_once_in_order_and_many_in_a_row(
    spark: SparkSession, packing: Packing, tmp_path: Path
) -> None:
    value = "CAST(IF(id % 7 = 3, NULL, CONCAT('v', id)) AS BINARY) AS value"
    rows = spark.range(0, 9_000, 1, 1).selectExpr("id AS offset", "id * 2 AS append_ms", value)
    found = read(rows, packing, tmp_path)
    assert [row[1:] for row in found] == expected(9_000)
    assert 1 < max(int(str(row[0])) for row in found) <= PACK_RECORDS_MAX
    by_nulls = read(rows.where("offset < 20"), Packing(spark, wanted=False), tmp_path)
    assert [row[1:] for row in by_nulls] == expected(20)


def a_lone_record_is_not_held_back(spark: SparkSession, packing: Packing, tmp_path: Path) -> None:
    for rows_of in (packing, Packing(spark, wanted=False)):
        folder = tmp_path / ("packed" if rows_of is packing else "not")
        folder.mkdir()
        rows = spark.range(0, 30, 1, 1).mapInArrow(source(folder, wait=True), RECORD)
        assert [row[1:] for row in read(rows, rows_of, folder)] == expected(30)
        assert threads(spark) == []


def an_error_comes_through_behind_the_records_before_it(
    spark: SparkSession, packing: Packing, tmp_path: Path
) -> None:
    rows = spark.range(0, 9, 1, 1).mapInArrow(source(tmp_path, wait=True, error_at=5), RECORD)
    with pytest.raises(PySparkException, match="planned"):
        read(rows, packing, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == list("01234")
    wait_for(lambda: threads(spark) == [], "the thread that reads ahead has ended", 20)


def a_task_that_is_cancelled_leaves_no_thread(
    spark: SparkSession, packing: Packing, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"  # so the source waits for ever
    rows = spark.range(0, 9, 1, 1).mapInArrow(source(elsewhere, wait=True), RECORD)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            read(rows, packing, tmp_path)
        except Exception as error:  # noqa: BLE001 - looked at below
            errors.append(error)

    job = threading.Thread(target=run)
    job.start()
    wait_for((tmp_path / "0").exists, "the first record was seen", 60)
    assert len(threads(spark)) == 1
    spark.sparkContext.cancelAllJobs()
    job.join(30)
    assert len(errors) == 1
    wait_for(lambda: threads(spark) == [], "the thread that reads ahead has ended", 20)


def come_one_by_one_which_is_said_once(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("streamydb.pipeline.realtime.packing._SOURCE", "Missing.java")
    fallback = Packing(spark)
    rows = spark.range(0, 5, 1, 1).mapInArrow(source(tmp_path, wait=False), RECORD)
    with caplog.at_level(logging.WARNING, "streamydb.realtime"):
        for _ in range(2):
            found = read(rows, fallback, tmp_path)
            assert [row[1:] for row in found] == expected(5)
            assert {row[0] for row in found} == {1}
    assert [r.message for r in caplog.records if "one by one" in r.message] == [caplog.messages[0]]


def drawn_records_come_once_in_order_and_no_pack_is_too_large(
    spark: SparkSession, packing: Packing, tmp_path: Path
) -> None:
    for seed in range(2):
        assert problems(spark, packing, seed, tmp_path / str(seed)) == []


CHECKS = (
    all_come_once_in_order_and_many_in_a_row, a_lone_record_is_not_held_back,
    an_error_comes_through_behind_the_records_before_it,
    a_task_that_is_cancelled_leaves_no_thread,
    drawn_records_come_once_in_order_and_no_pack_is_too_large,
)  # fmt: skip


@pytest.mark.randomized
def test_records_come_packed(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One test: workers of pytest that run tests of others in between make a session for each."""
    packing = Packing(spark)  # the class is compiled once
    for check in CHECKS:
        (tmp_path / check.__name__).mkdir()
        check(spark, packing, tmp_path / check.__name__)
    caplog.clear()
    come_one_by_one_which_is_said_once(spark, tmp_path, monkeypatch, caplog)
