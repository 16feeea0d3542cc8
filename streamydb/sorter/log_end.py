"""The end of the log as a checkpoint has read it; the next start recognises it by its hash.

A broker that loses power may lose the tail of the log although a checkpoint has read it. When the
log then grows past that position, records would be skipped without a trace. So each shard keeps
offset, append time and hash of the last record it read in each partition, and the first batch of
a start compares them with what the log holds now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from streamydb.errors import InvariantViolation
from streamydb.sorter.state import PartitionState, SorterState


class LogEnd(NamedTuple):
    """The last record of the log before the offset up to which a checkpoint has read a partition.

    Attributes:
        end: that offset.
        offset: of the last record before it; -1: there is none.
        append_ms: when that was appended.
        mark: its hash.
    """

    end: int
    offset: int
    append_ms: int
    mark: str

    def require(self, partition: int, state: PartitionState | None) -> None:
        """Refuse a partition whose last record is not the one that a shard read last.

        A shard that has read past the end is in a later batch of the same run.

        Raises:
            InvariantViolation: it is another record.
        """
        if state is None or not state.mark or state.position > self.end:
            return
        known = state.position - 1, state.stamp, state.mark
        if known != (self.offset, self.append_ms, self.mark):
            now = "no record" if self.offset < 0 else f"offset {self.offset}, {self.append_ms} ms"
            raise InvariantViolation(
                f"the log is not what this checkpoint has read: the last record of partition "
                f"{partition} was at offset {known[0]}, appended at {known[1]} ms, and is now "
                f"another one ({now}). The end of the log was lost, say with a broker's power, and "
                "has grown again: going on would skip records (docs/operations.md, 'The end of "
                "the log is lost')"
            )


def require_ends(ends: Mapping[int, LogEnd], state: SorterState) -> None:
    """Refuse a log whose end is not the one that a shard's sorter has read.

    Raises:
        InvariantViolation: the end of the log was lost, and it has grown again.
    """
    for partition, end in ends.items():
        end.require(partition, state.partitions.get(partition))
