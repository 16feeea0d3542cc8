"""Spark's start beside the rest of a pipeline's start: who gets the session, who the error."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamydb.pipeline.launch import SparkLaunch


class Session(SparkSession):
    """Stands in for a session on a cluster, where no worker is started ahead."""

    def __init__(self) -> None:
        self._jobs: list[str] = []

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
        return SimpleNamespace(master="spark://somewhere:7077")


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
