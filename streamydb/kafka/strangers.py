"""Records that something else has written to a topic of ours: they are passed over, and told of.

Kafka does not delete single records, so a reader that stopped at such a one would never go on. One
of ours that this release cannot read stops it: what is in it must not be missed.
"""

from __future__ import annotations

import logging

from streamydb.errors import RecordError
from streamydb.records import Change, Resolved, decode_change, is_strange_change

_log = logging.getLogger(__name__)


class Strangers:
    """Counts such records of one topic; ``count``: how many were passed over."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.count = 0

    def pass_over(self, partition: int | None, offset: int | None, count: int = 1) -> None:
        """Pass over some, the first of which lies there; the first of all is told of."""
        if not self.count:
            _log.warning(
                "%s is no record of streamy-db's and is passed over, as will be others like it. "
                "Find out who else writes to this topic (docs/operations.md, 'Records of others')",
                self.name_of(partition, offset),
            )
        self.count += count

    def name_of(self, partition: int | None, offset: int | None) -> str:
        """Return topic, partition and offset of a record, for people."""
        return f"{self._topic}, partition {partition}, offset {offset}"


class ChangeRecords(Strangers):
    """Decodes the records of a changes topic, one by one."""

    def read(
        self, partition: int | None, offset: int | None, value: bytes | None
    ) -> Change | Resolved | None:
        """Decode a record; None: it is a tombstone, or a stranger's.
        Raises RecordError: it is one that this release cannot read; the message names its position.
        """
        if value is None:
            return None
        try:
            return decode_change(value)
        except RecordError as fault:
            if not is_strange_change(value):
                raise RecordError(f"{self.name_of(partition, offset)}: {fault}") from fault
        self.pass_over(partition, offset)
        return None
