"""Spark's daemon of Python workers, asked as Spark asks it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

import streamydb
from streamydb.pipeline.daemon import EarlyDaemon

__all__ = ["Asked", "DaemonEndedError", "asked", "gone", "leave", "process_of"]

_PROBE = """
import os

def main(infile, outfile):
    outfile.write(b"%b %b" % (os.environb[b"OF_SPARK"], os.environb.get(b"SPARK_BUFFER_SIZE", b"")))
"""
"""Stands in for Spark's side of a worker: it tells what is in its environment."""


class DaemonEndedError(Exception):
    """No worker came."""


class Asked:
    """The daemon that Spark has started, asked as Spark asks it.

    Attributes:
        buffer_size: Spark's setting, as the environment of the last worker has it.
    """

    def __init__(self, folder: Path) -> None:
        """Start it."""
        (folder / "pyspark_probe.py").write_text(_PROBE)
        given = {
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
            "PYTHONPATH": str(folder),
            "OF_SPARK": "as Spark has it: \udcff",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "streamydb.pipeline.daemon", "pyspark_probe"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **given}, cwd=Path(streamydb.__file__).parents[1],
        )  # fmt: skip
        self._channels: list[socket.socket] = []
        self.buffer_size = ""

    def worker(self) -> psutil.Process:
        """Ask for a worker, which lives until this has ended.

        Raises:
            DaemonEndedError: the daemon has ended before it gave one.
        """
        out = self.process.stdout
        assert out is not None
        address = out.read(int.from_bytes(out.read(4), "big"))
        channel = socket.socket(socket.AF_UNIX)
        self._channels.append(channel)
        try:
            channel.connect(address)
            pid, told = int.from_bytes(channel.recv(4), "big"), channel.recv(100)
        except OSError as error:
            raise DaemonEndedError from error
        if not pid or not told:
            raise DaemonEndedError
        of_spark, _, size = told.rpartition(b" ")
        assert of_spark == b"as Spark has it: \xff"
        self.buffer_size = size.decode()
        return psutil.Process(pid)

    def origin(self, worker: psutil.Process) -> int:
        """The process that has loaded for a worker: this one, or the early daemon, of which the
        worker's daemon is a fork.
        """
        daemon = worker.parent()
        assert daemon is not None
        own = int(self.process.pid)
        return own if daemon.pid == own else daemon.ppid()

    def end(self) -> str:
        """End it as Spark does; what it said."""
        for channel in self._channels:
            channel.close()
        _, said = self.process.communicate(timeout=60)
        return said.decode()


@contextmanager
def asked() -> Iterator[Asked]:
    """Start one; its folder has a short name, because the path of a socket has."""
    with tempfile.TemporaryDirectory() as folder:
        found = Asked(Path(folder))
        try:
            yield found
        finally:
            found.end()


def leave(early: EarlyDaemon) -> None:
    """Have an early daemon see that who started it has ended."""
    assert early._process.stdin is not None
    early._process.stdin.close()


def process_of(early: EarlyDaemon) -> psutil.Process:
    """The process of an early daemon."""
    return psutil.Process(early._process.pid)


def gone(process: psutil.Process) -> bool:
    """Return True if a process has ended."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
