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
from streamydb.kafka.connection import (
    Answer,
    ConnectionState,
    RefusedError,
    answer_of,
    is_transient,
    metadata,
    mistake_of,
    passes,
    watermarks,
)
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


def test_a_partition_that_the_library_does_not_know_yet_is_asked_for_again() -> None:
    leader = Leader(KafkaError._UNKNOWN_PARTITION)
    assert watermarks(leader, "topic", 2, 30) == (3, 7)
    leader = Leader(KafkaError._UNKNOWN_PARTITION)
    with pytest.raises(KafkaException, match="Unknown partition"):
        watermarks(leader, "topic", 2, 0)


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


def tls(_: bytes) -> bytes:
    return b"\x15\x03\x03\x00\x02\x02\x50"


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        (kafka, "kafka"),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", "other"),
        (tls, "tls"),
        (lambda question: question, "other"),
        (lambda question: kafka(question)[:6], "other"),
        (lambda _: b"", "other"),
    ],
    ids=["kafka", "http", "tls", "echo", "cut", "nothing"],
)
def test_kafka_is_known_by_its_first_answer(
    answer: Callable[[bytes], bytes], known: Answer
) -> None:
    with answering(answer) as address:
        given = {"bootstrap.servers": address}
        assert answer_of(given) == known
    assert (mistake_of(known, given) is None) is (known == "kafka")


def test_one_address_that_may_be_kafka_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert answer_of({"bootstrap.servers": nobody}) == "nobody"
    with answering(lambda _: b"no") as other, answering(tls) as secret:
        assert answer_of({"bootstrap.servers": f"{nobody},{other},{secret}"}) == "tls"
    with answering(lambda _: b"no") as other, answering(kafka) as it:
        assert answer_of({"bootstrap.servers": f"{other}, {it}"}) == "kafka"
    monkeypatch.setattr(connection, "_PROBE_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent, answering(tls) as secret:
        address = "{}:{}".format(*silent.getsockname())
        assert answer_of({"bootstrap.servers": f"{address},{secret}"}) == "silent"
    assert not any(mistake_of(answer, {}) for answer in ("kafka", "silent", "nobody"))


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_over_tls_nobody_is_asked(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_answer_of", lambda _: "other")
    given = {"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT"}
    assert answer_of(given) == "other"
    assert answer_of({**given, "security.protocol": protocol}) == "nobody"


def test_what_speaks_tls_is_told_so() -> None:
    mistake = mistake_of("tls", {"security.protocol": "SASL_PLAINTEXT"})
    assert mistake is not None
    assert mistake.what == "speaks TLS, and is spoken to without"
    assert "STREAMYDB_SECURITY_PROTOCOL (now SASL_PLAINTEXT) to SSL or SASL_SSL" in mistake.fix


class Unanswered:
    """A client that gets no answer, and hears of an error from time to time."""

    def __init__(self, protocol: str, address: str, told: str) -> None:
        self.connections = ConnectionState(
            {"bootstrap.servers": address, "security.protocol": protocol}
        )
        self._told = told
        self.answers = False

    def list_topics(self, **_: object) -> str:
        if self.answers:
            return "topics"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Local: Timed out"))

    def poll(self, _: float) -> None:
        self.connections(KafkaError(KafkaError._TRANSPORT, self._told))
        self.connections(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))


NO_TLS = "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener? (4ms)"
NO_SASL = (
    "Disconnected: verify that security.protocol is correctly configured, broker might require "
    "SASL authentication (after 25ms in state UP)"
)


def test_kafka_without_tls_refuses_a_client_with_it() -> None:
    with answering(kafka) as address:
        client = Unanswered("SASL_SSL", address, NO_TLS)
        with pytest.raises(RefusedError, match=r"speaks no TLS there: .*PROTOCOL \(now SASL_SSL\)"):
            metadata(client, None, 30)


@pytest.mark.parametrize("told", [NO_TLS, NO_SASL])
def test_a_broker_that_ends_connections_may_also_be_ending(told: str) -> None:
    """So it is asked again, and the doubt is told when the time is up."""
    client = Unanswered("SSL", f"127.0.0.1:{free_port()}", told)
    with pytest.raises(KafkaException, match=r"Timed out; if Kafka runs, .*\(now SSL\)") as raised:
        metadata(client, None, 0)
    assert is_transient(raised.value)
    said = client.connections.reason(raised.value)
    assert "may be wrong" in said
    assert told.partition(" (")[0] in said
    client.answers = True
    assert metadata(client, None, 0) == "topics"
    assert client.connections.reason(raised.value) == "1/1 brokers are down"


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
