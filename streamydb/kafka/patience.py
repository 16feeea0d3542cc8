"""Let a service wait for Kafka when it starts, as long as it takes, with messages.

A command that a person types says at once that nothing is there. A service (pipeline, read model,
facade) may be started before its broker, or while the broker restarts: it goes on when Kafka
answers. What no waiting mends ends it at once, with its message: a password, a missing topic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from streamydb.errors import StreamyError
from streamydb.kafka.connection import is_transient, listens

log = logging.getLogger("streamydb")

_AGAIN_S: Final = 0.2
_AGAIN_S_MAX: Final = 2.0
_SAY_S: Final = 5.0
_NEVER: Final = float("-inf")
_Answer = TypeVar("_Answer")


class StopRequestedError(StreamyError):
    """The service was told to stop before it had started."""


class _NobodyListensError(StreamyError):
    """No broker is there."""


class Patience:
    """Asks Kafka until it answers.

    Args:
        stopped: waits for so many seconds, and returns whether the service is to stop.
        note: is told why it waits, and None when it waits no longer.
        addresses: Kafka's; where nobody listens, that is seen at once, and not after half a minute.
    """

    def __init__(
        self,
        stopped: Callable[[float], bool],
        note: Callable[[str | None], None] = lambda _: None,
        addresses: str | None = None,
    ) -> None:
        self._addresses = addresses
        self._stopped = stopped
        self._note = note

    def ask(self, action: Callable[[], _Answer], *, look: bool = True) -> _Answer:
        """The answer of `action`, which may be called any number of times.

        ``look``: whether to see first that somebody listens.

        Raises:
            StopRequestedError: the service is to stop.
            Exception: what `action` raises and no waiting mends.
        """
        wait_s, said_s = _AGAIN_S, _NEVER
        try:
            while not self._stopped(0):
                try:
                    if look:
                        self._look()
                    answer = action()
                except Exception as error:
                    if not is_transient(error):
                        raise
                    said_s = self._say(error, said_s)
                else:
                    if said_s != _NEVER:
                        log.info("Kafka answers")
                    return answer
                self._stopped(wait_s)
                wait_s = min(2 * wait_s, _AGAIN_S_MAX)
        finally:
            if said_s != _NEVER:
                self._note(None)
        raise StopRequestedError("told to stop while it started")

    def _look(self) -> None:
        if self._addresses is not None and not listens(self._addresses):
            what = f"Kafka does not answer: nobody listens at {self._addresses}"
            raise _NobodyListensError(what) from TimeoutError()

    def _say(self, error: Exception, said_s: float) -> float:
        """Log why it waits; return when the log was last written."""
        self._note(str(error))
        now_s = time.monotonic()
        if now_s - said_s < _SAY_S:
            return said_s
        log.warning("waiting for Kafka: %s", error)
        return now_s
