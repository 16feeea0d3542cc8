"""A query is told to end at a random moment, and yet every batch that it begins is committed."""

from __future__ import annotations

import random
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.pipeline.run import mark_between_batches

_TRIGGER = "MicroBatchExecution.executeOneBatch\n"
_BATCH = f"MicroBatchExecution.runBatch\n{_TRIGGER}"
_STACKS = {
    "sleeps": f"java.lang.Thread.sleep\n{_TRIGGER}", "woke": _TRIGGER, "writes offsets": _TRIGGER,
    "plans": f"IncrementalExecution\n{_BATCH}", "has planned": f"IncrementalExecution\n{_BATCH}",
    "runs": f"org.apache.spark.scheduler.DAGScheduler.runJob\n{_BATCH}", "commits": _BATCH,
    "ended": "",
}  # fmt: skip
_LOOKS_MAX = 2_000


class SparkThread(threading.Event):
    """The thread of a query, its lock and mark; and the request to give up, which never comes.

    It goes on by some steps whenever somebody looks. It looks at the mark between batches, and once
    while it plans one, which it then gives up although its offsets are written.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dice = random.Random(seed)
        self.phase = self.dice.choice(["sleeps", "plans", "runs", "commits"])
        self.begun = int(self.phase != "sleeps")
        self.committed = self.looks = 0
        self.given_up = self.marked = False
        self.owner: str | None = None

    def step(self) -> None:
        """Go on, unless the lock is in the way."""
        if self.phase in ("woke", "commits") and self.owner is not None:
            return
        if self.phase == "sleeps":
            self.phase = "ended" if self.marked else "woke"
        elif self.phase == "woke":
            self.owner, self.phase, self.begun = "spark", "writes offsets", self.begun + 1
        elif self.phase == "writes offsets":
            self.owner, self.phase = None, "plans"
        elif self.phase == "plans":
            self.given_up = self.marked
            self.phase = "ended" if self.marked else "has planned"
        elif self.phase == "has planned":
            self.phase = "runs"
        elif self.phase == "runs":
            self.phase = "commits"
        elif self.phase == "commits":
            self.committed += 1
            self.phase = "sleeps" if self.dice.random() < 0.7 or self.marked else "woke"

    def goes_on(self) -> None:
        for _ in range(self.dice.choice([0, 0, 1, 2, 5])):
            self.step()

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - time is not measured
        self.goes_on()
        self.looks += 1
        return self.looks > _LOOKS_MAX

    def tryLock(self) -> bool:  # noqa: N802 - Java's name
        self.goes_on()
        if self.owner is None:
            self.owner = "us"
        return self.owner == "us"

    def unlock(self) -> None:
        assert self.owner == "us"
        self.owner = None
        self.goes_on()

    def stack(self) -> str:
        self.goes_on()
        return _STACKS[self.phase]

    def set_state(self, name: str) -> None:
        assert self.owner == "us"
        self.goes_on()
        self.marked = name == "TERMINATED"


@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 40))
def test_every_batch_that_was_begun_is_committed(seed: int) -> None:
    spark = SparkThread(seed)
    assert mark_between_batches(spark, spark, spark.stack, spark.set_state)
    assert spark.owner is None
    while spark.phase != "ended":
        spark.step()
    assert not spark.given_up
    assert spark.committed == spark.begun
