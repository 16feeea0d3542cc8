"""The files of one database on this machine, and the state of its pipeline there.

In <home>/databases/<database>: database.json (how it was created: shards, partitions, bootstrap),
status.json (written by the pipeline after each batch), checkpoint/ (the Spark query's), pipelines/
(the same of pipelines with a name: standbys), read-model/ (what the facade reads), procedures/
(modules of stored procedures), facade.txt (where it serves), run/ and logs/ (background processes,
see `streamydb.local.processes`), restore.lock (held by who restores or forks into it).
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from streamydb.errors import ConfigurationError
from streamydb.limits import DATABASE_NAME
from streamydb.local import processes
from streamydb.local.disk import full_disk
from streamydb.local.file_lock import write_whole
from streamydb.local.launcher import Birth, birth_of
from streamydb.records.formats import FORMAT, UNREADABLE, later_format
from streamydb.records.gears import GearStatus

PIPELINE = "pipeline"  # name of the background process that runs the Spark query


READ_MODEL = "read-model"  # name of the background process that follows the changes
FACADE = "facade"  # name of the background process that serves HTTP
CONNECT = "connect"  # name of the background process that copies the changes for Kafka Connect


CHECKPOINT_RECORD = "streamydb.json"
"""File of a checkpoint that records the facts with which it was begun."""


class DatabaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a database's creation, or of the last `resize`."""

    database: str
    shards: int
    partitions: int
    """Partitions of the transactions topic at the creation."""
    grouping: str = "planner"
    id_window: int | None = None
    """For how many seqs an id is remembered; None = as the settings say."""
    digest_interval: int | None = None
    """Transactions from digest to digest; None = as the settings say."""
    bootstrap: str | None = None
    """Kafka's address; None = the embedded broker of this home."""
    format: int = FORMAT


class PipelineStatus(msgspec.Struct, kw_only=True):
    """The pipeline's report of its state (the fields that it has not written yet are None)."""

    state: str = "stopped"
    """starting, running, stopping, stopped or failed."""
    waiting: str | None = None
    """Of one that starts: why it waits for Kafka."""
    pid: int | None = None
    database: str | None = None
    started_ms: int | None = None
    batch: int | None = None
    seq: int | None = None
    """The last released transaction."""
    resolved: int | None = None
    feedback_ignored: int | None = None
    """Blocks of feedback that belonged to no plan in flight: repetitions, attempts given up."""
    input_per_s: float | None = None
    batch_ms: float | None = None
    lag: int | None = None
    """Records of the log that had not been read at the end of the last batch."""
    read: int | None = None
    """Records of the log that have been read, ever."""
    updated_ms: int | None = None
    error: str | None = None
    name: str | None = None
    """The pipeline's name, if it has one."""
    role: str | None = None
    """leading or following (starting, claiming in between); leading if one of its gears does."""
    epoch: int | None = None
    ready: bool | None = None
    """Of one that follows: it could take over at once."""
    lag_ms: int | None = None
    """Of one that follows: for how long it has known that it lacks something, in ms."""
    behind: int | None = None
    """Of one that follows: how many seqs it lacks of what is resolved; None: it does not know."""
    alarm: str | None = None
    """A divergence from another pipeline."""
    faults: int | None = None
    """Transactions that a fault of ours has aborted, in the whole log."""
    gear: GearStatus | None = None
    """Which of the pipeline's gears leads."""
    since_boot: str = ""
    """When the process began (`launcher.Birth`)."""

    @property
    def runs(self) -> bool:
        """True if its process had not ended when this was written."""
        return self.state in {"starting", "running", "stopping"}


class _Begun(msgspec.Struct):
    incarnation: str


