"""Notices while the pipeline runs that the changes are given more partitions.

Spark's producer would soon spread keys over all of them, while only the old ones get resolved
records. So the pipeline stops before that: the producer looks at a topic every five minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException

from streamydb.kafka.admin import count_partitions
from streamydb.kafka.checks import changes_grew
from streamydb.kafka.clients import ContactedAdmin, administrator
from streamydb.pipeline.background import Background

__all__ = ["GrowthWatch"]

_INTERVAL_S: Final = 10.0
_ANSWER_S: Final = 5.0


class GrowthWatch(Background):
    """Looks at a topic in a thread of its own while the body runs.

    Args:
        connection: settings of confluent-kafka.
        topic: of the changes.
        partitions: how many it had at the start.

    Attributes:
        failure: why the pipeline must not go on; None while it may.
    """

    def __init__(self, connection: Mapping[str, str], topic: str, partitions: int) -> None:
        """Nothing runs yet."""
        super().__init__("streamydb-growth")
        self.failure: str | None = None
        self._connection = connection
        self._topic = topic
        self._partitions = partitions

    def _run(self) -> None:
        """Look until it has grown."""
        admin = administrator(self._connection)
        while self.failure is None and not self._stop.wait(_INTERVAL_S):
            with suppress(KafkaException):  # Kafka is away: it is asked again
                self._look(admin)

    def _look(self, admin: ContactedAdmin) -> None:
        found = admin.list_topics(self._topic, timeout=_ANSWER_S)
        present = count_partitions(found.topics.get(self._topic))
        if present > self._partitions:
            self.failure = str(changes_grew(self._topic, self._partitions, present))
