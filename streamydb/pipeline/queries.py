"""The query of a run, started again when it lacks rulings on what it is to execute."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from pyspark.sql.streaming.query import StreamingQuery

from streamydb.pipeline.failures import failure_of
from streamydb.pipeline.ruling import Desk

__all__ = ["Queries"]

log = logging.getLogger("streamydb.pipeline")


class _Member(Protocol):
    """What the coordinator tells (see `standby.coordinator`)."""

    @property
    def epoch(self) -> int: ...

    @property
    def leads(self) -> bool: ...

    stale: bool


class Queries:
    """One query after another, on one checkpoint.

    Args:
        start: starts one, with all rulings there are.
        member: this pipeline's part among the others.
        desk: decides what becomes of one that has failed.

    Attributes:
        query: the one that runs, or ran last.

    """

    def __init__(
        self, start: Callable[[], StreamingQuery], member: _Member, desk: Desk
    ) -> None:
        """Start the first one."""
        self._start = start
        self._member = member
        self._desk = desk
        self._starting = False
        self.query = start()

    def is_alive(self) -> bool:
        """Whether one runs, or is being started; asks the JVM."""
        return self._starting or bool(self.query.isActive)

    def keep_up(self) -> bool:
        """Start the query again if that helps; False: it has ended, and it does not.

        Raises:
            StreamyError: it cannot go on; the message says why.

        """
        active = bool(self.query.isActive)
        if active and not self._member.stale:
            return True
        self._starting = True
        try:
            if active:
                log.info("starting the query again: there are new rulings on faults of ours")
                self.query.stop()
            elif not self._may_repeat():
                return False
            self.query = self._start()
        finally:
            self._starting = False
        return True

    def _may_repeat(self) -> bool:
        member = self._member
        return self._desk.may_repeat(failure_of(self.query), member.epoch, leads=member.leads)
