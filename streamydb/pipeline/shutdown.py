"""End a pipeline within stated times, whatever hangs.

    starting ──► running ──► leaving ──► done

Told to stop (SIGTERM, SIGINT) while it runs, it finishes the running batch, for `finish_s` seconds
at the most; after that, or when it is told again, the batch is given up, and the next start does it
again. While it starts there is nothing to finish. What is not over in time is ended by force: all
stacks go to the log, so that the reason is known, the JVM is killed, and the process ends.
"""

from __future__ import annotations

import contextlib
import enum
import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn, Self

from streamydb.local.signals import StopSignals

log = logging.getLogger("streamydb.pipeline")

START_S: Final = 10.0
"""How long the step of the start that is under way may take when the pipeline is told to stop."""

GIVE_UP_S: Final = 12.0  # how long Spark may take to give the running batch up
LEAVE_S: Final = 15.0
"""How long threads, connections and Spark may take to end when the query has ended."""

_LAST_WORDS_S: Final = 3.0


class Stage(enum.Enum):
    """A stage in the life of a pipeline."""

    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"
    DONE = "done"


class PipelineShutdown:
    """Watches over a pipeline's end, in a thread of its own; use it as a context manager.

    Args:
        finish_s: how long the running batch may take to be finished.
        tell: notes a change of the status file's fields.
        kill: ends the JVM at once.

    Attributes:
        requested: set when somebody has told the pipeline to stop.
        give_up: set when the running batch is to be given up.
    """

    def __init__(
        self, finish_s: float, tell: Callable[..., None], kill: Callable[[], None]
    ) -> None:
        self._finish_s = finish_s
        self._tell = tell
        self._kill = kill
        self._stage = Stage.STARTING
        self._deadline: float | None = None
        self._code = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="streamydb-ending", daemon=True)
        self.requested = threading.Event()
        self.give_up = threading.Event()
        self.signals = StopSignals(self._signalled)

    def __enter__(self) -> Self:
        self._thread.start()
        self.signals.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.signals.__exit__(*error)
        self._enter(Stage.DONE, None)
        self._thread.join(1)

    def runs(self) -> None:
        """Note that the query has been started: from here on there may be a batch to finish."""
        self._enter(Stage.RUNNING, self._finish_s if self.requested.is_set() else None)

    def leaves(self, code: int) -> None:
        """Note that the query has ended, so that the rest must end soon.

        ``code``: the process's exit code.
        """
        self._code = code
        self._enter(Stage.LEAVING, LEAVE_S)

    def _enter(self, stage: Stage, seconds: float | None) -> None:
        with self._changed:
            self._stage = stage
            self._deadline = None if seconds is None else time.monotonic() + seconds
            self._changed.notify()

    def _signalled(self, count: int) -> None:
        """Note a signal to stop; called in the thread of the signals."""
        if self._stage is Stage.STARTING:
            self._request(START_S if count == 1 else 0.0, "there is no batch to finish yet")
        elif self._stage is Stage.RUNNING and count == 1:
            what = f"the running batch is finished, for at most {self._finish_s:.0f} s"
            self._request(self._finish_s, f"{what}; a second signal gives it up")
        elif self._stage is Stage.RUNNING and count == 2:
            self.abandon("told again", self._code)
        elif self._stage is Stage.RUNNING:
            self._enter(self._stage, 0.0)

    def _request(self, seconds: float, what: str) -> None:
        self._enter(self._stage, seconds)
        self.requested.set()
        log.info("stopping: %s", what)
        self._tell(state="stopping")

    def abandon(self, why: str, code: int = 0) -> None:
        """Give the running batch up, quickly.

        ``code``: the process's exit code; not 0: the pipeline failed.
        """
        self._code = code
        self._enter(self._stage, GIVE_UP_S)
        self.give_up.set()
        log.info("stopping: %s: the running batch is given up and will be done again", why)

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._stage is Stage.DONE:
                    return
                left = None if self._deadline is None else self._deadline - time.monotonic()
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                hangs = self._stage is not Stage.RUNNING or self.give_up.is_set()
            if hangs:
                self._force()
            self.abandon("the time is up", self._code)

    def _force(self) -> NoReturn:
        """End the process, whatever hangs."""
        code = 1 if self._stage is Stage.RUNNING else self._code
        words = threading.Thread(target=self._last_words, name="streamydb-last", daemon=True)
        words.start()
        words.join(_LAST_WORDS_S)
        with contextlib.suppress(Exception):
            self._kill()
        os._exit(code)

    def _last_words(self) -> None:
        faulthandler.dump_traceback(all_threads=True)
        what = f"it did not end in time while {self._stage.value} (all stacks are in its log)"
        log.error("ended by force: %s; the JVM is killed", what)
        if self._code == 0:
            self._tell(state="stopped", error=f"{what}; nothing is lost")
