"""Digests and messages of pipelines, told at random: late, twice, by strangers, and damaged."""

from __future__ import annotations

import random
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.errors import RecordError
from streamydb.frames.digest import StateDigest, Teller
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.names import TopicNames
from streamydb.kafka.rulings import RulingTopic
from streamydb.kafka.shared_topics import SharedTopics
from streamydb.pipeline.standby.agreement import KNOWN_DIGESTS_MAX, Agreement, Disagreement
from streamydb.pipeline.standby.coordinator import Coordinator
from streamydb.pipeline.standby.core import ElectionMember
from streamydb.records.control import (
    Audited,
    Beat,
    Following,
    Handover,
    LeaderClaim,
    Message,
    decode_message,
    encode_message,
)
from streamydb.records.rulings import Fence, decode_ruling, encode_ruling
from tests.support.generators import TEXTS
from tests.support.memory_kafka import CONNECTION, MemoryKafka
from tests.support.room import Room
from tests.support.seeds import seeds

INTERVAL, SHARDS = 10, 2
COUNTS = st.integers(0, 2**62)
ABOUT = {
    "log": TEXTS, "pipeline": TEXTS, "name": TEXTS, "terms": TEXTS, "said_ms": COUNTS,
}  # fmt: skip
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(LeaderClaim, **ABOUT, epoch=COUNTS),
    st.builds(
        Beat, **ABOUT, epoch=COUNTS, resolved=COUNTS, read=COUNTS, executed=st.integers(-1, 99)
    ),
    st.builds(
        Following, **ABOUT, epoch=COUNTS, resolved=COUNTS, lag_ms=COUNTS, ready=st.booleans(),
        behind=st.integers(-1, 99), wants=st.booleans(),
    ),
    st.builds(Handover, **ABOUT, to=TEXTS, target=TEXTS),
    st.builds(Audited, **ABOUT),
)  # fmt: skip


def broken(rng: random.Random, value: bytes) -> bytes:
    """A JSON object in which nothing can be read."""
    nested = b"[" * 100_000 + b"]" * 100_000
    head, _, tail = value.rpartition(b'":"')
    return rng.choice([
        value[: rng.randrange(len(value))], value + b"}", b"", b"[]", b"null", b"\xff",
        head + b'":"\xff' + tail, value[:-1] + b',"y":' + nested + b"}", rng.randbytes(30),
    ])  # fmt: skip


class Told(NamedTuple):
    """A record of `<db>.digests`."""

    key: bytes
    value: bytes
    digest: StateDigest | None


def record(pipeline: str, digest: StateDigest) -> Told:
    key = f"{digest.shard}/{digest.seq}/{pipeline}".encode()
    return Told(key, msgspec.json.encode(digest), digest)


class Pipelines:
    """What some pipelines tell, in any order, with old, foreign and damaged records in between.

    Attributes:
        deviant: whose state is another one, from some seq on; empty: nobody's.
    """

    def __init__(self, rng: random.Random) -> None:
        names = ["a", "b", "c/d"][: rng.choice([1, 2, 3])]
        self.deviant = rng.choice(["", *names])
        self._rng = rng
        self._from = rng.randrange(10, 80, 10), rng.randrange(SHARDS)
        own = {name: self._of(name) for name in names}
        self.told: list[Told] = []
        while any(own.values()):
            name = rng.choice([name for name in names if own[name]])
            self.told.append(record(name, own[name].pop(0)))
            while rng.random() < 0.4:
                self.told.append(self._noise())

    def _of(self, name: str) -> list[StateDigest]:
        places = [(seq, shard) for seq in range(10, 80, 10) for shard in range(SHARDS)]
        return [self._digest(name, *place) for place in places]

    def _digest(self, name: str, seq: int, shard: int) -> StateDigest:
        wrong = name == self.deviant and shard == self._from[1] and seq >= self._from[0]
        state = f"{'wrong' if wrong else 'right'} {seq}/{shard}"
        return StateDigest(seq, shard, INTERVAL, state, "o", SHARDS)

    def _noise(self) -> Told:
        rng, earlier = self._rng, [each for each in self.told if each.digest is not None]
        again = rng.choice(earlier)
        kind = rng.randrange(3)
        if kind == 0:
            return again
        if kind == 1:
            return again._replace(value=broken(rng, again.value), digest=None)
        other = msgspec.structs.replace(
            again.digest or StateDigest(0, 0, 0, "", ""), state="of another life",
            **rng.choice([{"interval": 20}, {"shards": 1}, {"shards": 0}]),
        )  # fmt: skip
        return again._replace(value=msgspec.json.encode(other))

    def expected(self, live: int) -> set[tuple[int, int]]:
        """Places where two digests are told, the second one while it is ``live``."""
        states: dict[tuple[int, int], set[str]] = {}
        found = set()
        for number, (_, value, _) in enumerate(self.told):
            digest = decoded(value)
            if digest is None or (digest.interval, digest.shards) != (INTERVAL, SHARDS):
                continue
            place = digest.seq, digest.shard
            known = states.setdefault(place, set())
            if known and digest.state not in known and number >= live:
                found.add(place)
            known.add(digest.state)
        return found


