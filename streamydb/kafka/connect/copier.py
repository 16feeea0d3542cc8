"""The loop of the copy: fetch changes, append what is resolved in one transaction of Kafka."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import CollectorRegistry, Gauge

from streamydb.kafka.connect.core import CopiedRecord, PartitionCopy
from streamydb.kafka.connect.errors import ConnectError
from streamydb.kafka.names import TopicNames
from streamydb.kafka.patience import Patience, StopRequestedError
from streamydb.kafka.strangers import ChangeRecords
from streamydb.records.connect import ConnectPlace

if TYPE_CHECKING:
    from streamydb.kafka.source import ChangesTopic, Topic

_POLL_S: Final = 0.2

_log = logging.getLogger(__name__)


class CopyTopic(Protocol):
    """The copy: where it is, and how it goes on."""

    def begin(self) -> Mapping[int, ConnectPlace | None]:
        """Shut out every other writer; return each partition's last place, None where it is empty.

        Raises:
            ConnectError: there is no such topic.
        """

    def append(self, records: Sequence[CopiedRecord]) -> None:
        """Append all of these or none."""

    def close(self) -> None:
        """Append no more."""


class Copier:
    """Copies the changes of a database into `<db>.connect`.

    Attributes:
        seq: everything up to it has been copied; 0 as long as that is not known.
    """

    def __init__(self, database: str, source: ChangesTopic, copy: CopyTopic) -> None:
        """Nothing is read yet; source and copy are closed with this."""
        self._name = TopicNames(database)
        self._source = source
        self._copy = copy
        self._changes = ChangeRecords(self._name.changes)
        self._parts: dict[int, PartitionCopy] | None = None
        self.seq = 0

    def step(self, timeout_s: float) -> int:
        """Fetch changes, waiting up to ``timeout_s`` seconds for one, and append them.

        Return how many records were appended.

        After an error the next step begins anew where the copy ends.

        Raises:
            ConnectError: the copy is missing, has another writer, or is that of other changes.
            SourceError: the changes cannot be read, or the next ones have been deleted.
            RecordError: a change is of a release that this one cannot read.
        """
        parts, self._parts = self._parts or self._begin(), None
        records: list[CopiedRecord] = []
        for record in self._source.fetch(timeout_s).records:
            number, offset = record.partition(), record.offset()
            known = self._changes.read(number, offset, record.value())
            if known is not None:
                records += parts[number].take(offset, record.key(), known)
        if records:
            self._copy.append(records)
        self._parts = parts
        self.seq = min(part.resolved for part in parts.values())
        return len(records)

    def run(self, stop: threading.Event, addresses: str) -> None:
        """Copy until ``stop`` is set; close what was opened. Waits for Kafka when it is away.

        Raises:
            StreamyError: as `step`, but for what passes.
        """
        patience = Patience(stop.wait, addresses=addresses)
        try:
            while not stop.is_set():
                with suppress(StopRequestedError):
                    patience.ask(partial(self.step, _POLL_S), look=self._parts is None)
        finally:
            self.close()

    def close(self) -> None:
        """Close source and copy."""
        self._source.close()
        self._copy.close()

    def _begin(self) -> dict[int, PartitionCopy]:
        """Go on where the copy ends."""
        places, topic = self._copy.begin(), self._source.describe()
        if places.keys() != topic.spans.keys():
            raise ConnectError(
                f"{self._name.connect} has {len(places)} partitions and {self._name.changes} has "
                f"{len(topic.spans)}: {self._anew()}"
            )
        first = ConnectPlace(topic.topic_id, 0, 0)
        known = {number: place or first for number, place in places.items()}
        for number, place in known.items():
            self._check(topic, number, place)
        positions = {number: place.position for number, place in known.items()}
        self._source.assign(positions)
        _log.info("copying %s from %s", self._name.changes, positions)
        return {number: PartitionCopy(number, place) for number, place in known.items()}

    def _check(self, topic: Topic, number: int, place: ConnectPlace) -> None:
        """Refuse changes that are others, or that lack the next records."""
        if place.topic != topic.topic_id:
            raise ConnectError(
                f"{self._name.connect} is a copy of other changes than {self._name.changes} has "
                f"now (Kafka's ids: {place.topic}, {topic.topic_id}): {self._anew()}"
            )
        low, high = topic.spans[number]
        if not low <= place.position <= high:
            raise ConnectError(
                f"{self._name.changes}, partition {number}, has the offsets {low} to {high}, and "
                f"the copy goes on at {place.position}: changes that are needed are gone. Take a "
                "snapshot (`streamydb snapshot`), load it into the sinks, and give each the later "
                "changes (docs/sinks.md)"
            )

    def _anew(self) -> str:
        return (
            f"delete the topic {self._name.connect}, and make it anew: `streamydb create --connect`"
        )


def registry_of(copier: Copier) -> CollectorRegistry:
    """Return the metrics of a copier."""
    registry = CollectorRegistry()
    seq = Gauge("streamydb_connect_seq", "Last seq that has been copied", registry=registry)
    seq.set_function(lambda: copier.seq)
    return registry
