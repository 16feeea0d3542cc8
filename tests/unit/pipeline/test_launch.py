"""Spark's start beside the rest of a pipeline's start: who gets the session, who the error."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamydb.local.java import JavaError
from streamydb.pipeline import session, warmup
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.daemon import EarlyDaemon
from streamydb.pipeline.session import SparkLaunch
from streamydb.settings import Settings


class Session(SparkSession):
    """Stands in for a session."""

    def __init__(self) -> None:
        """It has no context."""


def test_the_session_is_waited_for_and_then_the_callers() -> None:
    may_start, ended = threading.Event(), list[str]()
    made = Session()

    def make() -> SparkSession:
        may_start.wait(30)
        return made

    launch = SparkLaunch(make, lambda: ended.append("ended"))
    may_start.set()
    assert launch.session() is made
    launch.close()
    assert ended == []


def test_what_nobody_takes_is_ended() -> None:
    ended: list[str] = []
    SparkLaunch(Session, lambda: ended.append("ended")).close()
    assert ended == ["ended"]


def test_why_there_is_no_session_is_told_to_whom_wants_it() -> None:
    def make() -> SparkSession:
        raise LookupError("no Java")

    launch = SparkLaunch(make, lambda: None)
    with pytest.raises(LookupError, match="no Java"):
        launch.session()


class Daemon(EarlyDaemon):
    """Stands in for one that has loaded, or could not."""

    def __init__(self, *, loaded: bool) -> None:
        self._has = loaded

    def loaded(self) -> bool:
        return self._has


@pytest.mark.parametrize(
    ("daemon", "done"),
    [
        (None, ["compile", "query"]),
        (Daemon(loaded=False), ["query", "compile"]),
        (Daemon(loaded=True), ["query"]),
    ],
)
def test_the_kernels_are_compiled_once_and_before_the_query_where_no_daemon_does_it(
    daemon: Daemon | None, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(warmup, "warm_up", lambda: found.append("compile"))
    begun = SparkLaunch(Session, lambda: None, daemon)
    begun.compile()
    found.append("query")
    begun.compiled()
    assert found == done


def test_why_spark_cannot_begin_is_told_to_whom_wants_the_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_java(*_: object) -> None:
        raise JavaError("no Java")

    monkeypatch.setattr(session, "start_processes", no_java)
    begun = session.launched(PipelineConfig(Settings(), tmp_path, "local[2]", tmp_path))
    with pytest.raises(JavaError, match="no Java"):
        begun.session()
