"""Work beside a query, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from prometheus_client import CollectorRegistry, Gauge
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from streamydb.errors import StreamyError
from streamydb.kafka.admin import (
    LATEST,
    TopicsError,
    cluster,
    count_partitions,
    drop_before,
    identity_of,
    keep_until_read,
    list_offsets,
)
from streamydb.kafka.checks import changes_grew
from streamydb.kafka.clients import KafkaAdministrator, administrator
from streamydb.kafka.clock import log_time
from streamydb.kafka.connection import RefusedError
from streamydb.kafka.errors import KafkaException
from streamydb.kafka.names import TopicNames
from streamydb.pipeline.adaptive import BatchSize
from streamydb.pipeline.markers import MarkerLoop
from streamydb.pipeline.repair import numbered, offsets_of
from streamydb.settings import Settings

log = logging.getLogger("streamydb.pipeline")

_AGAIN_S: Final = 10.0


class Background(ABC):
    """Runs `_run` in a thread of its own while the body runs; at the end `_stop` is set.

    If it fails, the log says so, and it begins again.
    """

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_on, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop; a request that is under way is not waited for."""
        self._stop.set()

    def _keep_on(self) -> None:
        while not self._stop.is_set():
            try:
                self._run()
            except Exception:
                log.exception("%s failed; it begins again", self._thread.name)
                self._stop.wait(_AGAIN_S)
            else:
                return

    @abstractmethod
    def _run(self) -> None:
        """Work until `_stop` is set."""


_GROWTH_S: Final = 10.0
_ANSWER_S: Final = 5.0


class GrowthWatch(Background):
    """Looks at a topic in a thread of its own while the body runs.

    ``known``: Kafka's id of it at the start, and how many partitions it had. ``made_anew``: is told
    the id of a topic that has taken its place, and says why the pipeline must not go on.

    Attributes:
        failure: why the pipeline must not go on; None while it may.
    """

    def __init__(
        self,
        connection: Mapping[str, str],
        topic: str,
        known: tuple[str, int],
        made_anew: Callable[[str], str],
    ) -> None:
        super().__init__("streamydb-growth")
        self.failure: str | None = None
        self._connection = connection
        self._topic = topic
        self._known, self._partitions = known
        self._made_anew = made_anew

    def _run(self) -> None:
        admin = administrator(self._connection)
        while self.failure is None and not self._stop.wait(_GROWTH_S):
            with suppress(KafkaException, TopicsError):  # Kafka is away: it is asked again
                topic_id, present = identity_of(admin, self._topic, request_timeout=_ANSWER_S)
                if topic_id != self._known:
                    self.failure = self._made_anew(topic_id)
                elif present > self._partitions:
                    self.failure = str(changes_grew(self._topic, self._partitions, present))


KEPT_MS: Final = 86_400_000
"""How long feedback is kept after it was read, in ms: as old a copy of a checkpoint may be."""

_FIRST_S: Final = 60.0
_FEEDBACK_S: Final = 600.0


def read_by_all(checkpoint: Path, topic: str) -> dict[int, int]:
    """Per partition, the offset up to which every batch that is still on record has read a topic.

    The first batch of all may have to be read again while there is no other.
    """
    numbers = numbered(checkpoint / "query" / "offsets")
    if max(numbers, default=0) == 0:
        return {}
    return offsets_of(checkpoint, min(numbers)).get(topic, {})


