"""Kafka in memory, for tests that run what reads and writes topics, and kill it at any request.

It stands in for the clients of confluent-kafka, so the readers and appenders are production's own.
Records come and go a few at a time; a gap at the end of a partition is one of control records.
"""

from __future__ import annotations

import random
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import ConfigEntry

from streamydb.backup import restore
from streamydb.kafka import admin, clients, librdkafka
from streamydb.kafka.admin import EARLIEST, HIGHEST, LATEST
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.errors import ReadFailure
from streamydb.kafka.librdkafka import ConsumedRecords
from streamydb.kafka.names import TopicNames

__all__ = ["CONNECTION", "Died", "MemoryKafka", "Partition", "Record"]

_STAMPS = "message.timestamp.type"
_PROMPT = 0.5
"""How likely brokers apply new settings before the next request."""

_at = attrgetter("at")

CONNECTION = {"bootstrap.servers": "memory:9092"}

_PAUSE_S = 0.001
"""The longest wait of a client that has nothing to do; an end may come without a record."""


class Died(Exception):  # noqa: N818 - what happened to it
    """The process ends here."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record in a partition, and what a consumer hands over."""

    number: int
    at: int
    append_ms: int
    named: bytes | None
    content: bytes | None
    fault: KafkaError | None = None
    named_bytes: dict[str, bytes] | None = None
    clock: int = TIMESTAMP_LOG_APPEND_TIME

    def partition(self) -> int:
        """As `confluent_kafka.Message`, like all methods."""
        return self.number

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return self.clock, self.append_ms

    def key(self) -> bytes | None:
        return self.named

    def value(self) -> bytes | None:
        return self.content

    def error(self) -> KafkaError | None:
        return self.fault

    def topic(self) -> str:
        return "a topic in memory"

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self.named_bytes is None else list(self.named_bytes.items())


@dataclass(slots=True)
class Partition:
    """One partition: its records, its first offset, and the one after its last."""

    records: list[Record] = field(default_factory=list)
    low: int = 0
    high: int = 0

    def trim(self, before: int) -> None:
        """Delete the records before an offset."""
        self.low = max(self.low, before)
        self.records = [record for record in self.records if record.at >= self.low]


class MemoryKafka:
    """A cluster.

    Attributes:
        topics: by name.
        ids: Kafka's ids of topics that have one.
        failing: how likely a process dies at a request.
        settings: those of topics, as brokers apply them: at some time after they have taken them.
        now_ms: the brokers' clock.
    """

    def __init__(self, dice: random.Random) -> None:
        """No topics."""
        self.dice = dice
        self.topics: dict[str, list[Partition]] = {}
        self.ids: dict[str, str] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.taken: list[tuple[str, str, str]] = []
        self.failing = 0.0
        self.now_ms = 2_000_000_000
        self._appended = threading.Condition()

    def create(self, topic: str, partitions: int = 1) -> list[Partition]:
        """A topic, made or grown."""
        found = self.topics.setdefault(topic, [])
        found += [Partition() for _ in range(partitions - len(found))]
        return found

    def append(
        self,
        topic: str,
        number: int,
        value: bytes | None,
        key: bytes | None = None,
        append_ms: int | None = None,
        headers: dict[str, bytes] | None = None,
    ) -> int:
        """Append a record; its offset."""
        part = self.topics[topic][number]
        clock, stamp = TIMESTAMP_LOG_APPEND_TIME, self.now_ms
        self.apply_settings()
        asked = self.settings.get(topic, {}).get(_STAMPS)
        if asked == "CreateTime" and append_ms is not None:
            clock, stamp = TIMESTAMP_CREATE_TIME, append_ms
        part.records.append(Record(number, part.high, stamp, key, value, None, headers, clock))
        part.high += 1
        with self._appended:
            self._appended.notify_all()
        return part.high - 1

    def pause(self) -> None:
        """Have a client that has nothing to do wait a moment, or until a record is appended."""
        with self._appended:
            self._appended.wait(_PAUSE_S)

    def may_die(self) -> None:
        """Die, perhaps."""
        if self.dice.random() < self.failing:
            raise Died

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the cluster that production's clients talk to."""
        monkeypatch.setattr(clients, "KafkaReader", lambda given: _Consumer(self, given))
        monkeypatch.setattr(librdkafka, "ColumnReader", lambda *_, **__: _Columns(self))
        monkeypatch.setattr(clients, "KafkaAppender", lambda *_, **__: _Producer(self))
        monkeypatch.setattr(clients, "KafkaAdministrator", lambda *_, **__: _Admin(self))
        monkeypatch.setattr(admin, "_POLL_S", 0.0)
        monkeypatch.setattr(restore, "add_shared", self._add_shared)

    def apply_settings(self) -> None:
        """Apply what was taken, perhaps."""
        if self.taken and self.dice.random() < _PROMPT:
            for topic, name, value in self.taken:
                self.settings.setdefault(topic, {})[name] = value
            self.taken.clear()

    def _add_shared(self, _: Mapping[str, str], database: str) -> None:
        self.create(TopicNames(database).rulings)
        self.create(TopicNames(database).founding)


