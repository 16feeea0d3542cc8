"""Spark's JVM as a process: start it early, say how it ended, and end it at once."""

from __future__ import annotations

import atexit
import logging
import os
import shlex
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from streamydb.errors import StreamyError
from streamydb.local.file_lock import scratch_folder

_OUT_OF_MEMORY: Final = 52  # exit code of Spark when Java's heap is used up
_SIGNALLED: Final = 128

_ADDRESS: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Names the file into which Spark's JVM writes how it can be asked."""

_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105 - the name of a variable
_NUMBERS: Final = struct.Struct(">ii")
_LAUNCHER: Final = "SPARK_LAUNCHER_OPTS"
"""Names options of the JVM that Spark asks for the command of its JVM; it lives a moment."""

_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_LOOK_S: Final = 0.01


class JvmEndedError(StreamyError):
    """Spark's JVM has ended under the pipeline."""


class EarlyJvm:
    """A JVM of Spark that boots while this process still loads what will use it.

    PySpark starts one, too, and waits for it. Whoever starts it before gives it the same command.
    """

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        """Start it; it ends with this process. Raises OSError: there is no process."""
        self.settings = settings
        self._folder = scratch_folder()
        self._address = self._folder / "address"
        options = [text for name in settings for text in ("--conf", f"{name}={settings[name]}")]
        last = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self.process = subprocess.Popen(
            [home / "bin" / "spark-submit", *options, *last], stdin=subprocess.PIPE,
            env={
                _LAUNCHER: _SHORT_LIVED, **os.environ,
                "SPARK_CONNECT_MODE": "0", _ADDRESS: str(self._address),
            },
            preexec_fn=_leave_signals_to_us,  # noqa: PLW1509 - no thread runs yet
        )  # fmt: skip
        # Once its folder is gone, a JVM that still boots would live for ever: it cannot write its
        # address then, and never comes to look whether we live.
        atexit.register(self.process.kill)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Wait until it can be asked; in the body PySpark takes it instead of one of its own.
        Raises PySparkRuntimeError: it has ended, as PySpark says it of its own.
        """
        try:
            while not self._address.exists():
                if self.process.poll() is not None:
                    raise PySparkRuntimeError(
                        errorClass="JAVA_GATEWAY_EXITED", messageParameters={}
                    )
                time.sleep(_LOOK_S)
            data = self._address.read_bytes()  # port and size of the secret, then the secret
            port, size = _NUMBERS.unpack_from(data)
            os.environ[_PORT] = str(port)
            os.environ[_SECRET] = data[_NUMBERS.size : _NUMBERS.size + size].decode()
            yield
            gateway: Any = SparkContext._gateway  # noqa: SLF001 - where PySpark keeps the process
            gateway.proc = self.process
            atexit.unregister(self.process.kill)
        finally:
            os.environ.pop(_PORT, None)
            os.environ.pop(_SECRET, None)
            shutil.rmtree(self._folder, ignore_errors=True)


def _leave_signals_to_us() -> None:
    """Have the JVM ignore what a terminal sends to all of its group: we end it."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


class Jvm:
    """The JVM that PySpark has started; none if `spark-submit` started us."""

    def hush(self, spark: SparkSession) -> None:
        """Leave out what each connection to the JVM says when it breaks."""
        _hush_connections()
        server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
        if server is not None:
            server.handle_error = lambda *_: None

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process; None before it was started, and if somebody else started it."""
        gateway: Any = SparkContext._gateway  # noqa: SLF001 - PySpark shows it nowhere else
        return getattr(gateway, "proc", None)

    def ended(self, timeout_s: float = 0.0) -> str | None:
        """Say how the JVM ended, and what to do; None while it lives.

        ``timeout_s``: how long to wait for its end; a connection breaks a moment before.
        """
        process = self.process
        if process is None:
            return None
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return (
            f"Spark's JVM (process {process.pid}) has ended: {_reason(code)}. What it said "
            "itself stands above in this log. Nothing is lost: start the pipeline again, it goes "
            "on where it was and does the unfinished batch again"
        )

    @property
    def lacked_memory(self) -> bool:
        """True if it has ended because Java's heap was used up, or perhaps the machine's memory."""
        process = self.process
        code = None if process is None else process.poll()
        return code in (_OUT_OF_MEMORY, -signal.SIGKILL, _SIGNALLED + signal.SIGKILL)

    def kill(self) -> None:
        """End the JVM and all workers below it at once; a session may be in the making."""
        _hush_connections()
        for process in psutil.Process().children(recursive=True):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


def _reason(code: int) -> str:
    number = -code if code < 0 else code - _SIGNALLED
    if number == signal.SIGKILL:
        return "killed (SIGKILL), by somebody or by the system because memory ran out (see `dmesg`)"
    if code == _OUT_OF_MEMORY:
        return "Java's heap is used up; give it more with --conf spark.driver.memory=4g"
    if number in set(signal.Signals):
        return f"ended by {signal.Signals(number).name}"
    return f"exit code {code}"


def _hush_connections() -> None:
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_no_broken_connection)


def _is_no_broken_connection(record: logging.LogRecord) -> bool:
    """Return True if a line of the log tells more than that the JVM is gone, which we tell
    ourselves.

    py4j logs a traceback for each of its connections, and raises the error to who asked, too.
    """
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        if isinstance(error, Py4JNetworkError):
            return False
        error = error.__cause__ or error.__context__
    return True
