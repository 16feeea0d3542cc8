"""Spark's daemon of Python workers, which has loaded our code before it forks them.

Loading libraries and kernels takes a process about a second, and a query needs several workers. So
the daemon does it once, and all of them share what is loaded. Spark is told of it by
`spark.python.daemon.module`, on one machine (`pipeline.session`).

Spark starts its daemon by a command, but only when it needs the first worker. So the process that
starts Spark starts an early daemon before (`EarlyDaemon`), which loads while Spark's JVM boots.
Spark's command then gives its pipes, arguments and environment to a fork of the early daemon, and
waits for its end: Spark would close the pipes if the command ended.

Nothing that is loaded may start a thread, as a fork has only the thread that forks. What fails here
is left to the workers, who load for themselves what they lack, and tell of it.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from streamydb.local.file_lock import scratch_folder
from streamydb.local.own_process import aside, compiles, renew, take_file_handles
from streamydb.local.title import take_title

_SOCKET: Final = "STREAMYDB_DAEMON_SOCKET"
"""Names the file of the socket on which a daemon that was started early waits."""

_MODULE: Final = "streamydb.pipeline.daemon"
_EARLY: Final = "--early"
_DONE: Final = b"1"
_FAILED: Final = b"0"
_END: Final = b"\n"  # the end of a message; JSON on one line has none
_PIPES: Final = (0, 1, 2)
_FILES_MAX: Final = 65_536
"""A worker maps a file for each table of ids: with the longest deadlines some 200 a shard."""


class _Early(NamedTuple):
    """An early daemon's process, as a fork; what `subprocess` has of another one.

    Attributes:
        stdin: a pipe, whose end tells it that whoever has started it has ended.
        stdout: a pipe, from which comes how loading went.
    """

    pid: int
    stdin: BinaryIO
    stdout: BinaryIO


class EarlyDaemon:
    """A daemon that loads before Spark asks for one; it ends with this object's process."""

    def __init__(self, python: str) -> None:
        """Start it, and have whatever is started from here on know of it.

        If this process has loaded everything, it is a fork of it; no thread may run yet then.
        Raises OSError: no process, or no socket in the folder for temporary files.
        """
        folder = scratch_folder()
        address = folder / "socket"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen(1)
            number = listener.fileno()
            command = [python, "-m", _MODULE, _EARLY, str(number), str(folder)]
            self._process: subprocess.Popen[bytes] | _Early
            if _PRELOADED and threading.active_count() == 1:
                self._process = _forked_early(command, listener, folder)
            else:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[number],
                    env={"PYTHONHASHSEED": "0", **os.environ}, process_group=0,
                )  # fmt: skip
        os.environ[_SOCKET] = str(address)

    def loaded(self) -> bool:
        """Wait until it has loaded everything; False: it could not."""
        output = self._process.stdout
        return output is not None and output.read(1) == _DONE


def _forked_early(command: list[str], listener: socket.socket, folder: Path) -> _Early:
    """Fork the early daemon from this process."""
    inputs, outputs = os.pipe(), os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(inputs[0])
        os.close(outputs[1])
        return _Early(pid, os.fdopen(inputs[1], "wb"), os.fdopen(outputs[0], "rb"))
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(inputs[0], sys.stdin.fileno())
        os.dup2(outputs[1], sys.stdout.fileno())
        for number in (*inputs, *outputs):
            os.close(number)
        take_title(command, os.environ)
        take_file_handles(_FILES_MAX)
        _serve_early(listener, folder)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - what is above in the stack is the parent's
        traceback.print_exc()
    finally:  # nor does what the parent has registered for its own end happen here
        sys.stderr.flush()
        os._exit(code)


_PRELOADED: Final[set[str]] = set()
"""Has a member if this process has loaded what workers need, as a fork of one that did."""


def preload() -> None:
    """Load what workers need in a process that will fork the pipeline.
    Raises Exception: it cannot be loaded.
    """
    _load()
    _PRELOADED.add(__name__)


class _Loading(Enum):
    """The ways in which loading may end."""

    FAILED = auto()
    COMPILED = auto()
    """Everything is loaded; kernels were compiled for it, and are in the cache now."""
    CACHED = auto()


def _load() -> _Loading:
    """Load what workers need; keep Python's collector away from it, also for the pages' sake."""
    import pyarrow.compute as pc  # noqa: F401 - Spark's side of a worker imports these three
    from pyspark import worker  # noqa: F401
    from pyspark.sql.streaming.proto import StateMessage_pb2  # noqa: F401

    from streamydb.pipeline import hosts, stateful  # noqa: F401 - our side
    from streamydb.pipeline.realtime import host  # noqa: F401
    from streamydb.pipeline.warmup import warm_up
    from streamydb.pipeline.without_pandas import spare_pandas

    spare_pandas()
    compiled = compiles(warm_up)
    gc.collect()
    gc.freeze()
    return _Loading.COMPILED if compiled else _Loading.CACHED


