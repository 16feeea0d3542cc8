"""Hot keys and conflict groups, from the change feed, over a sliding window.

A *conflict group* is taken to be a connected component of the transactions of one resolved
interval, two of them being joined when they wrote the same key. That is an approximation of what
the sorter sees: it also knows reads, checks and aborted transactions, and plans by epochs.
Only so many changes of a second are looked at; where there are more, sizes are lower bounds.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamydb.facade.ports import ChangeBatch, ChangeEvent

EXAMINED_PER_S_MAX: Final = 5_000
KEYS_KEPT_PER_S: Final = 200


class GroupSizes(NamedTuple):
    """Groups with `low` to `high` transactions."""

    low: int
    high: int
    groups: int
    transactions: int


class _Slot:
    def __init__(self) -> None:
        self.keys: Counter[str] = Counter()
        self.sizes: Counter[int] = Counter()
        self.intervals = self.changes = self.examined = 0

    def close(self) -> None:
        self.keys = Counter(dict(self.keys.most_common(KEYS_KEPT_PER_S)))


class Contention:
    """The keys on which transactions conflict, in the latest seconds."""

    def __init__(self, window_s: int, examined_per_s_max: int = EXAMINED_PER_S_MAX) -> None:
        self.window_s = window_s
        self._examined_per_s_max = examined_per_s_max
        self._slots: OrderedDict[int, _Slot] = OrderedDict()

    def take(self, second: int, batch: ChangeBatch) -> None:
        """Take in the changes of a resolved interval that came in `second`."""
        slot = self._slot(second)
        slot.changes += len(batch.changes)
        changes = batch.changes[: self._examined_per_s_max - slot.examined]
        if not changes:
            return
        slot.intervals += 1
        slot.examined += len(changes)
        slot.keys.update(change.key for change in changes)
        slot.sizes.update(group_sizes(changes))

    def forget(self, second: int) -> None:
        """Drop the slots outside of the window that ends with `second`, also after a clock was set
        back.
        """
        while self._slots and not second - self.window_s < next(iter(self._slots)) <= second:
            self._slots.popitem(last=False)

    def hot_keys(self) -> list[tuple[str, int]]:
        """Return keys and their writes, the most written first; rare keys may be missing."""
        keys: Counter[str] = Counter()
        for slot in self._slots.values():
            keys.update(slot.keys)
        return sorted(keys.items(), key=lambda item: (-item[1], item[0]))

    def sizes(self) -> list[GroupSizes]:
        """Return how many groups there are of 1, 2, 3-4, 5-8, ... transactions."""
        groups: Counter[int] = Counter()
        transactions: Counter[int] = Counter()
        for slot in self._slots.values():
            for size, count in slot.sizes.items():
                power = (size - 1).bit_length()
                groups[power] += count
                transactions[power] += size * count
        last = max(groups, default=-1)
        return [
            GroupSizes((1 << power >> 1) + 1, 1 << power, groups[power], transactions[power])
            for power in range(last + 1)
        ]

    def largest(self) -> int:
        return max((size for slot in self._slots.values() for size in slot.sizes), default=0)

    def counts(self) -> dict[str, int]:
        slots = list(self._slots.values())
        return {
            "intervals": sum(slot.intervals for slot in slots),
            "changes": sum(slot.changes for slot in slots),
            "examined": sum(slot.examined for slot in slots),
        }

    def _slot(self, second: int) -> _Slot:
        slot = self._slots.get(second)
        if slot is None:
            if self._slots:
                next(reversed(self._slots.values())).close()
            slot = self._slots[second] = _Slot()
            self.forget(second)
        return slot


def group_sizes(changes: Sequence[ChangeEvent]) -> Counter[int]:
    """Return size -> number of groups of the transactions that made some changes."""
    parents: dict[int, int] = {}
    writers: dict[str, int] = {}
    for change in changes:
        root = _root(parents, change.seq)
        other = _root(parents, writers.setdefault(change.key, change.seq))
        parents[root] = other
    return Counter(Counter(_root(parents, seq) for seq in parents).values())


def _root(parents: dict[int, int], seq: int) -> int:
    """The transaction that stands for the group of `seq`; paths are halved on the way."""
    parents.setdefault(seq, seq)
    while parents[seq] != seq:
        parents[seq] = seq = parents[parents[seq]]
    return seq
