"""Metrics of the log, asked of Kafka every few seconds.

Spark reports only when a micro-batch ends: a query that hangs reports nothing, and its last lag
stays as it was. These gauges go on. They are set only while the metrics are served.
"""

from __future__ import annotations

import logging
from typing import Final, Self

from prometheus_client import CollectorRegistry, Gauge

from streamydb.errors import StreamyError
from streamydb.kafka.admin import LATEST, cluster, count_partitions, list_offsets
from streamydb.kafka.clients import ContactedAdmin, administrator
from streamydb.kafka.clock import log_time
from streamydb.kafka.errors import KafkaException
from streamydb.kafka.names import TopicNames
from streamydb.pipeline.background import Background
from streamydb.pipeline.markers import MarkerLoop
from streamydb.settings import Settings

_LOG = logging.getLogger("streamydb.pipeline")

SAMPLE_S: Final = 5.0
"""How often Kafka is asked."""


class LogSampler(Background):
    """Sets gauges of the log in a thread of its own; without a metrics port it does nothing."""

    def __init__(self, settings: Settings, registry: CollectorRegistry, loop: MarkerLoop) -> None:
        """Register the gauges; ``loop`` writes the markers of this process."""
        super().__init__("streamydb-sampler")
        self._settings = settings
        self._names = TopicNames(settings.database)
        self._is_ahead = False

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"streamydb_{name}", text, registry=registry)

        self._ends = gauge("log_end_records", "Log records that there are")
        self._newest = gauge("log_newest_timestamp_seconds", "Append time of the newest record")
        self._skew = gauge("log_ahead_seconds", "Newest append time less this machine's clock")
        self._dead = gauge("dead_letters", "Records of the dead-letter topic")
        self._answers = gauge("kafka_answers", "1 if Kafka answered when it was last asked")
        gauge("sequencer_degraded", "1 if markers cannot be written").set_function(
            lambda: float(loop.state == "degraded")
        )

    def __enter__(self) -> Self:
        """Start, if somebody is to see it."""
        return self if self._settings.metrics_port is None else super().__enter__()

    def __exit__(self, *_error: object) -> None:
        super().__exit__()
        if self._thread.is_alive():
            self._thread.join(1)

    def _run(self) -> None:
        admin = administrator(self._settings.client_config())
        while not self._stop.is_set():
            try:
                self._sample(admin)
                self._answers.set(1)
            except (KafkaException, StreamyError):
                self._answers.set(0)
            self._stop.wait(SAMPLE_S)

    def _sample(self, admin: ContactedAdmin) -> None:
        """Ask once.

        Raises:
            StreamyError: Kafka does not answer.
        """
        topics = cluster(admin).topics
        counts = {
            name: range(count_partitions(topics.get(name)))
            for name in (self._names.transactions, self._names.deadletters)
        }
        ends = {name: list_offsets(admin, name, counts[name], LATEST) for name in counts}
        totals = {name: sum(end.offset for end in found.values()) for name, found in ends.items()}
        self._ends.set(totals[self._names.transactions])
        self._dead.set(totals[self._names.deadletters])
        log = self._names.transactions
        told = log_time(admin, log, counts[log])
        if told.newest_ms:
            self._newest.set(told.newest_ms / 1000)
            self._skew.set(told.ahead_ms / 1000)
        self._complain(told.warning())

    def _complain(self, warning: str | None) -> None:
        """Log that the log is ahead of this machine's clock, once as long as it is."""
        if warning is not None and not self._is_ahead:
            _LOG.warning("%s; see ClockSkew in docs/operations.md", warning)
        self._is_ahead = warning is not None
