"""Test a streamy-db for real: a database whose broker and pipeline may be killed at will.

with Database(tmp_path) as db:
    db.load(transactions)
    db.kill_pipeline()
    db.start_pipeline()
    db.assert_serial()

Everything runs in processes of its own, and everything started is ended with the context.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psutil

from streamydb.errors import StreamyError
from streamydb.kafka import TopicNames, create
from streamydb.kafka.appender import TopicAppender
from streamydb.local.broker import EmbeddedBroker
from streamydb.local.folder import DatabaseFolder, PipelineStatus
from streamydb.local.launcher import LocalProcess, module_command, wait_until
from streamydb.local.module_folder import FolderModules
from streamydb.settings import Settings
from streamydb.verify.check import CheckOptions, check
from streamydb.verify.check.report import CheckReport

_DAEMONS = frozenset({"streamydb.pipeline.daemon", "pyspark.daemon"})
"""Modules that fork Python workers: ours, and Spark's own."""

_LOADS = "--early"
"""An option of ours: it has loaded what workers need, and forks their daemons."""


class TestingError(StreamyError):
    """Something did not happen in time, or a process ended that should not have."""

    __test__ = False


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
    """Wait until ``condition`` holds.
    Raises TestingError: it did not within ``timeout_s`` seconds.
    """
    if not wait_until(condition, timeout_s):
        raise TestingError(f"{what} did not happen within {timeout_s:.0f} s")


