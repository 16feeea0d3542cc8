"""An error that ends a client of librdkafka (a fatal one): whoever appends goes on with another."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
import weakref
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamydb.kafka.clients import LOG, KafkaAppender, appender
from streamydb.kafka.librdkafka import library_path
from streamydb.kafka.names import TopicNames
from streamydb.kafka.producer import Appended, AppendError, AppendUnknownError, Producer
from streamydb.kafka.shared_topics import SharedTopics, SharedTopicsError
from streamydb.local.launcher import wait_until
from streamydb.records.control import Beat
from streamydb.settings import Settings

# librdkafka's own brokers, in this process. Each client has some of its own.
CONNECTION = {"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1}
SETTINGS = cast(
    "Settings", SimpleNamespace(database="bank", client_config=lambda: dict(CONNECTION))
)
TOPIC = TopicNames("bank").transactions
TRANSACTION = b'{"id":"t","updates":[{"op":"put","key":"k","value":1}]}'
EPOCH = KafkaError.INVALID_PRODUCER_EPOCH
WAIT_S = 20


def end(client: KafkaAppender) -> None:
    """Have an error end a client, as when its brokers take it for an old one of its name."""
    handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__)
    raised = ctypes.CDLL(library_path()).rd_kafka_test_fatal_error
    raised.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    raised(handle, EPOCH, b"for a test")


def cause(of: pytest.ExceptionInfo[Any]) -> KafkaError:
    found: KafkaError = of.value.args[0]
    return found


@pytest.mark.parametrize("polls", [0, 1])
def test_an_appender_that_has_ended_says_what_ended_it(polls: int) -> None:
    client = appender(CONNECTION, LOG, TOPIC)
    end(client)
    for _ in range(polls):
        client.poll(0.1)
    for _ in range(2):
        with pytest.raises(KafkaException, match="for a test") as ended:
            client.produce(TOPIC, b"1")
        assert (cause(ended).code(), cause(ended).fatal()) == (EPOCH, True)


def test_an_error_that_ends_nothing_is_raised_as_it_is() -> None:
    client = appender(CONNECTION, LOG, TOPIC)
    with pytest.raises(KafkaException) as refused:
        client.produce(TOPIC, b"1" * 2_000_000)
    assert (cause(refused).code(), cause(refused).fatal()) == (KafkaError.MSG_SIZE_TOO_LARGE, False)


def test_who_is_told_nothing_by_callbacks_knows_that_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread serves the callbacks, and has not yet passed on what it was told."""
    client = appender(CONNECTION, LOG, TOPIC)
    end(client)
    monkeypatch.setattr(KafkaAppender, "poll", lambda *_: 0)
    with pytest.raises(KafkaException, match="has ended") as ended:
        client.produce(TOPIC, b"1")
    assert cause(ended).fatal()


class Appends:
    """A producer whose client is ended now and then; what came of each record."""

    def __init__(self, producer: Producer, dice: random.Random) -> None:
        self._producer = producer
        self._dice = dice
        self.fates: list[list[AppendError | None]] = []

    def append(self) -> None:
        """Append a record in any way; it must have a place, as nothing ends its client now."""
        kind = self._dice.choice(["waiting", "at once", "many"])
        if kind == "waiting":
            assert self._producer.append(TRANSACTION, timeout_s=WAIT_S).offset >= 0
        elif kind == "many":
            assert len(list(self._producer.append_many([TRANSACTION] * 3))) == 3
        else:
            fate = self.put()
            self._producer.flush(WAIT_S)
            assert fate == [None]

    def put(self) -> list[AppendError | None]:
        """Append a record as a facade does; its fate, to which nothing but one entry is added."""
        fate: list[AppendError | None] = []
        self.fates.append(fate)
        if not self._producer.append_at_once(TRANSACTION, lambda _, error: fate.append(error)):
            self._producer.append_async(TRANSACTION, lambda _, error: fate.append(error))
        return fate

    def end(self) -> None:
        """End the client, with some records under way."""
        for _ in range(self._dice.randrange(3)):
            self.put()
        end(self._producer._client)
        if self._dice.random() < 0.5:
            self._producer._client.poll(0)


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize("appends", [Producer.append_async, Producer.append_at_once])
def test_of_a_client_that_has_ended_nothing_is_left(appends: Any, *, served: bool) -> None:
    """Else it would leave threads and sockets behind, each time."""
    with Producer(SETTINGS) as producer:
        ended = weakref.ref(producer._client)
        end(producer._client)
        if served:
            producer._client.poll(0)
        appends(producer, TRANSACTION, lambda *_: None)
        assert producer.append(TRANSACTION, timeout_s=WAIT_S).offset >= 0
        assert wait_until(lambda: not gc.collect() and ended() is None, WAIT_S)


