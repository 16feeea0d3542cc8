"""Run the pipeline in this process until it is told to stop."""

from __future__ import annotations

import logging
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamydb.backup.start import Beginning, begin
from streamydb.errors import ConfigurationError, StreamyError
from streamydb.frames.shards import ShardConfig
from streamydb.kafka import FoundingFacts, add_shared, check, describe, log_id, record
from streamydb.kafka.admin import TopicDescription
from streamydb.kafka.checks import changes_lack
from streamydb.kafka.connection import KafkaRetry, RefusedError, StopRequestedError
from streamydb.kafka.creation import changes_begun
from streamydb.kafka.errors import KafkaException
from streamydb.kafka.names import TopicNames
from streamydb.kafka.positions import written_until
from streamydb.kafka.reader import ReadingError
from streamydb.kafka.rulings import RulingTopic, aborted_before
from streamydb.kafka.shared_topics import SharedTopics
from streamydb.local.exposition import serve
from streamydb.local.launcher import keep_short
from streamydb.local.own_process import trim_when_idle
from streamydb.local.shard_files import own_caches
from streamydb.pipeline.adaptive import AdaptiveSettings
from streamydb.pipeline.announcer import Announcer
from streamydb.pipeline.background import (
    FeedbackKeeper,
    GrowthWatch,
    IdleHeap,
    LogSampler,
    spark_heap,
)
from streamydb.pipeline.checkpoint import Checkpoint, opened
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.jvm import Jvm, JvmEndedError
from streamydb.pipeline.lease import CheckpointTakenError
from streamydb.pipeline.markers import MarkerLoop
from streamydb.pipeline.outcome import RunParts, after_jvm, wait
from streamydb.pipeline.preparation import require_same_history, resume
from streamydb.pipeline.progress import PipelineMetrics, ProgressListener, StatusWriter
from streamydb.pipeline.query import build_query
from streamydb.pipeline.reads import Reads
from streamydb.pipeline.realtime.gear import RealTimeGear
from streamydb.pipeline.realtime.life import GearStart, output_topics
from streamydb.pipeline.realtime.packing import Packing
from streamydb.pipeline.realtime.query import real_time_session
from streamydb.pipeline.realtime.report import GearReports, Reach, one_gear
from streamydb.pipeline.realtime.site import gear_obstacle
from streamydb.pipeline.record import (
    founded,
    made_anew,
    recorded_config,
    require_same_changes,
    require_same_log,
)
from streamydb.pipeline.restarts import FaultHandler, RestartedQuery, executed_before
from streamydb.pipeline.run import RunningQuery, explain
from streamydb.pipeline.session import POLLING_DELAY, SparkLaunch
from streamydb.pipeline.shutdown import PipelineShutdown
from streamydb.pipeline.standby.coordinator import Coordinator
from streamydb.pipeline.standby.core import ElectionMember
from streamydb.records.begins import Begins
from streamydb.sorter.state import LogEnd

log = logging.getLogger("streamydb.pipeline")

_LISTENER_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class _DatabaseState:
    """The database as the topics and the checkpoint have it.

    ``config``: as told, with the facts that the database was founded with. ``log_id``: Kafka's id
    of the log. ``changes_id``: of the changes. ``start``: what a new checkpoint begins with.
    ``ends``: what the log holds where the last committed batch ended. ``begins``: where rules begin
    in the log.
    """

    config: PipelineConfig
    database: ShardConfig
    topics: dict[str, TopicDescription]
    log_id: str
    changes_id: str
    start: Beginning | None
    ends: dict[int, LogEnd]
    begins: Begins

    @property
    def changes(self) -> TopicDescription:
        return self.topics[TopicNames(self.config.settings.database).changes]


