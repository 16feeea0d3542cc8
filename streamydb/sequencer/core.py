"""The Sequencer decides when a round of epoch markers is due, and its number.

Pure: no clock, no Kafka.

Every record of the transactions topic has an effective time: the running maximum, along its own
partition, of the append times (milliseconds) and of the numbers of the markers up to and including
it. The watermark is the minimum over the partitions of the last effective time; a transaction is
released once its effective time is below it. So a transaction waits while its effective time is at
or above the watermark, and a round of markers, one to every partition, with a number above
everything seen, releases it.

A sequencer may lag behind the log, or start in the middle of it. Both are harmless. If it estimates
an effective time too low, later records correct it. If it thinks that a released transaction still
waits, that costs one needless round, never a wrong order.
"""

from __future__ import annotations

from streamydb.errors import StreamyError
from streamydb.limits import MARKER_NUMBER_MAX
from streamydb.records.marker import Marker
from streamydb.sequencer import checks

_NOTHING = -1


class NumbersExhaustedError(StreamyError):
    """A record's effective time is so high that no marker can lie above it."""


class Sequencer:
    """One sequencer: it observes the records of the log, and returns the markers to write.

    In: the records of the log as they are read, partition by partition: append times, and the
    markers of any sequencer; how many partitions there are; the time now.

    Out: when a round of markers is due, and the marker that is to be appended to every partition.

    State: of each partition the effective time, that of its last transaction, and which markers
    named how many partitions; when the last round was.

    Invariants: the number of a marker is above every effective time that was seen, so it releases
    all that wait; rounds are at least ``interval_ms`` apart; no round is due while nothing waits,
    unless a partition was added; with one partition there is none.

    A transfer: a client has appended ``t1`` (30 from ``alice`` to ``bob``) to partition 1, at
    1,000 ms. Partition 0 has reached 990, so ``t1`` waits. The sequencer gives a marker with the
    number 1,001 for both partitions. When it has been read, nothing can come before ``t1`` any
    more.

    Args:
        partitions: how many partitions the transactions topic has now.
        name: written into every marker, to tell sequencers apart in the log.
        interval_ms: the least time between two rounds.
    """

    def __init__(self, partitions: int, name: str, interval_ms: int = 50) -> None:
        if partitions < 1:
            raise ValueError(f"a topic has at least one partition, not {partitions}")
        if interval_ms < 1:
            raise ValueError(f"the interval between rounds is at least 1 ms, not {interval_ms}")
        self.name = name
        self.interval_ms = interval_ms
        self.rounds = 0
        self._effective = [_NOTHING] * partitions
        self._last_transaction = [_NOTHING] * partitions
        self._naming: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self._joined = 1
        self._grown = False
        self._round_at: int | None = None

    @property
    def partitions(self) -> int:
        """The number of partitions that the sequencer closes."""
        return len(self._effective)

    @property
    def highest_ms(self) -> int:
        """The highest effective time seen in any partition; -1 in an empty log."""
        return max(self._effective)

    @property
    def watermark_ms(self) -> int:
        """The least last effective time over all partitions; -1 while one of them has none."""
        if self._joined < self.partitions:
            return _NOTHING
        return min(self._effective)

    @property
    def waits(self) -> bool:
        """True if some transaction is held back until another record or marker arrives."""
        if self.partitions == 1:
            return False
        last = max(self._last_transaction)
        return last != _NOTHING and last >= self.watermark_ms

    @property
    def growth_due(self) -> bool:
        """True if some partition has no marker yet that names all the present partitions."""
        if self.partitions == 1:
            return False
        if not self._grown and self.highest_ms == _NOTHING:
            return False
        return any(self._named(p) < self.partitions for p in range(self.partitions))

    def set_partitions(self, partitions: int) -> None:
        """Note that the topic has grown to `partitions`; Kafka never takes one away."""
        added = partitions - self.partitions
        if added < 0:
            raise ValueError(
                f"the topic had {self.partitions} partitions and now has {partitions}: it was "
                "deleted and created again; restart the sequencer"
            )
        if added == 0:
            return
        self._effective += [_NOTHING] * added
        self._last_transaction += [_NOTHING] * added
        self._naming += [[] for _ in range(added)]
        self._grown = True
        self._join()

    def note_growth(self) -> None:
        """Note that the topic had fewer partitions a while ago, so that a round is due."""
        self._grown = True

    def resume(self, partition: int, unread_highest_ms: int) -> None:
        """Begin in the middle of a partition whose unread part has this highest append time.

        The unread part is taken to end with a transaction: at worst that costs one round.
        """
        self._lift(partition, unread_highest_ms)
        self._transaction(partition)

    def observe(self, partition: int, append_ms: int, marker: Marker | None = None) -> None:
        """Take in the next record of a partition: a transaction, or a marker of any sequencer."""
        checks.read(partition, marker, self.partitions)
        self._lift(partition, append_ms)
        if marker is None:
            self._transaction(partition)
            return
        self._lift(partition, marker.marker)
        if marker.partitions > self._named(partition):
            self._naming[partition].append((marker.partitions, self._effective[partition]))
            if partition < self._joined:
                self._join()

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return how long until a round is due, 0 for now, None while nothing waits."""
        if not (self.waits or self.growth_due):
            return None
        if self._round_at is None or now_ms < self._round_at:
            return 0
        return max(0, self._round_at + self.interval_ms - now_ms)

    def next_marker(self, now_ms: int) -> Marker | None:
        """Return the marker to append to every partition now, or None when no round is due.
        Raises NumbersExhaustedError: something in the log carries the highest possible number.
        """
        if self.due_in_ms(now_ms) != 0:
            return None
        lowest = self.highest_ms + 1
        if lowest > MARKER_NUMBER_MAX:
            raise NumbersExhaustedError(
                f"a record in the log has the effective time {self.highest_ms}, and no marker can "
                f"lie above {MARKER_NUMBER_MAX}, so the transactions behind it cannot be released. "
                "Some producer wrote a hostile marker: restore the topic from before it"
            )
        self._round_at = now_ms
        self.rounds += 1
        number = max(lowest, min(now_ms, MARKER_NUMBER_MAX))
        marker = Marker(marker=number, partitions=self.partitions, sequencer=self.name)
        return checks.written(marker, self.highest_ms, self.partitions)

    def _lift(self, partition: int, effective_ms: int) -> None:
        if effective_ms > self._effective[partition]:
            self._effective[partition] = effective_ms

    def _transaction(self, partition: int) -> None:
        self._last_transaction[partition] = self._effective[partition]

    def _named(self, partition: int) -> int:
        """Return the highest number of partitions that a marker in the partition names."""
        naming = self._naming[partition]
        return naming[-1][0] if naming else 0

    def _join(self) -> None:
        """Let the next partition join as soon as every partition before it has a marker that counts
        it.

        A partition joins at the highest effective time of the first markers that name it, and
        what it holds is lifted to that time. Whether it was there from the creation on cannot be
        told from the log; lifting it all the same costs at most one round.
        """
        while self._joined < self.partitions:
            joining = self._joined
            below = range(joining)
            if any(self._named(p) <= joining for p in below):
                return
            joins_at = max(
                next(at for named, at in self._naming[p] if named > joining) for p in below
            )
            self._lift(joining, joins_at)
            if self._last_transaction[joining] != _NOTHING:
                latest = self._last_transaction[joining]
                self._last_transaction[joining] = max(latest, joins_at)
            self._joined += 1