@pytest.mark.parametrize("seed", range(10))
def test_a_producer_goes_on_after_its_client_has_ended(seed: int) -> None:
    dice = random.Random(seed)
    with Producer(SETTINGS) as producer:
        appends = Appends(producer, dice)
        for _ in range(12):
            if dice.random() < 0.3:
                appends.end()
            else:
                appends.append()
        appends.append()
    for fate in appends.fates:
        assert len(fate) == 1, "each record has one fate"
        assert fate[0] is None or "for a test" in str(fate[0])


def test_who_is_told_of_a_dropped_record_may_append_it_again() -> None:
    """In the callback itself, while another append has the client replaced."""
    slow = {**CONNECTION, "test.mock.broker.rtt": 300}
    settings = SimpleNamespace(database="bank", client_config=lambda: slow)
    fates: list[AppendError | None] = []
    done = threading.Event()

    def told(_: Appended | None, error: AppendError | None) -> None:
        fates.append(error)
        if error is None:
            done.set()
        else:
            producer.append_async(TRANSACTION, told)

    with Producer(cast("Settings", settings), linger_ms=0) as producer:
        producer.append(TRANSACTION, timeout_s=WAIT_S)  # so that there are connections
        producer.append_async(TRANSACTION, told)
        threading.Event().wait(0.1)  # it is under way
        end(producer._client)
        other = threading.Thread(target=producer.append, args=[TRANSACTION], daemon=True)
        other.start()
        assert done.wait(WAIT_S)
        other.join(WAIT_S)
        assert not other.is_alive()
    assert len(fates) == 2
    assert isinstance(fates[0], AppendUnknownError), "it may be in the log"


def test_pipelines_tell_one_another_after_a_client_has_ended() -> None:
    beat = Beat(log="log", pipeline="me", epoch=1, resolved=1, read=1)
    feedback = TopicNames("bank").feedback_of("")
    with closing(SharedTopics(cast("Any", CONNECTION), "bank", feedback)) as topics:
        assert topics.tell(feedback, b"1") == 0
        end(topics._producer)
        with pytest.raises(SharedTopicsError, match="for a test"):
            topics.say(beat)
        topics.say(beat)
        assert topics.tell(feedback, b"2") == 0
        end(topics._producer)
        with pytest.raises(SharedTopicsError, match="for a test"):
            topics.tell(feedback, b"3")
        assert topics.tell(feedback, b"3") == 0


@pytest.mark.parametrize("seed", range(5))
def test_pipelines_tell_one_another_whenever_a_client_has_ended(seed: int) -> None:
    """One call says so; what is told after it is there, once and in order."""
    dice = random.Random(seed)
    beat = Beat(log="log", pipeline="me", epoch=1, resolved=1, read=1)
    feedback = TopicNames("bank").feedback_of("")
    with closing(SharedTopics(cast("Any", CONNECTION), "bank", feedback)) as topics:
        told = 0  # by the client of now; each has a broker of its own
        for _ in range(20):
            if dice.random() < 0.3:
                end(topics._producer)
                told = 0
                says = dice.random() < 0.5
                with pytest.raises(SharedTopicsError, match="for a test"):
                    topics.say(beat) if says else topics.tell(feedback, b"1")
            elif dice.random() < 0.5:
                topics.say(beat)
            else:
                assert topics.tell(feedback, b"1") == told
                told += 1
