"""A packing of records that is broken in one way or another is noticed by drawn records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamydb.pipeline.realtime import packing as packing_module
from streamydb.pipeline.realtime.packing import Packing
from streamydb.pipeline.realtime.query import real_time_session
from streamydb.pipeline.session import PIPELINED, session
from tests.support.drawn_packs import problems

pytestmark = [
    pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.no_proof,
    pytest.mark.long,  # a class for each, about a test and no code of ours
]  # fmt: skip


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with the settings of the real-time query."""
    made = session("packing", "local[2,1]", {PIPELINED: "true", "spark.ui.enabled": "false"})
    yield real_time_session(made)
    made.stop()


MUTATIONS = {
    "drops what comes when it is full": (
        "while (!closed && isFull()) {\n        wait();",
        "while (!closed && isFull()) {\n        return true;",
    ),
    "loses the last ones when the source has ended": (
        "Object[] taken = records.toArray();",
        "Object[] taken = ended ? new Object[0] : records.toArray();",
    ),
    "has no bound of bytes": (" || bytes >= bytesMax", ""),
    "has no bound of records": ("records.size() >= recordsMax || ", ""),
    "counts a large value as a small one": (
        "return RECORD_BYTES + (value == null ? 0 : value.length)",
        "return RECORD_BYTES",
    ),
    "makes no value an empty one": (
        "value == null ? -1 : value.length",
        "value == null ? 0 : value.length",
    ),
    "gives every record the offset of the first": (
        "records[i]).getLong(0)",
        "records[0]).getLong(0)",
    ),
    "passes over null values": (
        "records.add(record);",
        "if (!record.isNullAt(2)) { records.add(record); }",
    ),
    "takes the newest first": ("records.add(record);", "records.addFirst(record);"),
    "repeats a record when many wait": (
        "records.add(record);",
        "records.add(record); if (records.size() == recordsMax) { records.add(record); }",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_packing_is_noticed(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _source_text()
    before, after = MUTATIONS[name]
    assert text.count(before) == 1
    package = f"mutation{list(MUTATIONS).index(name)}"
    text = text.replace(before, after).replace("package streamydb;", f"package {package};")
    (tmp_path / "RecordPacking.java").write_text(text)
    monkeypatch.setattr(packing_module, "files", lambda _: tmp_path)
    monkeypatch.setattr(packing_module, "_CLASS", f"{package}.RecordPacking")
    packing = Packing(spark)
    try:
        assert problems(spark, packing, 0, tmp_path / "files", pause_s=3.0)
    except PySparkException as error:
        assert "held back" in str(error)  # noqa: PT017 - or the records are wrong


def _source_text() -> str:
    return Path(packing_module.__file__).with_name("RecordPacking.java").read_text("utf-8")
