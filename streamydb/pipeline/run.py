"""A running query: watch it, let it finish its batch, or give it up."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from streamydb.local.disk import full_disk
from streamydb.pipeline.repair import REBUILD

log = logging.getLogger("streamydb.pipeline")

_ENGINE: Final = "StreamExecution"
_DELAY_FIELD: Final = "pollingDelayMs"
_SET_LIMITS: Final = "uniqueSources_$eq"
_LOOK_S: Final = 0.002
_POLL_S: Final = 0.1
_IN_JOB: Final = "org.apache.spark.scheduler.DAGScheduler.runJob"
_IN_BATCH: Final = "MicroBatchExecution.runBatch"
_IN_TRIGGER: Final = "MicroBatchExecution.executeOneBatch"
_IDLE: Final = "java.lang.Thread.sleep"
_FETCHING_S_MAX: Final = 5.0
"""How long Spark may ask Kafka for offsets before a stop no longer waits for it."""


class RunningQuery:
    """A started streaming query.

    Spark's own `stop` interrupts the running batch. To have it finished, the query is marked as
    ended while the batch is in its job. Its thread looks at the mark between batches, and once
    while it plans one, and there it gives up a batch whose offsets are written already. So the
    mark is set only when the thread's stack shows that it is not planning, under the lock that
    it needs to commit this batch and to begin the next one.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self._engine: Any = query._jsq.streamingQuery()  # noqa: SLF001 - Spark has no other way

    @property
    def active(self) -> bool:
        """True if it goes on; asks the JVM."""
        return bool(self.query.isActive)

    def beats(self) -> bool:
        """Return True if it goes on and the JVM answers; hangs when that hangs."""
        try:
            return self.active
        except (Py4JError, OSError):
            return False

    def context_is_stopped(self) -> bool:
        """Return True if Spark's context was stopped, or does not answer: its JVM is about to end.

        A query may then fail by any error, whose words say nothing of that.
        """
        try:
            return bool(self._engine.sparkSessionForStream().sparkContext().isStopped())
        except (Py4JError, OSError):
            return True

    def set_conf(self, name: str, value: str) -> None:
        """Change a setting of the query's own session; micro-batches that begin later have it.
        Raises Py4JError: the JVM does not answer, or this Spark has no such session.
        """
        self._engine.sparkSessionForStream().conf().set(name, value)

    def look_every(self, seconds: float) -> None:
        """Change how long it waits before it looks for data again, from its next wait on.

        Spark reads its setting (`spark.sql.streaming.pollingDelay`) when a query begins, and never
        again.
        Raises Py4JError: the JVM does not answer, or this Spark or this Java does not let it.
        """
        kind = self._engine.getClass()
        while kind.getSimpleName() != _ENGINE:
            kind = kind.getSuperclass()
        field = kind.getDeclaredField(_DELAY_FIELD)
        field.setAccessible(True)
        field.setLong(self._engine, round(1000 * seconds))

    def read_at_most(self, records: int) -> None:
        """Change how many records each source with such a limit gives to a micro-batch.

        Spark takes the limits from the sources' options when it has planned a query, and never
        again. A query that has only begun has no plan yet, and stays as it is.
        Raises Py4JError: the JVM does not answer. AttributeError, TypeError: this Spark has no such
        limits.
        """
        jvm: Any = SparkContext._jvm  # noqa: SLF001 - PySpark shows it nowhere else
        limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows(records)
        limits = self._engine.uniqueSources()
        limited = [source for source in _each(limits.keysIterator())
                   if limits.apply(source).getClass() == limit.getClass()]  # fmt: skip
        for source in limited:
            limits = limits.updated(source, limit)
        if limited:  # or Spark may just be writing the first ones, which nobody may overwrite
            getattr(self._engine, _SET_LIMITS)(limits)

    def finish(self, give_up: threading.Event) -> bool:
        """Let the running batch end and the query with it; False if it was given up.

        ``give_up``: when set, the batch is not waited for any longer.
        Raises Py4JError: the JVM does not answer.
        """
        try:
            # Mark the query as ended at a moment at which that interrupts nothing.
            jvm: Any = SparkContext._jvm  # noqa: SLF001 - PySpark shows it nowhere else
            package = jvm.org.apache.spark.sql.execution.streaming.runtime
            lock, state = self._engine.awaitProgressLock(), self._engine.state()
            thread = self._engine.queryExecutionThread().getId()
            utils = jvm.org.apache.spark.util.Utils

            def stack() -> str:
                dump = utils.getThreadDumpForThread(thread)
                return str(dump.get().stackTrace().toString()) if dump.isDefined() else ""

            def set_state(name: str) -> None:
                state.set(getattr(getattr(package, f"{name}$"), "MODULE$"))

            marked = mark_between_batches(give_up, lock, stack, set_state)
        except (Py4JError, AttributeError, TypeError) as error:
            log.warning("this Spark cannot be told to finish its batch: %s", error)
            marked = False
        while marked and not give_up.wait(_POLL_S):
            if not self._engine.queryExecutionThread().isAlive():
                return self.is_complete()
        self.give_up()
        return False

    def give_up(self) -> None:
        """Stop at once: a running batch is interrupted, and done again by the next start."""
        try:
            self.query.stop()
        except (PySparkException, Py4JJavaError) as error:  # it took longer than `stopTimeout`
            log.warning("Spark does not stop: %s", str(error).splitlines()[0])

    def is_complete(self) -> bool:
        """Return True if the newest batch that was begun was also committed."""

        def newest(entries: Any) -> int:
            batch_id = entries.getLatestBatchId()
            return int(batch_id.get()) if batch_id.isDefined() else -1

        begun = newest(self._engine.offsetLog())
        return begun == newest(self._engine.commitLog())