class _Client:
    """What all clients have."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self.kafka = kafka
        self.connections = SimpleNamespace(refusal=None, last=None)

    def list_topics(self, topic: str | None = None, **_: float) -> Any:
        self.kafka.may_die()
        names = self.kafka.topics if topic is None else [topic]
        missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        found = {
            name: SimpleNamespace(
                partitions={
                    number: SimpleNamespace(replicas=[1])
                    for number in range(len(self.kafka.topics.get(name, [])))
                },
                error=None if name in self.kafka.topics else missing,
            )
            for name in names
        }
        return SimpleNamespace(topics=found, cluster_id="memory", brokers={1: None})

    def poll(self, _: float = 0) -> int:
        return 0


class _Consumer(_Client):
    """A consumer of one topic; it hands over up to a handful of records at a time."""

    def __init__(self, kafka: MemoryKafka, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(kafka)
        self._skips = (settings or {}).get("auto.offset.reset") != "error"
        self._tells_ends = settings is None or bool(settings.get("enable.partition.eof"))
        self._places: dict[int, int] = {}
        self._told: dict[int, int] = {}
        self._taken: list[Record] = []
        self._paused: set[int] = set()
        self._topic = ""

    def get_watermark_offsets(self, place: TopicPartition, **_: float) -> tuple[int, int]:
        self.kafka.may_die()
        part = self.kafka.topics[place.topic][place.partition]
        return part.low, part.high

    def assign(self, places: list[TopicPartition]) -> None:
        self._topic = places[0].topic if places else ""
        self._places = {place.partition: max(0, place.offset) for place in places}
        self._told = {}
        self._taken = []

    def poll(self, _: float = 0) -> Any:
        self._taken = self._taken or self.consume()
        return self._taken.pop(0) if self._taken else None

    def consume(self, *_: float, **__: float) -> list[Record]:
        self.kafka.may_die()
        found, self._taken = self._taken, []
        if found:
            return found
        for number, place in self._places.items():
            if number in self._paused:
                continue
            part, most = self.kafka.topics[self._topic][number], self.kafka.dice.randint(1, 40)
            start, high = max(place, part.low), part.high  # others may append meanwhile
            if place < part.low and not self._skips:
                lost = KafkaError(KafkaError._AUTO_OFFSET_RESET)
                found.append(Record(number, place, 0, None, None, lost))
                continue
            first = bisect_left(part.records, start, key=_at)
            there = [each for each in part.records[first : first + most + 1] if each.at < high]
            found += there[:most]
            end = high if len(there) <= most else there[most - 1].at + 1
            self._places[number] = end
            if self._tells_ends and end == high and self._told.get(number) != end:
                self._told[number] = end
                reached = KafkaError(KafkaError._PARTITION_EOF)
                found.append(Record(number, end, 0, None, None, reached))
        return found

    def offsets_for_times(self, asked: list[TopicPartition], **_: float) -> list[TopicPartition]:
        self.kafka.may_die()
        found = []
        for place in asked:
            part = self.kafka.topics[place.topic][place.partition]
            later = (record.at for record in part.records if record.append_ms >= place.offset)
            first = part.high if place.offset == OFFSET_END else next(later, -1)
            found.append(TopicPartition(place.topic, place.partition, first))
        return found

    def seek(self, place: TopicPartition) -> None:
        self._places[place.partition] = place.offset
        self._told.pop(place.partition, None)
        self._taken = [each for each in self._taken if each.number != place.partition]

    def pause(self, places: list[TopicPartition]) -> None:
        self._paused |= {place.partition for place in places}

    def resume(self, places: list[TopicPartition]) -> None:
        self._paused -= {place.partition for place in places}

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """Of one partition: where the first record is that has not been handed over."""
        number = places[0].partition
        kept = next((each.at for each in self._taken if each.number == number), None)
        at = self._places[number] if kept is None else kept
        return [TopicPartition(self._topic, number, at)]

    def unassign(self) -> None:
        self.assign([])

    def close(self) -> None:
        return


class _Columns(_Client):
    """A reader in columns."""

    def __init__(self, kafka: MemoryKafka) -> None:
        super().__init__(kafka)
        self._consumer = _Consumer(kafka)

    def assign(self, topic: str, positions: Mapping[int, int]) -> None:
        self._consumer.assign([TopicPartition(topic, n, at) for n, at in positions.items()])

    def take(self, *_: float) -> ConsumedRecords:
        found = self._consumer.consume()
        if not found:
            self.kafka.pause()
        failed = [ReadFailure(each.fault, each.number, each.at) for each in found if each.fault]
        return ConsumedRecords(RecordColumns.of([each for each in found if not each.fault]), failed)

    def close(self) -> None:
        return


class _Producer(_Client):
    """A producer: what it was given is sent at some time, in order; a death loses the rest."""

    def __init__(self, kafka: MemoryKafka) -> None:
        super().__init__(kafka)
        self._kept: list[Callable[[], None]] = []
        self._parts: list[Partition] = []

    def expect(self, topic: str) -> None:
        """Nothing is looked up here."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = 0,
        timestamp: int | None = None,
        on_delivery: Callable[[Any, Any], None] | None = None,
        headers: dict[str, bytes] | None = None,
    ) -> None:
        def send() -> None:
            self.kafka.append(topic, partition, value, key, timestamp, headers)
            if on_delivery is not None:
                on_delivery(None, self.kafka.topics[topic][partition].records[-1])

        self._parts.append(self.kafka.topics[topic][partition])

        self._kept.append(send)
        if self.kafka.dice.random() < self.kafka.failing:
            self._send(self.kafka.dice.randint(0, len(self._kept)))
            raise Died

    def __len__(self) -> int:
        return len(self._kept)

    def poll(self, timeout: float = 0) -> int:
        if timeout and not self._kept:
            self.kafka.pause()
        elif self.kafka.dice.random() < 0.5:
            self._send(len(self._kept))
        return 0

    def purge(self) -> None:
        self._kept.clear()

    def flush(self, _: float = 0) -> int:
        self.kafka.may_die()
        self._send(len(self._kept))
        return 0

    def init_transactions(self, _: float) -> None:
        self.kafka.may_die()

    def begin_transaction(self) -> None:
        self._parts.clear()

    def commit_transaction(self, _: float) -> None:
        """Before it dies, it has committed or not; either way its markers take offsets."""
        died = self.kafka.dice.random() < self.kafka.failing
        if died and self.kafka.dice.random() < 0.5:
            for part in self._parts:  # what is aborted is there, and no reader is given it
                part.high += 1
            self._kept.clear()
        self._send(len(self._kept))
        for part in {id(part): part for part in self._parts}.values():
            part.high += 1
        if died:
            raise Died

    def _send(self, count: int) -> None:
        for send in self._kept[:count]:
            send()
        del self._kept[:count]


