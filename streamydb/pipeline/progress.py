"""The pipeline's reports: a log line and a status file after each batch, metrics on request."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

from streamydb.local.file_lock import write_whole
from streamydb.local.folder import PipelineStatus
from streamydb.local.launcher import birth_of
from streamydb.pipeline.adaptive import BatchSize
from streamydb.pipeline.standby.position import PipelinePosition
from streamydb.records.gears import GEARS, REAL_TIME, GearStatus

if TYPE_CHECKING:
    from streamydb.pipeline.standby.coordinator import StandbyReport

log = logging.getLogger("streamydb.pipeline")

_STAGES: Final = {"starting": 0, "running": 1, "stopping": 2, "stopped": 3, "failed": 3}
"""The states of a run, in order."""


class StatusWriter:
    """Keeps the status file current; a reader never sees half of it.

    Several threads report states, and not always in order: the pipeline may have stopped before the
    signals' thread reports that it is stopping. So a state that comes before the shown one is left
    out.
    """

    def __init__(self, path: Path | None, database: str) -> None:
        """Write to ``path``; None: nowhere."""
        self._path = path
        self._lock = threading.Lock()
        self._unwritten = False
        self.status = PipelineStatus(
            state="starting",
            pid=os.getpid(),
            database=database,
            started_ms=_now_ms(),
            since_boot=birth_of(os.getpid()).since_boot,
        )

    def update(self, **changes: Any) -> None:
        """Change fields of the status and write it; called by any thread.

        If it cannot be written, the log says so, and the next change tries again: a disk that is
        full must not hide why the pipeline ends.
        """
        with self._lock:
            self._update(changes)

    def _update(self, changes: dict[str, Any]) -> None:
        state = self.status.state
        if _STAGES[changes.get("state", state)] < _STAGES[state]:
            del changes["state"]
        for name, value in changes.items():
            setattr(self.status, name, value)
        self.status.updated_ms = _now_ms()
        if self._path is None:
            return
        try:
            write_whole(self._path, msgspec.json.encode(self.status), synced=False)  # each batch
        except OSError as error:
            if not self._unwritten:
                log.warning("the status cannot be written: %s: %s", self._path, error.strerror)
            self._unwritten = True
        else:
            self._unwritten = False


class GearMetrics:
    """Prometheus metrics of a pipeline's gears."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        self.leads = gauge("streamydb_gear", "1: this gear leads", ["gear"])
        self.available = gauge("streamydb_gear_available", "1: this pipeline has a real-time gear")
        self.behind = gauge(
            "streamydb_gear_behind_seqs",
            "Seqs that this gear lacks of what the other one has executed; NaN: unknown",
            ["gear"],
        )
        self.behind_records = gauge(
            "streamydb_gear_behind_records",
            "Log records that the other gear has read and this one has not; NaN: unknown",
            ["gear"],
        )
        self.shifts = counter("streamydb_gear_shifts", "How often the lead went to the other gear")
        self.ended = counter(
            "streamydb_gear_ended", "How often the real-time gear has ended, and why", ["reason"]
        )


