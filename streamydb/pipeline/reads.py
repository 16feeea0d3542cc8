"""The reads of the micro-batch gear: how often it looks for data, and how much it takes at once.

A look takes some milliseconds of processor time. While the real-time gear answers, nobody waits for
the other one, so it looks rarely, and reads few records at once. What a micro-batch has read that
the other gear has not executed yet, it holds back. If a backlog comes then, the gear that is to
lead is done with few records soon, and has few of them left for its first plan: with many, that
plan had twice the usual records, and the first answer of a backlog came after three times as long.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from py4j.protocol import Py4JError

__all__ = ["FEW_RECORDS", "OFTEN_S", "RARELY_S", "ReadingQuery", "Reads"]

log = logging.getLogger("streamydb.pipeline")

OFTEN_S: Final = 0.1
RARELY_S: Final = 0.75  # half of it is added to a surge of an idle log, on average
FEW_RECORDS: Final = 50_000  # of the log; the real-time gear does not lead at such a rate

Choice = TypeVar("Choice")


class ReadingQuery(Protocol):
    """A query that can be told what it reads, as `pipeline.run.RunningQuery` can."""

    def look_every(self, seconds: float) -> None: ...

    def read_at_most(self, records: int) -> None: ...


def _look_every(query: ReadingQuery, seconds: float) -> None:
    query.look_every(seconds)


def _read_at_most(query: ReadingQuery, records: int) -> None:
    query.read_at_most(records)


class _Told(Generic[Choice]):
    """A choice for a query and for those that are started after it; used by several threads.

    A choice that Spark does not take over costs processor time or a moment, and nothing else. One
    that has refused the first is not asked again; one that took it over gets the next one, too.
    """

    def __init__(
        self,
        tell: Callable[[ReadingQuery, Choice], None],
        chosen: Choice,
        *,
        is_given: bool = False,
    ) -> None:
        self._tell = tell
        self._is_given = is_given
        self._was_taken = False
        self._query: ReadingQuery | None = None
        self._chosen = chosen
        self._applying = threading.Lock()

    def follow(self, query: ReadingQuery) -> None:
        self._query = query
        self._apply()

    def choose(self, value: Choice) -> None:
        self._chosen = value
        self._apply()

    def _apply(self) -> None:
        """Tell the query the choice; the last one that is told is the newest."""
        with self._applying:
            if self._query is None or self._is_given:
                return
            try:
                self._tell(self._query, self._chosen)
                self._was_taken = True
            except (Py4JError, OSError, AttributeError, TypeError) as error:
                why = (str(error) or type(error).__name__).splitlines()[0]
                log.warning("Spark reads as often and as much as before: %s", why)
                self._is_given = not self._was_taken


class Reads:
    """The choices for the query of the micro-batch gear; used by several threads."""

    def __init__(self, records_max: int, *, is_given: bool = False) -> None:
        """``records_max``: of the log, that a micro-batch reads. ``is_given``: the user has said
        how often it looks, and nobody changes that.
        """
        self._records_max = records_max
        self._every = _Told(_look_every, OFTEN_S, is_given=is_given)
        self._limit = _Told(_read_at_most, records_max)

    def follow(self, query: ReadingQuery) -> None:
        """Choose for a query that has been started; it reads as much as it can at first."""
        self._every.follow(query)
        self._limit.follow(query)

    def often(self) -> None:
        """Have the query look often: it is to answer, or soon."""
        self._every.choose(OFTEN_S)

    def rarely(self) -> None:
        """Have the query look rarely: another one answers."""
        self._every.choose(RARELY_S)

    def many(self) -> None:
        """Have the query read as many records at once as it may: it answers."""
        self._limit.choose(self._records_max)

    def few(self) -> None:
        """Have the query read few records at once: another one answers."""
        self._limit.choose(min(FEW_RECORDS, self._records_max))
