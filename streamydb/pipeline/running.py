"""A query that runs: whether it goes on, finishing its batch, giving it up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RunningQuery"]

log = logging.getLogger("streamydb.pipeline")

_LOOK_S: Final = 0.002
_POLL_S: Final = 0.1
_IN_JOB: Final = "org.apache.spark.scheduler.DAGScheduler.runJob"
_IN_BATCH: Final = "MicroBatchExecution.runBatch"
_IDLE: Final = "java.lang.Thread.sleep"
_FETCHING_S_MAX: Final = 5.0
"""How long Spark may ask Kafka for offsets before a stop no longer waits for it."""


class RunningQuery:
    """A started streaming query.

    Spark's own `stop` interrupts the running batch. To finish it, the query is marked as ended while
    the batch is in its job: its thread looks at the mark between batches, and once while it
    plans one, where it would give up a batch whose offsets are written. So the mark is set
    with the lock that the thread needs to commit, and only when its stack shows that it is past
    the planning.
    """

    def __init__(self, query: StreamingQuery) -> None:
        """Take over a query that has been started."""
        self.query = query
        self._engine: Any = query._jsq.streamingQuery()  # noqa: SLF001 - Spark has no other way

    @property
    def active(self) -> bool:
        """Whether it goes on; asks the JVM."""
        return bool(self.query.isActive)

    def finish(self, give_up: threading.Event) -> bool:
        """Let the running batch end and the query with it; False if it was given up.

        Args:
            give_up: when set, the batch is not waited for any longer.

        Raises:
            Py4JError: the JVM does not answer.
        """
        try:
            marked = self._mark(give_up)
        except (Py4JError, AttributeError, TypeError) as error:
            log.warning("this Spark cannot be told to finish its batch: %s", error)
            marked = False
        while marked and not give_up.is_set():
            if self._engine.awaitTermination(round(1000 * _POLL_S)):
                return self.is_complete()
        self.give_up()
        return False

    def give_up(self) -> None:
        """Stop at once: a running batch is interrupted, and done again by the next start."""
        try:
            self.query.stop()
        except PySparkException as error:
            log.warning("Spark does not stop: %s", str(error).splitlines()[0])

    def is_complete(self) -> bool:
        """Whether the newest batch that was begun was also committed."""
        def newest(entries: Any) -> int:
            found = entries.getLatestBatchId()
            return int(found.get()) if found.isDefined() else -1

        begun = newest(self._engine.offsetLog())
        return begun == newest(self._engine.commitLog())

    def _mark(self, give_up: threading.Event) -> bool:
        """Mark the query as ended at a moment at which that interrupts nothing."""
        jvm: Any = SparkContext._jvm  # noqa: SLF001 - PySpark shows it nowhere else
        package = jvm.org.apache.spark.sql.execution.streaming.runtime
        terminated = getattr(getattr(package, "TERMINATED$"), "MODULE$")
        lock, thread = self._engine.awaitProgressLock(), self._engine.queryExecutionThread()

        def stack() -> str:
            return str(jvm.java.util.Arrays.toString(thread.getStackTrace()))

        return _marks(give_up, lock, stack, lambda: self._engine.state().set(terminated))


def _marks(
    give_up: threading.Event, lock: Any, stack: Callable[[], str], mark: Callable[[], None]
) -> bool:
    """Look at the query's thread until it is where `mark` may be called; False: it was not."""
    fetching_since = time.monotonic()
    while not give_up.wait(_LOOK_S):
        if lock.tryLock():
            fetching_since = time.monotonic()
            try:
                if is_past_planning(stack()):
                    mark()
                    return True
            finally:
                lock.unlock()
        elif time.monotonic() - fetching_since > _FETCHING_S_MAX:
            log.info("no batch is running: Spark waits for Kafka")
            return False
    return False


def is_past_planning(stack: str) -> bool:
    """Whether a query's thread executes a batch, or sleeps between two looks at its sources."""
    return _IN_JOB in stack or (_IDLE in stack and _IN_BATCH not in stack)
