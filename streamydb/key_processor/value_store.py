"""The local file of a shard's values, and its items: version, tag, and an integer or a text.

A value that ends has its end before its text. The file finds what ends first by an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from streamydb.frames import program as p
from streamydb.frames.blobs import ENDING_HEAD_BYTES, HEAD_BYTES, KeyScan, Position, end_name
from streamydb.frames.jit import kernel, leaf
from streamydb.frames.table import Bytes, Ragged
from streamydb.frames.value_rows import ValueRows, WrittenValues

Ints = npt.NDArray[np.int64]

INT_ITEM = np.dtype([("version", "<i8"), ("tag", "u1"), ("number", "<i8")])
_TAG_AT: Final = 8


class ValueStore(Protocol):
    """The local file: keys and encoded values, and the position that they stand at.

    Every call is atomic. A position names the content: the same position is the same content.

    Attributes:
        alone: the values lie here and nowhere else, so no blobs are written beside them.
    """

    @property
    def alone(self) -> bool: ...

    def position(self) -> Position:
        """The position committed with the data; (0, "") when new."""

    def load(self, at: Position, keys: Sequence[bytes]) -> list[bytes | None] | None:
        """The encoded values of keys; None when the file is not ``at``."""

    def sizes(self, at: Position, keys: Sequence[bytes]) -> list[int] | None:
        """Return how many bytes each encoded value has, -1 where absent; None when not ``at``."""

    def scan(self, at: Position, wanted: KeyScan) -> list[tuple[bytes, bytes]] | None:
        """The keys in a range with their encoded values, in order; None when the file is not
        ``at``; see `KeyScan`.
        """

    def due(self, at: Position, until_ms: int, after: bytes, keys_max: int) -> list[bytes] | None:
        """Return the first names of what ends by ``until_ms``, behind ``after`` (see `end_name` of
        `frames.blobs`); None when the file is not ``at``.
        """

    def apply(
        self,
        expected: Position,
        reached: Position,
        puts: list[tuple[bytes, bytes]],
        deletes: list[bytes],
        ends: Sequence[bytes] = (),
    ) -> bool:
        """Apply writes and move to ``reached``, or False: the file was not at ``expected``.

        ``ends``: the names of what is put and ends.
        """

    def clear(self, expected: Position, reached: Position) -> bool:
        """Remove everything and move to ``reached``, or False: it was not at ``expected``."""

    def describe(self, at: Position, base: bytes) -> bool:
        """Keep the base that the values are (`key_processor.base`),
        or False: they are not ``at``.
        """


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


class FileOrder(NamedTuple):
    """The order of the file, nearly: a B-tree likes that.

    ``prefixes``: of each key, the eight bytes after what all have in common; ``rows``: positions by
    them.
    """

    rows: Ints
    prefixes: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, keys: Ragged) -> FileOrder:
        """Find the order of some keys."""
        prefixes = _prefixes(keys.data, keys.offsets)
        return cls(np.argsort(prefixes), prefixes)


def nearly_sorted(writes: WrittenValues) -> WrittenValues:
    """Writes in the order of the file, nearly."""
    return writes.take(FileOrder.of(writes.key).rows)


Items: TypeAlias = tuple[list[tuple[bytes, bytes]], list[bytes], list[bytes]]
"""What is put, keys that are deleted, and the names of what is put and ends."""


def items_of(writes: WrittenValues) -> Items:
    """Writes as items of the file: (key, encoded value) to put, keys to delete, and the names of
    what is put and ends.
    """
    tags = writes.tag
    keys = writes.key.tolist()
    numbers = np.empty(len(tags), INT_ITEM)
    numbers["version"], numbers["tag"], numbers["number"] = writes.version, tags, writes.number
    size = INT_ITEM.itemsize
    if (tags == p.INT).all():
        return list(zip(keys, numbers.view(f"V{size}").tolist(), strict=True)), [], []
    raw = numbers.tobytes()
    texts = writes.text
    puts, deletes, ends = [], [], []
    for i, (key, tag) in enumerate(zip(keys, tags.tolist(), strict=True)):
        if tag == p.INT:
            puts.append((key, raw[i * size : i * size + size]))
        elif tag == p.ABSENT:
            deletes.append(key)
        elif tag == p.EXPIRING:
            item = raw[i * size : i * size + size] + texts[i]
            puts.append((key, item))
            ends.append(end_name(key, item))
        else:
            puts.append((key, raw[i * size : i * size + HEAD_BYTES] + texts[i]))
    return puts, deletes, ends


@leaf
def _little_endian(data: Bytes, at: int) -> int:
    value = np.uint64(0)
    for j in range(8):
        value |= np.uint64(data[at + j]) << np.uint64(8 * j)
    return np.int64(value)  # type: ignore[return-value]


@kernel
def _decode(data: Bytes, offsets: Ints) -> tuple[npt.NDArray[np.uint8], Ints, Ints, Bytes, Ints]:
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
        tags[i] = data[at + _TAG_AT]
        if tags[i] == p.INT:
            numbers[i] = _little_endian(data, at + HEAD_BYTES)
        elif tags[i] == p.EXPIRING:
            numbers[i] = _little_endian(data, at + HEAD_BYTES)
            bounds[i + 1] += offsets[i + 1] - at - ENDING_HEAD_BYTES
        else:
            bounds[i + 1] += offsets[i + 1] - at - HEAD_BYTES
    texts = np.empty(bounds[n], np.uint8)
    for i in range(n):
        head = ENDING_HEAD_BYTES if tags[i] == p.EXPIRING else HEAD_BYTES
        for j in range(bounds[i + 1] - bounds[i]):
            texts[bounds[i] + j] = data[offsets[i] + head + j]
    return tags, numbers, versions, texts, bounds


def decoded(items: Ragged) -> ValueRows:
    """Return values from items of the file. An empty item is absent."""
    tags, numbers, versions, data, bounds = _decode(items.data, items.offsets)
    return ValueRows(tags, numbers, versions, Ragged(data, bounds))
