"""Spark's JVM as a process: say how it ended, and end it at once."""

from __future__ import annotations

import logging
import signal
import subprocess
from typing import Any, Final

import psutil
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from streamydb.errors import StreamyError

__all__ = ["Jvm", "JvmEndedError"]

_OUT_OF_MEMORY: Final = 52
"""Exit code of Spark when Java's heap is used up."""

_SIGNALLED: Final = 128


class JvmEndedError(StreamyError):
    """Spark's JVM has ended under the pipeline."""


class Jvm:
    """The JVM that PySpark has started; none if `spark-submit` started us."""

    def hush(self, spark: SparkSession) -> None:
        """Leave out what each connection to the JVM says when it breaks."""
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_no_broken_connection)
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

    def kill(self) -> None:
        """End the JVM and all workers below it at once."""
        for process in psutil.Process().children(recursive=True):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


def _reason(code: int) -> str:
    """An exit code in words."""
    number = -code if code < 0 else code - _SIGNALLED
    if number == signal.SIGKILL:
        return "killed (SIGKILL), by somebody or by the system because memory ran out (see `dmesg`)"
    if code == _OUT_OF_MEMORY:
        return "Java's heap is used up; give it more with --conf spark.driver.memory=4g"
    if number in set(signal.Signals):
        return f"ended by {signal.Signals(number).name}"
    return f"exit code {code}"


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