class FeedbackKeeper(Background):
    """Sees to a pipeline's feedback topic in a thread of its own while the body runs.

    ``pull``: brings into it what it has in a store.
    """

    def __init__(
        self,
        connection: Mapping[str, str],
        topic: str,
        checkpoint: Path,
        pull: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("streamydb-feedback")
        self._connection = connection
        self._topic = topic
        self._checkpoint = checkpoint
        self._pull = pull

    def _run(self) -> None:
        self._try(self._mend)
        wait_s = _FIRST_S
        while not self._stop.wait(wait_s):
            self._try(self._drop)
            wait_s = _FEEDBACK_S

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (StreamyError, RefusedError, OSError, ValueError) as error:
            log.warning("feedback in %s: %s; it grows meanwhile", self._topic, error)

    def _mend(self) -> None:
        if keep_until_read(self._connection, self._topic):
            log.info("%s is kept until it was read from now on", self._topic)

    def _drop(self) -> None:
        self._pull()
        read = read_by_all(self._checkpoint, self._topic)
        if read:
            drop_before(self._connection, self._topic, read, time.time_ns() // 10**6 - KEPT_MS)


_LOOK_S: Final = 5.0

IDLE_LOOKS: Final = 3
"""So many looks after the last transaction the heap is collected: then 10 to 15 s have passed."""

WORKERLESS_LOOKS: Final = 7
"""So many looks after it the Python workers that have nothing to do end, some 10 s later."""

_GROWN_MB: Final = 64
_GROWN_PART: Final = 0.25
"""A heap that has grown by less than both since the last time is left alone."""

_END_WORKERS: Final = """
    try {
        java.lang.reflect.Field current =
            Class.forName("org.apache.spark.SparkEnv$").getDeclaredField("env");
        current.setAccessible(true);
        java.lang.reflect.Field factories =
            Class.forName("org.apache.spark.SparkEnv").getDeclaredField("pythonWorkers");
        factories.setAccessible(true);
        java.lang.reflect.Field lastUse =
            Class.forName("org.apache.spark.api.python.PythonWorkerFactory").getDeclaredField(
                "org$apache$spark$api$python$PythonWorkerFactory$$lastActivityNs"
            );
        lastUse.setAccessible(true);
        scala.collection.Iterator each =
            ((scala.collection.mutable.HashMap) factories.get(current.get(null))).valuesIterator();
        while (each.hasNext()) {
            Object factory = each.next();
            lastUse.setLong(factory, lastUse.getLong(factory) - 60000000000L);
        }
        String[] owners = {
            "org.apache.spark.SparkEnv", "org.apache.spark.rpc.netty.NettyRpcEnv",
            "org.apache.spark.rpc.netty.Dispatcher"
        };
        String[] names = {"rpcEnv", "dispatcher", "endpointRefs"};
        Object endpoints = current.get(null);
        for (int i = 0; i < owners.length; i++) {
            java.lang.reflect.Field next = Class.forName(owners[i]).getDeclaredField(names[i]);
            next.setAccessible(true);
            endpoints = next.get(endpoints);
        }
        java.util.Iterator endpoint = ((java.util.Map) endpoints).keySet().iterator();
        while (endpoint.hasNext()) {
            Object owner = endpoint.next();
            java.lang.reflect.Field[] fields = owner.getClass().getDeclaredFields();
            for (int i = 0; i < fields.length; i++) {
                if (fields[i].getType() == java.util.concurrent.ThreadPoolExecutor.class) {
                    fields[i].setAccessible(true);
                    ((java.util.concurrent.ThreadPoolExecutor) fields[i].get(owner))
                        .setKeepAliveTime(5L, java.util.concurrent.TimeUnit.SECONDS);
                }
            }
        }
    } catch (ReflectiveOperationException elsewhere) {
        throw new IllegalStateException(elsewhere);
    }
"""
"""Java that Spark's compiler makes a class of; py4j cannot ask for what is not public. Neither may
look at the methods of `SparkEnv`: one has a type that Spark does not ship.

Spark ends Python workers that have been idle for a minute. It keeps the moment of the last use, and
alone knows which workers have a task. So it gets an earlier moment.

Two of its pools make a thread for each message until there are a hundred, and keep them for a
minute after their last one. From now on it is five seconds.
"""


class Heap(NamedTuple):
    """The memory of Spark's JVM, and of the workers that it keeps.

    Attributes:
        size_mb: asks for the present size of the heap, in MB.
        collect: collects the heap, and returns when that is done.
        end_workers: has Spark end the Python workers that have no task.
    """

    size_mb: Callable[[], float]
    collect: Callable[[], None]
    end_workers: Callable[[], None]


def spark_heap(spark: SparkSession) -> Heap:
    """Return what Spark's JVM on this machine has."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark shows it nowhere else
    jvm = gateway.jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    nothing = gateway.new_array(jvm.Object, 0)
    return Heap(
        lambda: float(runtime.totalMemory()) / 1e6, jvm.System.gc,
        lambda: _end_workers(jvm, nothing),
    )  # fmt: skip


def _end_workers(jvm: Any, nothing: Any) -> None:
    script = jvm.org.codehaus.janino.ScriptEvaluator()
    script.cook(_END_WORKERS)
    script.evaluate(nothing)


class IdleHeap(Background):
    """Looks every few seconds whether nothing comes any more, in a thread of its own."""

    def __init__(self, heap: Heap) -> None:
        """Nothing has come yet; the start itself counts as load."""
        super().__init__("streamydb-idle-heap")
        self._heap = heap
        self._came = True
        self._idle_looks = 0
        self._left_mb = 0.0

    def note(self, size: BatchSize) -> None:
        """Note a micro-batch; one that brings only feedback is none."""
        if size.transactions:
            self._came = True

    def look(self) -> None:
        """Have memory given back, if nothing has come for some looks: first the heap, if it has
        grown since the last time, then the workers.
        Raises Py4JError: the JVM does not answer.
        """
        came, self._came = self._came, False
        self._idle_looks = 0 if came else self._idle_looks + 1
        if self._idle_looks == IDLE_LOOKS:
            self._collect()
        elif self._idle_looks == WORKERLESS_LOOKS:
            self._end_workers()

    def _collect(self) -> None:
        before_mb = self._heap.size_mb()
        if before_mb - self._left_mb < min(_GROWN_MB, _GROWN_PART * self._left_mb):
            return
        self._heap.collect()
        self._left_mb = self._heap.size_mb()
        log.info("nothing comes: a heap of %.0f MB has become %.0f MB", before_mb, self._left_mb)

    def _end_workers(self) -> None:
        try:
            self._heap.end_workers()
        except Py4JError as error:
            log.info("Spark ends idle workers when it does so by itself: %s", error)

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            try:
                self.look()
            except (Py4JError, OSError) as error:  # its end is told by whoever waits for it
                log.info("the heap is left as it is: %s", error)
                return


SAMPLE_S: Final = 5.0  # how often Kafka is asked


class LogSampler(Background):
    """Sets gauges of the log in a thread of its own; without a metrics port it does nothing."""

    def __init__(self, settings: Settings, registry: CollectorRegistry, loop: MarkerLoop) -> None:
        """Register the gauges; ``loop`` writes the markers of this process."""
        super().__init__("streamydb-sampler")
        self._settings = settings
        self._names = TopicNames(settings.database)
        self._is_ahead = False

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"streamydb_{name}", text, registry=registry)

        self._ends = gauge("log_end_records", "Log records that there are")
        self._newest = gauge("log_newest_timestamp_seconds", "Append time of the newest record")
        self._skew = gauge("log_ahead_seconds", "Newest append time less this machine's clock")
        self._dead = gauge("dead_letters", "Records of the dead-letter topic")
        self._answers = gauge("kafka_answers", "1 if Kafka answered when it was last asked")
        gauge("sequencer_degraded", "1 if markers cannot be written").set_function(
            lambda: float(loop.state == "degraded")
        )

    def __enter__(self) -> Self:
        """Start, if somebody is to see it."""
        return self if self._settings.metrics_port is None else super().__enter__()

    def __exit__(self, *_error: object) -> None:
        super().__exit__()
        if self._thread.is_alive():
            self._thread.join(1)

    def _run(self) -> None:
        admin = administrator(self._settings.client_config())
        while not self._stop.is_set():
            try:
                self._sample(admin)
                self._answers.set(1)
            except (KafkaException, StreamyError):
                self._answers.set(0)
            self._stop.wait(SAMPLE_S)

    def _sample(self, admin: KafkaAdministrator) -> None:
        topics = cluster(admin).topics
        counts = {
            name: range(count_partitions(topics.get(name)))
            for name in (self._names.transactions, self._names.deadletters)
        }
        ends = {name: list_offsets(admin, name, counts[name], LATEST) for name in counts}
        totals = {
            name: sum(end.offset for end in partition_ends.values())
            for name, partition_ends in ends.items()
        }
        self._ends.set(totals[self._names.transactions])
        self._dead.set(totals[self._names.deadletters])
        log = self._names.transactions
        clock = log_time(admin, log, counts[log])
        if clock.newest_ms:
            self._newest.set(clock.newest_ms / 1000)
            self._skew.set(clock.ahead_ms / 1000)
        self._complain(clock.warning())

    def _complain(self, warning: str | None) -> None:
        """Log that the log is ahead of this machine's clock, once as long as it is."""
        if warning is not None and not self._is_ahead:
            log.warning("%s; see ClockSkew in docs/operations.md", warning)
        self._is_ahead = warning is not None
