"""Spark's JVM as a process: how it is started early, and how its end is told."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from streamydb.pipeline.jvm import EarlyJvm, Jvm, _is_no_broken_connection
from streamydb.testing.database import wait_for


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


@pytest.mark.parametrize(("code", "lacked"), [
    ("import os; os.kill(os.getpid(), 9)", True), ("raise SystemExit(137)", True),
    ("raise SystemExit(52)", True), ("raise SystemExit(3)", False),
    ("import os; os.kill(os.getpid(), 15)", False),
])  # fmt: skip
def test_ends_for_want_of_memory_are_known(code: str, *, lacked: bool) -> None:
    jvm = Known(code)
    assert jvm.ended(30) is not None
    assert jvm.lacked_memory is lacked
    assert not Jvm().lacked_memory


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


def test_a_jvm_that_is_killed_while_spark_begins_breaks_no_connection_aloud(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", shown.append)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [])
    Jvm().kill()
    for error in (Py4JNetworkError("Answer from Java side is empty"), ValueError("ours")):
        handler.handle(record(error))
    assert [str(one.exc_info[1]) for one in shown if one.exc_info] == ["ours"]


def test_only_broken_connections_to_it_are_left_out_of_the_log() -> None:
    wrapped = ValueError("in a listener")
    wrapped.__context__ = Py4JNetworkError("Error while sending or receiving")
    assert not _is_no_broken_connection(record(Py4JNetworkError("gone")))
    assert not _is_no_broken_connection(record(wrapped))
    assert _is_no_broken_connection(record(ValueError("a fault of ours")))
    assert _is_no_broken_connection(record(None))


SUBMIT = """#!/bin/sh
[ "$SPARK_CONNECT_MODE" = 0 ] || exit 9
for given; do echo "$given"; done > "$0.given"
printf '\\000\\000\\060\\071\\000\\000\\000\\004word' > "$0.address"
mv "$0.address" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat
"""
"""Stands in for `spark-submit`: port 12345, a secret of four bytes, and it ends with its input."""

GATEWAY = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


def home(folder: Path, script: str) -> Path:
    """Make a home of Spark with such a `spark-submit`."""
    submit = folder / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(script)
    submit.chmod(0o755)
    return folder


def test_pyspark_finds_the_jvm_that_was_started_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = SimpleNamespace(proc=None)
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    jvm = EarlyJvm(home(tmp_path, SUBMIT), {"spark.a": "1 2", "spark.b": "c=d"})
    with jvm.ready():
        assert [os.environ[name] for name in GATEWAY] == ["12345", "word"]
    assert not any(name in os.environ for name in GATEWAY)
    assert Jvm().process is gateway.proc is jvm.process
    given = (tmp_path / "bin" / "spark-submit.given").read_text().splitlines()
    assert given == ["--conf", "spark.a=1 2", "--conf", "spark.b=c=d", "--verbose", "pyspark-shell"]
    status = Path(f"/proc/{jvm.process.pid}/status")
    if status.exists():  # Ctrl-C is ours: the JVM ends when we have ended the query
        ignored = int(status.read_text().split("SigIgn:")[1].split()[0], 16)
        assert ignored & 1 << (signal.SIGINT - 1)
    assert jvm.process.stdin is not None
    jvm.process.stdin.close()
    assert jvm.process.wait(30) == 0


def test_a_jvm_that_ends_before_it_is_ready_is_told_as_pyspark_tells_it(tmp_path: Path) -> None:
    jvm = EarlyJvm(home(tmp_path, "#!/bin/sh\nexit 1\n"), {})
    with pytest.raises(PySparkRuntimeError) as told, jvm.ready():
        pass
    assert told.value.getCondition() == "JAVA_GATEWAY_EXITED"
    assert not any(name in os.environ for name in GATEWAY)
    assert jvm.process.returncode == 1
    assert jvm.process.pid not in {child.pid for child in psutil.Process().children()}


ENDING = """
import os, sys
from pathlib import Path
from streamydb.pipeline.jvm import EarlyJvm
jvm = EarlyJvm(Path(sys.argv[1]), {})
print(jvm.process.pid, len(os.listdir(os.environ["TMPDIR"])))
raise KeyboardInterrupt if sys.argv[2] == "raises" else SystemExit(0)
"""


@pytest.mark.parametrize("how", ["raises", "exits"])
def test_a_jvm_that_still_boots_ends_with_its_process_and_leaves_no_folder(
    how: str, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    boots = home(tmp_path, "#!/bin/sh\nexec sleep 1000\n")  # it never reads its input
    ended = subprocess.run(
        [sys.executable, "-c", ENDING, boots, how], capture_output=True, text=True, check=False,
        env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    pid, folders = map(int, ended.stdout.split())
    assert folders == 1
    wait_for(lambda: not psutil.pid_exists(pid), "the end of the JVM", 30)
    assert not [*temporary.iterdir()]


def test_a_home_without_spark_is_told() -> None:
    with pytest.raises(FileNotFoundError):
        EarlyJvm(Path("/no/home"), {})
