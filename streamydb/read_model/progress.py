"""The position of a read model in its topic."""

from __future__ import annotations

import msgspec


class ResolvedPoint(msgspec.Struct, frozen=True, gc=False):
    """Everything up to ``seq`` is known.

    Attributes:
        seq: the last seq, 0 before the first transaction.
        ts_ms: its commit timestamp.
        offsets: per partition of the log, the first offset that is not covered.
    """

    seq: int = 0
    ts_ms: int = 0
    offsets: dict[int, int] = {}


class PartitionProgress(msgspec.Struct):
    """The position in a partition of the changes: next offset, and the highest resolved record."""

    position: int = 0
    resolved: ResolvedPoint = ResolvedPoint()


class TopicProgress(msgspec.Struct):
    """The position in the topic.

    Attributes:
        topic_id: Kafka's id of the topic; empty before the first start.
        parts: every partition of the topic.
        commits: how many batches were committed.
    """

    topic_id: str = ""
    parts: dict[int, PartitionProgress] = {}
    commits: int = 0

    def copy(self) -> TopicProgress:
        """One that may be changed; partitions are copied, resolved points are never changed."""
        parts = {
            n: PartitionProgress(part.position, part.resolved) for n, part in self.parts.items()
        }
        return TopicProgress(self.topic_id, parts, self.commits)

    def resolved(self) -> ResolvedPoint:
        """Return the point up to which every partition is resolved."""
        points = [part.resolved for part in self.parts.values()]
        if not points:
            return ResolvedPoint()
        least = min(points, key=lambda point: point.seq)
        covered = set.intersection(*(set(point.offsets) for point in points))
        offsets = {q: min(point.offsets[q] for point in points) for q in sorted(covered)}
        return ResolvedPoint(least.seq, least.ts_ms, offsets)
