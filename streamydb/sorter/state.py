"""The sorter's state between micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from streamydb.errors import InvariantViolation

NEVER: Final = -1
"""The effective time before the first record."""


class PartitionState(msgspec.Struct, gc=False):
    """The sorter's knowledge of one partition.

    ``effective``: running maximum so far (ms, -1 before the first record). ``position``: the next
    offset. ``named``: (partitions named, effective time) of the markers that named more partitions
    than any before. ``stamp`` and ``mark``: append time (ms) and hash of the last record read, -1
    and empty if that is not known.
    """

    effective: int = NEVER
    position: int = 0
    named: list[tuple[int, int]] = []
    stamp: int = NEVER
    mark: str = ""


class HeldChunk(msgspec.Struct, gc=False):
    """Up to 4096 held records (some 4 MiB) of one partition, in a blob.

    The first ``start`` have been released. ``time`` and ``offset`` are those of the record at
    ``start``; ``last`` is the time of the last record.
    """

    blob: str
    partition: int
    start: int
    count: int
    time: int
    offset: int
    last: int


class SorterState(msgspec.Struct):
    """Everything that the sorter remembers between micro-batches, beside the held blobs.

    ``declares``: a constraint has been declared, perhaps.
    """

    initial_partitions: int
    partitions: dict[int, PartitionState] = {}
    held: list[HeldChunk] = []
    next_blob: int = 0
    declares: bool = False


def joins_of(state: SorterState) -> tuple[list[int | None], list[int]]:
    """Per known partition: when it joined (None: not decided), and what caps the watermark till
    then.
    """
    joins: list[int | None] = [NEVER] * state.initial_partitions
    caps: list[int] = []
    for q in range(state.initial_partitions, _known(state)):
        firsts = [_first_naming(state, lower, q + 1, joins[lower]) for lower in range(q)]
        seen = [time for time in firsts if time is not None]
        if len(seen) == q:
            joins.append(max(seen))
        else:
            joins.append(None)
            caps += [max(seen)] if seen else []
    return joins, caps


def _known(state: SorterState) -> int:
    """Return how many partitions exist as far as markers tell."""
    named = [s.named[-1][0] for s in state.partitions.values() if s.named]
    return max([state.initial_partitions, *named])


def _first_naming(state: SorterState, partition: int, count: int, join: int | None) -> int | None:
    """The effective time of the first marker in a partition that names ``count`` partitions."""
    known = state.partitions.get(partition)
    if known is None or join is None:
        return None
    return next((max(join, time) for named, time in known.named if named >= count), None)


# A broker that loses power may lose the tail of the log although a checkpoint has read it. When the
# log then grows past that position, records would be skipped without a trace. So each shard keeps
# offset, append time and hash of the last record it read in each partition, and the first batch of
# a start compares them with what the log holds now.
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

        A shard that has read past the end is in a later batch of the same run. Raises
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
    Raises InvariantViolation: the end of the log was lost, and it has grown again.
    """
    for partition, end in ends.items():
        end.require(partition, state.partitions.get(partition))
