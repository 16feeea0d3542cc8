"""The thread that writes epoch markers while some transaction waits for them."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Self

from streamydb.kafka.errors import KafkaError, KafkaException
from streamydb.local.signals import stop_event
from streamydb.pipeline.marker_session import MarkerSession, MarkerStatus
from streamydb.settings import Settings

_STOP_S = 3.0
_BACKOFF_MIN_S = 0.1
_BACKOFF_MAX_S = 5.0


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MarkerLoop(MarkerStatus):
    """Follows the log in a thread of its own and writes a round of markers whenever one is due.

    Any number of them may run on one database. With one partition it only looks, every few seconds,
    whether there are more. After an error it begins again, at growing intervals, until stopped.

    Args:
        settings: the database, the connection and the interval between rounds.
        name: written into the markers; by default made of host, process and chance.
        clock_ms: the wall clock.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        name: str | None = None,
        clock_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        super().__init__(name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
        self._settings = settings
        self._clock_ms = clock_ms
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamydb-markers", daemon=True)

    def start(self) -> Self:
        """Start the thread; at once, whether Kafka answers or not."""
        self.state = "starting"
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop and wait for the end: under a second while Kafka answers. Repeatable.

        While Kafka does not answer, a request may hang for longer; the thread then ends later.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
        self.state = "stopped"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _run(self) -> None:
        """Run sessions until stopped; after a failure wait a little longer each time."""
        backoff_s = _BACKOFF_MIN_S
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                MarkerSession(self, self._settings, self._stop, self._clock_ms).run()
            except Exception as error:  # noqa: BLE001 - without markers nothing is decided
                self._note_failure(error)
                if time.monotonic() - began > _BACKOFF_MAX_S:
                    backoff_s = _BACKOFF_MIN_S
                self._stop.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    def _note_failure(self, error: Exception) -> None:
        self.failures += 1
        self.state = "degraded"
        told = error.args[0] if isinstance(error, KafkaException) else error
        text = told.str() if isinstance(told, KafkaError) else str(told)
        self.last_error = text or type(error).__name__


def run(settings: Settings, say: Callable[[str], None] = print) -> int:
    """Run a marker loop in the foreground until SIGINT or SIGTERM; return the exit status.

    Args:
        settings: the database and the connection.
        say: is told of each change of its state, in a line.
    """
    with stop_event() as ended, MarkerLoop(settings) as loop:
        say(f"sequencer {loop.name} of {settings.database}: started")
        told = ""
        while not ended.wait(1.0):
            now = f"degraded: {loop.last_error}" if loop.state == "degraded" else "following"
            if now != told:
                say(f"sequencer {loop.name}: {now} ({loop.partitions} partitions)")
                told = now
    say(f"sequencer {loop.name}: stopped after {loop.rounds} rounds")
    return 0
