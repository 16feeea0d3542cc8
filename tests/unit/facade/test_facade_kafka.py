"""The facade's Kafka adapters against clients that play Kafka: what cannot be provoked with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, OFFSET_INVALID, KafkaError, TopicPartition

from streamydb.client.session import new_id
from streamydb.facade import FacadeSettings, kafka, kafka_changes, kafka_search
from streamydb.facade.clocks import LogClock
from streamydb.facade.kafka_appends import KafkaAppends
from streamydb.facade.kafka_changes import ChangeReader
from streamydb.facade.ports import LogPosition, NoResult
from streamydb.kafka import TopicsError, receiving
from streamydb.kafka.admin import LATEST, list_offsets
from streamydb.kafka.connection import UNKNOWN_PARTITION
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.kafka.producer import Appended, AppendError, AppendUnknownError
from streamydb.kafka.receiving import TopicEnds
from streamydb.read_model import StoreMismatchError
from streamydb.read_model.progress import TopicProgress
from streamydb.records import Resolved, Result, Source, encode_resolved, encode_result
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario
from streamydb.verify.oracle.core import Oracle

RESOLVED_2 = encode_resolved(Resolved(2, 0, {"0": 1}))
"""What the second plan of `changes` ends with."""


class Message:
    """A record as confluent-kafka gives it."""

    def __init__(self, place: tuple[int, int], key: bytes | None, value: bytes | None) -> None:
        self._place, self._key, self._value = place, key, value

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (2, 5_000)


class Topic:
    """A topic that plays the consumer which reads it, a few records of a partition at a time."""

    def __init__(self, partitions: list[list[tuple[bytes | None, bytes | None]]]) -> None:
        self.partitions = partitions
        self.places: dict[int, int] = {}
        self.paused: set[int] = set()
        self.seeks: list[tuple[int, int]] = []
        self.pauses = 0
        self.closed = False

    def assign(self, places: list[Any]) -> None:
        self.places = {place.partition: place.offset for place in places}

    def seek(self, place: Any) -> None:
        self.seeks.append((place.partition, place.offset))
        self.places[place.partition] = place.offset

    def pause(self, places: list[Any]) -> None:
        self.pauses += 1
        self.paused |= {place.partition for place in places}

    def resume(self, places: list[Any]) -> None:
        self.paused -= {place.partition for place in places}

    def consume(self, count: int, timeout: float = 0) -> list[Message]:
        assert count > 0
        assert timeout == 0, "a real one waits out the time unless it has them all"
        found: list[Message] = []
        for number, at in self.places.items():
            if number not in self.paused and at < len(self.partitions[number]) and not found:
                found = [
                    Message((number, n), *self.partitions[number][n])
                    for n in range(at, min(at + 1, len(self.partitions[number])))
                ]
                self.places[number] += len(found)
        return found

    def poll(self, _: float) -> Message | None:
        return next(iter(self.consume(1)), None)

    def close(self) -> None:
        self.closed = True

    def spans(self, *_: Any) -> dict[int, tuple[int, int]]:
        return {n: (0, len(records)) for n, records in enumerate(self.partitions)}


def changes(plans: int, partitions: int) -> Topic:
    """Plans of two transactions of two keys each, every plan resolved in all partitions."""
    oracle = Oracle("db")
    topic = Topic([[] for _ in range(partitions)])
    for plan in range(plans):
        for member in range(2):
            updates = [b'{"op":"put","key":"%s","value":1}' % key for key in (b"a", b"b")]
            raw = b'{"id":"%d.%d","updates":[%s]}' % (plan, member, b",".join(updates))
            for output in oracle.apply(raw, 0, 2 * plan + member, plan):
                if output.topic == "changes":
                    number = (output.key or b"")[0] % partitions
                    topic.partitions[number].append((output.key, output.value))
        resolved = encode_resolved(Resolved(oracle.next_seq - 1, plan, {"0": 1}))
        for partition in topic.partitions:
            partition.append((None, resolved))
    return topic


def play(
    monkeypatch: pytest.MonkeyPatch, topic: Topic, module: Any, starts: Mapping[int, int]
) -> None:
    """Let a module read the topic, from these places when it asks by time."""
    monkeypatch.setattr(module, "reader", lambda *_, **__: topic)
    monkeypatch.setattr(module, "spans", topic.spans)
    monkeypatch.setattr(module, "offsets_at", lambda *_: dict(starts))


def seqs(reader: ChangeReader, turns: int = 200) -> list[int]:
    found = [reader.poll() for _ in range(turns)]
    return [event.seq for batches in found for batch in batches for event in batch.changes]


@pytest.mark.parametrize("since", [0, 4, 7])
def test_changes_are_read_from_the_beginning(monkeypatch: pytest.MonkeyPatch, since: int) -> None:
    topic = changes(5, 2)
    play(monkeypatch, topic, kafka_changes, {})
    reader = ChangeReader(Settings(), since, None)
    assert seqs(reader) == sorted([*range(since + 1, 11)] * 2)
    reader.close()
    assert topic.closed
    assert reader.poll() == []


def test_changes_are_read_from_a_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = changes(5, 2)
    starts = {
        n: partition.index((None, RESOLVED_2)) for n, partition in enumerate(topic.partitions)
    }
    play(monkeypatch, topic, kafka_changes, starts)
    reader = ChangeReader(Settings(), 4, 200_000)
    assert seqs(reader) == sorted([*range(5, 11)] * 2)
    assert topic.seeks == []


def test_clocks_too_wild_for_that_have_a_reader_go_back_further_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = changes(40, 1)  # five records of each plan
    play(monkeypatch, topic, kafka_changes, {0: 190})
    monkeypatch.setattr(kafka_changes, "_BACK", 1)
    reader = ChangeReader(Settings(), 62, 200_000)  # those after it begin at 155
    assert seqs(reader) == sorted([*range(63, 81)] * 2)
    assert topic.seeks == [(0, 189), (0, 185), (0, 169), (0, 105)]


def test_the_last_place_to_begin_is_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = changes(5, 2)
    play(monkeypatch, topic, kafka_changes, {0: 10, 1: 0})  # partition 0 begins too late
    reader = ChangeReader(Settings(), 2, 200_000)
    assert seqs(reader) == sorted([*range(3, 11)] * 2)
    assert topic.seeks == [(0, 0)]


def test_a_partition_that_is_far_ahead_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = changes(30, 2)
    play(monkeypatch, topic, kafka_changes, {})
    monkeypatch.setattr(kafka_changes, "_AHEAD_BYTES_MAX", 1_000)
    reader = ChangeReader(Settings(), 0, None)
    assert seqs(reader, 400) == sorted([*range(1, 61)] * 2)
    assert topic.pauses > 3
    assert topic.paused == set()


def results(ids: list[bytes]) -> Topic:
    """The results of transactions with these ids; the payloads of one id differ."""
    oracle = Oracle("db")
    topic = Topic([[]])
    for offset, txn_id in enumerate(ids):
        raw = b'{"id":"%s"%s}' % (txn_id, b" " * offset)
        output = oracle.apply(raw, 0, offset, 1)[0]
        topic.partitions[0].append((output.key, output.value))
    return topic


def test_old_results_are_found_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    own = new_id()
    topic = results([b"x", own.encode(), b"y", b"y"])
    play(monkeypatch, topic, kafka_search, {0: 0})
    found = kafka_search.search_result(Settings(), own, None)
    assert isinstance(found, Result)
    assert found.id == own
    at = [kafka_search.search_result(Settings(), "y", LogPosition(0, n)) for n in (2, 3, 1, 9)]
    assert [found.status if isinstance(found, Result) else found.complete for found in at] == [
        "committed", "rejected", True, True,
    ]  # fmt: skip
    assert topic.closed


@pytest.mark.parametrize("stretch", [1, 2, 3, 100])
def test_without_a_time_the_newest_results_are_looked_at_first(
    monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    late = new_id()
    topic = results([b"x", late.encode(), b"y", b"y", b"z"])
    topic.partitions.append([])
    play(monkeypatch, topic, kafka_search, {0: 5, 1: 0})  # by the clock of `late`, it is not there
    monkeypatch.setattr(kafka_search, "_STRETCH", stretch)
    for txn_id in ("x", late, "y", "z"):
        found = kafka_search.search_result(Settings(), txn_id, None)
        assert isinstance(found, Result)
        assert (found.id, found.status) == (txn_id, "committed")
    for txn_id in ("never", new_id()):
        assert kafka_search.search_result(Settings(), txn_id, None) == NoResult(True, None)


def test_a_search_that_does_not_come_to_the_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = results([b"x", b"y", b"z"])
    play(monkeypatch, topic, kafka_search, {})
    monkeypatch.setattr(kafka_search, "SEARCH_S", 0)
    assert kafka_search.search_result(Settings(), "x", None) == NoResult(False, None)


class FakeProducer:
    """A producer whose records meet a given fate; `full`: its queue has no room at first."""

    def __init__(self, fate: Appended | AppendError, *, at_once: bool, full: bool = False) -> None:
        self.fate, self.at_once, self.full = fate, at_once, full
        self.payloads: list[bytes] = []

    def append_at_once(
        self, payload: bytes, deliver: Callable[[Any, Any], None], *, headers: Any
    ) -> bool:
        if self.full or (self.at_once and isinstance(self.fate, AppendError)):
            return False
        self.append_async(payload, deliver, headers=headers)
        return True

    def append_async(
        self, payload: bytes, deliver: Callable[[Any, Any], None], *, headers: Any
    ) -> None:
        assert headers is None, "these have none"
        self.payloads.append(payload)
        if isinstance(self.fate, AppendError) and self.at_once:
            raise self.fate
        if isinstance(self.fate, AppendError):
            deliver(None, self.fate)
        else:
            deliver(self.fate, None)


class FakeTail:
    """A tail with a given fault."""

    def __init__(self, fault: str | None) -> None:
        self.fault = fault


def log_of(producer: FakeProducer | None, fault: str | None = None) -> Any:
    log: Any = kafka.KafkaLog(Settings(), FacadeSettings())
    log._results._tail = FakeTail(fault)
    if producer is not None:
        made: Any = producer
        log._appends = KafkaAppends(made, LogClock(), log._executor)
    return log


class Broken:
    """A client whose broker ended within the request."""

    def __init__(self, partitions: int, offset: int) -> None:
        self._metadata = SimpleNamespace(partitions=dict.fromkeys(range(partitions)), error=None)
        self._offset = offset

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout < 10
        return SimpleNamespace(topics={topic: self._metadata})

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
        assert timeout < 10
        return [
            SimpleNamespace(
                topic=place.topic, partition=place.partition, offset=self._offset, error=None
            )
            for place in asked
            if place.offset == OFFSET_END
        ]

    def list_offsets(self, asked: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        told: Future[Any] = Future()
        told.set_result(SimpleNamespace(offset=self._offset, timestamp=-1))
        return dict.fromkeys(asked, told)


def test_a_read_model_of_an_earlier_database_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its seqs would be taken for those of the present one."""
    monkeypatch.setattr(kafka, "reader", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(kafka, "spans", lambda *_: {0: (0, 7)})
    monkeypatch.setattr(kafka, "changes_begun", lambda *_: {"present": 2})
    for followed in ("present", "", "earlier"):
        progress = TopicProgress(followed)
        model: Any = SimpleNamespace(folder="here", progress=lambda known=progress: known)
        log = kafka.KafkaLog(Settings(database="bank"), FacadeSettings(), model)
        refusal = pytest.raises(StoreMismatchError, match=r"in here .* id earlier; .* id present")
        with refusal if followed == "earlier" else nullcontext():
            log.check()


@pytest.mark.parametrize(("partitions", "offset"), [(1, OFFSET_INVALID), (0, 7)])
def test_ends_that_were_not_told_are_no_ends(
    partitions: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A strong read that took them for ends would not wait for anything."""
    monkeypatch.setattr(receiving, "reader", lambda *_: Broken(partitions, offset))
    with pytest.raises(KafkaUnavailableError):
        TopicEnds({}).look("t")
    monkeypatch.setattr(receiving, "reader", lambda *_: Broken(2, 7))
    assert TopicEnds({}).look("t") == {0: 7, 1: 7}


def test_no_offset_is_taken_for_one_elsewhere_either() -> None:
    admin: Any = Broken(1, OFFSET_INVALID)
    with pytest.raises(TopicsError, match="did not tell an offset"):
        list_offsets(admin, "t", [0], LATEST)
    assert list_offsets(Broken(1, -1), "t", [0], LATEST)[0].offset == -1  # type: ignore[arg-type]


@scenario
async def test_only_what_was_surely_not_appended_is_called_a_failure() -> None:
    done = log_of(FakeProducer(Appended(0, 7, 1), at_once=True))
    assert await done.append("a", b"{}") == LogPosition(0, 7)
    waiting = log_of(FakeProducer(Appended(0, 8, 1), at_once=True, full=True))
    assert await waiting.append("a", b"{}") == LogPosition(0, 8)
    for log in (
        log_of(FakeProducer(AppendError("refused"), at_once=True)),
        log_of(FakeProducer(Appended(0, 7, 1), at_once=True), "Kafka does not answer"),
        log_of(None),
    ):
        with pytest.raises(KafkaUnavailableError):
            await log.append("a", b"{}")
    unknown = log_of(FakeProducer(AppendError("late"), at_once=False))
    with pytest.raises(AppendUnknownError):
        await unknown.append("a", b"{}")
    held = log_of(FakeProducer(Appended(0, 9, 1), at_once=True))
    first = asyncio.create_task(held.append("a", b"{}"))
    gone = asyncio.create_task(held.append("b", b"{}"))
    await asyncio.sleep(0)  # the second one waits for the first one's verdict
    gone.cancel()
    assert await first == LogPosition(0, 9)
    held._appends.decided({0: 10})
    held._appends._groups.flush()
    assert held._appends._producer.payloads == [b"{}"], "nobody waits for it, so it does not go"
    with pytest.raises(KafkaUnavailableError):
        await log_of(None, "Kafka does not answer").ends()
    with pytest.raises(KafkaUnavailableError):
        await log_of(None, "Kafka does not answer").published()


@scenario
async def test_the_ends_of_results_are_told_before_the_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who hears a verdict may append at once, in the group that begins then."""
    made: list[Any] = []
    monkeypatch.setattr(kafka, "TopicFollower", lambda *parts: made.append(parts[-1]))
    results = log_of(None)._results
    waiting = asyncio.create_task(results.index.wait(LogPosition(0, 7)))
    await asyncio.sleep(0)
    told: list[tuple[Mapping[int, int], bool]] = []
    results.start(lambda ends: told.append((ends, bool(results.index._waiting))))
    result = Result(
        id="a", seq=1, ts_ms=1, status="committed", reads={}, failed=[], code=None,
        source=Source(0, 7),
    )  # fmt: skip
    for _ in made[0]([(result, encode_result(result))]):
        pass
    assert told == [({0: 8}, True)]
    assert (await waiting).id == "a"


class FakeEnds:
    """Plays the broker that is asked for partitions and their ends."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.ends = ends
        self.errors: list[int] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout > 0
        found = SimpleNamespace(partitions=dict(self.ends), error=None)
        return SimpleNamespace(topics={topic: found})

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
        assert timeout > 0
        error = KafkaError(self.errors.pop()) if self.errors else None
        return [
            SimpleNamespace(
                topic=place.topic,
                partition=place.partition,
                offset=self.ends.get(place.partition, -1),
                error=error,
            )
            for place in asked
        ]


@scenario
async def test_a_look_at_the_ends_sees_partitions_that_were_added_or_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = log_of(None)
    asked = FakeEnds({0: 5})
    monkeypatch.setattr(receiving, "reader", lambda *_: asked)
    log._ends = TopicEnds({})
    assert await log.ends() == {0: 5}
    asked.ends = {0: 6, 1: 1}
    assert await log.ends() == {0: 6, 1: 1}
    asked.ends = {0: 1}  # made anew
    assert await log.ends() == {0: 1}
    for passing in (
        KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR, KafkaError._TRANSPORT, UNKNOWN_PARTITION,
    ):  # fmt: skip
        asked.errors = [passing]
        assert await log.ends() == {0: 1}, "it asks again while a leader changes"
    asked.errors = [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaUnavailableError):
        await log.ends()
    monkeypatch.setattr(receiving, "REQUEST_S", 0.01)
    asked.errors = [KafkaError.LEADER_NOT_AVAILABLE] * 100
    with pytest.raises(KafkaUnavailableError, match="no leader"):
        await log.ends()
    asked.errors, asked.ends = [], {}
    with pytest.raises(KafkaUnavailableError):
        await log.ends()
