"""The micro-batch gear looks for data often or rarely while it has none.

A look takes some milliseconds of processor time. While the real-time gear answers, nobody waits for
the other one, so it looks rarely. When the micro-batch gear is to answer, it looks often.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, Protocol

from py4j.protocol import Py4JError

__all__ = ["OFTEN_S", "RARELY_S", "LookingQuery", "Looks"]

log = logging.getLogger("streamydb.pipeline")

OFTEN_S: Final = 0.1
RARELY_S: Final = 0.75  # half of it is added to a surge of an idle log, on average


class LookingQuery(Protocol):
    """A query that can be told how often it looks, as `pipeline.run.RunningQuery` can."""

    def look_every(self, seconds: float) -> None: ...


class Looks:
    """The choice for a query and for those that are started after it; used by several threads.

    A choice that Spark does not take over costs processor time or a moment, and nothing else.
    """

    def __init__(self, *, is_given: bool = False) -> None:
        """``is_given``: the user has said how often, and nobody changes that."""
        self._is_given = is_given
        self._query: LookingQuery | None = None
        self._chosen_s = OFTEN_S
        self._applying = threading.Lock()

    def follow(self, query: LookingQuery) -> None:
        """Choose for a query that has been started."""
        self._query = query
        self._apply()

    def often(self) -> None:
        """Have the query look often: it is to answer, or soon."""
        self._choose(OFTEN_S)

    def rarely(self) -> None:
        """Have the query look rarely: another one answers."""
        self._choose(RARELY_S)

    def _choose(self, seconds: float) -> None:
        self._chosen_s = seconds
        self._apply()

    def _apply(self) -> None:
        """Tell the query the choice; the last one that is told is the newest."""
        with self._applying:
            if self._query is None or self._is_given:
                return
            try:
                self._query.look_every(self._chosen_s)
            except (Py4JError, OSError, AttributeError, TypeError) as error:
                why = (str(error) or type(error).__name__).splitlines()[0]
                log.warning("Spark looks for data as often as before: %s", why)
                self._is_given = True
