"""Says that a plan is written as soon as its micro-batch has ended.

The shards say so with the next micro-batch, when they have read the plan's feedback. But when a
micro-batch has ended, Kafka has acknowledged all that it wrote, so the driver may say it then, and
readers see a write one micro-batch earlier. Nothing depends on it: what is not said, the shards say
all the same, and who reads it late or twice keeps the highest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Self

from streamydb.kafka.clients import PROGRESS, appender
from streamydb.kafka.errors import KafkaException
from streamydb.key_processor.state import NOT_YET

log = logging.getLogger("streamydb.pipeline")

_CLOSE_S = 2.0


class Announcer:
    """Appends resolved records to every partition of the changes."""

    def __init__(self, connection: Mapping[str, str], topic: str, partitions: int) -> None:
        self._producer = appender(connection, PROGRESS, topic)
        self._topic = topic
        self._partitions = partitions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def flush(self) -> None:
        """Wait a moment until all that was announced is in Kafka."""
        self._producer.flush(_CLOSE_S)

    def announce(self, resolves: str | None) -> None:
        """Append what a micro-batch that has ended has resolved; None or `NOT_YET`: nothing.

        ``resolves``: the value of a resolved record; see `ShardOutput`.
        """
        if resolves is None or resolves == NOT_YET:
            return
        try:
            for number in range(self._partitions):
                self._producer.produce(self._topic, resolves.encode(), partition=number)
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            log.debug("the shards will say what is resolved: %s", error)
