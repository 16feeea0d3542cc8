"""Reasons why a record was not appended, in words that say what to do."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from streamydb.kafka.clients import MSG_TIMED_OUT
from streamydb.kafka.connection import PURGE_QUEUE, ConnectionState
from streamydb.kafka.producer import AppendUnknownError, explain

TOPIC = "bank.transactions"


def connections(ended: KafkaError | None = None) -> ConnectionState:
    """What a client knows whose broker has said this."""
    made = ConnectionState({"bootstrap.servers": "127.0.0.1:1"})
    if ended is not None:
        made(ended)
    return made


def test_what_was_dropped_unsent_is_told_with_the_error_that_ended_the_client() -> None:
    refused = KafkaError(
        KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Broker: Cluster authorization failed", fatal=True
    )
    told = explain(KafkaError(PURGE_QUEUE), TOPIC, connections(refused))
    assert not isinstance(told, AppendUnknownError)
    assert "Cluster authorization failed; grant this user" in str(told)
    assert "`streamydb acls`" in str(told)


def test_what_was_dropped_without_a_known_reason() -> None:
    told = explain(KafkaError(PURGE_QUEUE), TOPIC, connections())
    assert str(told) == f"{TOPIC}: Local: Purged in queue"


UNSURE = [
    KafkaError._PURGE_INFLIGHT, MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError.UNKNOWN,
    KafkaError.KAFKA_STORAGE_ERROR, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.INVALID_PRODUCER_EPOCH,
]  # fmt: skip


@pytest.mark.parametrize("code", UNSURE)
def test_what_may_have_been_sent_is_unknown(code: int) -> None:
    told = explain(KafkaError(code), TOPIC, connections())
    assert isinstance(told, AppendUnknownError)
    assert "append the same bytes again" in str(told)


@pytest.mark.parametrize("code", UNSURE)
def test_what_the_client_did_not_take_is_in_no_log(code: int) -> None:
    assert not isinstance(
        explain(KafkaError(code), TOPIC, connections(), sent=False), AppendUnknownError
    )


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_ENOUGH_REPLICAS,
    ],
)  # fmt: skip
def test_what_a_broker_refuses_is_in_no_log(code: int) -> None:
    told = explain(KafkaError(code), TOPIC, connections())
    assert not isinstance(told, AppendUnknownError)
    assert "append the same bytes again" not in str(told)


def test_what_was_dropped_unsent_is_in_no_log_whatever_ended_the_client() -> None:
    fatal = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", fatal=True)
    told = explain(KafkaError(PURGE_QUEUE), TOPIC, connections(fatal))
    assert not isinstance(told, AppendUnknownError)
    assert "out of order" in str(told)
