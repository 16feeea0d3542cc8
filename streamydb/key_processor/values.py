"""The values of one shard: blobs of writes in the state, materialised in a local key-value file.

The blobs are the truth; the file is a cache that may be missing, behind, or one plan ahead (when a
batch is retried). It carries the position it stands at, a count of applied plans and a digest
chained over the blobs, and is only trusted when that is on the state's own history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.columns import Array, Bytes, Ragged, Table, pack, unpack
from streamydb.errors import InvariantViolation
from streamydb.hashing import hash_ragged
from streamydb.jit import kernel
from streamydb.key_processor.blobs import Blob, BlobStore, merge_from
from streamydb.sorter.planner import intern
from streamydb.txn_processor import program as p

__all__ = ["ShardValues", "ValueStore", "ValuesState", "empty_writes"]

Ints = npt.NDArray[np.int64]

_INT_ITEM = np.dtype([("version", "<i8"), ("tag", "u1"), ("number", "<i8")])
_HEAD_BYTES = 9


class ValueStore(Protocol):
    """The local file: keys and encoded values, and the position that they stand at."""

    def position(self) -> tuple[int, str]:
        """(applied plans, digest) committed with the data; (0, "") when new."""

    def load(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The encoded values of keys."""

    def apply(
        self, position: tuple[int, str], puts: list[tuple[bytes, bytes]], deletes: list[bytes]
    ) -> None:
        """Apply writes and move to ``position``, atomically."""

    def clear(self) -> None:
        """Remove everything."""


class ValuesState(msgspec.Struct):
    """The index of the blobs: how many plans are applied, and the digest they lead to."""

    applied: int = 0
    digest: str = ""
    blobs: list[Blob] = []
    next_blob: int = 0


def empty_writes() -> Table:
    """A table of no writes: columns tag, number, version; texts key, text."""
    cols: dict[str, Array] = {
        "tag": np.empty(0, np.uint8),
        "number": np.empty(0, np.int64),
        "version": np.empty(0, np.int64),
    }
    return Table(cols, {"key": Ragged.empty(), "text": Ragged.empty()})


class ShardValues:
    """Reads and writes of one shard within one step."""

    def __init__(self, state: ValuesState, blobs: BlobStore, store: ValueStore) -> None:
        """Continue from ``state``."""
        self.state = state
        self._blobs = blobs
        self._store = store

    def apply(self, writes: Table) -> None:
        """Apply the writes of one plan, each key at most once, to the state and the file."""
        if not len(writes):
            return
        data = pack(writes.flatten())
        state = self.state
        chained = hashlib.blake2b(state.digest.encode() + data, digest_size=16).hexdigest()
        reached = (state.applied + 1, chained)
        if self._store.position() != reached:
            self._catch_up()
            self._store.apply(reached, *_items(_nearly_sorted(writes)))
        name = f"values/{state.next_blob}"
        state.next_blob += 1
        self._blobs.put(name, data)
        state.applied, state.digest = reached
        state.blobs.append(Blob(name, len(data), reached[0], reached[0], chained))
        self._merge()

    def read(self, keys: Ragged) -> Table:
        """Current values of keys: columns tag, number, version; text in canonical JSON where
        opaque.
        """
        if self._store.position() != (self.state.applied, self.state.digest):
            self._catch_up()
        order = _order(keys)
        found = self._store.load(keys.take(order).tolist())
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        encoded = Ragged.of([value or b"" for value in found]).take(place)
        tags, numbers, versions, data, bounds = _decode(encoded.data, encoded.offsets)
        cols: dict[str, Array] = {"tag": tags, "number": numbers, "version": versions}
        return Table(cols, {"text": Ragged(data, bounds)})

    def everything(self) -> Table:
        """All live keys with their values, merged from the blobs, in no particular order."""
        tables = [self._load(blob.name) for blob in self.state.blobs]
        return _merge_tables(tables, drop_absent=True) if tables else empty_writes()

    def _catch_up(self) -> None:
        """Bring the file to the state's position, from where it is trusted or from nothing."""
        state, position = self.state, self._store.position()
        ends = [(blob.last, blob.digest) for blob in state.blobs]
        if position == (0, ""):
            missing = state.blobs
        elif position in ends:
            missing = state.blobs[ends.index(position) + 1 :]
        else:
            self._store.clear()
            missing = state.blobs
        for blob in missing:
            self._store.apply((blob.last, blob.digest), *_items(self._load(blob.name)))
        if self._store.position() != (state.applied, state.digest):
            raise InvariantViolation("the blobs of the state do not lead to the state's own digest")

    def _load(self, name: str) -> Table:
        data = self._blobs.get(name)
        if data is None:
            raise InvariantViolation(f"the blob {name} is missing from the state")
        return Table.unflatten(unpack(data)[1])

    def _merge(self) -> None:
        state = self.state
        start = merge_from([blob.size for blob in state.blobs])
        old = state.blobs[start:]
        if not old:
            return
        merged = _merge_tables([self._load(b.name) for b in old], drop_absent=start == 0)
        data = pack(merged.flatten())
        name = f"values/{state.next_blob}"
        state.next_blob += 1
        self._blobs.put(name, data)
        for blob in old:
            self._blobs.delete(blob.name)
        last = old[-1]
        state.blobs[start:] = [Blob(name, len(data), old[0].first, last.last, last.digest)]


