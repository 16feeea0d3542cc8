"""How a service waits for Kafka: what passes is waited for, what does not ends it at once."""

from __future__ import annotations

import logging
from typing import NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException
from py4j.protocol import Py4JNetworkError

from streamydb.errors import ConfigurationError
from streamydb.kafka.admin import TopicsError
from streamydb.kafka.connection import KafkaRetry, RefusedError, StopRequestedError, is_transient
from streamydb.local.broker.ports import free_port

_AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))


def caused(error: Exception, cause: Exception) -> Exception:
    """An error as `raise error from cause` leaves it."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("code", [
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError._NOENT,
])  # fmt: skip
def test_a_broker_that_is_away_or_not_ready_passes(code: int) -> None:
    error = KafkaException(KafkaError(code))
    assert is_transient(error)
    assert is_transient(caused(TopicsError("Kafka does not answer"), error))


def test_what_no_waiting_mends_does_not_pass() -> None:
    assert not is_transient(None)
    assert not is_transient(ConfigurationError("the topic is missing"))
    assert not is_transient(caused(RefusedError("a wrong password"), _AWAY))
    assert not is_transient(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    assert not is_transient(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    assert is_transient(caused(TopicsError("waited for a leader"), TimeoutError()))
    assert not is_transient(caused(Py4JNetworkError("the JVM is gone"), ConnectionRefusedError()))


def test_it_waits_says_why_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    waits: list[float] = []
    notes: list[str | None] = []
    tries = iter([caused(TopicsError("no answer"), _AWAY)] * 3)

    def stopped(seconds: float) -> bool:
        waits.append(seconds)
        return False

    def action() -> str:
        for error in tries:
            raise error
        return "found"

    assert KafkaRetry(stopped, notes.append).call(action) == "found"
    assert notes == ["no answer"] * 3 + [None]
    assert [wait for wait in waits if wait] == [0.2, 0.4, 0.8]
    assert caplog.messages == ["waiting for Kafka: no answer", "Kafka answers"]


def test_it_ends_when_it_is_told_to_stop_or_when_waiting_does_not_help() -> None:
    def away() -> NoReturn:
        raise _AWAY

    def refused() -> NoReturn:
        raise RefusedError("a wrong password")

    answers = iter([False, False, True])
    with pytest.raises(StopRequestedError):
        KafkaRetry(lambda _: next(answers)).call(away)
    with pytest.raises(RefusedError):
        KafkaRetry(lambda _: False).call(refused)


def test_where_nobody_listens_kafka_is_not_asked() -> None:
    notes: list[str | None] = []
    answers = iter([False, False, True])
    retry = KafkaRetry(lambda _: next(answers), notes.append, f"127.0.0.1:{free_port()}")
    with pytest.raises(StopRequestedError):
        retry.call(lambda: pytest.fail("asked"))
    assert "nobody listens at 127.0.0.1" in str(notes[0])
    assert KafkaRetry(lambda _: False, addresses="127.0.0.1:1").call(lambda: 7, look=False) == 7
