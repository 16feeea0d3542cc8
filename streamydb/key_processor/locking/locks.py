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

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

import msgspec
import numpy as np

from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.record_rows import ReleasedRecords
from streamydb.frames.table import Ragged, starts_of
from streamydb.key_processor.locking.messages import encode_list, key_lock, locked_name, range_lock
from streamydb.key_processor.ranges import EitherKeys, FoundRange, RangeScanner
from streamydb.key_processor.value_store import decoded
from streamydb.key_processor.values import ShardValues


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
        held = sum((lock.holder > 0) + len(lock.waiting) for lock in self.state.values())
        return held + len(self.ranges)

    def enqueue(self, name: bytes, seq: int, *, write: bool) -> None:
        """Let transaction ``seq`` wait for a lock.
        Raises InvariantViolation: a later transaction, or this one, is in the queue.
        """
        lock = self.state.setdefault(name, Lock())
        last = lock.waiting[-1][0] if lock.waiting else lock.holder
        if seq <= last:
            raise InvariantViolation(f"transaction {seq} is enqueued for {name!r} after {last}")
        lock.waiting.append((seq, write))
        self._touched.add(name)

    def enqueue_range(self, lock: RangeLock) -> None:
        """Let a transaction wait for a range lock.
        Raises InvariantViolation: a later transaction, or this one, waits for one.
        """
        if self.ranges and lock.seq <= self.ranges[-1].seq:
            raise InvariantViolation(f"ranges of {lock.seq} are enqueued after later ones")
        self.ranges.append(lock)

    def release(self, name: bytes, seq: int) -> bool:
        """Free a lock if transaction ``seq`` holds it; False when it has done so before.
        Raises InvariantViolation: it has not been granted yet.
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


Span: TypeAlias = tuple[bytes, bytes]
"""Names from one to before another."""

_NEVER = 1 << 63


class SpanSeqs:
    """Spans that have a seq each.

    The names are cut where a span begins or ends, and each piece is told the smallest seq of the
    spans that cover it.
    """

    def __init__(self, spans: Iterable[tuple[int, Span]]) -> None:
        begun = sorted((first, last, seq) for seq, (first, last) in spans if first < last)
        self._cuts = sorted({name for first, last, _ in begun for name in (first, last)})
        self._seqs: list[int] = []
        open_spans: list[tuple[int, bytes]] = []
        taken = 0
        for cut in self._cuts:
            while taken < len(begun) and begun[taken][0] == cut:
                _, last, seq = begun[taken]
                heappush(open_spans, (seq, last))
                taken += 1
            while open_spans and open_spans[0][1] <= cut:
                heappop(open_spans)
            self._seqs.append(open_spans[0][0] if open_spans else _NEVER)

    def earlier(self, name: bytes, seq: int) -> bool:
        """Return True if a span with a smaller seq has a name."""
        piece = bisect_right(self._cuts, name) - 1
        return piece >= 0 and self._seqs[piece] < seq

    def has(self, name: bytes) -> bool:
        """Return True if any span has a name."""
        return self.earlier(name, _NEVER)


class FirstWriters:
    """Names in order, with the seq of the first writer of each (0: none): a tree of minima."""

    def __init__(self, names: Sequence[bytes], writers: Iterable[int]) -> None:
        self._names = names
        count = len(names)
        self._least = [_NEVER] * count + [seq or _NEVER for seq in writers]
        for node in range(count - 1, 0, -1):
            self._least[node] = min(self._least[2 * node], self._least[2 * node + 1])

    def earlier(self, span: Span, seq: int) -> bool:
        """Return True if a name in a span has a writer with a smaller seq."""
        low = bisect_left(self._names, span[0]) + len(self._names)
        high = bisect_left(self._names, span[1]) + len(self._names)
        while low < high:
            if low & 1:
                if self._least[low] < seq:
                    return True
                low += 1
            if high & 1:
                high -= 1
                if self._least[high] < seq:
                    return True
            low //= 2
            high //= 2
        return False


class RangePart(msgspec.Struct, array_like=True, gc=False):
    """A range as one shard has found it; ``entries``: None if they are not needed, or too many."""

    count: int
    version: int
    entries: list[tuple[bytes, bytes, int]] | None


def range_locks(
    released: ReleasedRecords, shard: int, own: Sequence[Sequence[tuple[bytes, bool, int]]]
) -> dict[int, RangeLock]:
    """Return the range locks of transactions at a shard, by their position.

    ``own``: of each transaction its keys, whether it may write them, and where they live.
    """
    if released.ranges is None:
        return {}
    counts, rows = released.ranges
    starts = starts_of(counts).tolist()
    named = list(zip(rows.start.tolist(), rows.end.tolist(), strict=True))
    reads = rows.read.astype(bool).tolist()
    seqs = released.seq.tolist()
    return {
        i: RangeLock(
            seqs[i], range_lock(shard),
            [(key_lock(start), key_lock(end)) for start, end in named[starts[i] : starts[i + 1]]],
            reads[starts[i] : starts[i + 1]],
            [key for key, write, owner in own[i] if write and owner == shard],
        )
        for i in np.flatnonzero(counts).tolist()
    }  # fmt: skip


def answer(values: ShardValues, lock: RangeLock, over: Container[bytes]) -> bytes:
    """Return the ranges of a transaction as this shard holds them, without its own written keys.

    ``over``: keys that have ended before it.
    """
    scanner = RangeScanner(values, EitherKeys(over, set(lock.own)))
    ranges = [
        ((locked_name(first), locked_name(last)), read)
        for (first, last), read in zip(lock.spans, lock.reads, strict=True)
    ]
    return encode_list([_part(part) for part in scanner.serve(ranges)])


def _part(shard_range: FoundRange) -> RangePart:
    if shard_range.items is None:
        return RangePart(shard_range.keys, shard_range.version, None)
    table = decoded(Ragged.of([item for _, item in shard_range.items]))
    columns = table.tag.tolist(), table.number.tolist(), table.version.tolist()
    values = zip(*columns, table.text.tolist(), strict=True)
    entries = [
        (key, b"%d" % number if tag == p.INT else text, version)
        for (key, _), (tag, number, version, text) in zip(shard_range.items, values, strict=True)
    ]
    return RangePart(shard_range.keys, shard_range.version, entries)
