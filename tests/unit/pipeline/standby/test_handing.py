"""A planned hand-over: whom it chooses, whom it refuses, and what pause it prints."""

from __future__ import annotations

from typing import Any, cast

import pytest

from streamydb.cli.handover import _pause
from streamydb.kafka.shared_topics import SharedTopics
from streamydb.pipeline.standby import handover
from streamydb.pipeline.standby.handover import (
    HandoverResult,
    Standbys,
    TimedVerdict,
    longest_pause,
    written,
)
from streamydb.records.control import Beat, Following, Message


def says(name: str, resolved: int, *, ready: bool, **more: Any) -> Following:
    parts: dict[str, Any] = {"said_ms": 1, "lag_ms": 70_000, **more}
    return Following(
        log="l", pipeline=f"id-{name}", name=name, epoch=1, resolved=resolved, ready=ready, **parts
    )


def told(resolved: int) -> Beat:
    return Beat(log="l", pipeline="id-a", name="a", epoch=1, resolved=resolved, read=1, said_ms=1)


@pytest.mark.fault(
    42, "`handover` while the standby is cold", "refused, with how far it is and what to do"
)
def test_one_that_is_not_ready_is_refused() -> None:
    standbys = Standbys("b")
    for message in (says("b", 400, ready=False, behind=89_600), says("c", 90_000, ready=True)):
        standbys.take(message)
    assert standbys.best() is None
    refusal = standbys.refusal()
    assert "b is not ready: it has executed up to seq 400 and lacks 89,600 transactions" in refusal
    assert "some for 70 s" in refusal
    assert "hand over when `streamydb status` calls it ready" in refusal
    unknown = Standbys("")
    unknown.take(says("b", 0, ready=False))
    assert "lacks an unknown number" in unknown.refusal()
    assert Standbys("").refusal().startswith("no standby is running: start a standby")


def test_one_that_leads_already_is_not_called_missing() -> None:
    """A hand-over that was interrupted may have been done."""
    standbys = Standbys("a")
    assert standbys.refusal().startswith("no standby a is running")
    standbys.take(says("a", 500, ready=True))
    standbys.take(told(500))
    assert standbys.best() is None
    assert standbys.refusal() == "a leads already: nothing was changed"


def test_the_furthest_of_those_that_are_ready_is_asked() -> None:
    standbys = Standbys("")
    for message in (
        says("b", 700, ready=True),
        says("c", 900, ready=True),
        says("d", 950, ready=False),
    ):
        standbys.take(message)
    best = standbys.best()
    assert best is not None
    assert best.name == "c"


class Deaf:
    """The shared topics with a standby that takes over when it is asked for the second time."""

    def __init__(self) -> None:
        self.said: list[Message] = []

    def say(self, message: Message) -> None:
        self.said.append(message)

    def poll(self, _: float) -> list[Message]:
        epoch = min(len(self.said), 2)
        resolved = 5 + len(self.said)
        return [Beat(log="l", pipeline="id-b", name="b", epoch=epoch, resolved=resolved, read=1)]


def test_one_that_was_not_ready_just_then_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_ASK_S", -1.0)
    monkeypatch.setattr(handover, "_IDLE_S", 0.0)
    topics = Deaf()
    done = handover._hand_over(
        cast("SharedTopics", topics), says("b", 5, ready=True), 1, 10.0, lambda: True
    )
    assert (done.leader, done.epoch) == ("b", 2)
    assert topics.said[0] == topics.said[1]


def test_the_pause_is_the_longest_wait_for_a_new_verdict() -> None:
    assert longest_pause([], 1_000) is None
    assert longest_pause([TimedVerdict(900, 1, 800)], 1_000) is None
    steady = [TimedVerdict(1_000 + 100 * i, i, 900 + 100 * i) for i in range(1, 20)]
    assert longest_pause(steady, 1_000) == 100
    paused = [*steady, TimedVerdict(5_000, 20, 2_950), TimedVerdict(5_010, 21, 4_000)]
    assert longest_pause(paused, 1_000) == 5_000 - 2_950
    again = [*paused, TimedVerdict(4_000, 19, 2_800), TimedVerdict(4_500, 3, 1_200)]
    assert longest_pause(again, 1_000) == 5_000 - 2_950, "written again by the new leader"
    idle = [TimedVerdict(1_100, 1, 1_000), TimedVerdict(60_000, 2, 59_900)]
    assert longest_pause(idle, 1_000) == 100, "nobody waited in between"


def test_a_verdict_is_read_from_a_result() -> None:
    value = rb'{"id":"\"seq\":7,","seq":12,"ts_ms":1700000000000,"status":"committed"}'
    assert written(5, value) == TimedVerdict(5, 12, 1_700_000_000_000)
    assert written(5, b"{}") is None
    assert written(5, None) is None


def test_what_the_command_says_of_the_pause() -> None:
    done = HandoverResult("b", "id-b", 2, 10, 0.07)
    assert _pause(done) == "No verdict was written meanwhile, so nobody waited for one."
    assert "1.50 s at the longest" in _pause(HandoverResult("b", "id-b", 2, 10, 0.07, 1.5))
    assert "not known: no rights" in _pause(
        HandoverResult("b", "id-b", 2, 10, 0.07, None, "no rights")
    )


def test_gears_of_the_leader_are_no_standbys() -> None:
    """A hand-over to one of them would leave the lead in its pipeline."""
    own, other = says("own", 900, ready=True), says("b", 700, ready=True)
    for first in (own, told(500)):
        standbys = Standbys("")
        lead = Beat(log="l", pipeline="id-own+start", epoch=1, resolved=500, read=1, said_ms=1)
        for message in (first, lead, own, other):
            standbys.take(message)
        assert standbys.best() is other
    named = Standbys("own")
    for message in (lead, own):
        named.take(message)
    assert named.best() is own
