"""Constraints as the serial oracle enforces them: on the whole state, as plainly as possible.

The executor has its own way (`txn_processor.enforce`), which sees only the keys that it locked;
tests and the simulator compare the two. They share what a rule says about a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Raw

from streamydb import errors, limits
from streamydb.constraints.core import Constraint, parse
from streamydb.records import CONSTRAINTS_KEY, Expiring, Failed, canonical, decode_value, end_of
from streamydb.records.ranges import Bounds, Range
from streamydb.records.result import NULL

State: TypeAlias = Mapping[str, tuple[bytes, int]]
Writes: TypeAlias = Mapping[str, bytes | None]


class CountedRanges(NamedTuple):
    """The ranges that a transaction names, by their bounds; ``count``: how many keys one has."""

    bounds: Collection[Bounds]
    count: Callable[[Range], int]


class Judge:
    """Judges one transaction on the state before it."""

    def __init__(
        self, state: State, touched: Sequence[str], locks: Sequence[str], named: CountedRanges
    ) -> None:
        """``touched``: the keys that it updates, in order. ``locks``: index keys it may write.
        ``named``: the ranges that it names.
        """
        self.state = state
        self.named = named
        self.places = {key: place for place, key in enumerate(touched)}
        self.locks = dict.fromkeys(locks)
        self.rules = parse(state[CONSTRAINTS_KEY][0] if CONSTRAINTS_KEY in state else None)

    def verdict(self, writes: Writes) -> tuple[str, list[Failed], str | None] | None:
        """Why the writes must not be made (code, failed, reason); None: they may."""
        failed = [
            self._failed(key, after, rule.name, fault)
            for key, after in writes.items()
            for rule in self.rules.covering(key)
            if (fault := _fault(rule, after)) is not None
        ]
        if not failed:
            missing = self.missing(writes)
            if missing:
                entries = [Failed("lock", self.places[k], i, NULL, 0) for k, i in missing]
                entries_max = limits.FAILED_ENTRIES_MAX
                return errors.UNDECLARED_KEY, entries[:entries_max], missing[0][1]
            failed = self._crowded(writes) + self._taken_twice(writes)
        if failed:
            return errors.CONSTRAINT_VIOLATED, failed[: limits.FAILED_ENTRIES_MAX], None
        return None

    def missing(self, writes: Writes) -> list[tuple[str, str]]:
        """The writes that lack a lock, each with the index key, or the prefix of the range."""
        missing = [
            (key, index)
            for old_ones in (True, False)
            for key, rule in self._pairs(writes)
            if (index := self._index(rule, key, None if old_ones else writes)) is not None
            and index not in self.locks
        ]
        missing += [
            (key, group.begin)
            for key, _, group in self._made(writes)
            if group.bounds() not in self.named.bounds
        ]
        return missing

    def index_writes(self, writes: Writes) -> dict[str, bytes | None]:
        """Return how the index changes with writes that may be made, in the order of the output."""
        wanted: dict[str, bytes | None] = {}
        for key in self.locks:
            if key in self.state and not self.rules.is_live(key):
                wanted[key] = None
        for key, rule in self._pairs(writes):
            index = self._index(rule, key, None)
            if index is not None and self._owner(index) == key:
                wanted[index] = None
        for key, rule in self._pairs(writes):
            index = self._index(rule, key, writes)
            if index is not None:
                wanted[index] = canonical(key)
        for index, owner in wanted.items():
            if owner is not None:
                end = end_of(writes[str(decode_value(owner))])
                wanted[index] = owner if end is None else Expiring(owner, end)
        before = {k: self._value(k) for k in wanted}
        return {k: v for k, v in wanted.items() if v != before[k] or end_of(v) != end_of(before[k])}

    def _made(self, writes: Writes) -> list[tuple[str, Constraint, Range]]:
        """The keys that are made where a rule counts them."""
        made = [key for key, after in writes.items() if after is not None and key not in self.state]
        pairs = ((key, rule, rule.group(key)) for key, rule in self._pairs(dict.fromkeys(made)))
        return [(key, rule, group) for key, rule, group in pairs if group is not None]

    def _crowded(self, writes: Writes) -> list[Failed]:
        """The keys that are made in a range which has too many after the transaction."""
        more: Counter[tuple[str, str]] = Counter()
        for key, rule in self._pairs(writes):
            group = rule.group(key)
            if group is not None:
                more[rule.name, group.begin] += (key not in self.state) - (writes[key] is None)
        return [
            self._failed(key, writes[key], rule.name, rule.crowded)
            for key, rule, group in self._made(writes)
            if self.named.count(group) + more[rule.name, group.begin] > (rule.keys_max or 0)
        ]

    def _taken_twice(self, writes: Writes) -> list[Failed]:
        """Writes whose unique part another key has, before the transaction or by it."""
        owners: dict[str, str] = {}
        failed = []
        for key, rule in self._pairs(writes):
            index = self._index(rule, key, writes)
            if index is None:
                continue
            owner = self._owner(index)
            if owner is not None and owner in writes:
                given_up = self._index(rule, owner, None) == index
                owner = None if given_up else owner
            taken = owners.get(index, owner)
            if taken not in (None, key):
                failed.append(self._failed(key, writes[key], rule.name, "unique"))
            owners[index] = key
        return failed

    def _pairs(self, writes: Writes) -> list[tuple[str, Constraint]]:
        return [(key, rule) for key in writes for rule in self.rules.covering(key)]

    def _index(self, rule: Constraint, key: str, writes: Writes | None) -> str | None:
        """The index key of what a key holds: before, or after the writes."""
        return rule.index_key(self._value(key) if writes is None else writes[key])

    def _owner(self, index: str) -> str | None:
        value = self._value(index)
        return None if value is None else str(decode_value(value))

    def _value(self, key: str) -> bytes | None:
        return self.state[key][0] if key in self.state else None

    def _failed(self, key: str, after: bytes | None, rule: str, fault: str) -> Failed:
        version = self.state[key][1] if key in self.state else 0
        place = self.places[key]
        if after is not None and len(after) > limits.FAILED_VALUE_BYTES_MAX:
            entry = Failed("constraint", place, key, NULL, version, truncated=True)
        else:
            entry = Failed("constraint", place, key, NULL if after is None else Raw(after), version)
        entry.constraint, entry.violated = rule, fault
        return entry


def _fault(rule: Constraint, after: bytes | None) -> str | None:
    fault = None if after is None else rule.fault(decode_value(after))
    gone = after is None or end_of(after) is not None
    return "required" if fault is None and gone and rule.required else fault