def decoded(value: bytes) -> StateDigest | None:
    try:
        return msgspec.json.decode(value, type=StateDigest)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_every_difference_is_told_once_and_nothing_else_is(seed: int) -> None:
    rng = random.Random(f"agreement {seed}")
    pipelines = Pipelines(rng)
    live = rng.choice([0, 0, rng.randrange(len(pipelines.told))])
    agreement = Agreement(INTERVAL, SHARDS)
    found: list[Disagreement] = []
    for number, (key, value, _) in enumerate(pipelines.told):
        if decoded(value) is None:
            with pytest.raises(RecordError):
                agreement.take(key, value, live=number >= live)
        elif difference := agreement.take(key, value, live=number >= live):
            found.append(difference)
    assert {(each.first.seq, each.first.shard) for each in found} == pipelines.expected(live)
    assert len(found) == len(pipelines.expected(live)), "each once"
    for each in found:
        other = each.other(rng.choice([each.first_pipeline, each.second_pipeline]))
        assert other in {each.first_pipeline, each.second_pipeline}
        assert pipelines.deviant.rpartition("/")[2] in {each.first_pipeline, each.second_pipeline}
        assert each.other("stranger") is None
        assert str(each.first.seq) in str(each)


class Started:
    """A pipeline that starts over a log with digests; a million of them have been deleted."""

    def __init__(self, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kafka = MemoryKafka(rng)
        self.kafka.install(monkeypatch)
        names = TopicNames("bank")
        self._topic, feedback = names.digests, names.feedback_of("")
        for topic in (*names.shared(), feedback):
            self.kafka.create(topic)
        self.looked_at: list[bytes | None] = []
        self.found: list[Disagreement] = []
        take = Agreement.take

        def noted(self_: Agreement, *record: Any, **how: Any) -> Disagreement | None:
            self.looked_at.append(record[1])
            found = take(self_, *record, **how)
            self.found += [] if found is None else [found]
            return found

        monkeypatch.setattr(Agreement, "take", noted)
        config = ShardConfig("bank", "me", SHARDS, 1, 10, digest_interval=INTERVAL)
        ruled = cast("RulingTopic", SimpleNamespace(epoch=0, refresh=lambda: 0, fence=lambda *_: 0))
        member = ElectionMember("log", "me", "", standby=False)
        shared = SharedTopics(CONNECTION, "bank", feedback)
        self.coordinator = Coordinator(shared, config, member, lambda _: None, ruled)

    def tell(self, told: list[Told]) -> None:
        for each in told:
            self.kafka.append(self._topic, 0, each.value, each.key)

    def skip(self, records: int) -> None:
        """Let so many records be there that are not."""
        self.kafka.topics[self._topic][0].high += records

    def look_at(self, count: int) -> None:
        for _ in range(10_000):
            if len(self.looked_at) >= count:
                return
            self.coordinator._turn()
        pytest.fail(f"{len(self.looked_at)} of {count} digests were looked at")


@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_a_start_reads_the_last_digests_and_finds_every_difference(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"start {seed}")
    pipelines, older = Pipelines(rng), Pipelines(rng)
    live = rng.choice([0, rng.randrange(len(pipelines.told))])
    started = Started(rng, monkeypatch)
    started.tell(older.told)
    started.skip(5 * KNOWN_DIGESTS_MAX - live)
    started.tell(pipelines.told[:live])
    started.coordinator.begin()
    started.tell(pipelines.told[live:])
    started.look_at(len(pipelines.told))
    assert started.looked_at == [value for _, value, _ in pipelines.told]
    places = {(each.first.seq, each.first.shard) for each in started.found}
    assert places == pipelines.expected(live)


@pytest.mark.parametrize("lost", [True, False])
def test_a_rebuilt_pipeline_is_compared_with_what_was_told_of_its_own_history(
    *, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has lost its end, which others took the place of; or the one before was damaged."""
    started = Started(random.Random("lost"), monkeypatch)
    digest = StateDigest(10, 0, INTERVAL, "another", "o", SHARDS)

    def told(pipeline: str, ts_ms: int, state: str) -> Told:
        mine = msgspec.structs.replace(digest, state=state)
        return Told(Teller(pipeline, ts_ms).key(mine), msgspec.json.encode(mine), mine)

    before_ms = started.kafka.now_ms
    now_ms = before_ms + (1_000 if lost else -1_000)
    started.tell([told("before", before_ms - 1_000, "another")])
    started.coordinator.begin()
    started.kafka.now_ms += 5_000
    started.tell([told("me", now_ms, "right")])
    started.look_at(2)
    alarm = started.coordinator._digests.alarm
    assert (alarm is None) == lost
    assert lost or "digests of shard 0 at seq 10 differ" in str(alarm)


def test_a_start_reads_what_was_said_before_any_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random("history")
    started = Started(rng, monkeypatch)
    started.tell([record("a", StateDigest(10 * n, 0, INTERVAL, "s", "o", 2)) for n in range(300)])
    for n in range(300):
        beat = Beat(log="log", pipeline="me", epoch=1, resolved=n, read=n)
        started.kafka.append(TopicNames("bank").control, 0, encode_message(beat))
    met: list[int] = []
    replay = ElectionMember.replay

    def noted(self: ElectionMember, message: Message) -> None:
        met.append(len(started.looked_at))
        replay(self, message)

    monkeypatch.setattr(ElectionMember, "replay", noted)
    started.coordinator.begin()
    started.look_at(300)
    assert met == [0] * 300


@pytest.mark.parametrize(("written", "covered"), [(None, 9), (5, 5), (0, 0), (20, 9)])
def test_what_was_said_of_outputs_that_are_not_there_does_not_count(
    written: int | None, covered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes were made anew since, or the log has lost what it was said of."""
    started = Started(random.Random("not there"), monkeypatch)
    beat = Beat(log="log", pipeline="other", epoch=3, resolved=9, read=9)
    control = TopicNames("bank").control
    started.kafka.append(control, 0, encode_message(beat))
    started.coordinator._replay(0, 1, written)
    member = started.coordinator._member
    assert (member.epoch, member.covered) == (3, covered)
    member.hear(msgspec.structs.replace(beat, resolved=12), 1)
    assert member.covered == 12, "said since the start"


@pytest.mark.parametrize("leads", [True, False])
def test_a_start_reads_the_last_messages_unless_they_do_not_tell_who_leads(
    *, leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it takes the longer the more was said: a leader with a standby says millions a week."""
    monkeypatch.setattr("streamydb.pipeline.standby.coordinator.MESSAGES_MAX", 20)
    started = Started(random.Random("many messages"), monkeypatch)
    claim: Message = LeaderClaim(log="log", pipeline="me", epoch=3)
    told: list[Message] = [claim, *(
        Beat(log="log", pipeline="me", epoch=3, resolved=n, read=n) if leads or n < 50
        else Following(log="log", pipeline="b", epoch=3, resolved=n, lag_ms=0, ready=False)
        for n in range(100)
    )]  # fmt: skip
    for message in told:
        started.kafka.append(TopicNames("bank").control, 0, encode_message(message))
    met: list[Message] = []
    replay = ElectionMember.replay

    def noted(self: ElectionMember, message: Message) -> None:
        met.append(message)
        replay(self, message)

    monkeypatch.setattr(ElectionMember, "replay", noted)
    started.coordinator.begin()
    assert len(met) == (20 if leads else 20 + len(told))
    member = started.coordinator._member
    assert (member.role, member.epoch, member.covered) == ("leading", 4, 0)


def test_what_is_forgotten_is_the_oldest_and_is_not_searched_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dict looks at every entry that was deleted in front, each time (0.15 ms for 100,000)."""
    monkeypatch.setattr("streamydb.pipeline.standby.agreement.KNOWN_DIGESTS_MAX", 5)
    agreement = Agreement(INTERVAL, SHARDS)
    for seq in range(10, 200, 10):
        told = record("a", StateDigest(seq, 0, INTERVAL, "s", "o", SHARDS))
        agreement.take(told.key, told.value, live=True)
        assert list(agreement._known) == [(0, n) for n in range(max(10, seq - 40), seq + 10, 10)]
    assert isinstance(agreement._known, OrderedDict)


@given(MESSAGES)
def test_a_message_comes_back_as_it_was_said(message: Message) -> None:
    value = encode_message(message)
    assert decode_message(value) == message
    later = msgspec.json.encode({**msgspec.json.decode(value), "said_by_a_later_release": [1]})
    assert decode_message(later) == message


@given(MESSAGES, st.integers(0, 2**32))
def test_what_is_no_message_is_refused_as_such(message: Message, seed: int) -> None:
    with pytest.raises(RecordError):
        decode_message(broken(random.Random(seed), encode_message(message)))


@given(MESSAGES, st.integers(2, 9))
def test_a_message_of_a_later_format_is_refused(message: Message, number: int) -> None:
    with pytest.raises(RecordError, match=f"format {number}"):
        decode_message(encode_message(msgspec.structs.replace(message, format=number)))


class Noisy(Room):
    """A room in whose topic lie messages of another log, too."""

    def __init__(self, rng: random.Random, **standby: bool) -> None:
        super().__init__(**standby)
        self._rng = rng

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms // 50):
            for member in self.members.values():
                message = self.foreign(member)
                assert member.hear(message, self.now) == []
                assert member.disagreement(message) is None
                member.replay(message)
            super().pass_ms(50)

    def foreign(self, member: ElectionMember) -> Message:
        """What somebody says about another log, who may look like somebody known."""
        rng = self._rng
        about: dict[str, Any] = {
            "log": "another", "pipeline": rng.choice(["id-a", "id-b", member.leader.pipeline]),
            "name": "b", "terms": rng.choice(["", "others"]), "said_ms": self.now,
        }  # fmt: skip
        epoch = member.epoch + rng.randrange(3)
        made: list[Message] = [
            LeaderClaim(**about, epoch=epoch),
            Beat(**about, epoch=epoch, resolved=10**6, read=10**6),
            Following(**about, epoch=epoch, resolved=10**6, lag_ms=0, ready=True, wants=True),
            Handover(**about, to=rng.choice(["", "b"])), Audited(**about),
        ]  # fmt: skip
        return decode_message(encode_message(rng.choice(made)))


@pytest.mark.parametrize("seed", range(12))
def test_who_leads_does_not_depend_on_what_is_said_of_another_log(seed: int) -> None:
    standbys = {"a": False, "b": True, "c": True}
    quiet, noisy = Room(**standbys), Noisy(random.Random(seed), **standbys)
    for world in (quiet, noisy):
        live(world, random.Random(f"foreign {seed}"))
    for name, member in quiet.members.items():
        other = noisy.members[name]
        assert (member.role, member.covered, member.epoch) == (
            other.role, other.covered, other.epoch,
        )  # fmt: skip
    assert quiet.roles == noisy.roles
    assert quiet.said == noisy.said


def live(world: Room, rng: random.Random) -> None:
    """Let time pass; somebody is gone now and then."""
    names = list(world.members)
    world.begin(*names)
    reached = 0
    for _ in range(12):
        reached += rng.randrange(20)
        for name in names:
            if rng.random() < 0.8 and name not in world.down:
                world.reach(name, reached)
        world.down = {rng.choice(names)} if rng.random() < 0.4 else set()
        world.pass_ms(rng.choice([200, 1_500, 6_000]))


@given(st.integers(0, 2**32))
def test_what_is_no_ruling_is_refused_as_such(seed: int) -> None:
    value = encode_ruling(Fence(log="l", epoch=1, pipeline="p"))
    with pytest.raises(RecordError):
        decode_ruling(broken(random.Random(seed), value))
