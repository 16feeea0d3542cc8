"""Look at the ends of topics, again and again, with one connection."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from streamydb.kafka.clients import FOLLOWING, UNKNOWN_PARTITION, reader
from streamydb.kafka.connection import passes
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.kafka.receiving import REQUEST_S

_RETRY_S: Final = 0.05


class TopicEnds:
    """Asks for the ends of topics; connects in the background. Not for several threads at once.

    A reader needs half of the processor time for this that a client for administration does.

    Args:
        connection: of `Settings.client_config()`.
    """

    def __init__(self, connection: Mapping[str, str]) -> None:
        self._consumer: Any = reader(connection, FOLLOWING)

    def look(self, topic: str, known: Sequence[int] = ()) -> dict[int, int]:
        """Return the ends of these partitions of a topic; of all, if none are given.

        One without a leader is waited for.

        Raises:
            KafkaUnavailableError: Kafka does not answer or refuses, or a leader does not come.
        """
        until_s = time.monotonic() + REQUEST_S
        while (found := self._ask(topic, known)) is None:
            if time.monotonic() > until_s:
                raise KafkaUnavailableError(f"{topic}: a partition has no leader")
            time.sleep(_RETRY_S)
        return found

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def _ask(self, topic: str, known: Sequence[int]) -> dict[int, int] | None:
        """Ask for the ends; None if the same question may be answered a moment later."""
        try:
            numbers = known or self._numbers(topic)
            places = [TopicPartition(topic, number, OFFSET_END) for number in numbers]
            told = self._consumer.offsets_for_times(places, timeout=REQUEST_S)
        except KafkaException as error:
            if _may_pass(error.args[0]):
                return None
            raise KafkaUnavailableError(f"{topic}: its ends cannot be had") from error
        faults = [each.error for each in told if each.error is not None]
        if any(error.code() == UNKNOWN_PARTITION for error in faults):
            with suppress(KafkaException):  # it asks about the topic anew: it has grown
                self._consumer.list_topics(topic, timeout=REQUEST_S)
        if any(map(_may_pass, faults)):
            return None
        if faults or any(each.offset < 0 for each in told):
            raise KafkaUnavailableError(f"{topic}: its ends were not told")
        return {each.partition: each.offset for each in told}

    def _numbers(self, topic: str) -> tuple[int, ...]:
        found = self._consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
        if found.error is not None or not found.partitions:
            raise KafkaException(found.error or KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return tuple(found.partitions)


def _may_pass(error: KafkaError) -> bool:
    """Return True for what a leader answers that changes or comes back, or is not known yet."""
    return error.code() == UNKNOWN_PARTITION or passes(KafkaException(error))
