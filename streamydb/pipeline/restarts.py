"""Start the query of a run again when it lacks rulings on records that it is to execute."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from streamydb.pipeline.desk import Desk
from streamydb.pipeline.failures import failure_of
from streamydb.pipeline.run import RunningQuery

log = logging.getLogger("streamydb.pipeline")


class _Member(Protocol):
    """The answers of the coordinator (see `pipeline.standby.coordinator`)."""

    stale: bool

    @property
    def epoch(self) -> int:
        """The epoch in which this pipeline leads."""

    @property
    def settled(self) -> bool:
        """True if no other pipeline may still write results."""

    @property
    def leads(self) -> bool:
        """True if this pipeline leads."""


class RestartedQuery:
    """One query after another, on one checkpoint.

    `begin` starts the first one.

    Args:
        start: starts one, with all rulings there are; is told how many queries there were before.
        member: this pipeline's part among the others.
        desk: decides what becomes of one that has failed.

    Attributes:
        running: the one that runs, or ran last.

    """

    def __init__(self, start: Callable[[int], RunningQuery], member: _Member, desk: Desk) -> None:
        self._start = start
        self._member = member
        self._desk = desk
        self._starting = True
        self._number = 0
        self.running: RunningQuery

    def begin(self) -> None:
        """Start the first one."""
        self.running = self._start(0)
        self._starting = False

    def beats(self) -> bool:
        """Return True if one runs, or is being started; asks the JVM."""
        return self._starting or self.running.beats()

    def keep_up(self) -> bool:
        """Start the query again if that helps; False: it has ended, and it does not.

        May be called again when Kafka did not answer.

        Raises:
            StreamyError: it cannot go on; the message says why.

        """
        if not self._starting:
            active = self.running.active
            if active and not self._member.stale:
                return True
            if active:
                log.info("starting the query again: there are new rulings on faults of ours")
                self.running.give_up()
            elif not self._may_repeat():
                return False
            self._starting = True
        self._number += 1
        self.running = self._start(self._number)
        self._starting = False
        return True

    def _may_repeat(self) -> bool:
        member, query = self._member, self.running.query
        return self._desk.may_repeat(
            failure_of(query), member.epoch, leads=member.leads, settled=member.settled
        )
