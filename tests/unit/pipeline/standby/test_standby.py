"""The part of one pipeline among several: elections, silence, readiness, roles, without Kafka."""

from __future__ import annotations

from typing import Any, cast

import pytest

from streamydb.frames.digest import StateDigest
from streamydb.frames.messages import Audit
from streamydb.frames.readers import FEEDBACK
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.rulings import RulingTopic
from streamydb.kafka.shared_topics import SharedTopics
from streamydb.pipeline.standby.agreement import Disagreement
from streamydb.pipeline.standby.coordinator import Coordinator, StandbyReport
from streamydb.pipeline.standby.core import ElectionMember
from streamydb.pipeline.standby.position import PipelinePosition, SendMessage, SetRole, Times
from streamydb.records.control import (
    Audited,
    Beat,
    Following,
    Handover,
    LeaderClaim,
    decode_message,
    encode_message,
    gear_of,
)
from streamydb.records.gears import GearStatus
from tests.support.room import Room
from tests.support.wire import Ruled, Wire


def test_the_first_one_leads_at_once_and_says_nothing_while_alone() -> None:
    room = Room(a=False)
    room.begin("a")
    assert room.roles["a"] == [SetRole(leads=True, covered=0)]
    said = len(room.said)
    room.pass_ms(60_000)
    assert len(room.said) == said


def test_a_standby_follows_and_takes_over_in_silence() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.reach("a", 10)
    assert room.roles["b"][-1] == SetRole(leads=False, covered=10)
    room.reach("b", 10)
    room.pass_ms(30_000)
    assert room.leaders() == ["a"]
    room.down.add("a")
    room.pass_ms(Times().silence)
    assert room.leaders() == ["a"]
    room.pass_ms(100)
    assert room.members["b"].role == "leading"
    assert room.roles["b"][-1] == SetRole(leads=True, covered=10)


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
    assert room.roles["a"][-1] == SetRole(leads=False, covered=9)


def test_one_that_slept_for_long_follows_and_does_not_claim() -> None:
    """The other one leads alone meanwhile, so it does not beat before it hears of a follower."""
    room = overtaken_for(60_000)
    claims = sum(isinstance(message, LeaderClaim) for message in room.said)
    room.reach("a", 6)  # which it tells before it listens
    room.do("a", room.members["a"].tick(room.now))
    room.now += 30  # so that what is due is due at once
    room.pass_ms(60_000)
    assert room.leaders() == ["b"]
    assert room.roles["a"][-1] == SetRole(leads=False, covered=9)
    assert sum(isinstance(message, LeaderClaim) for message in room.said) == claims


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
    late = LeaderClaim(log="log", pipeline="id-c", name="c", epoch=2)
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
    assert room.roles["b"][-1] == SetRole(leads=True, covered=7)


def handed_over() -> Room:
    """Where b leads since just now instead of a, both at seq 7."""
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.reach("a", 7)
    room.reach("b", 7)
    room.pass_ms(1_000)
    for name in ("a", "b"):
        room.do(name, room.members[name].hear(Handover(log="log", pipeline=""), room.now))
    assert room.leaders() == ["b"]
    return room


def test_one_that_stands_down_writes_until_its_successor_does() -> None:
    room = handed_over()
    room.reach("a", 8)
    room.pass_ms(1_000)
    assert room.leaders() == ["b"]
    assert room.roles["a"][-1].leads
    room.reach("b", 9)
    room.pass_ms(100)
    assert room.roles["a"][-1] == SetRole(leads=False, covered=9)


def test_one_that_stands_down_does_not_wait_for_a_successor_that_has_nothing_to_do() -> None:
    room = handed_over()
    room.pass_ms(Times().overlap - 100)
    assert room.roles["a"][-1].leads
    room.pass_ms(200)
    assert room.roles["a"][-1] == SetRole(leads=False, covered=7)


