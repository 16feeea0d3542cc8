"""Transactions of the client: functions under `run`, and those that stay open between
statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from streamydb.client import CheckFailedError, Client, View
from streamydb_layers.tables.errors import TransactionConflictError
from streamydb_layers.tables.transaction import Overlay, Transaction, commit_fields

_T = TypeVar("_T")


class ViewTransaction:
    """The view of a function under `run` as a `Transaction`."""

    def __init__(self, view: View) -> None:
        self._view = view

    def read(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the values of keys."""
        return self._view.read(keys)

    def scan(self, start: str, end: str) -> Iterator[tuple[str, Any]]:
        """Yield a range in the order of keys."""
        return ((entry.key, entry.value) for entry in self._view.scan(start=start, end=end))

    def put(self, key: str, value: Any) -> None:
        """Store a value."""
        self._view.put(key, value)

    def delete(self, key: str) -> None:
        """Remove a key."""
        self._view.delete(key)


class ClientStore:
    """The transactions of a blocking client; see `Store`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def begin(self) -> ClientSnapshot:
        """Begin a transaction that stays open."""
        return ClientSnapshot(self._client)

    def run(self, function: Callable[[Transaction], _T]) -> _T:
        """Execute a function by the client's `run`; its writes go there when it has ended."""

        def body(view: View) -> _T:
            transaction = ViewTransaction(view)
            overlay = Overlay(transaction)
            value = function(overlay)
            overlay.write_to(transaction)
            return value

        try:
            return self._client.run(body)
        except CheckFailedError as error:
            raise TransactionConflictError(str(error)) from error


class ClientSnapshot:
    """One snapshot, pinned by the first read, and the versions that were read; see `Snapshot`."""

    def __init__(self, client: Client) -> None:
        self.seq: int | None = None
        self._client = client
        self._values: dict[str, Any] = {}
        self._versions: dict[str, int] = {}
        self._scans: dict[tuple[str, str], int] = {}

    def read(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the values of keys."""
        missing = [key for key in keys if key not in self._values]
        if missing or self.seq is None:
            found = self._client.read(missing, at=self.seq)
            self.seq = found.seq
            self._values.update(found)
            self._versions |= {key: entry.version for key, entry in found.entries.items()}
        return {key: self._values[key] for key in keys}

    def scan(self, start: str, end: str) -> list[tuple[str, Any]]:
        """Return a range in the order of keys."""
        if self.seq is None:
            self.read([])
        found = [*self._client.scan(start=start, end=end, at=self.seq)]
        self._scans[start, end] = len(found)
        return [(entry.key, entry.value) for entry in found]

    def commit(self, writes: Mapping[str, Any]) -> None:
        """Write if all keys that were read still have their versions, and all ranges their keys."""
        if not writes:
            return
        fields = commit_fields(self._versions, self._scans, self.seq, writes)
        try:
            self._client.transaction(checks=fields["checks"], updates=fields["updates"])
        except CheckFailedError as error:
            raise TransactionConflictError(
                "Others have written what this transaction has read; begin it again."
            ) from error
