"""Processes for queries, forked from one that has loaded what they need.

A process that loads DuckDB takes half a second, a fork of it a few milliseconds. What the process
does is the same: its pipes, bounds, environment, end. `tests/unit/sql` starts real ones.

    python -m tests.support.query_forks MODULE

serves at its standard input, a Unix socket: for two files, a process that reads and writes them.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from streamydb.sql import pool
from streamydb.sql.child import READY, WithoutPandas

__all__ = ["START", "install", "started"]

_PID_BYTES: Final = 8
_LOADED: Final = {
    "streamydb.sql.process": ("streamydb.sql.worker", "streamydb.sql.engine", "duckdb"),
    "streamydb_layers.tables.process": ("streamydb_layers.tables.process", "duckdb"),
}
START: Final = pool._start
"""Start a process as production does."""


def install() -> None:
    """Have all pools of this process fork, where that can be done."""
    if sys.platform == "linux":
        pool._start = started


class ForkedProcess:
    """What the pools use of `asyncio.subprocess.Process`."""

    def __init__(
        self, pid: int, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader, reads: Any
    ) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._reads = reads
        self._pidfd: int | None = None
        with suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(pid)

    @property
    def returncode(self) -> int | None:
        """Not None if it has ended; which one is not known."""
        if self._pidfd is None:
            return -signal.SIGKILL
        ended = select.poll()  # `select` takes no descriptor above 1,023
        ended.register(self._pidfd, select.POLLIN)
        if ended.poll(0):
            self._close()
        return None if self._pidfd is not None else -signal.SIGKILL

    async def wait(self) -> int:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        if self._pidfd is not None:
            pidfd = self._pidfd
            loop.add_reader(pidfd, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(pidfd)
        self._close()
        return -signal.SIGKILL

    def _close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        self.stdin.close()
        self._reads.close()


async def started(module: str) -> Any:
    """Return a process of a module that is ready, as `pool._start` does."""
    if module not in _LOADED:
        return await START(module)
    loop = asyncio.get_running_loop()
    child_in, own_in = os.pipe()
    own_out, child_out = os.pipe()
    try:
        server = _server(module, os.getpid())
        socket.send_fds(server, [b"q"], [child_in, child_out])
        pid = int(server.recv(_PID_BYTES))
    finally:
        os.close(child_in)
        os.close(child_out)
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    reads, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(own_out, "rb", 0))
    writes, flow = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(own_in, "wb", 0)
    )
    process = ForkedProcess(pid, asyncio.StreamWriter(writes, flow, None, loop), reader, reads)
    try:
        ready = await reader.read(1)
    except BaseException:
        await asyncio.shield(pool.end(process))  # type: ignore[arg-type]
        raise
    if ready != READY:
        raise OSError(f"the process {module} did not start")
    return process


@cache
def _server(module: str, _pid: int) -> socket.socket:
    """Start the process that forks; a fork of this one has another."""
    ours, theirs = socket.socketpair()
    with theirs:
        environment = pool._environment(module)
        path = [environment["PYTHONPATH"], str(Path(__file__).parents[2])]
        subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.support.query_forks", module],
            stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environment | {"PYTHONPATH": os.pathsep.join(path)}, start_new_session=True,
        )  # fmt: skip
    return ours


def _serve(module: str) -> None:
    """Fork a process for each pair of files, until nobody can ask any more."""
    sys.meta_path.insert(0, WithoutPandas())
    for name in _LOADED[module]:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(fileno=os.dup(0))
    while True:
        data, files, _, _ = socket.recv_fds(server, 1, 2)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            server.close()
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            os._exit(0)
        for file in files:
            os.close(file)
        server.send(str(pid).encode())


if __name__ == "__main__":
    _serve(sys.argv[1])