def _merge_tables(tables: Sequence[Table], *, drop_absent: bool) -> Table:
    """The last write of every key, oldest table first."""
    every = Table.concat(tables)
    keys = every.texts["key"]
    slot, first = intern(hash_ragged(keys), keys)
    last = np.zeros(len(first), np.int64)
    last[slot] = np.arange(len(keys))
    if drop_absent:
        last = last[every.cols["tag"][last] != p.ABSENT]
    return every.take(last)


@kernel
def _prefixes(data: Bytes, offsets: Ints) -> npt.NDArray[np.uint64]:
    n = len(offsets) - 1
    out = np.zeros(n, np.uint64)
    common = offsets[1] - offsets[0] if n > 0 else 0
    for i in range(1, n):
        length = min(common, offsets[i + 1] - offsets[i])
        shared = 0
        while shared < length and data[offsets[0] + shared] == data[offsets[i] + shared]:
            shared += 1
        common = shared
    for i in range(n):
        for j in range(8):
            at = offsets[i] + common + j
            byte = data[at] if at < offsets[i + 1] else 0
            out[i] = (out[i] << np.uint64(8)) | np.uint64(byte)
    return out


def _order(keys: Ragged) -> Ints:
    """Positions by the eight bytes of the keys after the common prefix: a B-tree likes that."""
    return np.argsort(_prefixes(keys.data, keys.offsets))


def _nearly_sorted(writes: Table) -> Table:
    return writes.take(_order(writes.texts["key"]))


def _items(writes: Table) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
    """Writes as items of the file: (key, encoded value) to put, and keys to delete."""
    tags = writes.cols["tag"]
    keys = writes.texts["key"].tolist()
    numbers = np.empty(len(tags), _INT_ITEM)
    numbers["version"], numbers["tag"] = writes.cols["version"], tags
    numbers["number"] = writes.cols["number"]
    raw, size = numbers.tobytes(), _INT_ITEM.itemsize
    if (tags == p.INT).all():
        return [(key, raw[i * size : i * size + size]) for i, key in enumerate(keys)], []
    texts = writes.texts["text"]
    puts, deletes = [], []
    for i, (key, tag) in enumerate(zip(keys, tags.tolist(), strict=True)):
        if tag == p.INT:
            puts.append((key, raw[i * size : i * size + size]))
        elif tag == p.ABSENT:
            deletes.append(key)
        else:
            puts.append((key, raw[i * size : i * size + _HEAD_BYTES] + texts[i]))
    return puts, deletes


@kernel
def _little_endian(data: Bytes, at: int) -> int:
    value = np.uint64(0)
    for j in range(8):
        value |= np.uint64(data[at + j]) << np.uint64(8 * j)
    return np.int64(value)  # type: ignore[return-value]


@kernel
def _decode(
    data: Bytes, offsets: Ints
) -> tuple[npt.NDArray[np.uint8], Ints, Ints, Bytes, Ints]:
    n = len(offsets) - 1
    tags = np.zeros(n, np.uint8)
    numbers = np.zeros(n, np.int64)
    versions = np.zeros(n, np.int64)
    bounds = np.zeros(n + 1, np.int64)
    for i in range(n):
        bounds[i + 1] = bounds[i]
        if offsets[i] == offsets[i + 1]:
            continue
        at = offsets[i]
        versions[i] = _little_endian(data, at)
        tags[i] = data[at + 8]
        if tags[i] == 1:
            numbers[i] = _little_endian(data, at + 9)
        else:
            bounds[i + 1] += offsets[i + 1] - at - 9
    texts = np.empty(bounds[n], np.uint8)
    for i in range(n):
        for j in range(bounds[i + 1] - bounds[i]):
            texts[bounds[i] + j] = data[offsets[i] + 9 + j]
    return tags, numbers, versions, texts, bounds
