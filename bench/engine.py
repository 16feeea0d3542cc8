"""A fresh broker and pipeline to measure, in a folder and processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from bench.copies import CLUSTER_HEAP_MB, ONE_COPY, TopicCopies
from bench.costs import Used, cpu_of
from bench.errors import BenchError
from bench.memory import MemorySampler
from bench.waiting import Ends, wait_until
from streamydb.cli.phases import Phases
from streamydb.kafka import TopicNames, create
from streamydb.kafka.admin import set_sync
from streamydb.local import processes
from streamydb.local.broker import EmbeddedBroker, EmbeddedCluster
from streamydb.local.folder import PipelineStatus
from streamydb.local.launcher import end_of_log

__all__ = [
    "Batch", "Engine", "EngineOptions", "cores", "fresh_broker", "fresh_brokers", "fresh_engine",
]  # fmt: skip

_PIPELINE: Final = "pipeline"
_START_S_MAX: Final = 240.0
_STOP_S_MAX: Final = 70.0
_LEADS_S_MAX: Final = 180.0
_BATCH: Final = re.compile(rb"batch (\d+): (\d+) records in (\d+) ms")


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What is measured: a database's name, its shards, records a micro-batch and a plan take.

    ``copies``: how its topics are kept.
    """

    database: str = "bank"
    shards: int = 1
    max_offsets: int = 200_000
    plan_limit: int | None = None
    cores: int = field(default_factory=cores)
    copies: TopicCopies = ONE_COPY
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch as the pipeline's log tells it."""

    number: int
    records: int
    ms: int


