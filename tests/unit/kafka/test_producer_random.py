"""Threads append while the producer's own thread falls asleep, wakes, and is closed.

The broker's side decides by dice when a record has its fate, which fate, when the queue is full,
when the client refuses a record at once, and when a fatal error ends it; some callbacks raise. An
error is any that Kafka knows, and the record is in the log or not, except that what was not sent,
or refused at once, is not. The thread's sleep is made so long that whoever relies on its end, and
not on being woken, fails.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamydb.kafka import producer
from streamydb.kafka.connection import ConnectionState
from streamydb.kafka.producer import Appended, AppendError, AppendUnknownError
from streamydb.settings import Settings
from tests.support.memory_kafka import CONNECTION, Record
from tests.support.seeds import seeds

WAIT_S = 20.0
"""Nothing here takes so long, unless somebody was not woken."""

Told = Callable[[KafkaError | None, Any], None]

NOT_WRITTEN = [
    KafkaError._PURGE_QUEUE, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD,
    KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_MSG, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_REQUIRED_ACKS,
]  # fmt: skip
"""Errors of records that were not sent, or that a broker looks at before it writes."""

PERHAPS_WRITTEN = sorted(
    {
        code
        for name, code in vars(KafkaError).items()
        if name.strip("_").isupper() and isinstance(code, int)
    }
    - {*NOT_WRITTEN, KafkaError.NO_ERROR}
)


class Broker:
    """What the clients of one producer talk to, one after the other.

    Attributes:
        log: the values that were appended, in order.
        clients: how many there were.
        ends: how many of them a fatal error has ended; the last may have no successor.
        refused: values that a client has not taken.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.queue_max = self.dice.randint(1, 8)
        self.failing = self.dice.choice([0.0, 0.1])
        self.ending = self.dice.choice([0.0, 0.02])
        self.refusing = self.dice.choice([0.0, 0.1])
        self.lock = threading.Lock()
        self.log: list[bytes] = []
        self.clients = self.ends = 0
        self.refused: set[bytes] = set()

    def connect(self, *_: object) -> Client:
        self.clients += 1
        return Client(self)


class Client:
    """A client of librdkafka: callbacks are called in `poll` and `flush` only."""

    def __init__(self, broker: Broker) -> None:
        self.connections = ConnectionState(CONNECTION)
        self._broker = broker
        self._kept: list[tuple[bytes, Told]] = []
        self._ended = False

    def __len__(self) -> int:
        return len(self._kept)

    def produce(self, _: str, value: bytes, *_key: object, on_delivery: Told) -> None:
        broker = self._broker
        with broker.lock:
            if not self._ended and broker.dice.random() < broker.ending:
                self._ended = True
                broker.ends += 1
            if self._ended:
                fatal = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
                raise KafkaException(fatal)
            if broker.dice.random() < broker.refusing:
                broker.refused.add(value)
                raise KafkaException(KafkaError(broker.dice.choice(NOT_WRITTEN)))
            if len(self._kept) >= broker.queue_max:
                raise BufferError
            self._kept.append((value, on_delivery))

    def poll(self, timeout_s: float) -> int:
        with self._broker.lock:
            count = self._broker.dice.randint(0, len(self._kept))
        if not count and timeout_s:
            threading.Event().wait(0.001)
        return self._tell(count)

    def purge(self) -> None:
        self._ended = True

    def flush(self, _: float) -> int:
        while self._kept:
            self._tell(len(self._kept))
        return 0

    def _tell(self, count: int) -> int:
        """Give the first records their fate."""
        broker, fates = self._broker, []
        with broker.lock:
            found, self._kept[:count] = self._kept[:count], []
            for value, told in found:
                error, written = self._fate()
                if written:
                    broker.log.append(value)
                fates.append((told, error, len(broker.log) - 1))
        for told, error, offset in fates:
            if error is not None:
                told(error, None)
            else:
                told(None, Record(0, offset, 1_000 + offset, None, None))
        return len(fates)

    def _fate(self) -> tuple[KafkaError | None, bool]:
        """What is told of a record, and if the log has it."""
        dice = self._broker.dice
        if self._ended:  # it is under way, or it is not
            sent = dice.random() < 0.5
            purged = KafkaError._PURGE_INFLIGHT if sent else KafkaError._PURGE_QUEUE
            return KafkaError(purged), sent and dice.random() < 0.5
        if dice.random() >= self._broker.failing:
            return None, True
        if dice.random() < 0.5:
            return KafkaError(dice.choice(NOT_WRITTEN)), False
        return KafkaError(dice.choice(PERHAPS_WRITTEN)), dice.random() < 0.5