def run(config: PipelineConfig, launch: SparkLaunch) -> int:
    """Run until SIGTERM or SIGINT, or until the query fails; return the exit code.
    Raises ConfigurationError: topics, checkpoint or settings are not as they must be.
    """
    status = StatusWriter(config.status_file, config.settings.database)
    keep_short()
    trim_when_idle()
    jvm = Jvm()
    with PipelineShutdown(config.settings.finish_batch_s, status.update, jvm.kill) as ending:
        retry = KafkaRetry(
            ending.requested.wait,
            lambda why: status.update(waiting=why),
            config.settings.bootstrap_servers,
        )
        parts = RunParts(config, status, ending, jvm, PipelineMetrics(), retry, AdaptiveSettings())
        try:
            spark = partial(_spark, parts, launch)
            with opened(config, spark, ending.requested.wait) as checkpoint:
                status.update()
                return _run(parts, checkpoint, launch)
        except StopRequestedError:
            status.update(state="stopped")
            return 0
        except JvmEndedError as error:
            return after_jvm(parts, error)
        except ReadingError as error:
            status.update(state="failed", error=str(error))
            raise ConfigurationError(str(error)) from error
        except StreamyError as error:
            if config.store is not None or not isinstance(error, CheckpointTakenError):
                status.update(state="failed", error=str(error))
            raise  # beside a checkpoint that is taken, the status is that of who has it
        except Exception as error:  # noqa: BLE001 - a JVM that dies has errors of every kind
            return after_jvm(parts, error)
        finally:
            launch.close()


def _run(parts: RunParts, checkpoint: Checkpoint, launch: SparkLaunch) -> int:
    state = parts.retry.call(lambda: _find(parts.config))
    of = state.database
    with own_caches(state.config.local, of.database, of.incarnation):
        return _execute(parts, state, checkpoint, launch)


def _execute(
    parts: RunParts, state: _DatabaseState, checkpoint: Checkpoint, launch: SparkLaunch
) -> int:
    """Start step by step; each may take long, so a stop is looked for between them."""
    ending, config = parts.ending, state.config
    feedback = TopicNames(state.database.database).feedback_of(config.name)
    launch.compile()
    _go_on(ending)
    spark = _spark(parts, launch)
    log.info("Spark is ready")
    _go_on(ending)
    partitions = state.topics[TopicNames(state.database.database).transactions].partitions
    obstacle = gear_obstacle(config, state.database, partitions, spark)
    serve(parts.metrics.registry, config.settings)
    topic, faults = parts.retry.call(lambda: _rulings(state))
    checkpoint.push()
    coordinator = parts.retry.call(lambda: _coordinator(parts, state, topic))
    client, changes = config.settings.client_config(), state.changes
    announcer = Announcer(client, changes.name, changes.partitions)
    heap = IdleHeap(spark_heap(spark))
    spark.streams.addListener(
        ProgressListener(
            parts.status,
            parts.metrics,
            coordinator.note,
            announcer.announce,
            (parts.adaptive.note, heap.note),
        )
    )
    _go_on(ending)
    given = POLLING_DELAY in config.spark_conf
    reads = Reads(config.records_max(state.database.shards), is_given=given)
    start = partial(_start, parts, state, spark, coordinator, checkpoint, reads)
    queries = RestartedQuery(start, coordinator, faults)
    gear = _gear(parts, state, spark, coordinator, reads, obstacle)
    if gear is not None:  # it may be the first that answers, so it begins beside the query
        coordinator.start(queries.beats)
    with nullcontext() if gear is None else gear:
        queries.begin()
        launch.compiled()
        ending.runs()
        if gear is None:
            coordinator.start(queries.beats)
        if not ending.requested.is_set():
            parts.status.update(state="running")
        with (
            announcer,
            MarkerLoop(config.settings) as loop,
            LogSampler(config.settings, parts.metrics.registry, loop),
            FeedbackKeeper(client, feedback, config.checkpoint, checkpoint.pull),
            _growth(state, coordinator) as growth,
            heap,
        ):
            code = wait(
                queries, parts, lambda: coordinator.failure or checkpoint.lost or growth.failure
            )
            if code == 0:
                _hear_last_batch(spark)
    coordinator.stop()
    spark.stop()
    if code == 0:
        parts.status.update(state="stopped")
    return code


