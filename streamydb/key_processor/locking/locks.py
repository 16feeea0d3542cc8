"""The lock table of `grouping=single`: a queue per lock, in seq order.

Conservative ordered locking as in Calvin (Thomson et al., SIGMOD 2012, section 3.2).

A writer is granted when it is first in its queue, and holds the lock until its feedback has been
applied. A reader is granted when no writer, granted or waiting, is ahead of it; it needs nothing
afterwards, because it is sent a copy of the value. Locks are named by bytes: see
`streamydb.key_processor.locking.messages.key_lock` and `id_lock`.

A range lock is a reader's lock of all names from one to another, there or not. It is granted when
no writer of such a name, granted or waiting, is ahead of it; until then, no later writer of such a
name is granted.

Invariants: at most one writer holds a lock; every queue is in ascending seq order, so there is no
deadlock; a release by anybody but the holder changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from streamydb.errors import InvariantViolation
from streamydb.key_processor.locking.spans import FirstWriters, SpanSeqs


class Lock(msgspec.Struct, array_like=True):
    """One lock: the seq of the writer that holds it (0: free), and who waits: (seq, writes)."""

    holder: int = 0
    waiting: list[tuple[int, bool]] = []

    @property
    def first_writer(self) -> int:
        """The seq of the first transaction that writes, holding it or waiting; 0: there is none."""
        return self.holder or next((seq for seq, write in self.waiting if write), 0)


class RangeLock(msgspec.Struct, array_like=True):
    """The waiting range lock of a transaction: ``spans`` of the names of locks, half open.

    For whoever grants it: which of them the transaction ``reads``, and its ``own`` keys that it may
    write.
    """

    seq: int
    name: bytes
    spans: list[tuple[bytes, bytes]]
    reads: list[bool]
    own: list[bytes]


class LockTable:
    """The locks of one shard. ``state`` holds what is in use, is changed in place, and is saved.

    Attributes:
        behind: locks that could be granted and were not, because they did not fit, or because a
            range lock was in the way until now.
        ranges: the waiting range locks, in seq order; changed in place, too.
    """

    def __init__(
        self,
        state: dict[bytes, Lock],
        behind: Iterable[bytes] = (),
        ranges: list[RangeLock] | None = None,
    ) -> None:
        """Continue from ``state`` and ``ranges``; ``behind``: as the step before has left it."""
        self.state = state
        self.ranges: list[RangeLock] = [] if ranges is None else ranges
        self.behind = list(behind)
        self._touched = set(self.behind)

    def __len__(self) -> int:
        """Holders and waiting together."""
        held = sum((lock.holder > 0) + len(lock.waiting) for lock in self.state.values())
        return held + len(self.ranges)

    def enqueue(self, name: bytes, seq: int, *, write: bool) -> None:
        """Let transaction ``seq`` wait for a lock.

        Raises:
            InvariantViolation: a later transaction, or this one, is in the queue.

        """
        lock = self.state.setdefault(name, Lock())
        last = lock.waiting[-1][0] if lock.waiting else lock.holder
        if seq <= last:
            raise InvariantViolation(f"transaction {seq} is enqueued for {name!r} after {last}")
        lock.waiting.append((seq, write))
        self._touched.add(name)

    def enqueue_range(self, lock: RangeLock) -> None:
        """Let a transaction wait for a range lock.

        Raises:
            InvariantViolation: a later transaction, or this one, waits for one.

        """
        if self.ranges and lock.seq <= self.ranges[-1].seq:
            raise InvariantViolation(f"ranges of {lock.seq} are enqueued after later ones")
        self.ranges.append(lock)

    def release(self, name: bytes, seq: int) -> bool:
        """Free a lock if transaction ``seq`` holds it; False when it has done so before.

        Raises:
            InvariantViolation: it has not been granted yet.

        """
        lock = self.state.get(name)
        if lock is None:
            return False
        first = lock.waiting[0][0] if lock.waiting else seq + 1
        if (lock.holder and seq > lock.holder) or (not lock.holder and seq >= first):
            raise InvariantViolation(f"transaction {seq} releases {name!r} that it does not hold")
        if seq != lock.holder:
            return False
        lock.holder = 0
        self._touched.add(name)
        return True

    def grant(
        self, fits: Callable[[list[tuple[int, bytes]]], int] = len
    ) -> list[tuple[int, bytes]]:
        """Grant what can be granted since the last call: (seq, lock), in that order.

        ``fits``: how many of the first of them may be granted now; the others are ``behind``.
        """
        free = sorted(self._free())
        granted = free[: fits(free)] if free else []
        passed = self._pass_ranges(set(granted)) if self.ranges else []
        names = {lock.name for lock in passed}
        for seq, name in granted:
            if name in names:
                continue
            lock = self.state[name]
            _, write = lock.waiting.pop(0)
            lock.holder = seq if write else 0
            if not lock.holder and not lock.waiting:
                del self.state[name]
        behind = {name for _, name in free[len(granted) :] if name in self.state}
        if passed:
            behind |= set(filter(_spans_of(passed).has, self.state))
        self.behind = sorted(behind)
        self._touched = set(self.behind)
        return granted

    def _pass_ranges(self, granted: set[tuple[int, bytes]]) -> list[RangeLock]:
        """Take the range locks that are granted away, and return them."""
        passed = [lock for lock in self.ranges if (lock.seq, lock.name) in granted]
        self.ranges[:] = [lock for lock in self.ranges if (lock.seq, lock.name) not in granted]
        return passed

    def _free(self) -> Iterator[tuple[int, bytes]]:
        """Yield the waiting locks that can be granted now."""
        ranges = self.spans() if self._touched else None
        for name in self._touched:
            lock = self.state[name]
            if not lock.holder and not lock.waiting:
                del self.state[name]
            for seq, write in [] if lock.holder else lock.waiting:
                if write and ranges is not None and ranges.earlier(name, seq):
                    break
                yield seq, name
                if write:
                    break
        if self.ranges:
            names = sorted(self.state)
            writers = FirstWriters(names, (self.state[name].first_writer for name in names))
            for each in self.ranges:
                if not any(writers.earlier(span, each.seq) for span in each.spans):
                    yield each.seq, each.name

    def spans(self) -> SpanSeqs:
        """Return the spans of the waiting range locks."""
        return _spans_of(self.ranges)


def _spans_of(ranges: Iterable[RangeLock]) -> SpanSeqs:
    return SpanSeqs((lock.seq, span) for lock in ranges for span in lock.spans)