class Fates:
    """What the producer has told, of the records of one thread.

    Attributes:
        taken: values that it took, in order; each must be told of once.
        told: value -> what was told of it.
    """

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.told: dict[bytes, list[Appended | AppendError | None]] = {}
        self._all = threading.Condition()

    def hear(self, value: bytes, *, raises: bool) -> producer.OnDelivery:
        def note(appended: Appended | None, error: AppendError | None) -> None:
            with self._all:
                self.told.setdefault(value, []).append(appended or error)
                self._all.notify_all()
            if raises:
                raise KeyError(value)

        return note

    def wait(self) -> bool:
        """Wait until all that was taken has been told of."""
        with self._all:
            return self._all.wait_for(lambda: len(self.told) >= len(self.taken), WAIT_S)


def _pass_on(heard: producer.OnDelivery, done: Future[Appended]) -> None:
    """Tell what a future has; it raises nothing but what a producer may."""
    error = done.exception()
    assert error is None or isinstance(error, AppendError)
    heard(None if error else done.result(), error)


def _append(
    log: producer.Producer, number: int, seed: int, fates: Fates, failures: list[str]
) -> None:
    """Append some, in three ways, and rest until all is told: then the producer falls asleep."""
    dice = random.Random(seed * 1_000 + number)
    for count in range(dice.randint(1, 40)):
        value = b"%d-%d" % (number, count)
        heard = fates.hear(value, raises=dice.random() < 0.05)
        way = dice.random()
        if way < 0.3:
            fates.taken.append(value)
            log.submit(value).add_done_callback(partial(_pass_on, heard))
            continue
        try:
            if way < 0.65:
                if log.append_at_once(value, heard):
                    fates.taken.append(value)
            else:
                log.append_async(value, heard)
                fates.taken.append(value)
        except AppendError:
            pass  # refused, or fenced again and again; nobody may hear of it
        if dice.random() < 0.3:
            if not fates.wait():
                failures.append(f"{value!r}: no fate")
                return
            threading.Event().wait(dice.choice([0, 0, 0.001, 0.003]))


@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_each_record_is_told_of_once_and_nobody_waits_for_the_end_of_a_sleep(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(seed)
    monkeypatch.setattr(producer, "appender", broker.connect)
    monkeypatch.setattr(producer, "_IDLE_S", 10 * WAIT_S)
    log = producer.Producer(Settings())
    every = [Fates() for _ in range(broker.dice.randint(1, 4))]
    failures: list[str] = []
    threads = [
        threading.Thread(target=_append, args=(log, number, seed, fates, failures), daemon=True)
        for number, fates in enumerate(every)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert failures == []
    if broker.dice.random() < 0.5:
        threading.Event().wait(0.005)  # now and then it sleeps when it is closed
    closing = threading.Thread(target=log.close, daemon=True)
    closing.start()
    closing.join(WAIT_S)
    assert not closing.is_alive()

    told = {value: fate for fates in every for value, fate in fates.told.items()}
    assert sorted(told) == sorted(value for fates in every for value in fates.taken)
    assert {len(fate) for fate in told.values()} <= {1}
    appended = {value: fate[0] for value, fate in told.items() if isinstance(fate[0], Appended)}
    unknown = {value for value, fate in told.items() if isinstance(fate[0], AppendUnknownError)}
    assert appended.keys() <= {*broker.log} <= appended.keys() | unknown
    assert len(broker.log) == len({*broker.log})
    assert all(broker.log[place.offset] == value for value, place in appended.items())
    for fates in every:
        of_thread = [appended[value].offset for value in fates.taken if value in appended]
        assert of_thread == sorted(of_thread)
    assert broker.refused.isdisjoint({*broker.log})
    assert broker.clients - 1 <= broker.ends <= broker.clients
    assert broker.failing or broker.ends or told.keys() - appended.keys() <= broker.refused

    late = Fates()
    assert not log.append_at_once(b"late", late.hear(b"late", raises=False))
    with pytest.raises(AppendError):
        log.append_async(b"late", late.hear(b"late", raises=False))
    log.close()
    assert late.told == {}
