"""Copy a partition of the changes: no repetition, in the order of seqs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streamydb.errors import StreamyError
from streamydb.records import Change, ChangeName, Resolved, change_name
from streamydb.records.connect import CopyProgress, connect_key, connect_value


class ConnectError(StreamyError):
    """The copy is missing, has another writer, or is that of other changes."""


class CopiedRecord(NamedTuple):
    """A record of `<db>.connect`; no value: a tombstone.

    ``has_nul``: the key of the database has a character U+0000, which some systems cannot store.
    """

    partition: int
    key: bytes
    value: bytes | None
    progress: CopyProgress
    has_nul: bool = False


class _Waiting(NamedTuple):
    """A change that is not resolved yet."""

    offset: int
    key: str
    change: Change


class PartitionCopy:
    """One partition of the changes, from its `progress` on.

    A change waits until a `resolved` record says that all up to its seq have been written. So
    everything of a seq is copied at once, and what comes later of it is a repetition.

    Attributes:
        resolved: everything up to this seq has been given out.
    """

    def __init__(self, partition: int, progress: CopyProgress) -> None:
        self._partition = partition
        self._progress = progress
        self.resolved = progress.seq
        self._waiting: dict[ChangeName, _Waiting] = {}

    def take(self, offset: int, key: bytes | None, record: Change | Resolved) -> list[CopiedRecord]:
        """Take the next record of the partition; return what can be copied now."""
        if isinstance(record, Resolved):
            return self._resolve(offset, record.resolved)
        name = change_name(key, record)
        if name.seq > self._progress.seq:
            self._waiting.setdefault(name, _Waiting(offset, name.key.decode(), record))
        return []

    def _resolve(self, offset: int, seq: int) -> list[CopiedRecord]:
        """Copy what waits up to a seq."""
        self.resolved = max(self.resolved, seq)
        ready = sorted(name for name in self._waiting if name.seq <= seq)
        if not ready:
            return []
        changes = [self._waiting.pop(name) for name in ready]
        # From the resolved record on, so that the next one to begin knows how far it is.
        position = min((each.offset for each in self._waiting.values()), default=offset)
        copied: list[CopiedRecord] = []
        for name, change in zip(ready, changes, strict=True):
            self._progress = CopyProgress(self._progress.topic, position, name.seq)
            copied += self._copied(change)
        return copied

    def _copied(self, waiting: _Waiting) -> Iterator[CopiedRecord]:
        """The record of a change, and a tombstone after a delete."""
        _, key, change = waiting
        name, has_nul = connect_key(key), "\0" in key
        value = connect_value(key, change)
        yield CopiedRecord(self._partition, name, value, self._progress, has_nul)
        if change.op == "d":
            yield CopiedRecord(self._partition, name, None, self._progress, has_nul)