class _Admin(_Client):
    """An administration client."""

    def describe_topics(self, asked: Any, **_: float) -> dict[str, Future[Any]]:
        ids, topics = self.kafka.ids, self.kafka.topics
        return {
            name: _done(SimpleNamespace(topic_id=ids[name], partitions=topics.get(name, [])))
            for name in asked.topic_names
        }

    def incremental_alter_configs(self, changes: list[Any]) -> dict[Any, Future[None]]:
        self.kafka.may_die()
        for change in changes:
            entries = change.incremental_configs
            self.kafka.taken += [(change.name, each.name, each.value) for each in entries]
        return {change: _done(None) for change in changes}

    def describe_configs(self, asked: list[Any]) -> dict[Any, Future[Any]]:
        self.kafka.may_die()
        self.kafka.apply_settings()
        return {about: _done(self._configs(about.name)) for about in asked}

    def _configs(self, topic: str) -> dict[str, ConfigEntry]:
        own = self.kafka.settings.get(topic, {})
        return {name: ConfigEntry(name, value) for name, value in own.items()}

    def list_offsets(self, asked: dict[TopicPartition, Any]) -> dict[TopicPartition, Future[Any]]:
        self.kafka.may_die()
        return {
            place: _done(self._listed(self.kafka.topics[place.topic][place.partition], spec))
            for place, spec in asked.items()
        }

    def _listed(self, part: Partition, spec: Any) -> Any:
        if spec in (EARLIEST, LATEST):
            offset = part.low if spec is EARLIEST else part.high
            return SimpleNamespace(offset=offset, timestamp=-1)
        if spec is not HIGHEST:  # of a time
            later = (each for each in part.records if each.append_ms >= spec._value)
            first = next(later, None)
            return SimpleNamespace(offset=-1 if first is None else first.at, timestamp=-1)
        highest = max(part.records, key=lambda record: record.append_ms, default=None)
        at, stamp = (-1, -1) if highest is None else (highest.at, highest.append_ms)
        return SimpleNamespace(offset=at, timestamp=stamp)

    def delete_records(
        self, places: list[TopicPartition], **_: float
    ) -> dict[TopicPartition, Future[Any]]:
        done = {}
        for place in places:
            self.kafka.may_die()
            part = self.kafka.topics[place.topic][place.partition]
            part.trim(place.offset)
            done[place] = _done(SimpleNamespace(low_watermark=part.low))
        return done


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
