"""The inbox of the real-time worker: what two threads have read, until the worker takes it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import pyarrow as pa

__all__ = ["RECORDS_MAX", "Inbox", "LogColumns"]

T = TypeVar("T")

RECORDS_MAX: Final = 4_000
"""Records that wait at most, so of one group, too; one batch more may come on top."""

_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class LogColumns:
    """Records of the log, in order; each column has shape (n,).

    ``offsets``, ``append_ms``: int64. ``values``: binary, null where the log has a tombstone.
    """

    offsets: pa.Array
    append_ms: pa.Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def bytes(self) -> int:
        """Size of the columns."""
        return int(self.offsets.nbytes + self.append_ms.nbytes + self.values.nbytes)


class Inbox(Generic[T]):
    """Records, which wait for room, and messages of type ``T``, which do not, in order."""

    def __init__(self) -> None:
        self._items: list[LogColumns | T] = []
        self._records = 0
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, columns: LogColumns) -> bool:
        """Add records as soon as there is room; return False if nobody takes them any more."""
        size = columns.bytes
        with self._changed:
            while not self._closed and (self._records >= RECORDS_MAX or self._bytes >= _BYTES_MAX):
                self._changed.wait()
            if self._closed:
                return False
            self._items.append(columns)
            self._records += len(columns)
            self._bytes += size
            self._changed.notify_all()
            return True

    def say(self, message: T) -> None:
        with self._changed:
            self._items.append(message)
            self._changed.notify_all()

    def take(self, timeout_s: float) -> list[LogColumns | T]:
        """Wait for something, and take all there is; an empty list when the time is up."""
        with self._changed:
            if not self._items:
                self._changed.wait_for(lambda: self._items, timeout_s)
            items, self._items = self._items, []
            self._records = self._bytes = 0
            self._changed.notify_all()
            return items

    def is_empty(self) -> bool:
        """Return True if nothing waits."""
        return not self._items

    def close(self) -> None:
        """Let go whoever waits for room."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
