"""The lead of a pipeline's gears: when one of them is asked to take it (pure).

The real-time gear joins the election as a member that follows (`standby.core`). A request in the
control topic hands it the lead, and another request hands the lead back:

- Before a real-time gear runs, the micro-batch gear leads.
- It *follows* until the log is calm; then it is asked to lead, again and again until it does.
- It *leads* until `Shifting` wants the other gear, or Spark is about to end its batch; then it is
  *leaving*: the micro-batch gear is asked, again and again until it leads.
- When it has lost the lead it *writes on* until the gear that leads has written something, because
  that one needs some micro-batches. Then it ends. One that was too slow ends at once.
- As it ends, whatever the reason, the micro-batch gear is asked if the real-time gear leads.

While another pipeline leads, nobody is asked: the gears of two pipelines would take the lead from
each other in turn. That pipeline has a real-time gear of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from streamydb.pipeline.realtime.shifting import Shifting
from streamydb.records.gears import MICRO_BATCH, REAL_TIME

__all__ = ["ENDED", "FAULT", "LOAD", "Decision", "GearLead", "GearRoles"]

FAULT: Final = "fault"
"""Why a gear ended that was not to end; any other reason is a decision."""

ENDED: Final = "ended"
"""Why a gear ended whose batch Spark has ended, or is about to end."""

LOAD: Final = "load"
"""Why a gear ended for which the log is too fast, or which is stuck."""

_Stage: TypeAlias = Literal["following", "leading", "leaving", "writing on"]

_ASK_MS: Final = 200
_LED_MS: Final = 10_000
"""A gear that ends by a fault after it has led for so long has not failed."""

_READS_UP_MS: Final = 10_000
"""So long one that has begun may take to read what has come since its base."""

_AT_ONCE_MS: Final = 30_000
"""A start of the pipeline is over after so long."""

_REPLACED: Final = "the real-time gear was replaced: a hand-over, or it was not heard"
_EXPIRES: Final = "Spark is about to end the batch of the real-time gear"


@dataclass(frozen=True, slots=True)
class GearRoles:
    """The gears of a pipeline at one moment, as each knows its role.

    For a moment both may believe that they lead, or none.

    ``now_ms``: of a clock that never goes back. ``micro_batch``, ``real_time``: it leads.
    ``ready``: the real-time gear could take over at once. ``writes_on``: it led a moment ago, and
    the leader has not written yet. ``expires``: Spark is about to end its batch.
    """

    now_ms: int
    micro_batch: bool
    real_time: bool = False
    ready: bool = False
    writes_on: bool = False
    expires: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The next thing to do.

    ``ask``: the gear that is to be asked for; None: none. ``led``: the real-time gear has just
    begun to lead. ``leave``: it has just begun to leave. ``ends``: the real-time gear is to end.
    ``counts``: as a word for metrics, why it has just lost the lead; None: it has not. ``why``: for
    people.
    """

    ask: str | None = None
    led: bool = False
    leave: bool = False
    ends: bool = False
    counts: str | None = None
    why: str = ""


_NOTHING: Final = Decision()


class GearLead:
    """Decides for the gears of one pipeline.

    ``shifting``: is told each shift, and knows the rate of the log.

    Attributes:
        stage: of the real-time gear.
    """

    def __init__(self, shifting: Shifting) -> None:
        self._shifting = shifting
        self._at_once_ms: int | None = None
        self._asked_ms: int | None = None
        self.begin(0)

    def may_begin_at_once(self, now_ms: int, *, leads: bool) -> bool:
        """Return True if a gear may begin as the pipeline starts, on the base of an earlier run.

        ``leads``: the micro-batch gear of this pipeline leads. If another pipeline does, there is
        nothing to hurry for.
        """
        if not leads or not self._shifting.may_begin_at_once():
            return False
        self._at_once_ms = now_ms
        return True

    def begin(self, now_ms: int) -> None:
        """A real-time gear begins, and follows."""
        self.stage: _Stage = "following"
        self._led_ms: int | None = None
        self._began_ms = now_ms
        self._why, self._counts = _REPLACED, "replaced"

    def decide(self, roles: GearRoles) -> Decision:
        """Decide what is due; to be called some times in a second while a gear runs."""
        if self.stage == "following":
            return self._follow(roles)
        if self.stage == "writing on":
            return Decision(ends=self._is_done(roles))
        if not roles.real_time:
            return self._lose(roles)
        leave = self.stage == "leading" and self._leaves(roles)
        if self.stage == "leading":
            return _NOTHING
        return Decision(self._ask(MICRO_BATCH, roles), leave=leave, why=self._why)

    def _leaves(self, roles: GearRoles) -> bool:
        """Begin to leave if there is a reason for it; return True if there is."""
        slow = self._shifting.wants_down(roles.now_ms)
        if slow is None and not roles.expires:
            return False
        self.stage = "leaving"
        self._why, self._counts = (_EXPIRES, ENDED) if slow is None else (slow, LOAD)
        return True

    def _lose(self, roles: GearRoles) -> Decision:
        """Note that the lead is lost, to the micro-batch gear or to another pipeline."""
        self.stage = "writing on"
        self._shifting.shifted(roles.now_ms, up=False)
        return Decision(ends=self._is_done(roles), counts=self._counts, why=self._why)

    def _is_done(self, roles: GearRoles) -> bool:
        """Return True if one that has lost the lead is not to write any more.

        One that is too slow would only take processor time from the other gear.
        """
        return self._counts == LOAD or not roles.writes_on

    def _follow(self, roles: GearRoles) -> Decision:
        """Have the gear lead while the log is calm; end it if the log is too fast for that."""
        now_ms, shifting = roles.now_ms, self._shifting
        if roles.real_time:
            self.stage, self._at_once_ms, self._led_ms = "leading", None, now_ms
            shifting.shifted(now_ms, up=True)
            return Decision(led=True, why="the log is calm")
        if roles.expires:
            return Decision(ends=True)
        at_once = self._at_once_ms is not None and now_ms - self._at_once_ms < _AT_ONCE_MS
        reads_up = now_ms - self._began_ms < _READS_UP_MS and not shifting.is_fast()
        if not at_once and not reads_up and shifting.wants_down(now_ms):
            return Decision(ends=True)
        wanted = roles.ready and shifting.is_level() if at_once else shifting.is_calm()
        return Decision(self._ask(REAL_TIME, roles)) if wanted else _NOTHING

    def _ask(self, gear: str, roles: GearRoles) -> str | None:
        """Return the gear that is to be asked for; None while another pipeline leads, or if one was
        asked for a moment ago.
        """
        asked_ms = self._asked_ms
        if asked_ms is not None and roles.now_ms - asked_ms < _ASK_MS:
            return None
        if not roles.micro_batch and not roles.real_time:
            return None
        self._asked_ms = roles.now_ms
        return gear

    def fail(self, reason: str, now_ms: int) -> bool:
        """The gear has ended of itself; return True if it failed before it had led for long."""
        if self.stage == "writing on":
            return False  # it was about to end
        if reason != FAULT or self._led_ms is not None:
            self._shifting.shifted(now_ms, up=False)
        if reason != FAULT:
            return False  # it has left a record to the other gear, as it should
        return self._led_ms is None or now_ms - self._led_ms < _LED_MS

    def give_back(self, roles: GearRoles) -> str | None:
        """The gear is about to end; return the gear that is to be asked for, or None."""
        self._asked_ms = self._at_once_ms = None
        return None if roles.micro_batch else self._ask(MICRO_BATCH, roles)
