"""Checkpoints of earlier moments that are put back, and the end of a log that is lost.

A copy of all shards' states, with what they had read, comes back minutes later; feedback topics,
outputs, the log and local caches stay as they are, so the states meet a future that is lost. What
every copy has read of the feedback is deleted, as the pipeline does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from simulator.cluster import Checkpoint, Cluster
from simulator.judge import Divergence
from simulator.log import SimulatedLog
from streamydb.errors import InvariantViolation
from streamydb.key_processor.locking.state import SingleMeta
from streamydb.key_processor.state import ShardState, load
from streamydb.parser.last_reads import mark_of
from streamydb.sorter.state import LogEnd, require_ends
from streamydb.verify.oracle.order import LogRecord

__all__ = ["Rollbacks", "ends_of", "finds_lost_tail", "lose_tail", "require_log"]

_COPIES_MAX = 3
_RATES = (0.0, 0.0, 0.05, 0.2)


class Rollbacks:
    """Takes copies of checkpoints now and then, and puts one back.

    Args:
        seed: of a chance of its own, so that a seed without rollbacks does the same.
        clusters: whose checkpoints; all over one log.
        rate: how likely it is that one is put back at a moment; None: as the seed has it.
    """

    def __init__(self, seed: int, clusters: Sequence[Cluster], rate: float | None) -> None:
        """No copy yet."""
        self._dice = random.Random(f"rollbacks {seed}")  # noqa: S311 - repeatable
        drawn = self._dice.choice(_RATES)
        self._rate = drawn if rate is None else rate
        self._copies: list[tuple[Cluster, list[Checkpoint]]] = [(each, []) for each in clusters]
        self.done = 0

    def happen(self) -> None:
        """A moment between two batches."""
        if not self._rate:
            return
        dice = self._dice
        for cluster, copies in self._copies:
            if dice.random() < 0.3:
                copies.append(cluster.checkpoint())
                del copies[:-_COPIES_MAX]
            if copies and dice.random() < self._rate:
                cluster.put_back(dice.choice(copies))
                self.done += 1
            require_log(cluster)
            if dice.random() < 0.3:
                cluster.forget_feedback([*copies, cluster.checkpoint()])

    def finish(self) -> None:
        """At last the log loses its end.

        Raises:
            Divergence: a start does not notice it.
        """
        cluster = self._copies[0][0]
        if self._rate and not finds_lost_tail(cluster, self._dice):
            raise Divergence("a start does not notice that the end of the log was lost")


def ends_of(log: SimulatedLog, read: dict[int, int]) -> dict[int, LogEnd]:
    """Return the end of the log where the reading of its partitions ended; ``read``: records of
    each.
    """
    ends = {}
    for partition, count in read.items():
        records = log.partitions[partition][:count]
        if records:
            last = records[-1]
            mark = mark_of(last.value)
            ends[partition] = LogEnd(last.offset + 1, last.offset, last.append_ms, mark)
    return ends


def require_log(cluster: Cluster) -> None:
    """Compare the log as each shard does in the first batch of a start.

    Raises:
        InvariantViolation: the log is not what a shard has read.
    """
    ends = ends_of(cluster.log, cluster.read_log)
    for node in cluster.nodes:
        data = node.blobs.get("meta")
        if data is not None:
            meta = load(SingleMeta if cluster.single else ShardState, data)
            require_ends(ends, meta.sorter)


def lose_tail(log: SimulatedLog, read: dict[int, int], dice: random.Random) -> int | None:
    """Lose the end of a partition behind what was read, and let it grow past there; which one."""
    wanted = [partition for partition, count in read.items() if count > 0]
    if not wanted:
        return None
    partition = dice.choice(wanted)
    records, count = log.partitions[partition], read[partition]
    left = dice.randrange(count)
    end = records[-1].offset + 1 + dice.randint(1, 5)
    del records[left:]
    first = records[-1].offset + 1 if records else 0
    stamp = log.clocks[partition]
    records += [LogRecord(offset, stamp, b"later %d" % offset) for offset in range(first, end)]
    return partition


def finds_lost_tail(cluster: Cluster, dice: random.Random) -> bool:
    """Return True if a start finds that the end of the log was lost; true, too, if nothing was
    read.
    """
    end = {q: cluster.log.partitions[q][n - 1].offset for q, n in cluster.read_log.items() if n}
    partition = lose_tail(cluster.log, cluster.read_log, dice)
    if partition is None:
        return True
    offsets = [record.offset for record in cluster.log.partitions[partition]]
    cluster.read_log[partition] = sum(offset <= end[partition] for offset in offsets)
    try:
        require_log(cluster)
    except InvariantViolation:
        return True
    return False
