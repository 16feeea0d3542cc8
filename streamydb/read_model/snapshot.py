"""A read model's data as it was right after one seq."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Self

import msgspec

from streamydb.read_model.encoding import (
    SUFFIX_BYTES,
    key_bytes,
    key_text,
    pack_seq,
    seq_of,
    stored,
    unpack_version,
    version_key,
)
from streamydb.read_model.store import commit_time

if TYPE_CHECKING:
    import lmdb

    from streamydb.read_model.store import Store

__all__ = ["Entry", "Snapshot", "Version"]

_PAST_VERSIONS: Final = b"\x01"
"""Follows a stored key: behind all its versions, and not behind any longer key."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A key that exists: its value as canonical JSON, the seq that wrote it, and when (ms)."""

    key: str
    value: bytes
    version: int
    ts_ms: int


class Version(msgspec.Struct, frozen=True, gc=False):
    """A line of a key's history; ``value`` is None where it was deleted."""

    version: int
    ts_ms: int
    value: bytes | None
    txn_id: str


class Snapshot:
    """All data right after ``seq``, for one thread at a time; close it soon, it keeps pages alive.

    Attributes:
        seq: the last transaction whose writes it shows.
    """

    def __init__(self, store: Store, txn: lmdb.Transaction[bytes], seq: int, oldest: int) -> None:
        """Take over a read transaction; made by `ReadModel.snapshot`."""
        self.seq = seq
        self._store = store
        self._txn: lmdb.Transaction[bytes] | None = txn
        self._oldest = oldest
        self._versions = txn.cursor(store.tables.versions)
        self._times = txn.cursor(store.tables.times)

    def __enter__(self) -> Self:
        """The snapshot itself."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End it; a second time does nothing."""
        txn, self._txn = self._txn, None
        if txn is not None:
            self._store.environment.end(txn)

    @property
    def ts_ms(self) -> int:
        """Commit timestamp of the last change or resolved point up to ``seq``; 0 before any."""
        return commit_time(self._times, self.seq)

    def get(self, key: str) -> Entry | None:
        """The entry of a key; None if it does not exist.

        Raises:
            ValueRejected: it can be no key: too long, or not Unicode text.
        """
        place = stored(key_bytes(key))
        cursor = self._versions
        if not cursor.set_range(version_key(place, self.seq)):
            return None
        version, data = cursor.item()
        if version[:-SUFFIX_BYTES] != place:
            return None
        ts_ms, _, value = unpack_version(data)
        return Entry(key, value, seq_of(version), ts_ms) if value else None

    def get_many(self, keys: Sequence[str]) -> list[Entry | None]:
        """The entries of keys, in their order.

        Raises:
            ValueRejected: as `get`.
        """
        return [self.get(key) for key in keys]

    def scan(
        self,
        *,
        prefix: str = "",
        start: str | None = None,
        end: str | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> list[Entry]:
        """Entries in the order of their keys' UTF-8 bytes, which is that of their characters.

        Args:
            prefix: only keys that begin with it.
            start: only keys from it on.
            end: only keys before it.
            after: only keys behind it: the last one of the page before.
            limit: at most so many.

        Raises:
            ValueError: ``limit`` is negative.
            ValueRejected: a bound can be no key: too long, or not Unicode text.
        """
        if limit < 0:
            raise ValueError(f"limit must be 0 or more, not {limit}")
        head = stored(key_bytes(prefix))
        first = max(head, stored(key_bytes(start or "")))
        if after is not None:
            first = max(first, stored(key_bytes(after)) + _PAST_VERSIONS)
        stop = None if end is None else stored(key_bytes(end))
        found = []
        for entry in self._live(first, head, stop) if limit else ():
            found.append(entry)
            if len(found) == limit:
                break
        return found

    def history(self, key: str, limit: int = 100) -> list[Version]:
        """Versions of a key up to ``seq``, newest first, as far back as snapshots are kept.

        Raises:
            ValueError: ``limit`` is negative.
            ValueRejected: as `get`.
        """
        if limit < 0:
            raise ValueError(f"limit must be 0 or more, not {limit}")
        place = stored(key_bytes(key))
        cursor = self._versions
        found: list[Version] = []
        left = cursor.set_range(version_key(place, self.seq))
        while left and len(found) < limit and cursor.key()[:-SUFFIX_BYTES] == place:
            seq = seq_of(cursor.key())
            ts_ms, txn_id, value = unpack_version(cursor.value())
            if value or seq > self._oldest:
                found.append(Version(seq, ts_ms, value or None, txn_id.decode()))
            left = seq > self._oldest and cursor.next()
        return found

    def digest(self) -> str:
        """A digest of all entries with their versions: equal exactly if the data is."""
        digest = hashlib.blake2b(digest_size=16)
        for entry in self._live(b"", b"", None):
            key = entry.key.encode()
            digest.update(pack_seq(len(key), len(entry.value), entry.version, entry.ts_ms))
            digest.update(key + entry.value)
        return digest.hexdigest()

    def _live(self, first: bytes, prefix: bytes, stop: bytes | None) -> Iterator[Entry]:
        """Entries from the stored key ``first`` on, before ``stop``, that begin with ``prefix``."""
        cursor, newest = self._versions, version_key(b"", self.seq)
        version = cursor.key() if cursor.set_range(first) else b""
        while version:
            place = version[:-SUFFIX_BYTES]
            if not place.startswith(prefix) or (stop is not None and version >= stop):
                return
            if version[-SUFFIX_BYTES:] < newest:  # later than this snapshot
                version = cursor.key() if cursor.set_range(place + newest) else b""
                if version[:-SUFFIX_BYTES] != place:
                    continue
            ts_ms, _, value = unpack_version(cursor.value())
            if value:
                yield Entry(key_text(place), value, seq_of(version), ts_ms)
            version = cursor.key() if cursor.next() else b""
            if version[:-SUFFIX_BYTES] == place:
                version = cursor.key() if cursor.set_range(place + _PAST_VERSIONS) else b""
