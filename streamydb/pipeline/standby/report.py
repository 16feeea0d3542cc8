"""The state of a standby for people, told when it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from streamydb.pipeline.standby.core import Member

log = logging.getLogger("streamydb.standby")

_SHOWN_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class StandbyReport:
    """The state of a standby, for people."""

    role: str
    epoch: int
    leader: str
    ready: bool
    lag_ms: int
    behind: int | None
    alarm: str | None


class StandbyReporter:
    """Tells of a member when something has changed; of how far it is behind, once a second.

    Args:
        member: the pipeline's part.
        show: is told.
    """

    def __init__(self, member: Member, show: Callable[[StandbyReport], None]) -> None:
        self._member = member
        self._show = show
        self._shown: StandbyReport | None = None
        self._due_ms = 0

    def tell(self, alarm: str | None, now_ms: int) -> None:
        """Tell how the member is; ``alarm``: a difference of digests."""
        member = self._member
        lag_ms, behind = member.lag_ms(now_ms) // 1000 * 1000, member.behind
        view = StandbyReport(
            member.role,
            member.epoch,
            member.leader.name or member.leader.pipeline,
            member.is_ready(now_ms),
            lag_ms,
            behind,
            alarm,
        )
        if view == self._shown or (now_ms < self._due_ms and self._is_alike(view)):
            return
        self._due_ms = now_ms + _SHOWN_MS
        if self._shown is None or view.role != self._shown.role:
            log.info("%s, epoch %d, covered %d", member.role, member.epoch, member.covered)
        self._shown = view
        self._show(view)

    def _is_alike(self, view: StandbyReport) -> bool:
        """Return True if nothing but how far behind it is has changed; that changes with every
        batch.
        """
        shown = self._shown
        return shown is not None and replace(view, behind=shown.behind) == shown