def _hear_last_batch(spark: SparkSession) -> None:
    """Wait a moment until the listener has the last micro-batch, so that it announces its outputs.

    Otherwise the next start does not know that they are written.
    """
    context: Any = spark.sparkContext
    with suppress(Py4JError, OSError):  # the JVM is gone, or slow: the outputs may be written twice
        context._jsc.sc().listenerBus().waitUntilEmpty(_LISTENER_MS)  # noqa: SLF001


def _go_on(ending: PipelineShutdown) -> None:
    if ending.requested.is_set():
        raise StopRequestedError("told to stop while it started")


def _find(config: PipelineConfig) -> _DatabaseState:
    """Read the topics and the checkpoint; may be repeated when Kafka did not answer."""
    settings = config.settings
    client = settings.client_config()
    shards = settings.shards if "shards" in settings.model_fields_set else None
    findings = check(client, settings.database, shards=shards)
    problems = [problem for problem in findings if problem.severity == "error"]
    if problems:
        raise ConfigurationError("; ".join(str(problem) for problem in problems))
    for problem in findings:
        log.warning("%s", problem)
    topics = describe(client, settings.database)
    names = TopicNames(settings.database)
    _tell_made(add_shared(client, settings.database, config.name), names, config.name)
    log_topic = topics[names.transactions]
    known_log = log_id(client, settings.database)
    if shards is None:
        settings = settings.model_copy(update={"shards": topics[names.feedback].partitions})
    results, changes = topics[names.results], changes_begun(client, settings.database)
    settings, begins = founded(settings, config.checkpoint, known_log, log_topic, results, changes)
    config = replace(config, settings=settings)
    database = recorded_config(config.checkpoint, settings, settings.partitions, config.name)
    require_same_log(config.checkpoint, known_log)
    start = begin(config.checkpoint, config.start, database, known_log, log_topic.beginnings)
    (changes_id,) = changes
    goes_on = (config.checkpoint / "query").exists()
    if not goes_on:
        require_same_history(client, settings.database)
    begins_after = 0 if start is None else start.seq
    require_same_changes(
        config.checkpoint,
        changes_id,
        names.changes,
        begins_after,
        partial(written_until, client, settings.database),
    )
    if start is not None:
        log.info("began with the state at seq %d", start.seq)
    ends = resume(client, database, config.checkpoint, start, config.store)
    if goes_on:  # its last micro-batch may have written all, and was killed before it was committed
        require_same_history(client, settings.database)
    return _DatabaseState(config, database, topics, known_log, changes_id, start, ends, begins)


def _tell_made(created: list[str], names: TopicNames, pipeline: str) -> None:
    """Tell which topics were created, and which of them somebody has deleted before.

    A new database lacks them all; a pipeline with a new name lacks its feedback.
    """
    if created:
        log.info("created %s", ", ".join(created))
    deleted = sorted({*created} - {names.feedback_of(pipeline)})
    if deleted and not {names.founding, names.rulings} <= {*created}:
        log.warning(
            "%s: somebody deleted what was there. It is made anew, without what was in it "
            "(docs/operations.md, 'A topic was deleted')", ", ".join(deleted),
        )  # fmt: skip


def _spark(parts: RunParts, launch: SparkLaunch) -> SparkSession:
    try:
        spark = launch.session()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        what = "Spark's JVM ended before it was ready; what it said stands above in this log"
        raise JvmEndedError(f"{what}. `streamydb doctor` looks at the Java installation") from error
    parts.jvm.hush(spark)
    parts.ending.signals.catch()  # PySpark has taken SIGINT for itself
    return spark


def _rulings(state: _DatabaseState) -> tuple[RulingTopic, FaultHandler]:
    """Return the rulings on this log, with those of earlier releases, and who adds to them."""
    settings, checkpoint = state.config.settings, state.config.checkpoint
    client, name = settings.client_config(), settings.database
    topic = RulingTopic(client, name, state.log_id, state.begins)
    topic.adopt(lambda: aborted_before(client, name))
    return topic, FaultHandler(topic, client, name, executed_before(checkpoint, client, name))