class Database:
    """A database in ``folder`` on a broker of its own.

    Args:
        options: more arguments of `python -m streamydb.pipeline`.

    """

    def __init__(
        self,
        folder: Path,
        *,
        shards: int = 1,
        partitions: int = 1,
        options: Sequence[str] = (),
        master: str = "local[2]",
    ) -> None:
        self.folder = folder
        self.name = "bank"
        self.shards = shards
        self.partitions = partitions
        self.options = list(options)
        self.master = master
        self.broker = EmbeddedBroker(folder / "home", heap_mb=512)
        self.place = DatabaseFolder(folder / "home", self.name)
        self.log_file = folder / "pipeline.log"
        self.release: Path | None = None
        """The site-packages of another release (`pip install --prefix`); None: this one."""
        self._process: LocalProcess | None = None

    def __enter__(self) -> Self:
        """Start the broker, create the topics, start the pipeline; end them if one cannot."""
        with ExitStack() as started:
            started.push(self)
            self.broker.start()
            create(
                self.settings.client_config(),
                self.name,
                partitions=self.partitions,
                shards=self.shards,
            )
            self.start_pipeline()
            started.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill_pipeline()
        self.broker.kill()

    @contextmanager
    def beside(self, name: str, options: Sequence[str] = ("--standby",)) -> Iterator[Database]:
        """Run a second pipeline over the same log while the body runs; it may be killed, too."""
        other = Database(
            self.folder,
            shards=self.shards,
            partitions=self.partitions,
            options=[*self.options, "--name", name, *options],
            master=self.master,
        )
        other.name, other.broker = self.name, self.broker
        other.place = DatabaseFolder(self.folder / name, self.name)
        other.log_file = self.folder / f"{name}.log"
        other.start_pipeline()
        try:
            yield other
        finally:
            other.kill_pipeline()

    @property
    def settings(self) -> Settings:
        return Settings(
            database=self.name,
            bootstrap=self.broker.bootstrap,
            home=self.folder / "home",
            shards=self.shards,
            partitions=self.partitions,
        )

    def command(self, extra: Iterable[str] = ()) -> list[str]:
        command = module_command(
            "streamydb.pipeline", database=self.name, bootstrap=self.broker.bootstrap,
            checkpoint=self.place.checkpoint, status_file=self.place.status_file,
            shards=self.shards, master=self.master, local=self.folder / "local",
            procedures=self.place.procedures,
        )  # fmt: skip
        return [*command, *self.options, *extra]

    def start_pipeline(self, extra: Iterable[str] = ()) -> None:
        self.launch_pipeline(extra)
        wait_for(lambda: self._ended() or self.status().state == "running", "the start")
        if self._ended():
            raise TestingError(f"the pipeline ended: {self.log_file.read_text()[-4000:]}")

    def launch_pipeline(self, extra: Iterable[str] = ()) -> None:
        self.place.status_file.unlink(missing_ok=True)
        environment = {} if self.release is None else {"PYTHONPATH": str(self.release)}
        self._process = LocalProcess(
            "pipeline", self.command(extra), self.log_file,
            environment=environment, folder=self.release, append=True,
        )  # fmt: skip

    def _ended(self) -> bool:
        return self._process is None or not self._process.alive

    def status(self) -> PipelineStatus:
        return self.place.status()

    def processes(self) -> list[psutil.Process]:
        """The pipeline's process and all below it: the JVM and the Python workers."""
        return [] if self._process is None else self._process.family()

    def kill_pipeline(self) -> None:
        if self._process is not None:
            self._process.kill_family()
            self._process = None

    def stop_pipeline(self) -> int:
        self.signal_pipeline(signal.SIGTERM)
        return self.wait_pipeline()

    def signal_pipeline(self, number: int) -> None:
        """Send a signal to the pipeline's process, and to none below it."""
        if self._process is None:
            raise TestingError("no pipeline runs")
        self._process.send(number)

    def wait_pipeline(self, timeout_s: float = 120.0) -> int:
        if self._process is None:
            raise TestingError("no pipeline runs")
        return self._process.wait(timeout_s)

    def kill_workers(self, *, daemons: bool = False, spared: Container[int] = ()) -> int:
        """SIGKILL the Python workers that run the stages; how many processes.
        ``daemons``: kill the daemons that fork them, too. ``spared``: the processes that are left
        alone.
        """
        chosen = []
        for process in self.processes()[1:]:  # all of them, before the first one's death is seen
            with suppress(psutil.NoSuchProcess):
                parent = process.parent()
                forked = parent is not None and is_daemon(parent) and _LOADS not in parent.cmdline()
                if process.pid in spared:
                    continue
                if forked or (daemons and is_daemon(process)):
                    chosen.append(process)
        killed = 0
        for process in chosen:
            with suppress(psutil.NoSuchProcess):
                process.kill()
                killed += 1
        return killed

    def delete_local_files(self) -> None:
        """Delete the executors' caches under them."""
        shutil.rmtree(self.folder / "local", ignore_errors=True)

    def load(
        self, values: Iterable[bytes | Mapping[str, Any] | None], partition: int | None = None
    ) -> int:
        """Append records as they are, valid or not; how many."""
        connection, topic = self.settings.client_config(), TopicNames(self.name).transactions
        count, number = 0, -1 if partition is None else partition
        with TopicAppender(connection, topic, TestingError) as appender:
            for count, value in enumerate(values, 1):  # noqa: B007 - how many there were
                data = json.dumps(value).encode() if isinstance(value, Mapping) else value
                appender.append(data, partition=number)
        return count

    def assert_serial(self, timeout_s: float = 180.0) -> CheckReport:
        """Wait until all that is in the log now is executed; compare it with a serial replay.

        With several partitions the newest transactions have a place in the order only once markers
        have come into the others.
        Raises AssertionError: something is missing, extra or different, or has no place in the
        order after `timeout_s` seconds.
        """
        until = time.monotonic() + timeout_s
        report = first = self._check(timeout_s)
        while report.ok and report.held_back:
            if report.transactions >= first.transactions + first.held_back:
                break  # what is held back now was appended since
            if time.monotonic() > until:
                raise AssertionError(f"{report.held_back} transactions wait for markers: {report}")
            report = self._check(timeout_s)
        if not report.ok:
            raise AssertionError(f"not serial: {report}")
        return report

    def _check(self, timeout_s: float) -> CheckReport:
        return check(
            CheckOptions(
                connection=self.settings.client_config(),
                database=self.name,
                initial_partitions=self.partitions,
                timeout_s=timeout_s,
                modules=FolderModules([self.place.procedures]),
            )
        )


def is_daemon(process: psutil.Process) -> bool:
    """Return True if a process is a daemon that forks Python workers, or was forked by one."""
    return not _DAEMONS.isdisjoint(process.cmdline())
