"""The part of one pipeline among several: elections, silence, readiness, roles, without Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from streamydb.key_processor.digest import Digest
from streamydb.pipeline.blocks import open_block
from streamydb.pipeline.ruling import RulingTopic
from streamydb.pipeline.shard import ShardConfig
from streamydb.standby.agreement import Difference
from streamydb.standby.coordinator import Coordinator, Position, View
from streamydb.standby.core import Action, Member, Play, Say, Times
from streamydb.standby.kafka import SharedTopics
from streamydb.standby.messages import (
    Audited,
    Beat,
    Claim,
    Following,
    Handover,
    Message,
    decode_message,
    encode_message,
)
from streamydb.txn_processor.rulings import Fault, Rulings


class Room:
    """Pipelines that hear each other at once, and a clock."""

    def __init__(self, **standby: bool) -> None:
        """Members by name; True: as a standby."""
        self.now = 0
        self.said: list[Message] = []
        self.roles: dict[str, list[Play]] = {name: [] for name in standby}
        self.members = {
            name: Member("log", f"id-{name}", name, standby=wanted)
            for name, wanted in standby.items()
        }
        self.down: set[str] = set()

    def begin(self, *names: str) -> None:
        for name in names:
            self.do(name, self.members[name].begin(self.now))

    def do(self, name: str, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Play):
                self.roles[name].append(action)
            elif isinstance(action, Say):
                self.said.append(action.message)
                for other, member in self.members.items():
                    if (other not in self.down and member.role != "starting") or other == name:
                        self.do(other, member.hear(action.message, self.now))

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms // 50):
            self.now += 50
            for name, member in self.members.items():
                if name not in self.down:
                    self.do(name, member.tick(self.now))

    def reach(self, name: str, resolved: int) -> None:
        self.do(name, self.members[name].progress(resolved, resolved, self.now))

    def leaders(self) -> list[str]:
        return [name for name, member in self.members.items() if member.role == "leading"]


def test_the_first_one_leads_at_once_and_says_nothing_while_alone() -> None:
    room = Room(a=False)
    room.begin("a")
    assert room.roles["a"] == [Play(leads=True, covered=0)]
    said = len(room.said)
    room.pass_ms(60_000)
    assert len(room.said) == said


def test_a_standby_follows_and_takes_over_in_silence() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.reach("a", 10)
    assert room.roles["b"][-1] == Play(leads=False, covered=10)
    room.reach("b", 10)
    room.pass_ms(30_000)
    assert room.leaders() == ["a"]
    room.down.add("a")
    room.pass_ms(Times().silence)
    assert room.leaders() == ["a"]
    room.pass_ms(100)
    assert room.members["b"].role == "leading"
    assert room.roles["b"][-1] == Play(leads=True, covered=10)


def overtaken_for(ms: int) -> Room:
    """A room where the first one was gone for so long, and the other one went on."""
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.reach("a", 5)
    room.reach("b", 5)
    room.down.add("a")
    room.pass_ms(ms)
    room.reach("b", 9)
    room.down.clear()
    return room


def test_one_that_was_overtaken_stands_down() -> None:
    room = overtaken_for(2_000)
    room.pass_ms(3_000)
    assert room.leaders() == ["b"]
    assert room.roles["a"][-1] == Play(leads=False, covered=9)


def test_one_that_slept_for_long_follows_and_does_not_claim() -> None:
    """The other one leads alone meanwhile, so it does not beat before it hears of a follower."""
    room = overtaken_for(60_000)
    claims = sum(isinstance(message, Claim) for message in room.said)
    room.reach("a", 6)  # which it tells before it listens
    room.do("a", room.members["a"].tick(room.now))
    room.now += 30  # so that what is due is due at once
    room.pass_ms(60_000)
    assert room.leaders() == ["b"]
    assert room.roles["a"][-1] == Play(leads=False, covered=9)
    assert sum(isinstance(message, Claim) for message in room.said) == claims


def test_one_that_slept_for_long_and_beats_is_heard() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.down.add("a")
    room.pass_ms(60_000)
    late = Beat(log="log", pipeline="id-a", name="a", epoch=1, resolved=0, read=0)
    room.do("b", room.members["b"].hear(late, room.now))
    assert room.members["b"].followed


def test_one_that_did_not_listen_blames_nobody() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.pass_ms(2_000)
    room.now += 60_000
    room.do("b", room.members["b"].tick(room.now))
    assert room.leaders() == ["a"]
    room.pass_ms(5_000)
    assert room.leaders() == ["a"]


def test_one_that_is_behind_does_not_take_over_before_it_has_caught_up() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.reach("a", 1000)
    room.pass_ms(6_000)
    assert not room.members["b"].is_ready(room.now)
    room.down.add("a")
    room.pass_ms(10_000)
    assert room.leaders() == ["a"]
    room.reach("b", 1000)
    room.pass_ms(100)
    assert room.leaders() == ["a", "b"]


def test_of_two_that_claim_the_first_in_the_topic_leads() -> None:
    room = Room(a=False, b=True, c=True)
    room.begin("a", "b", "c")
    for name in ("a", "b", "c"):
        room.reach(name, 0)
    room.pass_ms(1_000)
    room.down.add("a")
    room.pass_ms(3_000)
    assert sorted(room.leaders()) in (["a", "b"], ["a", "c"])
    late = Claim(log="log", pipeline="id-c", name="c", epoch=2)
    leader = next(name for name in room.leaders() if name != "a")
    assert room.members[leader].epoch == 2
    assert room.members["b"].hear(late, room.now) == []


def test_a_leader_that_beats_but_does_not_read_is_overtaken() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.do("a", room.members["a"].progress(5, 100, room.now))
    room.do("b", room.members["b"].progress(5, 200, room.now))
    room.pass_ms(Times().stall - 1_000)
    assert room.leaders() == ["a"]
    room.pass_ms(2_000)
    assert room.leaders() == ["b"]


def test_a_handover_moves_the_lead_and_only_to_one_that_is_ready() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.reach("a", 7)
    room.reach("b", 7)
    room.pass_ms(1_000)
    for name in ("a", "b"):
        room.do(name, room.members[name].hear(Handover(log="log", pipeline="", to="x"), room.now))
    assert room.leaders() == ["a"]
    for name in ("a", "b"):
        room.do(name, room.members[name].hear(Handover(log="log", pipeline=""), room.now))
    assert room.leaders() == ["b"]
    assert room.roles["a"][-1] == Play(leads=False, covered=7)
    assert room.roles["b"][-1] == Play(leads=True, covered=7)


def test_a_restart_leads_again_unless_another_has_taken_over() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.pass_ms(1_000)
    again = Member("log", "id-a", "a", standby=False)
    for message in room.said:
        again.replay(message)
    assert any(isinstance(a, Say) and isinstance(a.message, Claim) for a in again.begin(room.now))
    overtaken = Member("log", "id-a", "a", standby=False)
    overtaken.replay(Beat(log="log", pipeline="id-b", name="b", epoch=9, resolved=50, read=1))
    said = overtaken.begin(0)
    assert [type(action.message) for action in said if isinstance(action, Say)] == [Following]
    beat = Beat(log="log", pipeline="id-b", name="b", epoch=9, resolved=60, read=1)
    following = Following(
        log="log", pipeline="id-a", name="a", epoch=9, resolved=0, lag_ms=100, ready=False,
        said_ms=100,
    )
    assert overtaken.hear(beat, 100) == [Play(leads=False, covered=60), Say(following)]
    alone = Member("log", "id-a", "a", standby=False)
    alone.replay(beat)
    said = alone.begin(0)
    for now in range(100, Times().start + 100, 100):
        for action in said:
            assert isinstance(action, Say)
            assert alone.hear(action.message, now) == []
        said = alone.tick(now)
        assert not any(isinstance(a, Say) and isinstance(a.message, Claim) for a in said)
    claims = [action.message for action in alone.tick(2_200) if isinstance(action, Say)]
    assert [type(claim) for claim in claims] == [Claim]
    assert alone.hear(claims[0], 2_250)[0] == Play(leads=True, covered=0)


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
    room.do("a", a.hear(Claim(log="log", pipeline="id-b", name="b", epoch=2), room.now))
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
    assert sum(isinstance(message, Claim) for message in room.said) == 2


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
    again = Member("log", "id-a", "a", standby=False)
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
    again = Member("log", "id-b", "b", standby=True)
    for message in room.said:
        again.replay(message)
    said = [action.message for action in again.begin(0) if isinstance(action, Say)]
    assert [type(message) for message in said] == [Claim]


def test_messages_of_the_earlier_release_are_understood() -> None:
    place = b'"log":"l","pipeline":"p","name":"n","terms":"t","format":1'
    beat = decode_message(b'{"kind":"beat",%b,"epoch":2,"resolved":7,"read":9}' % place)
    assert isinstance(beat, Beat)
    assert (beat.executed, beat.said_ms) == (-1, 0)
    member = Member("l", "me", "", standby=True)
    said = member.begin(0)
    member.hear(said[1].message if isinstance(said[1], Say) else beat, 10)
    member.hear(beat, 20)
    member.progress(7, 9, 30)
    assert member.is_ready(40)


def test_a_leader_whose_shards_do_nothing_reminds_them() -> None:
    """An old role record that comes once more has told them to follow (FAULTS 11)."""
    room = Room(a=False)
    room.begin("a")
    room.reach("a", 7)
    room.pass_ms(60_000)
    (first,) = room.roles["a"]
    for read in (8, 20, 30):
        room.do("a", room.members["a"].progress(7, read, room.now))
        room.pass_ms(2_000)
    assert room.roles["a"] == [first, Play(leads=True, covered=7)]
    room.pass_ms(5_000)
    assert room.roles["a"][-2:] == [Play(leads=True, covered=7)] * 2
    room.do("a", room.members["a"].progress(30, 30, room.now))
    room.pass_ms(60_000)
    assert len(room.roles["a"]) == 3


def test_a_standby_without_any_leader_ever_waits() -> None:
    room = Room(b=True)
    room.begin("b")
    room.pass_ms(60_000)
    assert room.members["b"].role == "following"


def test_another_log_is_not_believed() -> None:
    member = Member("log", "id-a", "a", standby=True)
    member.begin(0)
    beat = Beat(log="older", pipeline="id-b", name="b", epoch=9, resolved=60, read=1)
    member.replay(beat)
    assert member.hear(beat, 0) == []
    assert (member.covered, member.epoch) == (0, 0)


def test_terms_are_what_changes_verdicts_or_digests() -> None:
    terms = ShardConfig("bank", "a", 1, 1, 100).terms
    assert ShardConfig("bank", "b", 1, 1, 100, "single", name="standby").terms == terms
    for other in (
        ShardConfig("bank", "a", 2, 1, 100), ShardConfig("bank", "a", 1, 2, 100),
        ShardConfig("bank", "a", 1, 1, 101), ShardConfig("bank", "a", 1, 1, 100, constraints=True),
        ShardConfig("bank", "a", 1, 1, 100, digest_interval=1_000),
    ):  # fmt: skip
        assert other.terms != terms, other


def test_one_with_other_terms_cannot_stand_beside_the_leader() -> None:
    member = Member("log", "me", "", standby=True, terms="shards=1 id_window=5")
    member.begin(0)
    place: dict[str, Any] = {"log": "log", "pipeline": "you"}
    beat = Beat(**place, epoch=1, resolved=1, read=1, terms="shards=1 id_window=6")
    assert member.disagreement(beat) is None, "it does not lead yet"
    member.hear(beat, 0)
    assert "leads with shards=1 id_window=6, this one has" in str(member.disagreement(beat))
    same = Beat(**place, epoch=1, resolved=1, read=1, terms="shards=1 id_window=5")
    assert member.disagreement(same) is None


def test_messages_are_read_as_they_were_written() -> None:
    for message in (
        Claim(log="l", pipeline="p", name="n", epoch=3),
        Beat(log="l", pipeline="p", epoch=3, resolved=2**60, read=4),
        Following(log="l", pipeline="p", epoch=1, resolved=1, lag_ms=2, ready=True),
        Handover(log="l", pipeline="", to="x"),
    ):
        assert decode_message(encode_message(message)) == message


class Wire:
    """Stands for the shared topics: what is told and said, and digests that come."""

    silent = False

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self.said: list[Message] = []
        self.digests: list[tuple[bytes, bytes]] = []
        self.coming: list[Message] = []

    def ends(self) -> tuple[int, int]:
        return 0, 0

    def position(self) -> int:
        return 0

    def poll(self, _timeout_s: float, digest: Callable[[bytes, bytes, int], None]) -> list[Message]:
        for key, value in self.digests:
            digest(key, value, 1)
        coming, self.digests, self.coming = self.coming, [], []
        return coming

    def say(self, message: Message) -> None:
        self.said.append(message)

    def tell(self, _topic: str, block: bytes) -> int:
        self.told.append(block)
        return len(self.told)


class Ruled:
    """A topic of rulings with so many of them."""

    def __init__(self) -> None:
        self.count, self.fences = 0, list[int]()

    def refresh(self) -> int:
        return self.count

    def fence(self, epoch: int, _pipeline: str) -> int:
        self.fences.append(epoch)
        return self.count

    def rulings(self) -> Rulings:
        return Rulings(Fault(0, offset, "E") for offset in range(self.count))


def differing(*, leads: bool) -> tuple[Coordinator, Wire, list[View]]:
    """A pipeline "me" whose digest differs from that of "you"; audited and found sound."""
    wire, shown = Wire(), list[View]()
    ruled = cast("RulingTopic", Ruled())
    member = Member("log", "me", "me", standby=not leads)
    config = ShardConfig("bank", "me", 1, 1, 10, digest_interval=10)
    found = Coordinator(cast("SharedTopics", wire), config, member, shown.append, ruled)
    if leads:
        wire.coming = [Claim(log="log", pipeline="me", epoch=1)]
    else:
        wire.coming = [Claim(log="log", pipeline="you", epoch=1)]
    found.begin()
    found._turn()
    one = b'{"seq":10,"shard":0,"interval":10,"state":"aa","outcomes":"bb","shards":1}'
    wire.digests = [(b"0/10/you", one), (b"0/10/me", one.replace(b"aa", b"ac"))]
    found._turn()
    assert open_block(wire.told[-1])[0]["kind"] == "audit"
    found._turn()
    assert not any(isinstance(message, Audited) for message in wire.said)
    found.note(Position(10, 10, len(wire.told) + 1))
    found._turn()
    assert any(isinstance(message, Audited) for message in wire.said)
    assert "shard 0 at seq 10 differ" in (shown[-1].alarm or "")
    return found, wire, shown


def test_of_two_sound_pipelines_that_differ_the_one_that_leads_goes_on() -> None:
    leader, wire, _ = differing(leads=True)
    wire.coming = [Audited(log="log", pipeline="you")]
    leader._turn()
    leader._turn()
    assert leader.failure is None
    follower, wire, _ = differing(leads=False)
    follower._turn()
    assert follower.failure is None, "the leader may be damaged"
    wire.coming = [Audited(log="log", pipeline="you")]
    follower._turn()
    follower._turn()
    assert "it does not lead, so it stops" in str(follower.failure)


def test_a_difference_between_others_is_an_alarm_and_no_more() -> None:
    found = Difference(Digest(10, 0, 10, "a", "b"), "x", Digest(10, 0, 10, "c", "b"), "y")
    assert found.other("me") is None
    assert (found.other("x"), found.other("y")) == ("y", "x")
