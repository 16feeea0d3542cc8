"""A read model's data as it was right after one seq."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import numpy as np
from msgspec import structs

from streamydb.frames.addresses import SPARE_BYTES, bytes_at
from streamydb.read_model.json_entries import (
    TOO_LARGE,
    UNFINISHED,
    named_as_json,
    page_as_json,
    rows_as_json,
)
from streamydb.read_model.lookup import DAMAGED, NONE, find, found_many, gathered
from streamydb.read_model.ports import JsonPage
from streamydb.read_model.rows import DamagedError, Ints, key_bytes, pack_seq, row_named, unpack_row
from streamydb.read_model.scanning import advanced, heads_at
from streamydb.read_model.times import commit_time
from streamydb.records.ranges import ALL_KEYS, ScanRange

if TYPE_CHECKING:
    import lmdb

    from streamydb.read_model.store import Store, StoreView

_SPARE: Final = bytes(SPARE_BYTES)
_PAGE: Final = 1_000
_STEP_KEYS = 2_048  # keys that a scan passes at once, in less than a millisecond


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A key that exists: its value as canonical JSON, the seq that wrote it, and when (ms).

    ``expires_ms``: the commit time from which on the key is absent; None: it has no end.
    """

    key: str
    value: bytes
    version: int
    ts_ms: int
    expires_ms: int | None = None


class Version(msgspec.Struct, frozen=True, gc=False):
    """A line of a key's history; ``value`` is None where it was deleted; see `Entry`."""

    version: int
    ts_ms: int
    value: bytes | None
    txn_id: str
    expires_ms: int | None = None


