"""Who is ready, and who leads when the leader is gone: pipelines of one log, without Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from streamydb.pipeline.standby.core import ElectionMember
from streamydb.pipeline.standby.position import SendMessage, Times
from streamydb.records.control import Beat, Following, Handover, LeaderClaim
from tests.support.room import Room


def level(room: Room, *names: str) -> None:
    """Let all have executed what there is, and know it."""
    for name in names:
        room.reach(name, 100)
    room.pass_ms(1_500)


def shown(room: Room) -> tuple[int | None, bool]:
    """How far behind b is, and whether it is ready."""
    return room.members["b"].behind, room.members["b"].is_ready(room.now)


@pytest.mark.fault(
    42, "one that has executed nothing, of a log with a thousand transactions and of an empty one",
    "not ready from its first moment on; ready when its own batches say so",
)  # fmt: skip
def test_one_that_has_executed_nothing_is_not_ready() -> None:
    room = Room(a=False, b=True)
    room.begin("a")
    room.reach("a", 1_000)
    room.begin("b")
    b = room.members["b"]
    for _ in range(200):
        assert not b.is_ready(room.now)
        room.pass_ms(50)
    assert shown(room) == (None, False)
    room.do("b", b.progress(0, 0, room.now, known=False))
    assert shown(room) == (None, False)
    room.reach("b", 400)
    assert shown(room) == (600, False)
    room.reach("b", 1_000)
    assert shown(room) == (0, True)
    empty = Room(a=False, b=True)
    empty.begin("a", "b")
    empty.reach("a", 0)
    empty.pass_ms(500)
    assert not empty.members["b"].is_ready(empty.now)
    empty.reach("b", 0)
    assert empty.members["b"].is_ready(empty.now)


@pytest.mark.fault(42, "the leader has begun anew and does not know yet how far it is", "not ready")
def test_a_leader_that_does_not_know_how_far_it_is_makes_nobody_ready() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.reach("b", 0)
    room.do("a", room.members["a"].progress(0, 50, room.now, known=False))
    room.pass_ms(3_000)
    assert not room.members["b"].is_ready(room.now)


@pytest.mark.fault(42, "a standby that does not hear itself, or led just now", "not ready")
def test_one_that_does_not_know_what_is_told_is_not_ready() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    level(room, "a", "b")
    b = room.members["b"]
    assert b.is_ready(room.now)
    room.down.add("b")
    room.pass_ms(Times().fresh + 1_000)
    room.reach("a", 900)
    assert not b.is_ready(room.now), "it has not listened"
    room.down.clear()
    room.pass_ms(2_000)
    assert not b.is_ready(room.now), "it has heard of 900"
    room.reach("b", 900)
    assert b.is_ready(room.now)
    a = room.members["a"]
    room.do("a", a.hear(LeaderClaim(log="log", pipeline="id-b", name="b", epoch=2), room.now))
    assert (a.role, a.is_ready(room.now)) == ("following", False)


@pytest.mark.fault(
    42, "the leader dies beside one that is cold and one that is level",
    "the level one leads, within two seconds",
)  # fmt: skip
@pytest.mark.parametrize("cold", ["b", "c"])
def test_the_one_that_is_level_leads(cold: str) -> None:
    room = Room(a=False, b=True, c=True)
    other = "c" if cold == "b" else "b"
    room.begin("a", "b", "c")
    level(room, "a", other)
    room.do(cold, room.members[cold].progress(0, 100, room.now))
    room.down.add("a")
    room.pass_ms(2_000)
    assert room.leaders() == ["a", other]
    room.pass_ms(60_000)
    assert room.leaders() == ["a", other]
    assert sum(isinstance(message, LeaderClaim) for message in room.said) == 2


def test_of_two_that_are_ready_the_one_that_is_further_leads() -> None:
    for further in ("b", "c"):
        room = Room(a=False, b=True, c=True)
        room.begin("a", "b", "c")
        level(room, "a", "b", "c")
        room.reach("a", 200)
        room.reach(further, 200)
        room.down.add("a")
        room.pass_ms(2_000)
        assert room.leaders() == ["a", further]


def test_one_that_is_not_ready_claims_when_nobody_else_does() -> None:
    room = Room(a=False, b=True, c=True)
    room.begin("a", "b", "c")
    room.reach("a", 1_000)
    room.pass_ms(1_000)
    room.reach("b", 100)
    room.reach("c", 300)
    room.down.add("a")
    room.pass_ms(Times().alone - 1_000)
    assert room.leaders() == ["a"]
    room.pass_ms(3_000)
    assert room.leaders() == ["a", "c"], "the further one of the two"


def test_one_that_is_further_but_never_claims_is_not_waited_for_for_ever() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    level(room, "a", "b")
    room.down.add("a")
    mute = Following(
        log="log", pipeline="id-x", name="x", epoch=1, resolved=500, lag_ms=0, ready=True
    )
    waited = 0
    while room.members["b"].role != "leading":
        room.do("b", room.members["b"].hear(mute, room.now))
        room.pass_ms(500)
        waited += 500
        assert waited < Times().defer + 5_000
    assert waited > Times().defer


def test_a_leader_that_lacks_what_was_resolved_is_relieved() -> None:
    """Its checkpoint is an old copy: it claims at its start, and would be long in executing."""
    room = Room(a=False, b=True)
    room.begin("a", "b")
    level(room, "a", "b")
    again = ElectionMember("log", "id-a", "a", standby=False)
    for message in room.said:
        again.replay(message)
    room.members["a"] = again
    room.begin("a")
    room.reach("a", 7)
    assert room.leaders() == ["a"]
    room.pass_ms(Times().behind - 1_000)
    assert room.leaders() == ["a"]
    room.pass_ms(3_000)
    assert room.leaders() == ["b"]


def test_a_standby_that_led_last_leads_again_after_a_restart_of_all() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    level(room, "a", "b")
    room.do("b", room.members["b"].hear(Handover(log="log", pipeline=""), room.now))
    assert room.members["b"].role == "leading"
    again = ElectionMember("log", "id-b", "b", standby=True)
    for message in room.said:
        again.replay(message)
    said = [action.message for action in again.begin(0) if isinstance(action, SendMessage)]
    assert [type(message) for message in said] == [LeaderClaim]


@pytest.mark.fault(42, "two with older states, one of which led, and was relieved", "not ready")
def test_what_was_told_once_counts_whoever_leads() -> None:
    """Both have lost what they had: the leader's first word is not all that was resolved."""
    member = ElectionMember("log", "id-a", "a", standby=False)
    place: dict[str, Any] = {"log": "log", "pipeline": "id-b", "name": "b"}
    member.replay(Beat(**place, epoch=1, resolved=700, read=1, executed=700, said_ms=1))
    member.replay(LeaderClaim(log="log", pipeline="id-a", name="a", epoch=2))
    (claim,) = member.begin(0)
    assert isinstance(claim, SendMessage)
    for action in member.hear(claim.message, 10):
        if isinstance(action, SendMessage):
            member.hear(action.message, 20)
    assert (member.role, member.covered) == ("leading", 0)
    member.progress(300, 1, 30)
    for action in member.hear(LeaderClaim(**place, epoch=4, said_ms=2), 40):
        if isinstance(action, SendMessage):
            member.hear(action.message, 50)
    member.hear(Beat(**place, epoch=4, resolved=30, read=1, executed=30, said_ms=3), 60)
    assert (member.behind, member.is_ready(70)) == (400, False)