class Engine:
    """A running database; made by `fresh_engine`.

    Attributes:
        names: its topics.
        connection: connection settings for confluent-kafka.
        results: counts results since the engine was made.
        home: the broker's folder.
        memory: samples the memory of the pipeline's processes.
        brokers: the processes of the brokers, as far as they are measured.
    """

    def __init__(
        self, options: EngineOptions, folder: Path, bootstrap: str, brokers: Sequence[int] = ()
    ) -> None:
        """Create the topics; the pipeline is not started."""
        self.options = options
        self.folder = folder
        self.home = folder / "home"
        self.bootstrap = bootstrap
        self.connection = {"bootstrap.servers": bootstrap}
        self.names = TopicNames(options.database)
        self.brokers = tuple(brokers)
        copies = options.copies
        create(
            self.connection, options.database, shards=options.shards,
            replication=copies.replication, min_insync=copies.min_insync,
        )  # fmt: skip
        if copies.sync:
            set_sync(self.connection, options.database, on=True)
        self.results = Ends(self.connection, self.names.results)
        self.memory = MemorySampler(self.processes)
        self._cpu_s: dict[psutil.Process, float] = {}

    @property
    def log(self) -> Path:
        """The pipeline's log."""
        return processes.log_path(self.folder, _PIPELINE)

    @property
    def procedures(self) -> Path:
        """Where the pipeline finds modules of stored procedures."""
        return self.folder / "procedures"

    def start(self) -> None:
        """Start the pipeline and wait until it runs.

        Raises:
            BenchError: it failed or was not ready in time.
        """
        environment = {"STREAMYDB_HOME": str(self.home)}
        processes.start(self.folder, _PIPELINE, self._command(), environment)
        self.memory.start()
        self.wait_for(lambda: self.status().state == "running", "the pipeline runs", _START_S_MAX)

    def stop(self) -> None:
        """Stop the pipeline; harmless when it does not run."""
        self.memory.stop()
        self.resume()
        processes.stop(self.folder, _PIPELINE, _STOP_S_MAX)

    @contextmanager
    def running(self, phases: Phases) -> Iterator[None]:
        """Run the pipeline; it ends with the block.

        Raises:
            BenchError: it failed or was not ready in time.
        """
        try:
            with phases.phase("Starting the pipeline"):
                self.start()
            yield
        finally:
            self.stop()

    def status(self) -> PipelineStatus:
        """What the pipeline last said of itself."""
        try:
            raw = (self.folder / "status.json").read_bytes()
            return msgspec.json.decode(raw, type=PipelineStatus)
        except (FileNotFoundError, msgspec.MsgspecError):
            return PipelineStatus(state="starting")

    def processes(self) -> list[Any]:
        """The pipeline's processes, parents first (psutil.Process)."""
        record = processes.find(self.folder, _PIPELINE)
        if record is None:
            return []
        try:
            driver = psutil.Process(record.pid)
            return [driver, *driver.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def pause(self) -> None:
        """Halt the pipeline's processes (SIGSTOP), so that a backlog can be written meanwhile."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        """Let them go on."""
        for process in reversed(self.processes()):
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def batches(self) -> list[Batch]:
        """All micro-batches so far."""
        found = _BATCH.findall(self.log.read_bytes()) if self.log.exists() else []
        return [Batch(*(int(number) for number in row)) for row in found]

    def cpu_s(self) -> float:
        """Processor time that the pipeline's processes have used, in seconds.

        One that has ended counts as it did when this was last asked: Spark's daemon ignores its
        workers' ends, so the system adds their time to nobody's.
        """
        for process in self.processes():
            with suppress(psutil.Error):
                self._cpu_s[process] = sum(process.cpu_times()[:2])
        return sum(self._cpu_s.values())

    def used(self) -> Used:
        """Processor time so far of the pipeline, of the brokers and of this process."""
        own = time.process_time()
        return Used(self.cpu_s(), sum(map(cpu_of, self.brokers)), own)

    def handles(self) -> int:
        """Open file descriptors of the pipeline's processes, sockets included."""
        handles = 0
        for process in self.processes():
            with suppress(psutil.Error):
                handles += process.num_fds()
        return handles

    def state_mb(self) -> float:
        """Disk space of the checkpoint and of the value files, in MB."""
        return self.checkpoint_mb() + self.values_mb()

    def checkpoint_mb(self) -> float:
        """Disk space of the checkpoint, in MB."""
        return _disk_bytes(self.folder / "checkpoint") / 1e6

    def values_mb(self) -> float:
        """Disk space of the value files, in MB."""
        return _disk_bytes(self.folder / "local") / 1e6

    def topics_mb(self) -> float:
        """Disk space of all topics, in MB: the log, the results, the changes, the feedback."""
        return _disk_bytes(self.home) / 1e6

    def wait_for(self, condition: Any, what: str, timeout_s: float) -> None:
        """Wait until `condition()` is true.

        Raises:
            BenchError: the pipeline ended, or the time is up.
        """
        wait_until(condition, what, timeout_s, check=self.check)

    def await_gear(self, gear: str) -> None:
        """Wait until a gear leads.

        Raises:
            BenchError: it did not, or the pipeline has ended.
        """

        def leads() -> bool:
            found = self.status().gear
            return found is not None and found.gear == gear

        self.wait_for(leads, f"the {gear} gear led", _LEADS_S_MAX)

    def check(self) -> None:
        """Raise BenchError if the pipeline has ended."""
        if processes.find(self.folder, _PIPELINE) is None:
            error = self.status().error or "it ended without saying why"
            raise BenchError(f"the pipeline failed: {error}\n{end_of_log(self.log, 25)}")

    def _command(self) -> list[str]:
        options, folder = self.options, self.folder
        arguments = {
            "database": options.database,
            "bootstrap": self.bootstrap,
            "checkpoint": folder / "checkpoint",
            "local": folder / "local",
            "status-file": folder / "status.json",
            "master": f"local[{options.cores}]",
            "shards": options.shards,
            "max-offsets": options.max_offsets,
            "procedures": self.procedures,
        }
        if options.plan_limit is not None:
            arguments["plan-limit"] = options.plan_limit
        given = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
        return [sys.executable, "-m", "streamydb.pipeline", *given, *options.extra]


@contextmanager
def fresh_broker(parent: Path | None, phases: Phases) -> Iterator[EmbeddedBroker]:
    """Run a broker in a new folder (under `parent`), which is deleted with the block.

    Raises:
        BrokerError: it did not start.
    """
    with _fresh_folder(parent) as folder:
        broker = EmbeddedBroker(folder / "home")
        with phases.phase("Starting a Kafka broker"):
            broker.start()
        with broker:
            yield broker


@contextmanager
def fresh_brokers(
    copies: TopicCopies, parent: Path | None, phases: Phases
) -> Iterator[tuple[EmbeddedBroker | EmbeddedCluster, tuple[int, ...]]]:
    """Run as many brokers as there are copies; yield them and their processes.

    Raises:
        BrokerError: one did not start.
    """
    if copies.replication == 1:
        with fresh_broker(parent, phases) as broker:
            yield broker, (broker.record.pid,)
        return
    with _fresh_folder(parent) as folder:
        cluster = EmbeddedCluster(folder / "home", heap_mb=CLUSTER_HEAP_MB)
        with phases.phase(f"Starting {copies.replication} Kafka brokers"), ExitStack() as started:
            started.enter_context(cluster)
            running = started.pop_all()
        with running:
            yield cluster, cluster.pids


@contextmanager
def _fresh_folder(parent: Path | None) -> Iterator[Path]:
    """Make a folder (under `parent`), which is deleted with the block."""
    folder = Path(tempfile.mkdtemp(prefix="streamydb-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_engine(options: EngineOptions, parent: Path | None, phases: Phases) -> Iterator[Engine]:
    """Run a broker and a pipeline in a new folder (under `parent`); both end with the block.

    Raises:
        BenchError: the pipeline did not start.
        BrokerError: the broker did not start.
    """
    with fresh_brokers(options.copies, parent, phases) as (broker, processes):
        engine = Engine(options, broker.home.parent, broker.bootstrap, processes)
        with engine.running(phases):
            yield engine


def _disk_bytes(folder: Path) -> int:
    """What the files of a folder take on disk; files that go away meanwhile do not count."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(root, name)).st_blocks * 512  # noqa: PTH116, PTH118
    return total
