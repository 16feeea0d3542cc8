"""The part of a transaction that SQL needs, and own writes over what was read.

A *snapshot* is read by keys and by ranges, and remembers what was read; `commit` writes only if all
of it still holds. A *store* begins transactions. `tables.stores` has that of the client,
`tables.memory` one in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")


class Readable(Protocol):
    """Reads of one state."""

    def read(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """Return the values of keys; None for those that are absent."""

    def scan(self, start: str, end: str) -> Iterable[tuple[str, Any]]:
        """Return keys and values from ``start`` on and before ``end``, in the order of keys."""


class Transaction(Readable, Protocol):
    """Reads that see the own writes, and writes."""

    def put(self, key: str, value: Any) -> None:
        """Store a value."""

    def delete(self, key: str) -> None:
        """Remove a key."""


class Snapshot(Readable, Protocol):
    """Reads of one state that can be committed with writes."""

    def commit(self, writes: Mapping[str, Any]) -> None:
        """Write (None: remove) if all that was read still holds.
        Raises TransactionConflictError: others have written what was read.
        """


class Store(Protocol):
    """Begins transactions."""

    def begin(self) -> Snapshot:
        """Begin one; its first read takes the snapshot."""

    def run(self, function: Callable[[Transaction], _T]) -> _T:
        """Execute a function as a transaction, again after a conflict.
        Raises TransactionConflictError: there were too many conflicts.
        """


class Overlay:
    """Own writes over what lies below: a `Transaction`.

    A statement writes into an overlay of its transaction's, so that it writes all or nothing.
    """

    def __init__(self, below: Readable) -> None:
        self.writes: dict[str, Any] = {}
        self._below = below

    def read(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the values of keys, own writes included."""
        missing = [key for key in keys if key not in self.writes]
        found = self._below.read(missing) if missing else {}
        return {key: self.writes[key] if key in self.writes else found[key] for key in keys}

    def scan(self, start: str, end: str) -> Iterator[tuple[str, Any]]:
        """Yield a range in the order of keys, own writes included."""
        found = dict(self._below.scan(start, end))
        found.update((key, value) for key, value in self.writes.items() if start <= key < end)
        for key in sorted(found):
            if found[key] is not None:
                yield key, found[key]

    def put(self, key: str, value: Any) -> None:
        """Store a value."""
        self.writes[key] = value

    def delete(self, key: str) -> None:
        """Remove a key."""
        self.writes[key] = None

    def write_to(self, below: Transaction) -> None:
        """Hand the writes down."""
        for key, value in self.writes.items():
            if value is None:
                below.delete(key)
            else:
                below.put(key, value)


def commit_fields(
    seen: Mapping[str, int], ranges: Mapping[tuple[str, str], int], seq: int | None,
    writes: Mapping[str, Any],
) -> dict[str, list[dict[str, Any]]]:  # fmt: skip
    """The checks and updates of the transaction that commits what was read and written.

    Args:
        seen: the versions of the keys that were read.
        ranges: how many keys were in the ranges that were read, by start and end.
        seq: of the state that was read.
        writes: values; None removes a key.
    """
    checks: list[dict[str, Any]] = [
        {"key": key, "version": version} for key, version in seen.items()
    ]
    checks += [
        {"range": {"start": start, "end": end}, "count": count, "version_le": seq}
        for (start, end), count in ranges.items()
    ]
    updates = [
        {"op": "delete", "key": key} if value is None
        else {"op": "put", "key": key, "value": value}
        for key, value in writes.items()
    ]  # fmt: skip
    return {"checks": checks, "updates": updates}
