"""A pipeline's part among others while Kafka is slow, or takes nothing for a while."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from streamydb.frames.messages import Audit, Role
from streamydb.frames.readers import FEEDBACK
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.rulings import RulingTopic
from streamydb.kafka.shared_topics import SharedTopics, SharedTopicsError
from streamydb.pipeline.standby.coordinator import Coordinator
from streamydb.pipeline.standby.core import ElectionMember
from streamydb.pipeline.standby.position import PipelinePosition
from streamydb.records.control import Audited, Beat, LeaderClaim, Message
from streamydb.records.rulings import Book, Fault, Fence, encode_ruling, ruling_of
from tests.support.wire import Ruled, Wire


def coordinator(wire: Wire, member: ElectionMember, ruled: Ruled | None = None) -> Coordinator:
    config = ShardConfig("bank", "me", 1, 1, 10, digest_interval=10)
    shared, rulings = cast("SharedTopics", wire), cast("RulingTopic", ruled or Ruled())
    return Coordinator(shared, config, member, lambda _: None, rulings)


class History(Wire):
    """Ten messages, each of which takes most of a minute to come; then none for as long."""

    def __init__(self, now_s: list[float], kept: int) -> None:
        super().__init__()
        self._now_s, self._kept, self._read = now_s, kept, 0

    def ends(self) -> tuple[int, int]:
        return 10, 0

    def position(self) -> int:
        return self._read

    def poll(self, timeout_s: float) -> list[Message]:
        self._now_s[0] += 50.0
        if self._read == self._kept:
            return super().poll(timeout_s)
        self._read += 1
        return [Beat(log="log", pipeline="you", epoch=1, resolved=self._read, read=1)]


@pytest.mark.parametrize("kept", [10, 9])
def test_a_long_history_is_read_as_long_as_it_comes(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], monotonic_ns=lambda: int(now_s[0] * 1e9))
    monkeypatch.setattr("streamydb.pipeline.standby.coordinator.time", clock)
    member = ElectionMember("log", "me", "me", standby=True)
    found = coordinator(History(now_s, kept), member)
    if kept == 10:
        found.begin()
        assert (member.role, member.covered) == ("following", 10)
    else:
        with pytest.raises(SharedTopicsError, match="cannot be read to its end"):
            found.begin()


class Refusing(Wire):
    """Shared topics that take no block at some times."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def tell(self, topic: str, block: bytes) -> int:
        if self.refused:
            self.refused -= 1
            raise SharedTopicsError(f"{topic} took no record: no answer")
        return super().tell(topic, block)


@pytest.mark.parametrize("refused", [1, 2])
def test_what_was_said_is_heard_though_a_message_before_it_failed(refused: int) -> None:
    wire = Refusing()
    member = ElectionMember("log", "me", "me", standby=True)
    found = coordinator(wire, member)
    wire.coming = [LeaderClaim(log="log", pipeline="you", epoch=1)]
    found.begin()
    wire.refused = refused
    leader = partial(Beat, log="log", pipeline="you", epoch=1)
    wire.coming = [
        leader(resolved=5, read=5), Audited(log="log", pipeline="you"), leader(resolved=9, read=9),
    ]  # fmt: skip
    for _ in range(refused):
        with pytest.raises(SharedTopicsError):
            found._turn()
    wire.coming = [Audited(log="log", pipeline="other")]
    found._turn()
    assert "you" in found._digests.sound
    assert member.covered == 9
    role = FEEDBACK.read(wire.told[-1])
    assert isinstance(role, Role)
    assert role.covered == 9
    found._turn()
    assert found._digests.sound == {"you", "other"}


class Echo(Wire):
    """A control topic in which nothing was kept: what is said comes back."""

    def say(self, message: Message) -> None:
        super().say(message)
        self.coming.append(message)


@pytest.mark.parametrize("standby", [False, True])
def test_a_leader_is_above_all_that_have_ruled_though_what_they_said_is_kept_no_more(
    *, standby: bool
) -> None:
    """Else its rulings would be void: a topic of rulings is kept for good,
    the control topic not.
    """
    wire, ruled, book = Echo(), Ruled(), Book("log")
    ruled.fences.append(57)
    member = ElectionMember("log", "me", "me", standby=standby)
    found = coordinator(wire, member, ruled)
    found.begin()
    if standby:
        assert (member.role, ruled.fences) == ("following", [57])
        found._act(member.claim(0))
        found._turn()
    assert (member.role, member.epoch, ruled.fences) == ("leading", 58, [57, 58])
    for epoch in ruled.fences:
        book.take(encode_ruling(Fence(log="log", epoch=epoch, pipeline="me")))
    book.take(encode_ruling(ruling_of(Fault(0, 3, "KeyError"), "log", member.epoch)))
    assert len(book) == 1


class Waits(Wire):
    """Notes how long a turn waits for a message, and has that time pass."""

    def __init__(self, now_s: list[float]) -> None:
        super().__init__()
        self._now_s, self.waits_s = now_s, list[float]()

    def poll(self, timeout_s: float) -> list[Message]:
        self.waits_s.append(timeout_s)
        self._now_s[0] += 0 if self.coming else timeout_s
        return super().poll(timeout_s)


def test_turns_are_long_while_nothing_happens_and_the_leader_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], monotonic_ns=lambda: int(now_s[0] * 1e9))
    monkeypatch.setattr("streamydb.pipeline.standby.coordinator.time", clock)
    wire = Waits(now_s)
    found = coordinator(wire, ElectionMember("log", "me", "me", standby=True))
    found.begin()

    def turns(seconds: float, *, hears: bool = True) -> set[float]:
        """Return how long the turns of the last second waited."""
        ends_s = now_s[0] + seconds
        wire.waits_s.clear()
        while now_s[0] < ends_s:
            if hears:
                wire.coming = [Beat(log="log", pipeline="you", epoch=1, resolved=5, read=5)]
                found._turn()
            found._turn()
            if now_s[0] < ends_s - 1:
                wire.waits_s.clear()
        return set(wire.waits_s)

    assert turns(1.5) == {0.1}
    assert turns(4) == {0.3}
    found.note(PipelinePosition(3, 3, 1))
    found._turn()
    assert turns(1) == {0.1}, "its query goes on"
    assert turns(4) == {0.3}
    found.note(PipelinePosition(3, 3, 1))
    assert turns(1) == {0.3}, "its query has gone no further"
    turns(2, hears=False)
    assert wire.waits_s[-1] == 0.1, "the leader is silent"


class Digests(Wire):
    """A topic with a hundred digests at the start."""

    def ends(self) -> tuple[int, int]:
        return 0, 100


def test_digests_that_were_made_anew_are_compared_and_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They begin at offset 0 again, where what is told is no older than the start."""
    wire = Digests()
    wire.coming = [LeaderClaim(log="log", pipeline="me", epoch=1)]
    found = coordinator(wire, ElectionMember("log", "me", "me", standby=False))
    found.begin()
    digest = b'{"seq":10,"shard":0,"interval":10,"state":"aa","outcomes":"bb","shards":1}'
    wire.offset, wire.told_digests = 99, [(b"0/10/you", digest)]
    found._turn()
    assert not caplog.messages
    wire.offset, wire.told_digests = 0, [(b"0/10/me", digest.replace(b"aa", b"ac"))]
    found._turn()
    assert "bank.digests goes on at offset 0, after offset 99" in caplog.text
    assert isinstance(FEEDBACK.read(wire.told[-1]), Audit)
