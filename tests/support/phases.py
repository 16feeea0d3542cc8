"""The phases of a micro-batch, known by the files of the checkpoint,
and kills that fall into one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer

from streamydb.kafka import TopicNames
from streamydb.kafka.connection import watermarks
from streamydb.testing.database import Database

ATTEMPTS_MAX = 25


def numbers(folder: Path) -> set[int]:
    """The batches that have a file in a folder of the checkpoint."""
    with suppress(FileNotFoundError):
        return {int(path.name) for path in folder.iterdir() if path.name.isdigit()}
    return set()


class Batches:
    """Where the query is, by its checkpoint and by the results topic."""

    def __init__(self, db: Database) -> None:
        self._query = db.place.checkpoint / "query"
        self._results = TopicNames(db.name).results
        self._consumer = Consumer({**db.settings.client_config(), "group.id": "phases"})
        self.before = 0

    def close(self) -> None:
        self._consumer.close()

    @property
    def open(self) -> int | None:
        """The batch that was begun and not committed."""
        begun, done = numbers(self._query / "offsets"), numbers(self._query / "commits")
        newest = max(begun, default=-1)
        return None if newest < 0 or newest in done else newest

    def written(self) -> int:
        """How many results there are."""
        return watermarks(self._consumer, self._results, 0, 10)[1]

    def state_is_committed(self, batch: int) -> bool:
        """Whether the state of a batch lies in the checkpoint."""
        begins = f"{batch + 1}.", f"{batch + 1}_"
        return any(p.name.startswith(begins) for p in (self._query / "state/0/0").iterdir())


def before_offsets(batches: Batches) -> bool:
    """A batch has just been committed, the next one is not begun."""
    found = batches.open
    while found is not None and batches.open == found:
        pass
    return found is not None and batches.open is None


def executing(batches: Batches) -> bool:
    """The offsets are written, the state is not."""
    found = batches.open
    return found is not None and not batches.state_is_committed(found)


def outputs_written(batches: Batches) -> bool:
    """Results of the batch are in Kafka, and the batch is not committed."""
    found = batches.open
    batches.before = batches.written()
    while found is not None and batches.open == found:
        if batches.written() > batches.before:
            return True
    return False


def state_committed(batches: Batches) -> bool:
    """The state of the batch is in the checkpoint, and the batch is not committed."""
    found = batches.open
    return found is not None and batches.state_is_committed(found)


Phase = Callable[[Batches], bool]

LEFT: dict[Phase, Phase] = {
    before_offsets: lambda batches: batches.open is None,
    executing: executing,
    outputs_written: lambda b: b.open is not None and b.written() > b.before,
    state_committed: state_committed,
}
"""Each phase, and how what a kill has left shows that it fell into it."""


def kill_in(db: Database, phase: Phase) -> bool:
    """Kill the JVM when it comes to a phase, then the rest; whether that was in time."""
    batches = Batches(db)
    try:
        jvm = next(process for process in db.processes() if process.name() == "java")
        until = time.monotonic() + 60
        while not phase(batches):
            assert time.monotonic() < until, f"no batch came to {phase.__name__}"
        os.kill(jvm.pid, signal.SIGKILL)
        db.kill_pipeline()
        return LEFT[phase](batches)
    finally:
        batches.close()