class PipelineMetrics:
    """Prometheus metrics of a pipeline, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        gauge = partial(Gauge, registry=registry)
        self.seq = gauge("streamydb_seq", "Last released seq")
        self.resolved = gauge("streamydb_resolved", "Last resolved seq")
        self.lag = gauge("streamydb_lag_records", "Log records not read")
        self.ignored = gauge(
            "streamydb_feedback_ignored",
            "Blocks of feedback that belonged to no plan in flight, of the shard with the most",
        )
        self.read = gauge("streamydb_read_records", "Log records read")
        self.last_batch = gauge(
            "streamydb_last_batch_timestamp_seconds",
            "When the last micro-batch ended, seconds since 1970",
        )
        self.input = Counter("streamydb_input_records", "Records read", registry=registry)
        self.leads = gauge("streamydb_leads", "1: this one writes")
        self.epoch = gauge("streamydb_epoch", "Epoch of who leads")
        self.faults = gauge("streamydb_faults", "Transactions aborted by a fault of ours")
        self.ready = gauge("streamydb_ready", "1: it writes, or could take over at once")
        self.behind = gauge(
            "streamydb_behind_records", "Seqs that it lacks of what is resolved; NaN: unknown"
        )
        self.behind_s = gauge("streamydb_behind_seconds", "How long it has lacked them")
        self.diverged = gauge("streamydb_diverged", "1: digests of two pipelines differ")
        self.gears = GearMetrics(registry)
        self.batch = Histogram(
            "streamydb_batch_seconds",
            "Time of a micro-batch",
            buckets=(0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30),
            registry=registry,
        )


class ProgressListener(StreamingQueryListener):
    """Tells people and programs of Spark's progress.

    Spark's JVM calls it with its own events, of which it takes the report as one JSON text. PySpark
    would fetch every field of a report by a call, which took a fifth of a core.
    """

    class Java:
        """The Java interface of the class, for py4j."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(
        self,
        status: StatusWriter,
        metrics: PipelineMetrics,
        note_position: Callable[[PipelinePosition], None] = lambda _: None,
        announce: Callable[[str | None], None] = lambda _: None,
        note_sizes: Iterable[Callable[[BatchSize], None]] = (),
    ) -> None:
        """Report to ``status`` and ``metrics``, and how far the query is to ``note_position``.

        ``announce``: is told first what a batch has resolved; see `Announcer.announce`.
        ``note_sizes``: each is told how large a batch was.
        """
        self._status = status
        self._metrics = metrics
        self._note_position = note_position
        self._announce = announce
        self._note_sizes = tuple(note_sizes)

    @property
    def _jlistener(self) -> Any:
        jvm: Any = SparkContext._jvm  # noqa: SLF001 - as PySpark's listeners do
        return jvm.PythonStreamingQueryListenerWrapper(self)

    def onQueryStarted(self, event: Any) -> None:  # noqa: ARG002, N802
        log.info("query started")

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.note(event.progress().json())

    def note(self, text: str) -> None:
        """Note a batch by its progress report, a JSON object."""
        progress = json.loads(text)
        observed = progress.get("observedMetrics", {})
        seen = observed.get("progress", {})
        self._announce(seen.get("resolves"))
        batch_ms = progress.get("batchDuration", 0)
        seq, resolved = seen.get("seq") or 0, seen.get("resolved") or 0
        rows = progress["sources"][0]["numInputRows"]
        executing_us = observed.get("executing", {}).get("cpu_us") or 0
        size = BatchSize(progress.get("numInputRows", 0), rows, executing_us)
        for note_size in self._note_sizes:
            note_size(size)
        reached = _offsets(progress["sources"][0].get("endOffset"))
        read = sum(reached.values())
        latest = _offsets(progress["sources"][0].get("latestOffset"))
        lag = sum(max(0, latest[q] - reached.get(q, 0)) for q in latest)
        status = self._status.status
        seq, resolved = max(seq, status.seq or 0), max(resolved, status.resolved or 0)
        ignored = max(seen.get("ignored") or 0, status.feedback_ignored or 0)
        self._metrics.seq.set(seq)
        self._metrics.resolved.set(resolved)
        self._metrics.ignored.set(ignored)
        self._metrics.lag.set(lag)
        self._metrics.read.set(read)
        self._metrics.last_batch.set_to_current_time()
        self._metrics.input.inc(rows)
        self._metrics.batch.observe(batch_ms / 1000)
        self._status.update(  # after the metrics: who waits for a status finds them as far
            batch=progress["batchId"],
            seq=seq,
            resolved=resolved,
            feedback_ignored=ignored,
            input_per_s=round(1000 * rows / batch_ms, 1) if batch_ms else 0.0,
            batch_ms=float(batch_ms),
            lag=lag,
            read=read,
        )
        feedback = _offsets(progress["sources"][-1].get("endOffset"))
        self._note_position(PipelinePosition(resolved, read, feedback.get("0", 0), seq))
        log.info(
            "batch %d: %d records in %d ms, seq %d, resolved %d, lag %d %s",
            progress["batchId"],
            rows,
            batch_ms,
            seq,
            resolved,
            lag,
            _durations(progress),
        )

    def onQueryIdle(self, event: Any) -> None:  # noqa: ARG002, N802
        self._status.update(lag=0, input_per_s=0.0)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The main thread reports the end."""


def _durations(progress: dict[str, Any]) -> str:
    parts = progress.get("durationMs", {})
    return "(" + " ".join(f"{name}={ms}" for name, ms in sorted(parts.items())) + ")"


def _offsets(text: Any) -> dict[str, int]:
    by_topic = json.loads(text) if isinstance(text, str) else text
    if not isinstance(by_topic, dict) or not by_topic:
        return {}
    partitions = next(iter(by_topic.values()))
    return {str(q): int(offset) for q, offset in partitions.items()}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class PartReports:
    """Tells which part a pipeline has: it leads if one of its gears leads.

    Its micro-batch gear follows while the real-time gear leads, so neither report is enough alone.

    ``name``: of the pipeline; empty: it has none.
    """

    def __init__(self, name: str, status: StatusWriter, metrics: PipelineMetrics) -> None:
        self._name = name
        self._status = status
        self._metrics = metrics
        self._lock = threading.Lock()
        self._part: StandbyReport | None = None
        self._gear: GearStatus | None = None

    def show(self, view: StandbyReport) -> None:
        with self._lock:
            self._part = view
            self._show_part(view)

    def show_gear(self, view: GearStatus) -> None:
        metrics = self._metrics.gears
        with self._lock:
            before, self._gear = self._gear, view
            if self._part is not None:
                self._show_part(self._part)
            for gear in GEARS:
                leads = gear == view.gear
                metrics.leads.labels(gear).set(leads)
                metrics.behind.labels(gear).set(0 if leads else _known(view.behind))
                records = 0 if leads else _known(view.behind_records)
                metrics.behind_records.labels(gear).set(records)
            metrics.available.set(view.obstacle is None)
            if before is not None and before.gear != view.gear:
                metrics.shifts.inc()
            self._status.update(gear=view)

    def _show_part(self, view: StandbyReport) -> None:
        leads = view.role == "leading" or (self._gear is not None and self._gear.gear == REAL_TIME)
        metrics = self._metrics
        metrics.ready.set(view.ready or leads)
        metrics.behind.set(0 if leads else _known(view.behind))
        metrics.behind_s.set(0 if leads else view.lag_ms / 1000)
        metrics.leads.set(leads)
        metrics.epoch.set(view.epoch)
        metrics.diverged.set(view.alarm is not None)
        follows = view.role == "following" and not leads
        self._status.update(  # after the metrics, as after a micro-batch
            name=self._name or None,
            role="leading" if leads else view.role,
            epoch=view.epoch,
            alarm=view.alarm,
            ready=view.ready if follows else None,
            lag_ms=view.lag_ms if follows else None,
            behind=view.behind if follows else None,
        )


def _known(figure: int | None) -> float:
    return math.nan if figure is None else figure
