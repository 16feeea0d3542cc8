"""Reasons why a record was not appended, in words that say what to do."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from streamydb.kafka.appends import AppendUnknownError, explain
from streamydb.kafka.clients import MSG_TIMED_OUT, PURGE_INFLIGHT
from streamydb.kafka.connection import PURGE_QUEUE, Contact

TOPIC = "bank.transactions"


def contact(ended: KafkaError | None = None) -> Contact:
    """What a client knows whose broker has said this."""
    made = Contact({"bootstrap.servers": "127.0.0.1:1"})
    if ended is not None:
        made(ended)
    return made


def test_what_was_dropped_unsent_is_told_with_the_error_that_ended_the_client() -> None:
    refused = KafkaError(
        KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Broker: Cluster authorization failed", fatal=True
    )
    told = explain(KafkaError(PURGE_QUEUE), TOPIC, 9, contact(refused))
    assert not isinstance(told, AppendUnknownError)
    assert "Cluster authorization failed; grant this user" in str(told)
    assert "`streamydb acls`" in str(told)


def test_what_was_dropped_without_a_known_reason() -> None:
    told = explain(KafkaError(PURGE_QUEUE), TOPIC, 9, contact())
    assert str(told) == f"{TOPIC}: Local: Purged in queue"


@pytest.mark.parametrize("code", [PURGE_INFLIGHT, MSG_TIMED_OUT])
def test_what_may_have_been_sent_is_unknown(code: int) -> None:
    told = explain(KafkaError(code), TOPIC, 9, contact())
    assert isinstance(told, AppendUnknownError)
    assert "append the same bytes again" in str(told)
