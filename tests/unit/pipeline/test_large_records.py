"""Room for a record that has ended the JVM: what is noted, and what the next start is given."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.kafka.reader import PackedError, ReadingError
from streamydb.pipeline import large_records
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.large_records import LargeRecord, heap_is_used_up, note, with_room
from streamydb.settings import Settings

MB = 1 << 20
RECORD = LargeRecord(1, 7, 300 * MB)


def in_folder(folder: Path) -> PipelineConfig:
    settings = Settings(database="bank", bootstrap="127.0.0.1:1")
    return PipelineConfig(settings, folder / "checkpoint", "local[2]", folder / "local")


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return in_folder(tmp_path)


def commit(config: PipelineConfig, batch: int, offset: int) -> None:
    """Write the files of a batch that has read partition 1 of the log up to an offset."""
    query = config.checkpoint / "query"
    for folder in ("offsets", "commits"):
        (query / folder).mkdir(parents=True, exist_ok=True)
    told = f'v1\n{{}}\n{{"bank.transactions":{{"0":3,"1":{offset}}}}}\n'
    (query / "offsets" / str(batch)).write_text(told)
    (query / "commits" / str(batch)).write_text("v1\n{}")


def noted(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, found: LargeRecord) -> str:
    """Have a record be found where the JVM has ended; return what is said."""
    monkeypatch.setattr(large_records, "largest", lambda *_: found)
    said = note(config)
    assert said is not None
    return said


def test_the_next_start_has_the_heap_until_the_record_was_read(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(config, 0, 5)
    said = noted(config, monkeypatch, RECORD)
    assert "partition 1, offset 7 of bank.transactions has 314,572,800 bytes unpacked" in said
    assert "a heap of 3,848 MB" in said
    roomy = with_room(config)
    assert roomy.spark_conf == {
        "spark.driver.memory": "3848m", "spark.executor.memory": "3848m",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * MB),
    }  # fmt: skip
    assert (roomy.poll_records, roomy.large_offset) == (1, 7)
    commit(config, 1, 7)
    assert with_room(config).poll_records == 1
    commit(config, 2, 8)
    assert with_room(config) == config
    assert not config.large_record.exists()


def test_a_record_that_ends_the_jvm_again_gets_more(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "a heap of 3,848 MB" in noted(config, monkeypatch, RECORD)
    again = noted(with_room(config), monkeypatch, RECORD)
    assert "with a heap of 3848m" in again
    assert "a heap of 5,648 MB" in again
    assert with_room(config).spark_conf["spark.driver.memory"] == "5648m"


@pytest.mark.parametrize(("given", "heap"), [
    ("2g", 3_848), ("512m", 2_312), ("4096M", 5_896), ("1048576k", 2_824), ("1t", 1_050_376),
    (" 3 GB ", 4_872), (str(2 << 30), 3_848), ("much", 1_800),
])  # fmt: skip
def test_what_is_given_is_read_as_spark_reads_it(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, given: str, heap: int
) -> None:
    other = replace(config, spark_conf={"spark.driver.memory": given, "spark.x": "1"})
    assert f"a heap of {heap:,} MB" in noted(other, monkeypatch, RECORD)
    roomy = with_room(other).spark_conf
    assert (roomy["spark.driver.memory"], roomy["spark.x"]) == (f"{heap}m", "1")


def test_a_machine_with_too_little_memory_is_named(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = SimpleNamespace(total=4_000 * MB)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    assert "streamydb fork" not in noted(config, monkeypatch, RECORD)
    again = noted(with_room(config), monkeypatch, RECORD)
    assert "this machine has 4,000 MB" in again
    assert "`streamydb fork`" in again


def test_smaller_ones_are_polled_together(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(config, monkeypatch, LargeRecord(0, 3, 2 * MB))
    assert with_room(config).poll_records == 32


def test_spark_submit_is_told_its_option(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = replace(config, master=None)
    assert "`spark-submit --driver-memory 3848m`" in noted(submitted, monkeypatch, RECORD)
    assert "spark-submit" not in noted(config, monkeypatch, RECORD)


def test_the_note_of_a_checkpoint_in_a_store_lies_beside_its_copy(config: PipelineConfig) -> None:
    assert config.large_record.parent == config.checkpoint
    assert replace(config, store="s3a://b/c").large_record.parent == config.local


def test_nothing_is_noted_without_a_large_record_or_without_kafka(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(large_records, "largest", lambda *_: None)
    assert note(config) is None

    def silent(*_: object) -> None:
        raise ReadingError("the broker did not answer")

    monkeypatch.setattr(large_records, "largest", silent)
    with caplog.at_level(logging.INFO):
        assert note(config) is None
    assert "did not answer" in caplog.text
    assert not config.large_record.exists()


def test_a_batch_that_nobody_can_unpack_is_named(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed(*_: object) -> None:
        raise PackedError("bank.transactions", 1, 7, "codec 0x4")

    monkeypatch.setattr(large_records, "largest", packed)
    assert "bank.transactions, partition 1, offset 7: the batch" in (note(config) or "")


def test_a_torn_note_is_none(config: PipelineConfig) -> None:
    config.checkpoint.mkdir()
    config.large_record.write_bytes(b'{"partition":1,')
    assert with_room(config) == config
    assert not config.large_record.exists()


@pytest.mark.parametrize(("message", "is_so"), [
    ("Lost task 0.0: java.lang.OutOfMemoryError: Java heap space", True),
    ("ExecutorLostFailure (executor 1 exited): Remote RPC client disassociated", True),
    ("Cannot grow BufferHolder by size 2147483632", True),
    ("UnruledFaults: our own code failed", False), ("", False),
])  # fmt: skip
def test_failures_of_memory_are_known(message: str, *, is_so: bool) -> None:
    assert heap_is_used_up(["outermost", message]) is is_so


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(2 * MB, 900 * MB)))


@given(given_mb=st.integers(256, 9_999), steps=STEPS)
def test_a_start_has_room_exactly_while_a_noted_record_is_ahead(
    given_mb: int, steps: list[tuple[bool, int, int]]
) -> None:
    """JVMs end at records and batches are committed, in any order; each time, it starts again."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        spark = {"spark.driver.memory": f"{given_mb}m"}
        usual = replace(in_folder(Path(folder)), spark_conf=spark)
        started, read, ahead, heap = usual, 0, -1, given_mb
        for batch, (ends, offset, size) in enumerate(steps):
            if ends and offset >= read:
                noted(started, patch, LargeRecord(1, offset, size))
                ahead, heap = offset, heap + (6 * size >> 20)
            else:
                read = max(read, offset)
                commit(usual, batch, read)
            started = with_room(usual)
            if ahead < read:
                ahead, heap = -1, given_mb
            assert started.spark_conf["spark.driver.memory"] == f"{heap}m"
            assert (started.poll_records is None) == (started == usual) == (ahead < 0)
