"""A process that loads what several programs need, and forks each of them.

Three processes of a database load the same packages and kernels, 100 MB in each. Forked from one
that has loaded them, they share the memory that none of them changes, and a machine loads once.
`up` starts the server first, and it loads while the broker starts. It ends with `up`; the programs
go on. They look and behave as if they had been started by their commands: each has its session,
arguments, environment, log and title.

Whatever fails here is left to the programs: what is not loaded they load, and if no fork can be
had, `up` starts a program by its command. Only on Linux: elsewhere a fork may not use what its
parent has loaded.

A fork does nothing until whoever asked for it knows its id and says so. So a server that is killed
at any moment leaves no fork that nobody knows.

    python -m streamydb.local.fork_server PREPARE...

Each PREPARE is `module` or `module:function`, to be imported and called.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

import msgspec

from streamydb.local.own_process import aside, compiles, few_arenas, renew
from streamydb.local.title import ROOM, ROOM_BYTES, take_title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LINE: Final = b"\n"
_MODULE: Final = "-m"
_PROGRAM: Final = 2
"""The place of the module in a command: `python -m module`."""

_HASH_SEED: Final = "PYTHONHASHSEED"
"""Python's hashes of texts are seeded as it starts, so a fork's are; those of the pipeline's
workers, which may be started otherwise, must be the same."""

_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""A library that starts threads as it is loaded would lack them in a fork."""


class Program(msgspec.Struct, frozen=True):
    """A program to be forked.

    Attributes:
        command: `python -m module` and its arguments.
        environment: all of it.
        folder: where it runs.
        log: the file to which its output is appended.
    """

    command: list[str]
    environment: dict[str, str]
    folder: str
    log: str


class ForkError(RuntimeError):
    """No fork can be had; the program can be started by its command."""


class ForkServer:
    """The server, as the process that starts it sees it; leaving the block ends it."""

    def __init__(self, prepare: Sequence[str]) -> None:
        """Begin to load; elsewhere than on Linux there is no server."""
        self._process: subprocess.Popen[bytes] | None = None
        self._seed = {_HASH_SEED: os.environ.get(_HASH_SEED) or str(secrets.randbits(32))}
        if sys.platform != "linux":
            return
        own = {**_ONE_THREAD, **self._seed, ROOM: "." * ROOM_BYTES}
        with suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, _MODULE, __name__, *prepare], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, **few_arenas(), **own},
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; what it has forked goes on. Harmless when it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Fork a program, and return its process id.

        Args:
            command: `python -m module` and its arguments.
            environment: variables to add to (or replace in) the caller's.
            log: where its output is appended.

        Raises ForkError: it cannot be forked. Raises OSError: its log cannot be written.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ForkError
        if list(command[:2]) != [sys.executable, _MODULE]:
            raise ForkError
        log.parent.mkdir(parents=True, exist_ok=True)
        log.open("ab").close()
        everything = {**os.environ, **environment, **self._seed}
        program = Program(list(command), everything, str(Path.cwd()), str(log.absolute()))
        try:
            return _asked_for(msgspec.json.encode(program), process.stdin, process.stdout)
        except (OSError, ValueError) as error:  # it has ended; or a text is no UTF-8
            raise ForkError from error


def _asked_for(program: bytes, requests: IO[bytes], answers: IO[bytes]) -> int:
    """Ask for a fork and let it run; return its process id.
    Raises ValueError, OSError: there is none, or none any more.
    """
    pid = None
    try:
        requests.write(program + _LINE)
        requests.flush()
        pid = int(answers.readline())
        requests.write(_LINE)  # its id is known: it may run
        requests.flush()
        runs = answers.readline() == _LINE
    except BaseException:  # Ctrl-C, too
        _kill(pid)
        raise
    if not runs:
        _kill(pid)
        raise OSError("the server has ended, and nobody can tell whether its fork runs")
    return pid


def _kill(pid: int | None) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _prepare(names: Sequence[str]) -> bool:
    """Import the modules, and call the functions; return True if kernels were compiled."""

    def call() -> None:
        for name in names:
            module_name, _, function = name.partition(":")
            with suppress(Exception):  # the program that needs it tells of it
                module = importlib.import_module(module_name)
                if function:
                    getattr(module, function)()

    try:
        return compiles(call)
    except ImportError:  # no numba
        call()
        return False


def serve(names: Sequence[str]) -> Program | None:
    """Load, then fork a program for each line of the input; in a fork, return its program.

    If kernels were compiled, the process begins anew, as what a compiler keeps would be in each.
    """
    compiled: list[bool] = []
    aside(lambda: compiled.append(_prepare(names)))
    if compiled[0]:
        renew()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever ends is known by its id and birth
    for line in sys.stdin.buffer:
        program = msgspec.json.decode(line, type=Program)
        waits, runs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(runs)
            if not os.read(waits, 1):
                os._exit(1)  # the server ended before anybody knew of this fork
            os.close(waits)
            return program
        os.close(waits)
        print(pid, flush=True)  # noqa: T201 - the answer
        if not sys.stdin.buffer.readline():
            return None
        with suppress(OSError):  # the fork was killed
            os.write(runs, _LINE)
        os.close(runs)
        print(flush=True)  # noqa: T201 - likewise
    return None


def become(program: Program) -> None:
    """Take a program's place: its session, output, environment, arguments and title."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(program.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((null, log, log)):
        os.dup2(file, number)
    os.close(log)
    os.close(null)
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)
    sys.orig_argv[:] = program.command
    sys.argv[:] = program.command[_PROGRAM:]
    take_title(program.command, program.environment)


def main() -> None:
    """Serve; in a fork, be its program."""
    program = serve(sys.argv[1:])
    if program is not None:
        become(program)
        runpy.run_module(program.command[_PROGRAM], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
