"""Notices while the pipeline runs that the changes are given more partitions, or are made anew.

Spark's producer would soon spread keys over all partitions, while only the old ones get resolved
records. So the pipeline stops before that: the producer looks at a topic every five minutes. To a
topic that was deleted and created again it writes on, as if nothing had happened: readers would
take what is there for all there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from streamydb.kafka.admin import TopicsError, identity_of
from streamydb.kafka.checks import changes_grew
from streamydb.kafka.clients import ContactedAdmin, administrator
from streamydb.kafka.errors import KafkaException
from streamydb.pipeline.background import Background

_INTERVAL_S: Final = 10.0
_ANSWER_S: Final = 5.0


class GrowthWatch(Background):
    """Looks at a topic in a thread of its own while the body runs.

    Args:
        connection: settings of confluent-kafka.
        topic: of the changes.
        known: Kafka's id of it at the start, and how many partitions it had.
        made_anew: is told the id of a topic that has taken its place, and says why the pipeline
            must not go on.

    Attributes:
        failure: why the pipeline must not go on; None while it may.
    """

    def __init__(
        self,
        connection: Mapping[str, str],
        topic: str,
        known: tuple[str, int],
        made_anew: Callable[[str], str],
    ) -> None:
        super().__init__("streamydb-growth")
        self.failure: str | None = None
        self._connection = connection
        self._topic = topic
        self._known, self._partitions = known
        self._made_anew = made_anew

    def _run(self) -> None:
        admin = administrator(self._connection)
        while self.failure is None and not self._stop.wait(_INTERVAL_S):
            with suppress(KafkaException, TopicsError):  # Kafka is away: it is asked again
                self._look(admin)

    def _look(self, admin: ContactedAdmin) -> None:
        topic_id, present = identity_of(admin, self._topic, request_timeout=_ANSWER_S)
        if topic_id != self._known:
            self.failure = self._made_anew(topic_id)
        elif present > self._partitions:
            self.failure = str(changes_grew(self._topic, self._partitions, present))
