"""Ranges in the serial oracle: the keys of its state in order, from when on somebody asks."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import UNSET

from streamydb import limits
from streamydb.records import Check, Failed, Transaction
from streamydb.records.ranges import Range, first_behind
from streamydb.records.result import NULL, RangeEntry, ReadRange
from streamydb.verify.oracle.outputs import raw_value

_State: TypeAlias = Mapping[str, tuple[bytes, int]]


class OracleRanges:
    """The ranges of a state; texts are in the order of their code points, as their bytes are."""

    def __init__(self, state: Callable[[], _State]) -> None:
        self._get = state
        self._keys: list[str] | None = None
        self._known: _State | None = None

    @property
    def _state(self) -> _State:
        return self._get()

    def note(self, key: str, before: bytes | None, after: bytes | None) -> None:
        if self._keys is None or (before is None) == (after is None):
            return
        if after is None:
            del self._keys[bisect_left(self._keys, key)]
        else:
            insort(self._keys, key)

    def too_many(self, txn: Transaction) -> bool:
        """Return True if the different ranges of a transaction have more keys than they may."""
        ranges = [check.range for check in txn.checks if check.range is not UNSET]
        ranges += [*txn.lock_ranges, *txn.read_ranges, *_scanned(txn)]
        different = {each.bounds(): each for each in ranges}.values()
        return sum(map(self.count, different)) > limits.RANGE_KEYS_MAX

    def too_heavy(self, txn: Transaction) -> bool:
        """Return True if a call scans ranges, and what is read of ranges is too many bytes."""
        if not _scanned(txn):
            return False
        read = {each.bounds(): each for each in [*txn.read_ranges, *_scanned(txn)]}.values()
        size = sum(
            len(key.encode()) + len(value) + limits.RANGE_ENTRY_BYTES
            for each in read for key, value in self.entries(each)
        )  # fmt: skip
        return size > limits.RESULT_BYTES_MAX

    def count(self, key_range: Range) -> int:
        start, end = self._span(key_range)
        return end - start

    def entries(self, key_range: Range) -> list[tuple[str, bytes]]:
        """The keys of a range and their values, in order."""
        return [(key, self._state[key][0]) for key in self._within(key_range)]

    def failed(self, index: int, check: Check, key_range: Range) -> list[Failed]:
        """The entry of a check of a range, if it does not hold."""
        count = self.count(key_range)
        if check.version_le is UNSET and _holds(check, count, 0):
            return []  # so nobody asks for the highest version
        highest = max((self._state[key][1] for key in self._within(key_range)), default=0)
        if _holds(check, count, highest):
            return []
        return [Failed("range", index, key_range.begin, NULL, highest, count=count)]

    def read(self, key_range: Range, writes: Mapping[str, bytes | None], seq: int) -> ReadRange:
        """A range after the writes of transaction ``seq``."""
        after = {key: self._state[key] for key in self._within(key_range)}
        for key, value in writes.items():
            after.pop(key, None)
            if value is not None and _is_in(key, key_range):
                after[key] = value, seq
        rows = [(key, *after[key]) for key in sorted(after)]
        return ReadRange(
            key_range, [RangeEntry(k, raw_value(value), seq) for k, value, seq in rows]
        )

    def _within(self, key_range: Range) -> list[str]:
        start, end = self._span(key_range)
        return self._ordered()[start:end]

    def _span(self, key_range: Range) -> tuple[int, int]:
        """The places in order of the first key of a range, and of the first behind it."""
        keys = self._ordered()
        start = bisect_left(keys, key_range.begin)
        behind = (
            (key_range.end or "") if key_range.prefix is UNSET else first_behind(key_range.prefix)
        )
        end = len(keys) if behind is None else bisect_left(keys, behind)
        return start, max(start, end)

    def _ordered(self) -> list[str]:
        if self._keys is None or self._known is not self._state:
            self._keys, self._known = sorted(self._state), self._state
        return self._keys


def _scanned(txn: Transaction) -> tuple[Range, ...]:
    return () if txn.call is UNSET else txn.call.ranges


def _is_in(key: str, key_range: Range) -> bool:
    if key_range.prefix is not UNSET:
        return key.startswith(key_range.prefix)
    return key_range.begin <= key and key_range.end is not UNSET and key < key_range.end


def _holds(check: Check, count: int, highest: int) -> bool:
    return (
        (check.exists is UNSET or check.exists == (count > 0))
        and (check.count is UNSET or check.count == count)
        and (check.count_le is UNSET or count <= check.count_le)
        and (check.count_ge is UNSET or count >= check.count_ge)
        and (check.version_le is UNSET or highest <= check.version_le)
    )