def _start(
    parts: RunParts,
    state: _DatabaseState,
    spark: SparkSession,
    coordinator: Coordinator,
    checkpoint: Checkpoint,
    reads: Reads,
    number: int,
) -> RunningQuery:
    """Start the query with all rulings there are; ``number``: 0 for the first one."""
    config = state.config
    client = config.settings.client_config()
    ends = state.ends
    if number:
        checkpoint.pull()
        ends = resume(client, state.database, config.checkpoint, state.start, config.store)
    rulings = coordinator.load_rulings()
    parts.metrics.faults.set(len(rulings))
    parts.status.update(faults=len(rulings))
    spread = state.changes.partitions
    writer = build_query(spark, config, state.database, spread, state.start, ends, rulings)
    query = _started(writer, config)
    parts.adaptive.follow(query.set_conf, state.database.shards, config.spark_conf)
    if config.may_have_gears:
        reads.follow(query)
    return query


def _growth(state: _DatabaseState, coordinator: Coordinator) -> GrowthWatch:
    client, changes = state.config.settings.client_config(), state.changes
    known = state.changes_id, changes.partitions
    return GrowthWatch(client, changes.name, known, partial(_made_anew, state, coordinator))


def _gear(
    parts: RunParts,
    state: _DatabaseState,
    spark: SparkSession,
    coordinator: Coordinator,
    reads: Reads,
    obstacle: str | None,
) -> RealTimeGear | None:
    config, database, said = state.config, state.database, parts.status.status

    def micro_batch() -> Reach:
        return Reach(said.seq or 0, said.read or 0)

    reports = GearReports(
        (parts.reports.show_gear, coordinator.note_gear),
        lambda reason: parts.metrics.gears.ended.labels(reason).inc(),
        micro_batch,
    )
    if obstacle is not None:
        reports.show(one_gear(obstacle))
        return None
    settings, names = config.settings, TopicNames(database.database)
    start = GearStart(
        config,
        database,
        state.log_id,
        RulingTopic(settings.client_config(), database.database, state.log_id, state.begins),
        Packing(real_time_session(spark)),
        state.changes.partitions,
        output_topics(names),
        coordinator.written,
    )
    return RealTimeGear(
        start, micro_batch, lambda: coordinator.leads, reports, parts.ending.requested, reads
    )


def _made_anew(state: _DatabaseState, coordinator: Coordinator, topic_id: str) -> str:
    """Say why this pipeline must not go on with changes that were made anew under it.

    A leader has written to them: nobody may use them any more, which is recorded. One that follows
    has not, and who leads may just be writing all of them.
    """
    config, changes = state.config, state.changes
    if not coordinator.leads:
        return made_anew(config.checkpoint, changes.name)
    facts = FoundingFacts(log=state.log_id, lacking=frozenset({topic_id}))
    try:
        record(config.settings.client_config(), state.database.database, facts)
    except (StreamyError, RefusedError, KafkaException) as error:
        log.warning("that the changes lack something is not recorded: %s", error)
    return str(changes_lack(changes.name, changes.partitions))


def _started(writer: DataStreamWriter, config: PipelineConfig) -> RunningQuery:
    try:
        return RunningQuery(writer.start())
    except Py4JJavaError as error:
        what = f"the query cannot start on {config.checkpoint}: {error.java_exception}"
        raise ConfigurationError(explain([what])) from error


def _coordinator(parts: RunParts, state: _DatabaseState, rulings: RulingTopic) -> Coordinator:
    """Return this pipeline's coordinator, after the shards have been told their role."""
    config, database = state.config, state.database
    member = ElectionMember(
        state.log_id,
        database.incarnation,
        config.name,
        standby=config.standby,
        terms=database.terms,
    )
    feedback = TopicNames(database.database).feedback_of(database.name)
    connection = config.settings.client_config()
    written = written_until(connection, database.database)
    shared = SharedTopics(connection, database.database, feedback)
    coordinator = Coordinator(shared, database, member, parts.reports.show, rulings)
    try:
        coordinator.begin(written)
    except StreamyError:
        coordinator.stop()
        raise
    return coordinator
