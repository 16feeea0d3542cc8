"""Run the pipeline in this process until it is told to stop."""

from __future__ import annotations

import fcntl
import logging
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prometheus_client import start_http_server
from py4j.protocol import Py4JJavaError
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamydb.backup.beginning import begin
from streamydb.errors import ConfigurationError, StreamyError
from streamydb.key_processor.store import remove_other_incarnations
from streamydb.pipeline.config import PipelineConfig, recorded_config, require_same_log
from streamydb.pipeline.failures import explain, failure_of
from streamydb.pipeline.progress import Metrics, ProgressListener, StatusWriter
from streamydb.pipeline.queries import Queries
from streamydb.pipeline.query import build_query
from streamydb.pipeline.ruling import Desk, RulingTopic, aborted_before, note_told
from streamydb.pipeline.sampler import LogSampler
from streamydb.pipeline.session import session
from streamydb.pipeline.shard import ShardConfig
from streamydb.pipeline.warmup import warm_up
from streamydb.sequencer.markers import MarkerLoop
from streamydb.settings import Settings
from streamydb.standby.coordinator import Coordinator, View
from streamydb.standby.core import Member
from streamydb.standby.kafka import SharedTopics
from streamydb.topics import add_shared, check, describe, log_id
from streamydb.topics.names import TopicNames

__all__ = ["default_local", "run"]

log = logging.getLogger("streamydb.pipeline")
_POLL_S = 0.2


def default_local(home: Path | None = None) -> Path:
    """Where executors keep their caches when nobody says otherwise."""
    return (home or Path(tempfile.gettempdir())) / "streamydb-cache"


def run(config: PipelineConfig) -> int:
    """Run until SIGTERM or SIGINT, or until the query fails; the process's exit code.

    Raises:
        ConfigurationError: topics, checkpoint or settings are not as they must be.

    """
    stop = threading.Event()
    with suppress(ValueError):  # not the main thread: the caller stops us otherwise
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    status = StatusWriter(config.status_file, config.settings.database)
    status.update()
    try:
        with _lease(config.checkpoint):
            return _run(config, status, stop)
    except StreamyError as error:
        status.update(state="failed", error=str(error))
        raise


@contextmanager
def _lease(checkpoint: Path) -> Iterator[None]:
    """Hold the checkpoint: two pipelines on one would destroy it."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    with (checkpoint / "lease").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            what = f"another pipeline runs on the checkpoint {checkpoint}"
            raise ConfigurationError(f"{what}; stop it first (`streamydb down`)") from None
        yield


def _run(config: PipelineConfig, status: StatusWriter, stop: threading.Event) -> int:
    settings = config.settings
    client = settings.client_config()
    found = check(client, settings.database, shards=settings.shards)
    problems = [problem for problem in found if problem.severity == "error"]
    if problems:
        raise ConfigurationError("; ".join(str(problem) for problem in problems))
    topics = describe(client, settings.database)
    names = TopicNames(settings.database)
    partitions = _initial_partitions(settings, topics[names.transactions].partitions)
    made = add_shared(client, settings.database, config.name)
    if made:
        log.info("created %s", ", ".join(made))
    database = recorded_config(config.checkpoint, settings, partitions, config.name)
    log_topic = topics[names.transactions]
    known_log = log_id(client, settings.database)
    require_same_log(config.checkpoint, known_log)
    start = begin(config.checkpoint, config.start, database, known_log, log_topic.beginnings)
    if start is not None:
        log.info("began with the state at seq %d", start.seq)
    remove_other_incarnations(config.local, database.database, database.incarnation)
    log.info("compiling kernels (cached after the first time)")
    warm_up()
    spark = session(f"streamydb {settings.database}", config.master, dict(config.spark_conf))
    metrics = Metrics()
    if settings.metrics_port is not None:
        start_http_server(settings.metrics_port, settings.metrics_host, metrics.registry)
    changes_partitions = topics[names.changes].partitions
    topic = RulingTopic(client, settings.database, known_log)
    topic.adopt(lambda: aborted_before(client, settings.database))
    told = note_told(config.checkpoint, client, settings.database)
    desk = Desk(topic, client, settings.database, told)
    coordinator = _coordinator(config, database, status, metrics, topic)
    spark.streams.addListener(ProgressListener(status, metrics, coordinator.note))
    coordinator.begin()

    def start_query() -> StreamingQuery:
        rulings = coordinator.give()
        metrics.faults.set(len(rulings))
        status.update(faults=len(rulings))
        writer = build_query(spark, config, database, changes_partitions, start, rulings)
        return _started(writer, config)

    queries = Queries(start_query, coordinator, desk)
    coordinator.start(queries.is_alive)
    status.update(state="running")
    with MarkerLoop(settings) as loop, LogSampler(settings, metrics.registry, loop):
        code = _wait(queries, status, stop, coordinator)
    coordinator.stop()
    topic.close()
    spark.stop()
    return code


def _started(writer: DataStreamWriter, config: PipelineConfig) -> StreamingQuery:
    try:
        return writer.start()
    except Py4JJavaError as error:
        what = f"the query cannot start on {config.checkpoint}: {error.java_exception}"
        raise ConfigurationError(explain([what])) from error


def _initial_partitions(settings: Settings, present: int) -> int:
    """Of the log, when the database was created: as the settings say, else as many as there are."""
    if "partitions" not in settings.model_fields_set:
        return present
    if settings.partitions > present:
        what = f"the log has {present} partitions, so it cannot have begun with"
        raise ConfigurationError(f"{what} {settings.partitions}; mend --partitions")
    return settings.partitions


def _coordinator(
    config: PipelineConfig, database: ShardConfig, status: StatusWriter, metrics: Metrics,
    rulings: RulingTopic,
) -> Coordinator:
    """This pipeline's part among the others over the log."""
    client = config.settings.client_config()
    log_of_it = log_id(client, database.database)
    member = Member(
        log_of_it, database.incarnation, config.name, standby=config.standby, terms=database.terms
    )

    def show(view: View) -> None:
        status.update(
            name=config.name or None, role=view.role, epoch=view.epoch, alarm=view.alarm,
            ready=view.ready if view.role == "following" else None,
            lag_ms=view.lag_ms if view.role == "following" else None,
        )
        metrics.leads.set(view.role == "leading")
        metrics.epoch.set(view.epoch)
        metrics.diverged.set(view.alarm is not None)

    return Coordinator(SharedTopics(client, database.database), database, member, show, rulings)


def _wait(
    queries: Queries, status: StatusWriter, stop: threading.Event, coordinator: Coordinator
) -> int:
    while coordinator.failure is None and not stop.wait(_POLL_S):
        if not queries.keep_up():
            break
    query = queries.query
    if coordinator.failure is not None:
        log.error("stopping: %s", coordinator.failure)
        query.stop()
        status.update(state="failed", error=coordinator.failure)
        return 1
    if stop.is_set():
        log.info("stopping: the running batch is given up and will be done again")
        query.stop()
        status.update(state="stopped")
        return 0
    messages = failure_of(query)
    for message in messages:
        log.error("the query failed: %s", message)
    status.update(state="failed", error=explain(messages)[:4000])
    log.error("%s", explain(messages))
    return 1