class Snapshot:
    """All data right after ``seq``, for one thread at a time; close it soon, it keeps pages alive.

    Attributes:
        seq: the last transaction whose writes it shows.
    """

    def __init__(
        self, store: Store, txn: lmdb.Transaction[memoryview], seq: int, parts: StoreView
    ) -> None:
        self.seq = seq
        self._store = store
        self._txn: lmdb.Transaction[memoryview] | None = txn
        self._id = txn.id
        self._oldest = parts.bounds.oldest
        self._view, self._parts = parts.view, parts.parts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; a second time does nothing."""
        txn, self._txn = self._txn, None
        if txn is not None:
            self._store.environment.end(txn)

    @property
    def ts_ms(self) -> int:
        """Commit timestamp of the last change or resolved point up to ``seq``; 0 before any."""
        if self._txn is None:
            raise ValueError("the snapshot is closed")
        return commit_time(self._txn.cursor(self._store.tables.times), self.seq)

    def get(self, key: str) -> Entry | None:
        """The entry of a key; None if it does not exist.
        Raises ValueRejected: it can be no key: too long, or not Unicode text. Raises
        StoreFailedError: the file is damaged.
        """
        data = key_bytes(key)
        self._id()  # fails when the file is closed: what is mapped must not be read then
        row, length, start, seq, ts_ms, end = find(self._view, data + _SPARE, len(data), self.seq)
        if row <= NONE:
            if row == DAMAGED:
                raise self._store.damaged()
            return None
        if start == length:
            return None
        return Entry(key, bytes_at(row + start, length - start), seq, ts_ms, end or None)

    def get_many(self, keys: Sequence[str]) -> list[Entry | None]:
        """The entries of keys, in their order.
        Raises ValueRejected: as `get`. Raises StoreFailedError: as `get`.
        """
        texts = [key_bytes(key) for key in keys]
        ends = np.fromiter(accumulate(map(len, texts)), np.int64, len(texts))
        self._id()
        data, numbers, lengths = found_many(self._view, b"".join(texts) + _SPARE, ends, self.seq)
        entries: list[Entry | None] = []
        values, start = data.tobytes(), 0
        for key, (_, end, seq, ts_ms) in zip(keys, numbers.tolist(), strict=True):
            if seq == DAMAGED:
                raise self._store.damaged()
            entries.append(Entry(key, values[start:end], seq, ts_ms) if seq != NONE else None)
            start = end
        _tell(entries, lengths)
        return entries

    def get_json(self, keys: Sequence[str], bytes_max: int) -> bytes | None:
        """The entries of keys as members of a JSON object; each key once, absent ones null.

        None if their values have more than ``bytes_max`` bytes. Raises ValueRejected: as `get`.
        Raises StoreFailedError: as `get`.
        """
        texts = list(dict.fromkeys(map(key_bytes, keys)))
        ends = np.fromiter(accumulate(map(len, texts)), np.int64, len(texts))
        self._id()
        data, count = named_as_json(self._view, b"".join(texts) + _SPARE, ends, self.seq, bytes_max)
        if count == DAMAGED:
            raise self._store.damaged()
        return None if count == TOO_LARGE else data.tobytes()

    def scan(self, keys: ScanRange = ALL_KEYS, *, limit: int = 1000) -> list[Entry]:
        """Entries in the order of their keys' UTF-8 bytes, which is that of their characters.

        Raises ValueError: ``limit`` is negative. Raises ValueRejected: a bound can be no key: too
        long, or not Unicode text.
        """
        if limit < 0:
            raise ValueError(f"limit must be 0 or more, not {limit}")
        bounds = _bounds(keys)
        return [] if bounds is None or limit == 0 else self._scanned(*bounds, limit)

    def scan_json(
        self, keys: ScanRange = ALL_KEYS, *, limit: int, bytes_max: int, at_once: bool = False
    ) -> JsonPage:
        """A page of a list as JSON: what `scan` finds, and at most ``bytes_max`` bytes of values.

        The first entry is in it however large it is. With ``at_once`` other threads wait, for less
        than a millisecond; if that is not enough, the page is not `whole`.

        Raises:
            ValueError: ``limit`` is not positive.
            ValueRejected: as `scan`.
            StoreFailedError: as `get`.
        """
        if limit < 1:
            raise ValueError(f"limit must be 1 or more, not {limit}")
        bounds = _bounds(keys)
        if bounds is None:
            return JsonPage(b"", None)
        if at_once:
            self._id()
            lengths, page_limits = (len(bounds[0]), len(bounds[1])), (limit, bytes_max, _STEP_KEYS)
            data, count, last = page_as_json(
                self._view, b"".join(bounds) + _SPARE, lengths, self.seq, page_limits
            )
        else:
            rows = self._rows(*bounds, limit + 1)
            self._id()
            data, count, last = rows_as_json(rows, limit, bytes_max)
        if count == DAMAGED:
            raise self._store.damaged()
        name = row_named(last)[0].decode() if last != NONE else None
        return JsonPage(data.tobytes(), name, count != UNFINISHED)

    def _rows(self, first: bytes, stop: bytes, page_limits: int) -> Ints:
        """Rows that exist, from a key on, before another one (empty: to the end).

        It passes some keys at a time, so that other threads go on.
        """
        bounds, lengths = first + stop + _SPARE, (len(first), len(stop))
        rows = np.empty(page_limits, np.int64)
        self._id()
        heads, more = heads_at(self._view, bounds, len(first), self.seq)
        n = 0 if more else DAMAGED
        while more:
            self._id()
            step = self.seq, n, _STEP_KEYS
            n, more = advanced(self._view, heads, bounds, lengths, rows, step)
        if n == DAMAGED:
            raise self._store.damaged()
        return rows[:n]

    def _scanned(self, first: bytes, stop: bytes, limit: int) -> list[Entry]:
        """Entries from a key on, before another one (empty: to the end)."""
        rows = self._rows(first, stop, limit)
        self._id()
        data, numbers, lengths = gathered(rows, True)
        texts, start = data.tobytes(), 0
        entries = []
        for key_end, end, seq, ts_ms in numbers.tolist():
            key = texts[start:key_end].decode()
            entries.append(Entry(key, texts[key_end:end], seq, ts_ms))
            start = end
        _tell(entries, lengths)
        return entries

    def first_end(self) -> int | None:
        """The earliest commit time (ms) from which on one of its keys is absent; None: no key ends.

        The first call looks at every row, a few parts at a time, so that other threads go on. Later
        ones look at what was written since.
        Raises StoreFailedError: as `get`.
        """
        try:
            return self._store.ends.first(self._parts, self.seq, self._id)
        except DamagedError as fault:
            raise self._store.damaged() from fault

    def history(self, key: str, limit: int = 100) -> list[Version]:
        """Versions of a key up to ``seq``, newest first, as far back as snapshots are kept.
        Raises ValueError: ``limit`` is negative. Raises ValueRejected: as `get`.
        """
        if limit < 0:
            raise ValueError(f"limit must be 0 or more, not {limit}")
        data = key_bytes(key) + _SPARE
        versions: list[Version] = []
        seq = self.seq
        while len(versions) < limit:
            self._id()
            at, length, _, version, _, _ = find(self._view, data, len(data) - SPARE_BYTES, seq)
            if at == DAMAGED:
                raise self._store.damaged()
            if at == NONE:
                break
            row = unpack_row(bytes_at(at, length))
            if row.value or version > self._oldest:
                txn_id, end = row.txn_id.decode(), row.expires_ms or None
                versions.append(Version(version, row.ts_ms, row.value or None, txn_id, end))
            if version <= self._oldest:
                break
            seq = version - 1
        return versions

    def digest(self) -> str:
        """A digest of all entries with their versions: equal exactly if the data is."""
        digest = hashlib.blake2b(digest_size=16)
        page = self._scanned(b"", b"", _PAGE)
        while page:
            for entry in page:
                key = entry.key.encode()
                sizes, end = (len(key), len(entry.value)), entry.expires_ms or 0
                digest.update(pack_seq(*sizes, entry.version, entry.ts_ms, end))
                digest.update(key + entry.value)
            page = self._scanned(page[-1].key.encode() + b"\x00", b"", _PAGE)
        return digest.hexdigest()


def _tell(entries: list[Any], ends: Ints) -> None:
    """Give entries their ends; see `gathered`."""
    for i in np.flatnonzero(ends).tolist() if len(ends) else ():
        entries[i] = structs.replace(entries[i], expires_ms=int(ends[i]))


def _bounds(keys: ScanRange) -> tuple[bytes, bytes] | None:
    """The first key of a scan and the one to stop before (empty: none); None: there is no key."""
    head = key_bytes(keys.prefix)
    first = max(head, key_bytes(keys.start or ""))
    if keys.after is not None:
        first = max(first, key_bytes(keys.after) + b"\x00")
    stops = [head[:-1] + bytes([head[-1] + 1])] if head else []
    if keys.end is not None:
        stops.append(key_bytes(keys.end))
    if keys.end == "" or (stops and first >= min(stops)):
        return None
    return first, min(stops, default=b"")