def test_a_restart_leads_again_unless_another_has_taken_over() -> None:
    room = Room(a=False, b=True)
    room.begin("a", "b")
    room.pass_ms(1_000)
    again = ElectionMember("log", "id-a", "a", standby=False)
    for message in room.said:
        again.replay(message)
    assert any(
        isinstance(a, SendMessage) and isinstance(a.message, LeaderClaim)
        for a in again.begin(room.now)
    )
    overtaken = ElectionMember("log", "id-a", "a", standby=False)
    overtaken.replay(Beat(log="log", pipeline="id-b", name="b", epoch=9, resolved=50, read=1))
    said = overtaken.begin(0)
    assert [type(action.message) for action in said if isinstance(action, SendMessage)] == [
        Following
    ]
    beat = Beat(log="log", pipeline="id-b", name="b", epoch=9, resolved=60, read=1)
    following = Following(
        log="log",
        pipeline="id-a",
        name="a",
        epoch=9,
        resolved=0,
        lag_ms=100,
        ready=False,
        said_ms=100,
    )
    assert overtaken.hear(beat, 100) == [SetRole(leads=False, covered=60), SendMessage(following)]
    gear = gear_of("id-a", "start")
    shifted = ElectionMember("log", "id-a", "a", standby=False)
    shifted.replay(Beat(log="log", pipeline=gear, name="real-time", epoch=9, resolved=50, read=1))
    said = shifted.begin(0)
    claims = [action.message for action in said if isinstance(action, SendMessage)]
    assert [type(claim) for claim in claims] == [LeaderClaim], "its own gear has gone with it"
    alone = ElectionMember("log", "id-a", "a", standby=False)
    alone.replay(beat)
    said = alone.begin(0)
    for now in range(100, Times().start + 100, 100):
        for action in said:
            assert isinstance(action, SendMessage)
            assert alone.hear(action.message, now) == []
        said = alone.tick(now)
        assert not any(
            isinstance(a, SendMessage) and isinstance(a.message, LeaderClaim) for a in said
        )
    claims = [action.message for action in alone.tick(2_200) if isinstance(action, SendMessage)]
    assert [type(claim) for claim in claims] == [LeaderClaim]
    assert alone.hear(claims[0], 2_250)[0] == SetRole(leads=True, covered=0)
    assert (again.before, alone.before) == ("", "id-b"), "it may still write what it began"


def test_a_gear_does_not_wait_until_its_pipeline_knows_how_far_it_is() -> None:
    """A pipeline that has just started has executed nothing, and its gear may lead first."""
    ready: dict[str, bool] = {}
    for name in (gear_of("id-a", "start"), "id-b"):
        member = ElectionMember("log", name, "", standby=True)
        member.replay(Beat(log="log", pipeline="id-a", epoch=8, resolved=50, read=1))
        (said,) = [action for action in member.begin(0) if isinstance(action, SendMessage)]
        member.hear(said.message, 10)
        for resolved in (49, 50):
            beat = Beat(
                log="log", pipeline="id-a", epoch=9, resolved=0, read=0, executed=-1, said_ms=20
            )
            member.hear(beat, 20)
            member.progress(resolved, 1, 30)
            ready[name] = member.is_ready(40)
            assert not ready[name] or resolved == 50, "it lacks what was resolved before"
        asked = member.hear(Handover(log="log", target=name, pipeline=""), 50)
        assert bool(asked) == ready[name]
    assert list(ready.values()) == [True, False], "a standby may lack what the leader has"


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
    assert room.roles["a"] == [first, SetRole(leads=True, covered=7)]
    room.pass_ms(5_000)
    assert room.roles["a"][-2:] == [SetRole(leads=True, covered=7)] * 2
    room.do("a", room.members["a"].progress(30, 30, room.now))
    room.pass_ms(60_000)
    assert len(room.roles["a"]) == 3


def test_a_standby_without_any_leader_ever_waits() -> None:
    room = Room(b=True)
    room.begin("b")
    room.pass_ms(60_000)
    assert room.members["b"].role == "following"


def test_another_log_is_not_believed() -> None:
    member = ElectionMember("log", "id-a", "a", standby=True)
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
        ShardConfig("bank", "a", 1, 1, 101),
        ShardConfig("bank", "a", 1, 1, 100, digest_interval=1_000),
    ):  # fmt: skip
        assert other.terms != terms, other


def test_one_with_other_terms_cannot_stand_beside_the_leader() -> None:
    member = ElectionMember("log", "me", "", standby=True, terms="shards=1 id_window=5")
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
        LeaderClaim(log="l", pipeline="p", name="n", epoch=3),
        Beat(log="l", pipeline="p", epoch=3, resolved=2**60, read=4),
        Following(log="l", pipeline="p", epoch=1, resolved=1, lag_ms=2, ready=True),
        Handover(log="l", pipeline="", to="x"),
    ):
        assert decode_message(encode_message(message)) == message


