"""Folders of snapshots: what a file system refuses is told in a sentence, and early."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PySparkRuntimeError

from streamydb.backup.snapshots import SnapshotError
from streamydb.kafka.positions import ChangesEnds
from streamydb.kafka.reader import Span
from streamydb.settings import Settings
from streamydb.spark import snapshots
from streamydb.spark.folders import Folders, literal, require_writable
from streamydb.spark.snapshot import run


def refusal(*_: Any) -> Any:
    """Raise what Py4J makes of an exception of Java."""
    fault = SimpleNamespace(
        _target_id="o1", _gateway_client=SimpleNamespace(converters=[]),
        getMessage=lambda: "/file/x: Not a directory",
    )  # fmt: skip
    raise Py4JJavaError("An error occurred while calling o1.exists", fault)


def folders(find: Any, **system: Any) -> Folders:
    """The folder `/file` on a file system that answers like this."""
    found = SimpleNamespace(**system)
    path = SimpleNamespace(getFileSystem=lambda _: find() or found)
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=lambda _: path))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    spark: Any = SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=str))
    return Folders(spark, "/file")


def test_a_file_system_that_does_not_exist() -> None:
    with pytest.raises(SnapshotError, match=r"no snapshots can be kept in /file: .*Not a dir"):
        folders(refusal)


def test_a_folder_that_cannot_be_one() -> None:
    with pytest.raises(SnapshotError, match="Not a directory"):
        folders(str, exists=refusal).manifest("x")
    with (
        pytest.raises(SnapshotError, match="Not a directory"),
        folders(str, mkdirs=refusal).draft("x"),
    ):
        pass
    with (
        pytest.raises(SnapshotError, match="/file cannot be written"),
        folders(str, mkdirs=lambda _: False).draft("x"),
    ):
        pass


BASE = Path(__file__).parents[2] / "golden" / "0.2.0" / "snapshot"


class SessionStarted(Exception):  # noqa: N818 - no error: it is what should come
    """Spark would be started now."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask for a snapshot of changes that are resolved up to seq 9; Spark is not there."""

    def session(*_: Any) -> Any:
        raise SessionStarted

    ends = ChangesEnds("bank.changes", "id", None, {0: Span(0, 9)}, 9, 9_000, {})
    monkeypatch.setattr("streamydb.pipeline.session.session", session)
    monkeypatch.setattr(snapshots, "look", lambda _: ends)

    def call(folder: object, at: str | None = None, base: object = None) -> None:
        run(
            Settings(database="bank"),
            str(folder),
            at=at,
            master="local[1]",
            base=None if base is None else str(base),
        )

    return call


def test_what_cannot_be_is_told_before_spark_is_started(asked: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for bad in ("file", "file/in/it"):
        with pytest.raises(SnapshotError, match="file is no folder"):
            asked(tmp_path / bad)
    with pytest.raises(SnapshotError, match="seq 10 is not resolved"):
        asked(tmp_path, at="10")
    with pytest.raises(SnapshotError, match="seq 10 is not resolved"):  # of a DataFrame
        snapshots.require_possible(
            Settings(database="bank"), tmp_path, cast("int", np.int64(10)), None
        )
    for odd in (True, 2.5, "2"):
        with pytest.raises(SnapshotError, match="give a seq, which is an int, or a datetime"):
            snapshots.require_possible(Settings(database="bank"), tmp_path, cast("int", odd), None)
    with pytest.raises(SnapshotError, match="is no snapshot"):
        asked(tmp_path, base=tmp_path / "none")
    with pytest.raises(SnapshotError, match=r"is not of the changes in bank\.changes"):
        asked(tmp_path, base=BASE)


def test_what_may_be_starts_spark(asked: Any, tmp_path: Path) -> None:
    for folder in (tmp_path / "new" / "one", "s3a://bucket/snapshots", f"file:{tmp_path}"):
        for at in (None, "9", dt.datetime.now(dt.UTC).isoformat()):
            with pytest.raises(SessionStarted):
                asked(folder, at=at)
    assert list(tmp_path.iterdir()) == []


def test_a_master_that_is_none(asked: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def session(*_: Any) -> Any:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr("streamydb.pipeline.session.session", session)
    with pytest.raises(SnapshotError, match=r"master local\[1\]: .*gateway process exited.*--mast"):
        asked(tmp_path)


def test_a_folder_that_must_not_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(SnapshotError, match=f"{tmp_path} cannot be written"):
        require_writable(tmp_path / "new")


def test_a_job_that_fails_is_told_by_what_began_it_and_leaves_nothing() -> None:
    """Spark's own words are a thousand lines."""
    first = SimpleNamespace(getMessage=lambda: "No space left on device", getCause=lambda: None)
    fault = SimpleNamespace(
        _target_id="o1", _gateway_client=SimpleNamespace(converters=[]), getCause=lambda: first,
        getMessage=lambda: "Task failed while writing rows",
    )  # fmt: skip
    removed: list[bool] = []
    kept = folders(
        str,
        mkdirs=lambda _: True,
        exists=lambda _: True,
        delete=lambda _, all_of_it: removed.append(all_of_it),
    )
    told = r"^/file/x could not .*: No space left on device\."
    with pytest.raises(SnapshotError, match=told), kept.draft("x"):
        raise Py4JJavaError("An error occurred while calling o1.parquet", fault)
    told = "could not be written: RecordError: of a later release. What"
    with pytest.raises(SnapshotError, match=told), kept.draft("x"):
        raise PySparkException("Traceback …\n  File …\nRecordError: of a later release\n")
    assert removed == [True, True]


def test_a_folder_is_read_by_its_name() -> None:
    """Spark takes what it is to read for a pattern; a backslash makes a character stand for
    itself.
    """
    assert literal("s3a://a/b-1_é (x)") == "s3a://a/b-1_é (x)"
    assert literal("a[1]*{b}?\\") == r"a\[1\]\*\{b\}\?\\"
