"""Digests and messages of pipelines, told at random: late, twice, by strangers, and damaged."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.columns.digest import StateDigest
from streamydb.errors import RecordError
from streamydb.pipeline.standby.agreement import Agreement, Disagreement
from streamydb.pipeline.standby.core import Member
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
from streamydb.records.ruling_records import Fence, decode_ruling, encode_ruling
from tests.support.generators import TEXTS
from tests.support.room import Room

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


@pytest.mark.parametrize("seed", range(60))
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

    def foreign(self, member: Member) -> Message:
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