class DatabaseFolder:
    """The folder of one database on this machine.

    Attributes:
        folder: everything of this database.
        checkpoint: the Spark query's checkpoint.
        status_file: where the pipeline tells its state.
        read_model: the folder of the read model that `up` keeps.
        procedures: the folder of the modules of stored procedures, unless another one is named.
    """

    def __init__(self, home: Path, database: str) -> None:
        self.folder = home / "databases" / database
        self.checkpoint = self.folder / "checkpoint"
        self.status_file = self.folder / "status.json"
        self.read_model = self.folder / "read-model"
        self.procedures = self.folder / "procedures"
        self._facade_file = self.folder / "facade.txt"
        self._record_file = self.folder / "database.json"
        self._others = self.folder / "pipelines"

    def checkpoint_of(self, name: str) -> Path:
        """The checkpoint of a pipeline with a name; without one: the database's own."""
        return self._others / name / "checkpoint" if name else self.checkpoint

    def status_file_of(self, name: str) -> Path:
        """Return the status file of a pipeline with a name; without one: the database's own."""
        return self._others / name / "status.json" if name else self.status_file

    def others(self) -> list[str]:
        """Names of the pipelines with a name that were started from this home."""
        return sorted(path.parent.name for path in self._others.glob("*/status.json"))

    def incarnations(self) -> set[str]:
        """Return the ids of the checkpoints that pipelines of this home have begun, also of those
        that were put aside since.
        """
        ids = set()
        for name in ("", *self.others()):
            now = self.checkpoint_of(name)
            for checkpoint in (now, *now.parent.glob(f"{now.name}.before-*")):
                try:
                    record = (checkpoint / CHECKPOINT_RECORD).read_bytes()
                    ids.add(msgspec.json.decode(record, type=_Begun).incarnation)
                except (FileNotFoundError, *UNREADABLE):
                    continue
        return ids

    def record(self) -> DatabaseRecord | None:
        """Return how the database was created, if that was done from this home.
        Raises ConfigurationError: a newer release wrote it.
        """
        try:
            data = self._record_file.read_bytes()
        except FileNotFoundError:
            return None
        later = later_format(data)
        if later is not None:
            what = f"{self._record_file} has format {later}, this release reads {FORMAT}"
            raise ConfigurationError(f"{what}: use the release that wrote it, or a newer one")
        try:
            return msgspec.json.decode(data, type=DatabaseRecord)
        except UNREADABLE:
            return None

    def write_record(self, record: DatabaseRecord) -> None:
        """Keep how the database was created."""
        write_whole(self._record_file, msgspec.json.format(msgspec.json.encode(record)) + b"\n")

    def pipeline(self) -> processes.ProcessRecord | None:
        """The background process that runs the pipeline, if it runs."""
        return processes.find(self.folder, PIPELINE)

    def facade_url(self) -> str | None:
        """Return the address of the facade that `up` started, if it runs.

        Of two `up` at once, one starts it, and the other one may have noted an address, too: the
        port is that of the process.
        """
        facade = processes.find(self.folder, FACADE)
        if facade is None:
            return None
        try:
            url = self._facade_file.read_text("utf-8").strip()
        except FileNotFoundError:
            return None
        port = option_of(facade, "--port")
        return url if port is None else f"{url.rpartition(':')[0]}:{port}"

    def facade_bootstrap(self) -> str | None:
        """Return the address of the Kafka that the facade reads that `up` started, if it runs."""
        facade = processes.find(self.folder, FACADE)
        return None if facade is None else option_of(facade, "--bootstrap")

    def note_facade(self, url: str) -> None:
        """Keep where a facade is going to serve; before it is started, so that it is found."""
        write_whole(self._facade_file, f"{url}\n".encode())

    def status(self, name: str = "") -> PipelineStatus:
        """Return the pipeline's last report; `stopped` if it never ran, `failed` if it ended
        unannounced.

        ``name``: of another pipeline over the same log.
        """
        try:
            data = self.status_file_of(name).read_bytes()
            status = msgspec.json.decode(data, type=PipelineStatus)
        except (FileNotFoundError, *UNREADABLE):
            status = PipelineStatus()
            if not name and self.pipeline() is not None:
                status.state = "starting"
        if status.runs and not self._alive(status, name):
            status.state = "failed"
            full = full_disk(self.status_file_of(name).parent)
            why = "without saying why" if full is None else f"and {full}"
            status.error = status.error or f"the process ended {why}"
        return status

    def _alive(self, status: PipelineStatus, name: str) -> bool:
        """Return True if the process that wrote the status (or the one started here) still runs."""
        import psutil

        if not name and self.pipeline() is not None:
            return True
        if status.pid is None:
            return False
        try:
            dead = psutil.Process(status.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        return not dead and _told_by(status, birth_of(status.pid))


def option_of(process: processes.ProcessRecord, name: str) -> str | None:
    """Return what an option of a process's command line says; None: it has no such option."""
    words = process.command
    return words[words.index(name) + 1] if name in words[:-1] else None


def _told_by(status: PipelineStatus, birth: Birth) -> bool:
    """Return True if a process with the id in the status, which began then, has written it."""
    if status.since_boot and birth.since_boot:
        return status.since_boot == birth.since_boot
    return status.started_ms is None or birth.created_s * 1000 <= status.started_ms + 1000


def age_s(updated_ms: int | None) -> float | None:
    """Seconds since a status was written, by this machine's clock."""
    return None if updated_ms is None else max(0.0, time.time() - updated_ms / 1000)


def databases(home: Path) -> list[str]:
    """Names of the databases that have a folder in this home."""
    folder = home / "databases"
    folders = folder.iterdir() if folder.is_dir() else ()
    return sorted(path.name for path in folders if DATABASE_NAME.fullmatch(path.name))