class Restarted:
    """One that led once, and starts beside a leader; its messages come back unless it is cut."""

    def __init__(self) -> None:
        """It has listened for as long as it must, and has last heard itself a moment ago."""
        self.now, self.cut = 0, False
        self.claims = 0
        self.member = ElectionMember("log", "id-a", "a", standby=False)
        self.beat = Beat(log="log", pipeline="id-b", name="b", epoch=9, resolved=60, read=1)
        self.member.replay(self.beat)
        self.said = self.member.begin(0)

    def pass_ms(self, ms: int) -> None:
        """Hear what it said at the tick before, and tick."""
        for _ in range(ms // 100):
            self.now += 100
            for action in self.said:
                if isinstance(action, SendMessage):
                    self.claims += isinstance(action.message, LeaderClaim)
                    if not self.cut:
                        self.member.hear(action.message, self.now)
            self.said = self.member.tick(self.now)


def test_one_that_starts_behind_a_cut_link_does_not_claim() -> None:
    """It hears no beat, and does not hear itself, either."""
    room = Restarted()
    room.pass_ms(500)
    room.cut = True
    room.pass_ms(10_000)
    assert (room.member.role, room.claims) == ("starting", 0)
    room.cut = False
    room.pass_ms(3_000)
    assert (room.member.role, room.claims) == ("leading", 1)


def test_one_whose_claim_is_lost_does_not_claim_beside_a_leader() -> None:
    room = Restarted()
    room.pass_ms(Times().start + 100)
    room.cut = True
    room.pass_ms(200)
    assert (room.member.role, room.claims) == ("claiming", 1)
    room.cut = False
    for _ in range(10):
        room.member.hear(room.beat, room.now)
        room.pass_ms(500)
    assert (room.member.role, room.claims) == ("following", 1)


def test_one_whose_claim_is_lost_claims_again_in_silence() -> None:
    room = Restarted()
    room.pass_ms(Times().start + 100)
    room.cut = True
    room.pass_ms(200)
    room.cut = False
    room.pass_ms(5_000)
    assert (room.member.role, room.claims) == ("leading", 2)


def test_one_that_is_further_and_wants_the_lead_may_wait_for_another_one_first() -> None:
    """It began to wait later: who is behind it does not claim while it waits."""
    room = Room(a=False, b=True)
    room.begin("a", "b")
    level(room, "a", "b")
    room.down.add("a")
    further = Following(
        log="log",
        pipeline="id-x",
        name="x",
        epoch=1,
        resolved=500,
        lag_ms=0,
        ready=True,
        wants=True,
    )
    waited = 0
    while room.members["b"].role != "leading":
        room.do("b", room.members["b"].hear(further, room.now))
        room.pass_ms(500)
        waited += 500
        assert waited < 2 * Times().defer + 5_000
    assert waited > 2 * Times().defer
