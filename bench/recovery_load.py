"""A few transactions a second, whatever happens to the pipeline, and when each verdict was read."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from itertools import pairwise
from typing import Final, Self

import msgspec

from streamydb.errors import StreamyError
from streamydb.kafka import TopicNames
from streamydb.kafka.producer import Producer
from streamydb.kafka.reader import TopicReader
from streamydb.settings import Settings
from streamydb.testing.database import Database

__all__ = ["WAIT_S", "RecoveryError", "RecoveryLoad", "started_again"]

WAIT_S: Final = 120.0
"""No verdict is waited for longer than this."""

_LOOK_S: Final = 0.005


class RecoveryError(StreamyError):
    """What was to be measured did not happen."""


class RecoveryLoad:
    """Appends transactions at a rate, and notes when each verdict was read.

    Attributes:
        appended_s: when the transaction of each number was given to Kafka's client.
        verdict_s: when its verdict was read; the first one counts.
    """

    def __init__(self, settings: Settings, rate: float) -> None:
        """Nothing is appended yet; ``rate``: transactions a second."""
        self._settings = settings
        self._interval_s = 1.0 / rate
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"recovery-{run.__name__}", daemon=True)
            for run in (self._append, self._read)
        ]
        self._reads = threading.Event()
        self.appended_s: list[float] = []
        self.verdict_s: dict[int, float] = {}

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        """End."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _append(self) -> None:
        self._reads.wait(WAIT_S)
        with Producer(self._settings, linger_ms=0) as producer:
            begun_s = time.monotonic()
            while not self._stop.wait(self._due_s(begun_s)):
                number = len(self.appended_s)
                self.appended_s.append(time.monotonic())
                update = {"op": "add", "key": f"k{number % 1_000}", "by": 1}
                producer.submit({"id": f"r{number}", "updates": [update]})

    def _due_s(self, begun_s: float) -> float:
        """Seconds until the next one is due."""
        due_s = begun_s + len(self.appended_s) * self._interval_s
        return max(0.0, due_s - time.monotonic())

    def _read(self) -> None:
        topic = TopicNames(self._settings.database).results
        with TopicReader(self._settings.client_config(), topic) as reader:
            reader.assign({number: span.high for number, span in reader.spans().items()})
            self._reads.set()
            while not self._stop.is_set():
                records = reader.batch(0.05)
                now_s = time.monotonic()
                for record in records:
                    name = msgspec.json.decode(record.value() or b"{}").get("id") or ""
                    if name.startswith("r"):
                        self.verdict_s.setdefault(int(name[1:]), now_s)

    def first_after(self, since_s: float) -> float:
        """Wait for the first verdict on a transaction that was appended later; when it was read.

        Raises:
            RecoveryError: none came.
        """
        ends_s = time.monotonic() + WAIT_S
        first = len(self.appended_s)
        while first and self.appended_s[first - 1] > since_s:
            first -= 1
        while time.monotonic() < ends_s:
            found = [at_s for number, at_s in self.verdict_s.copy().items() if number >= first]
            if found:
                return min(found)
            time.sleep(_LOOK_S)
        raise RecoveryError(f"no verdict came within {WAIT_S:.0f} s")

    def longest_pause(self, since_s: float, until_s: float) -> float:
        """Return the longest time between two verdicts, in seconds.

        From the last verdict before ``since_s`` to the first one after ``until_s``, which is waited
        for.

        Raises:
            RecoveryError: none came then.
        """
        self.first_after(until_s)
        read_s = sorted(self.verdict_s.copy().values())
        before = bisect_right(read_s, since_s)
        after = bisect_right(read_s, until_s)
        seen = read_s[max(0, before - 1) : after + 1]
        return max((late - early for early, late in pairwise(seen)), default=0.0)


def started_again(database: Database, load: RecoveryLoad, killed_s: float) -> dict[str, float]:
    """Start a pipeline that was killed at ``killed_s``; return the figures of its start.

    Raises:
        RecoveryError: no verdict came.
    """
    database.start_pipeline()
    runs_s = time.monotonic() - killed_s
    verdict_s = load.first_after(killed_s) - killed_s
    return {"runs_s": runs_s, "first_batch_s": verdict_s - runs_s, "verdict_s": verdict_s}
