"""The lock table of `grouping=single`: a queue per lock, in seq order.

Conservative ordered locking as in Calvin (Thomson et al., SIGMOD 2012, section 3.2).

A writer is granted when it is first in its queue, and holds the lock until its feedback has been
applied. A reader is granted when no writer, granted or waiting, is ahead of it; it needs nothing
afterwards, because it is sent a copy of the value. Locks are named by bytes: see
`streamydb.key_processor.locking.messages.key_lock` and `id_lock`.

Invariants: at most one writer holds a lock; every queue is in ascending seq order, so there is no
deadlock; a release by anybody but the holder changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from streamydb.errors import InvariantViolation

__all__ = ["Lock", "LockTable"]


class Lock(msgspec.Struct, array_like=True):
    """One lock: the seq of the writer that holds it (0: free), and who waits: (seq, writes)."""

    holder: int = 0
    waiting: list[tuple[int, bool]] = []


class LockTable:
    """The locks of one shard. ``state`` holds what is in use, is changed in place, and is saved.

    Attributes:
        behind: locks that could be granted and were not, because they did not fit.
    """

    def __init__(self, state: dict[bytes, Lock], behind: Iterable[bytes] = ()) -> None:
        """Continue from ``state``; ``behind``: as the step before has left it."""
        self.state = state
        self.behind = list(behind)
        self._touched = set(self.behind)

    def __len__(self) -> int:
        """Holders and waiting together."""
        return sum((lock.holder > 0) + len(lock.waiting) for lock in self.state.values())

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
        for seq, name in granted:
            lock = self.state[name]
            _, write = lock.waiting.pop(0)
            lock.holder = seq if write else 0
            if not lock.holder and not lock.waiting:
                del self.state[name]
        self.behind = sorted({name for _, name in free[len(granted) :]})
        self._touched = set(self.behind)
        return granted

    def _free(self) -> Iterator[tuple[int, bytes]]:
        """Yield the waiting locks that can be granted now."""
        for name in self._touched:
            lock = self.state[name]
            if not lock.holder and not lock.waiting:
                del self.state[name]
            for seq, write in [] if lock.holder else lock.waiting:
                yield seq, name
                if write:
                    break
