"""The servers of a run: the facade with its read model, and the peers; all in processes."""

from __future__ import annotations

import http.client
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import psutil

from bench.costs import cpu_of, tree_cpu_s
from bench.engine import Engine
from bench.errors import BenchError
from bench.rest import postgresql
from bench.rest.cases import CONSTANT, FACADE, POSTGRESQL
from bench.waiting import wait_until
from streamydb.cli.phases import Phases
from streamydb.errors import install
from streamydb.local import processes
from streamydb.local.broker import free_port
from streamydb.local.launcher import LocalProcess, ProcessError, end_of_log

__all__ = ["Server", "facade", "peers", "run_load", "wait_for"]

_READY_S_MAX: Final = 60.0
_CAUGHT_UP_S_MAX: Final = 300.0
_STOP_S_MAX: Final = 20.0
_LINES_SHOWN: Final = 15


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs.

    Attributes:
        name: FACADE, POSTGRESQL or CONSTANT.
        port: where it listens on 127.0.0.1.
        process: the process that serves HTTP.
        store: the store's first process, if it has its own.
    """

    name: str
    port: int
    process: psutil.Process
    store: psutil.Process | None = None

    def cpu_s(self) -> float:
        """Processor time that the serving process has used, in seconds."""
        return cpu_of(self.process.pid)

    def store_cpu_s(self) -> float:
        """Processor time that the store's processes have used, in seconds, ended ones included."""
        if self.store is None:
            return 0.0
        return tree_cpu_s(self.store)


@contextmanager
def facade(engine: Engine, phases: Phases) -> Iterator[Server]:
    """Run the read model and the facade of the engine's database; wait until it is caught up.

    Raises:
        BenchError: one of them ended, or was not ready in time; with the end of its log.
    """
    with ExitStack() as stack:
        with phases.phase("Starting the read model and the facade") as phase:
            port = free_port()
            stack.callback(_stop, engine, "read-model")
            _start(engine, "read-model", "--retention-seqs", "100000")
            stack.callback(_stop, engine, "serve")
            _start(engine, "serve", "--port", str(port))
            wait_until(
                lambda: _ready(port),
                "the facade was ready",
                _READY_S_MAX,
                check=lambda: _check(engine),
            )
            record = processes.find(engine.folder, "serve")
            if record is None:
                raise BenchError("the facade ended")
            phase.note("reading all changes")
            wait_until(
                lambda: _answers(port, "/v1/kv?limit=1"),
                "the read model was caught up",
                _CAUGHT_UP_S_MAX,
                check=lambda: _check(engine),
            )
        yield Server(FACADE, port, psutil.Process(record.pid))


@contextmanager
def peers(keys: int, value_bytes: int, phases: Phases) -> Iterator[list[Server]]:
    """Run what can be compared with here: a constant, and PostgreSQL if there is one."""
    if importlib.util.find_spec("litestar") is None:
        with phases.phase("No peer to compare with") as phase:
            phase.outcome = f"the package litestar is missing: {install('bench')}"
        yield []
        return
    with ExitStack() as stack:
        running = [stack.enter_context(_peer(CONSTANT))]
        lacking = postgresql.missing()
        if lacking is not None:
            with phases.phase("PostgreSQL is left out") as phase:
                phase.outcome = lacking
        else:
            with phases.phase("Starting PostgreSQL") as phase:
                from bench.rest.postgresql_store import SCHEMA

                dsn, process = stack.enter_context(postgresql.cluster(SCHEMA))
                phase.note("loading")
                postgresql.load(dsn, keys, f'"{"v" * value_bytes}"')
                server = stack.enter_context(_peer(POSTGRESQL, dsn))
                running.append(replace(server, store=process))
                phase.outcome = f"{keys:,} keys"
        yield running


def run_load(
    jobs: Sequence[bytes], began: Callable[[subprocess.Popen[bytes]], None] = lambda _: None
) -> list[bytes]:
    """Run load generators side by side, a process for each job; return what they printed.

    Args:
        jobs: what each is to do.
        began: is given each process; who waits for this in another thread can kill it.

    Raises:
        BenchError: one failed; with what it said.
    """
    command = [sys.executable, "-m", "bench.rest.load"]
    with ExitStack() as stack:
        running = []
        for job in jobs:
            process = stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
            )
            stack.callback(process.kill)
            began(process)
            if process.stdin is not None:
                process.stdin.write(job)
                process.stdin.close()
                process.stdin = None
            running.append(process)
        ended = [(process, *process.communicate()) for process in running]
    for process, _, said in ended:
        if process.returncode:
            raise BenchError(f"the load generator failed: {said.decode(errors='replace')[-2000:]}")
    return [output for _, output, _ in ended]


@contextmanager
def _peer(name: str, *more: str) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "bench.rest.peers", name, str(port), *more]
    with (
        TemporaryDirectory() as folder,
        LocalProcess(f"the server of {name}", command, Path(folder) / "log") as process,
    ):
        wait_for(process, port)
        yield Server(name, port, psutil.Process(process.pid))


def wait_for(process: LocalProcess, port: int) -> None:
    """Wait until a process serves.

    Raises:
        BenchError: it ended, or it took too long.
    """
    try:
        process.wait_until(lambda: _answers(port, "/health/live"), _READY_S_MAX)
    except ProcessError as error:
        raise BenchError(str(error)) from error


def _start(engine: Engine, name: str, *more: str) -> None:
    command = [
        sys.executable, "-m", "streamydb.cli", name, "--database", engine.options.database,
        "--home", str(engine.folder / "home"), "--bootstrap", engine.bootstrap,
        "--folder", str(engine.folder / "read-model"),
    ]  # fmt: skip
    processes.start(engine.folder, name, [*command, *more])


def _stop(engine: Engine, name: str) -> None:
    processes.stop(engine.folder, name, _STOP_S_MAX)


def _check(engine: Engine) -> None:
    engine.check()
    for name in ("read-model", "serve"):
        if processes.find(engine.folder, name) is None:
            log = processes.log_path(engine.folder, name)
            raise BenchError(f"`streamydb {name}` ended. {end_of_log(log, _LINES_SHOWN)}")


def _ready(port: int) -> bool:
    return _answers(port, "/health/ready")


def _answers(port: int, target: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    if answer.status != http.client.OK:
        return False
    return not target.startswith("/v1/kv") or bool(msgspec.json.decode(body)["entries"])