def _loads() -> _Loading:
    try:
        return _load()
    except Exception as error:  # noqa: BLE001 - a worker that needs it fails with the whole story
        sys.stderr.write(f"the Python workers load for themselves: {error}\n")
        return _Loading.FAILED


def _loads_aside() -> _Loading:
    """Load with what others leave of the processors: Spark's JVM is what a start waits for."""
    loaded: list[_Loading] = []
    aside(lambda: loaded.append(_loads()))
    return loaded[0] if loaded else _Loading.FAILED


def _manage() -> None:
    """Fork a worker for each request of Spark, until it ends this process.

    Standard output belongs to Spark, which reads from it where the daemon listens.
    """
    from pyspark import daemon, worker

    from streamydb.pipeline.realtime import wire

    worker.main = wire.main  # PySpark's daemon asks its module for it
    daemon.manager()


def _serve_early(listener: socket.socket, folder: Path) -> None:
    """Load, then fork a daemon for each one that Spark starts; end with who has started us.

    Spark has a daemon for each environment of its functions, and so one for each gear: what is
    loaded is in memory once. If this process has compiled kernels, it begins anew, as what a
    compiler keeps would be in each worker.
    """
    own = os.getpid()
    try:
        loaded = _Loading.CACHED if _PRELOADED else _loads_aside()
        if loaded is _Loading.COMPILED:
            renew()
        try:
            os.write(sys.stdout.fileno(), _FAILED if loaded is _Loading.FAILED else _DONE)
        except BrokenPipeError:
            return  # who has started us was killed
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a daemon's end
        channel = _forked(listener)
    finally:
        if os.getpid() == own:
            shutil.rmtree(folder, ignore_errors=True)
    if channel is not None:
        _take_place(channel)


def _forked(listener: socket.socket) -> socket.socket | None:
    """Fork for each command of Spark that connects; return its connection in the fork.

    Return None when whoever has started this process has ended.
    """
    with listener, selectors.DefaultSelector() as selector:
        for waited in (sys.stdin, listener):
            selector.register(waited, selectors.EVENT_READ)
        while all(key.fileobj is not sys.stdin for key, _ in selector.select()):
            channel, _ = listener.accept()
            if os.fork() == 0:
                return channel
            channel.close()
    return None


def _take_place(channel: socket.socket) -> None:
    """Be the daemon that Spark has started, with what its command has sent: its pipes, arguments
    and environment.
    """
    _, pipes, _, _ = socket.recv_fds(channel, len(_DONE), len(_PIPES))
    with channel.makefile("rb") as stream:
        message = stream.read()
    if not message.endswith(_END):
        return  # Spark's command was killed within it; Spark starts another one
    process = json.loads(message)
    for number, pipe in zip(_PIPES, pipes, strict=True):
        os.dup2(pipe, number)
        os.close(pipe)
    os.environ.clear()
    os.environ.update(process["environ"])
    sys.argv[:], sys.path[:] = process["argv"], process["path"]
    take_title([sys.executable, "-m", _MODULE, *sys.argv[1:]], os.environ)
    try:
        channel.sendall(_DONE)
    except OSError:
        return  # Spark's command was killed; Spark starts another one
    _manage()


def _hand_over(address: str) -> bool:
    """Give this process's place to the daemon that was started early, and wait for its end.

    Return False if there is none any more.
    """
    process = {"environ": dict(os.environ), "argv": sys.argv, "path": sys.path}
    with socket.socket(socket.AF_UNIX) as channel:
        try:
            channel.connect(address)
            socket.send_fds(channel, [_DONE], _PIPES)
            channel.sendall(json.dumps(process).encode() + _END)
            channel.shutdown(socket.SHUT_WR)
            taken = channel.recv(len(_DONE)) == _DONE
        except OSError:
            return False
        if taken:
            # Wait until the daemon that was started early has ended: nothing else comes. A program
            # that copies its input to its output does that with a tenth of the memory.
            copies = shutil.which("cat")
            if copies is not None:
                os.dup2(channel.fileno(), sys.stdin.fileno())
                os.execv(copies, [copies])  # noqa: S606 - a tool of the system
            with suppress(OSError):
                channel.recv(len(_DONE))
        return taken


def main() -> None:
    """Be the daemon that Spark has started, or the one that was started before it."""
    take_file_handles(_FILES_MAX)
    if _EARLY in sys.argv:
        number, folder = sys.argv[2:]
        _serve_early(socket.socket(fileno=int(number)), Path(folder))
        return
    address = os.environ.get(_SOCKET)
    if address is None or not _hand_over(address):
        _loads()
        _manage()


if __name__ == "__main__":
    main()