def _each(iterator: Any) -> Iterator[Any]:
    """Give what an iterator of Scala's gives."""
    while iterator.hasNext():
        yield iterator.next()


def mark_between_batches(
    give_up: threading.Event, lock: Any, stack: Callable[[], str], set_state: Callable[[str], None]
) -> bool:
    """Mark a query as ended while its thread does not plan a batch; False: there was no such
    moment.

    Args:
        give_up: ends the attempts.
        lock: the thread needs it to begin a batch, and to commit one.
        stack: the thread's stack; empty when it has ended.
        set_state: sets the mark (TERMINATED), or takes it back (ACTIVE).
    """
    stack()  # the first call takes longer than the next ones
    locked_s = time.monotonic()
    while not give_up.wait(_LOOK_S):
        if lock.tryLock():
            locked_s = time.monotonic()
            try:
                if may_end(stack()):
                    set_state("TERMINATED")
                    if may_end(stack()):
                        return True
                    set_state("ACTIVE")  # it woke up between, and saw no mark
            finally:
                lock.unlock()
        elif time.monotonic() - locked_s > _FETCHING_S_MAX:
            log.info("no batch is running: Spark waits for Kafka")
            return False
    return False


def may_end(stack: str) -> bool:
    """Return True if a query's thread executes a batch, sleeps between two looks, or has ended."""
    idle = _IDLE in stack and _IN_BATCH not in stack
    return _IN_JOB in stack or idle or _IN_TRIGGER not in stack


_RUNBOOK: Final = "see docs/operations.md"
_GONE: Final = (
    "were deleted before the pipeline had read them; nothing is skipped "
    f"({_RUNBOOK}, 'Records of the log are gone')"
)
_ROOM: Final = f"make room and start again, nothing has to be repaired ({_RUNBOOK}, 'A full disk')"
_KNOWN: Final = (
    (re.compile(r"Checksum error: file:(\S+)"), "the checkpoint file {0} is damaged; " + REBUILD),
    (
        re.compile(r"state file of file:(\S+) does not exist"),
        "the checkpoint file {0} is missing; " + REBUILD,
    ),
    (
        re.compile(
            r"(?s)(?:Could not read records|KAFKA_DATA_LOSS|data may have been lost|data aged out)"
            r".*?(\S+\.feedback\S*)"
        ),
        "feedback of {0} was deleted before it was read. The log has everything; " + REBUILD,
    ),
    (
        re.compile(
            r"(Incomplete log file[^\n]*|[^\n]*offset log for batch[^\n]*doesn't exist[^\n]*|"
            r"Concurrent update to the (?:commit )?log[^\n]*|Malformed [^\n]*log[^\n]*)"
        ),
        "the checkpoint's files do not fit each other ({0}); " + REBUILD,
    ),
    (
        re.compile(r"Could not read records in offset (\[\d+, \d+\)) for topic partition (\S+)"),
        "the offsets {0} of {1} " + _GONE,
    ),
    (re.compile(r"streamydb\.[\w.]+\.(?:InvariantViolation|TooLate|ReadBefore): (.+)"), "{0}"),
    (
        re.compile(r"ModuleMissing: ([^\n]+)"),
        "{0} (docs/procedures.md, 'A version that is missing')",
    ),
    (
        re.compile(r"(No space left on device|Disk quota exceeded)"),
        "a disk is full ({0}), the checkpoint's or Spark's local one; " + _ROOM,
    ),
    (
        re.compile(r"CANNOT_LOAD_STATE_STORE"),
        "the state in the checkpoint cannot be read; " + REBUILD,
    ),
    (re.compile(r"data may have been lost|data aged out"), "records of the log " + _GONE),
)

_STATE_LOST: Final = re.compile(r"(?s)stateful_processor_api_client\.py.*EOFError")
"""Spark ends the thread that serves state to a Python worker, and tells it to the log alone."""


def explain(messages: list[str], folders: Iterable[Path] = ()) -> str:
    """Say what happened and what to do.

    ``folders``: whose disks are looked at if the messages tell nothing that is known.
    """
    for pattern, text in _KNOWN:
        for message in messages:
            match = pattern.search(message)
            if match:
                return text.format(*match.groups())
    first = messages[0] if messages else "the query ended without an error"
    said = first.split("=== Streaming Query ===")[0].strip()
    for folder in folders:
        if (full := full_disk(folder)) is not None:
            return f"{full}; {_ROOM}. {said}"
    if any(map(_STATE_LOST.search, messages)):
        return f"the state could not be read or written; the log of the pipeline tells why. {said}"
    return said


def failure_of(query: StreamingQuery) -> list[str]:
    """The messages of the error that ended ``query`` and of its causes, outermost first."""
    failure = query._jsq.exception()  # noqa: SLF001 - PySpark shows no causes
    return _messages(failure.get()) if failure.isDefined() else []


def _messages(error: Any) -> list[str]:
    messages = []
    while error is not None:
        messages.append(str(error.getMessage()))
        error = error.getCause()
    return messages
