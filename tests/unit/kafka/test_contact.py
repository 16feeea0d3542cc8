"""Asking a partition's leader for its offsets while it changes; who is Kafka, and who is not."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streamydb.kafka import connection, reader
from streamydb.kafka.connection import is_another, passes, watermarks
from streamydb.local.broker import free_port


class Leader:
    """Answers like a consumer: with errors first, then with offsets."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.asked: list[TopicPartition] = []

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        self.asked.append(place)
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return 3, 7


def test_a_leader_that_is_changing_is_asked_again() -> None:
    leader = Leader(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert watermarks(leader, "topic", 2, 30) == (3, 7)
    assert [(place.topic, place.partition) for place in leader.asked] == [("topic", 2)] * 3


def test_what_no_waiting_mends_is_told_at_once() -> None:
    leader = Leader(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException) as raised:
        watermarks(leader, "topic", 0, 30)
    assert not passes(raised.value)
    assert len(leader.asked) == 1


def test_the_last_error_is_told_when_the_time_is_up() -> None:
    leader = Leader(KafkaError.NOT_LEADER_FOR_PARTITION)
    with pytest.raises(KafkaException, match="Not leader"):
        watermarks(leader, "topic", 0, 0)
    assert len(leader.asked) == 1


def test_other_faults_do_not_pass() -> None:
    assert not passes(None)
    assert not passes(ValueError())
    assert not passes(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))


def kafka(question: bytes) -> bytes:
    """Answer as a broker does: the size, the number of the request, no error, no versions."""
    size, key, version, number, name = struct.unpack(">ihhih", question)
    assert (size, key, version, name) == (len(question) - 4, 18, 0, -1)
    return struct.pack(">iihi", 10, number, 0, 0)


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """Listen, answer one client, and close the connection."""

    def serve() -> None:
        peer, _ = server.accept()
        with peer:
            peer.sendall(answer(peer.recv(100)))

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        done = pool.submit(serve)
        yield "{}:{}".format(*server.getsockname())
        done.result(10)


@pytest.mark.parametrize(
    ("answer", "another"),
    [
        (kafka, False),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", True),
        (lambda _: b"\x15\x03\x03\x00\x02\x02\x50", True),
        (lambda question: question, True),
        (lambda question: kafka(question)[:6], True),
        (lambda _: b"", True),
    ],
    ids=["kafka", "http", "tls", "echo", "cut", "nothing"],
)
def test_kafka_is_known_by_its_first_answer(
    answer: Callable[[bytes], bytes], another: object
) -> None:
    with answering(answer) as address:
        assert is_another({"bootstrap.servers": address}) is another


def test_one_address_that_may_be_kafka_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert not is_another({"bootstrap.servers": nobody})
    with answering(lambda _: b"no") as other:
        assert is_another({"bootstrap.servers": f"{nobody},{other}"})
    with answering(lambda _: b"no") as other, answering(kafka) as it:
        assert not is_another({"bootstrap.servers": f"{other}, {it}"})
    monkeypatch.setattr(connection, "_PROBE_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "{}:{}".format(*silent.getsockname())
        assert not is_another({"bootstrap.servers": address})


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_over_tls_nobody_is_asked(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_first_answer", lambda _: b"no")
    given = {"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT"}
    assert is_another(given)
    assert not is_another({**given, "security.protocol": protocol})


def test_a_broker_that_does_not_answer_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT))

    monkeypatch.setattr(reader, "metadata", silent)
    monkeypatch.setattr(reader, "watermarks", silent)
    told = r"did not answer about bank\.results \(Broker: Request timed out\): start it"
    with reader.TopicReader({"bootstrap.servers": "127.0.0.1:1"}, "bank.results") as topic:
        for ask in (topic.partitions, lambda: topic.span(0)):
            with pytest.raises(reader.ReadingError, match=told):
                ask()
