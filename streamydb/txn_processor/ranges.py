"""Ranges of keys within a transaction: what it sees of them, and what its checks say of that.

What an executing partition sees of a range is the sum of what the shards found in it, which nobody
changes, and of the keys in it that were granted one by one, as they are at the transaction's
instant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import UNSET

from streamydb import limits
from streamydb import records as r
from streamydb.errors import InvariantViolation
from streamydb.records.ranges import Bounds, Range
from streamydb.txn_processor.comparisons import Failed, Value

Entries: TypeAlias = dict[str, Value]
"""The keys of a range with their values and versions, in order."""


class Seen(NamedTuple):
    """A range at an instant: how many keys it has, and the highest version, 0 if it has none."""

    keys: int
    version: int


class FixedPart(NamedTuple):
    """The part of a range that no granted key changes; ``entries``: None if they are not here."""

    keys: int
    version: int
    entries: Entries | None


class See(NamedTuple):
    """The ranges of a transaction before its instant, by their bounds.

    ``entries``: None if they are too many bytes for a result, whatever else is in it.
    """

    seen: Callable[[Bounds], Seen]
    entries: Callable[[Bounds], Entries | None]


def _unseen(bounds: Bounds) -> Seen:
    raise InvariantViolation(f"the range {bounds} was not granted to a transaction that names it")


nothing_seen = See(_unseen, _unseen)  # type: ignore[arg-type]
"""What transactions see that name no range."""


def joined(parts: Sequence[FixedPart]) -> FixedPart:
    """Join the parts of several shards."""
    if len(parts) == 1:  # its entries are in order
        return parts[0]
    keys, version = 0, 0
    entries: list[tuple[str, Value]] | None = []
    for part in parts:
        keys, version = keys + part.keys, max(version, part.version)
        if entries is not None:
            entries = None if part.entries is None else [*entries, *part.entries.items()]
    return FixedPart(keys, version, None if entries is None else dict(sorted(entries)))


def too_many(txn: r.Transaction, see: See) -> bool:
    """Return True if the ranges of a transaction have more keys than they may."""
    return sum(see.seen(bounds).keys for bounds in txn.ranges) > limits.RANGE_KEYS_MAX


def too_heavy(txn: r.Transaction, see: See) -> bool:
    """Return True if a call scans ranges, and those that are read are more bytes than they may be.

    What shards leave out is surely more.
    """
    if txn.call is UNSET or not txn.call.ranges:
        return False
    size = 0
    for bounds, read in txn.ranges.items():
        entries = see.entries(bounds) if read else {}
        if entries is None:
            return True
        size += sum(len(key.encode()) + len(value or b"") for key, (value, _) in entries.items())
        size += limits.RANGE_ENTRY_BYTES * len(entries)
    return size > limits.RESULT_BYTES_MAX


def failed_range(index: int, check: r.Check, see: See) -> Failed | None:
    """Return the entry of a check of a range that does not hold; None if it does."""
    if check.range is UNSET:
        raise InvariantViolation("a check names neither a key nor a range")
    seen = see.seen(check.range.bounds())
    holds = (
        (check.exists is UNSET or (seen.keys > 0) == check.exists)
        and (check.count is UNSET or seen.keys == check.count)
        and (check.count_le is UNSET or seen.keys <= check.count_le)
        and (check.count_ge is UNSET or seen.keys >= check.count_ge)
        and (check.version_le is UNSET or seen.version <= check.version_le)
    )
    if holds:
        return None
    return {
        "check": "range",
        "index": index,
        "key": check.range.begin,
        "value": None,
        "version": seen.version,
        "count": seen.keys,
    }


def entries_after(
    txn: r.Transaction, see: See, after: Mapping[str, bytes | None], seq: int
) -> list[tuple[Range, Entries]] | None:
    """Return the ranges that a transaction reads, after its own writes; None if they are too much.

    Args:
        txn: the transaction.
        see: the ranges before it.
        after: what it writes; None: a delete.
        seq: the version of what it writes.

    """
    found = []
    for named in txn.read_ranges:
        start, end = bounds = named.bounds()
        before = see.entries(bounds)
        if before is None:
            return None
        entries = dict(before)
        for key, value in after.items():
            if start <= key.encode() < end:
                entries.pop(key, None)
                if value is not None:
                    entries[key] = value, seq
        found.append((named, dict(sorted(entries.items()))))
    return found
