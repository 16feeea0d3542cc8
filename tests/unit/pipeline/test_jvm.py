"""How the end of Spark's JVM is told."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from py4j.protocol import Py4JNetworkError

from streamydb.pipeline.jvm import Jvm, _is_no_broken_connection


class Known(Jvm):
    """A JVM that is a process of the test's."""

    def __init__(self, code: str) -> None:
        self.known = subprocess.Popen([sys.executable, "-c", code])

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.known


@pytest.mark.parametrize(("code", "told"), [
    ("import os; os.kill(os.getpid(), 9)", "memory ran out"),
    ("import os; os.kill(os.getpid(), 15)", "ended by SIGTERM"),
    ("raise SystemExit(137)", "memory ran out"),
    ("raise SystemExit(52)", "Java's heap is used up"),
    ("raise SystemExit(3)", "exit code 3"),
])  # fmt: skip
def test_how_it_ended_is_told_in_words(code: str, told: str) -> None:
    said = Known(code).ended(30)
    assert said is not None
    assert told in said
    assert "start the pipeline again" in said


def test_one_that_lives_has_not_ended() -> None:
    jvm = Known("import time; time.sleep(60)")
    assert jvm.ended() is None
    jvm.known.kill()
    assert jvm.ended(30) is not None
    assert Jvm().ended() is None  # none was started here


def record(error: BaseException | None) -> logging.LogRecord:
    """A line of a log with the traceback of an error."""
    told = None if error is None else (type(error), error, None)
    return logging.LogRecord("root", logging.ERROR, __file__, 1, "said", (), told)


def test_only_broken_connections_to_it_are_left_out_of_the_log() -> None:
    wrapped = ValueError("in a listener")
    wrapped.__context__ = Py4JNetworkError("Error while sending or receiving")
    assert not _is_no_broken_connection(record(Py4JNetworkError("gone")))
    assert not _is_no_broken_connection(record(wrapped))
    assert _is_no_broken_connection(record(ValueError("a fault of ours")))
    assert _is_no_broken_connection(record(None))