def differing(*, leads: bool) -> tuple[Coordinator, Wire, list[StandbyReport]]:
    """A pipeline "me" whose digest differs from that of "you"; audited and found sound."""
    wire, shown = Wire(), list[StandbyReport]()
    ruled = cast("RulingTopic", Ruled())
    member = ElectionMember("log", "me", "me", standby=not leads)
    config = ShardConfig("bank", "me", 1, 1, 10, digest_interval=10)
    found = Coordinator(cast("SharedTopics", wire), config, member, shown.append, ruled)
    if leads:
        wire.coming = [LeaderClaim(log="log", pipeline="me", epoch=1)]
    else:
        wire.coming = [LeaderClaim(log="log", pipeline="you", epoch=1)]
    found.begin()
    found._turn()
    one = b'{"seq":10,"shard":0,"interval":10,"state":"aa","outcomes":"bb","shards":1}'
    wire.told_digests = [(b"0/10/you", one), (b"0/10/me", one.replace(b"aa", b"ac"))]
    found._turn()
    assert isinstance(FEEDBACK.read(wire.told[-1]), Audit)
    found._turn()
    assert not any(isinstance(message, Audited) for message in wire.said)
    found.note(PipelinePosition(10, 10, len(wire.told) + 1))
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
    found = Disagreement(
        StateDigest(10, 0, 10, "a", "b"), "x", StateDigest(10, 0, 10, "c", "b"), "y"
    )
    assert found.other("me") is None
    assert (found.other("x"), found.other("y")) == ("y", "x")


@pytest.mark.fault(42, "batches of a standby that have not read their role yet", "not ready")
def test_a_standby_knows_how_far_it_is_when_a_batch_has_said_so() -> None:
    wire, shown = Wire(), list[StandbyReport]()
    member = ElectionMember("log", "me", "me", standby=True)
    config = ShardConfig("bank", "me", 1, 1, 10, digest_interval=10)
    ruled = cast("RulingTopic", Ruled())
    found = Coordinator(cast("SharedTopics", wire), config, member, shown.append, ruled)
    found.begin()

    def after(position: PipelinePosition) -> tuple[int | None, bool]:
        """What is shown after a batch, and a beat of a leader that has executed nothing."""
        place: dict[str, Any] = {"log": "log", "pipeline": "you", "epoch": 1, "said_ms": 1}
        wire.coming = [*wire.said, Beat(**place, resolved=0, read=9, executed=0)]
        found.note(position)
        found._turn()
        return member.behind, shown[-1].ready

    role_at = len(wire.told)
    assert after(PipelinePosition(0, 9, role_at)) == (None, False), "the role has not been read"
    assert after(PipelinePosition(0, 9, role_at + 1, seq=7)) == (None, False), "it is not empty"
    assert after(PipelinePosition(0, 9, role_at + 1)) == (0, True), (
        "it is empty, and so is the leader"
    )
    wire.coming = [Beat(log="log", pipeline="you", epoch=1, resolved=7, read=9, executed=7)]
    found._turn()
    assert after(PipelinePosition(4, 9, role_at + 1, seq=7)) == (3, True)
    found._reporter._due_ms = 0
    found._turn()
    assert shown[-1].behind == 3


def test_a_leader_without_followers_is_seen_by_its_rare_beats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire, now = Wire(), [1_000_000]
    monkeypatch.setattr("streamydb.pipeline.standby.coordinator._now_ms", lambda: now[0])
    config = ShardConfig("bank", "me", 1, 1, 10, digest_interval=10)
    found = Coordinator(
        cast("SharedTopics", wire), config, ElectionMember("log", "me", "me", standby=False),
        lambda _: None, cast("RulingTopic", Ruled()),
    )  # fmt: skip
    wire.coming = [LeaderClaim(log="log", pipeline="me", epoch=1)]
    found.begin()
    alive = [True]
    found._is_alive, found._appeared_ms = lambda: alive[0], 0

    def beats_in(ms: int) -> int:
        said = len(wire.said)
        for _ in range(ms // 500):
            now[0] += 500
            found._turn()
        return sum(isinstance(message, Beat) for message in wire.said[said:])

    assert beats_in(1_000) == 1
    assert beats_in(60_000) == 6
    alive[0] = False
    assert beats_in(60_000) == 0, "the query's JVM does not answer"


def test_whatever_a_pipeline_says_tells_which_gear_leads() -> None:
    gear = GearStatus("real-time", 5, "calm", 77)
    member = ElectionMember("log", "a", "a", standby=False)
    member.gear = gear
    for said in (member.beat(0), member._following(0)):
        told = decode_message(encode_message(said.message))
        assert isinstance(told, Beat | Following)
        assert told.gear == gear
