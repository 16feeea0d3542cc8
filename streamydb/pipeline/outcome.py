"""The outcome of a run: it waits until the query ends, says why, and gives the exit code."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from streamydb.kafka.connection import KafkaRetry, is_transient
from streamydb.pipeline.adaptive import AdaptiveSettings
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.jvm import Jvm, JvmEndedError
from streamydb.pipeline.large_records import heap_is_used_up, note
from streamydb.pipeline.progress import PartReports, PipelineMetrics, StatusWriter
from streamydb.pipeline.restarts import RestartedQuery
from streamydb.pipeline.run import RunningQuery, explain, failure_of
from streamydb.pipeline.session import LOCAL_DIR, LOCAL_DIRS
from streamydb.pipeline.shutdown import PipelineShutdown


@dataclass(frozen=True, slots=True)
class RunParts:
    """The objects that the steps of a run share.

    ``reports``: tells people and programs which part this pipeline has.
    """

    config: PipelineConfig
    status: StatusWriter
    ending: PipelineShutdown
    jvm: Jvm
    metrics: PipelineMetrics
    retry: KafkaRetry
    adaptive: AdaptiveSettings
    reports: PartReports = field(init=False)

    def __post_init__(self) -> None:
        reports = PartReports(self.config.name, self.status, self.metrics)
        object.__setattr__(self, "reports", reports)


log = logging.getLogger("streamydb.pipeline")
_POLL_S = 0.2
_ASK_S = 0.6  # so often the JVM is asked about the query: that takes more than to look if it lives
_JVM_END_S = 3.0


def after_jvm(parts: RunParts, error: Exception) -> int:
    """Report that the JVM has died, which causes every other error; return the exit code.
    Raises Exception: the error, if the JVM lives.
    """
    why = str(error) if isinstance(error, JvmEndedError) else parts.jvm.ended(_JVM_END_S)
    if why is None:
        parts.status.update(state="failed", error=f"{type(error).__name__}: {error}"[:4000])
        raise error
    if parts.ending.requested.is_set():  # whoever told us to stop may have told the JVM, too
        log.warning("stopped: %s", why)
        parts.status.update(state="stopped")
        return 0
    if parts.jvm.lacked_memory and (large := note(parts.config)) is not None:
        why = f"{why}. {large[0].upper()}{large[1:]}"
    log.error("%s", why)
    parts.status.update(state="failed", error=why)
    return 1


def wait(queries: RestartedQuery, parts: RunParts, failure: Callable[[], str | None]) -> int:
    """Wait until the query ends; return the process's exit code.

    ``failure``: says why the pipeline must not go on; None while it may.
    Raises JvmEndedError: Spark's JVM has ended.
    """
    code = 1
    try:
        code = _ended(queries, parts, failure)
    finally:
        parts.ending.leaves(code)
    return code


def _ended(queries: RestartedQuery, parts: RunParts, failure: Callable[[], str | None]) -> int:
    """The exit code of a query that has ended or was told to, with its running batch."""
    status, ending, ask_s = parts.status, parts.ending, 0.0
    while (why := failure()) is None and not ending.requested.is_set():
        ended = parts.jvm.ended()
        if ended is not None:
            raise JvmEndedError(ended)
        due = time.monotonic() >= ask_s
        ask_s = time.monotonic() + _ASK_S if due else ask_s
        if due and not _keeps_up(queries):
            why = failure()  # the query may have met what another pipeline wrote
            if why is None:
                return _failed(queries.running, parts)
            break
        ending.requested.wait(_POLL_S)
    running = queries.running
    if why is not None:
        log.error("stopping: %s", why)
        status.update(state="failed", error=why)
        ending.abandon("the pipeline must not go on", 1)
        running.give_up()
        return 1
    complete = running.finish(ending.give_up)
    log.info("stopped %s", "after a finished batch" if complete else "within a batch")
    return _failed(running, parts) if failure_of(running.query) else 0


def _keeps_up(queries: RestartedQuery) -> bool:
    """Return True if a query runs, or is to be started again when Kafka answers.

    It is asked once, not waited for: the JVM and the other pipelines are looked at in between.
    """
    try:
        return queries.keep_up()
    except Exception as error:
        if not is_transient(error):
            raise
        log.warning("waiting for Kafka to start the query again: %s", error)
        return True


def _failed(running: RunningQuery, parts: RunParts) -> int:
    messages = failure_of(running.query)
    for message in messages:
        log.error("the query failed: %s", message)
    ended = parts.jvm.ended(_JVM_END_S) if running.context_is_stopped() else None
    if ended is not None:
        raise JvmEndedError(ended)
    config = parts.config
    settings = running.query._jsq.sparkSession().conf()  # noqa: SLF001 - PySpark shows no session
    folders = os.environ.get(LOCAL_DIRS) or settings.get(LOCAL_DIR, tempfile.gettempdir())
    why = explain(messages, (config.checkpoint, *map(Path, folders.split(",")), config.local))
    if heap_is_used_up(messages):
        why = note(config) or why
    parts.status.update(state="failed", error=why[:4000])
    log.error("%s", why)
    return 1
