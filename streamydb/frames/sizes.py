"""Bounds on the sizes of all values, which every shard knows, so that all shards cut plans alike.

A shard holds the values of its own keys only, but all shards must make the same plan without asking
each other, which would cost a micro-batch a plan. So each keeps the same small table for all keys:
the largest class of size that was ever told of any key of a bucket (a count-min sketch, Cormode and
Muthukrishnan, 2005, with maxima for sums, and two rows in one array). It is told with the feedback
and its completion tokens, which reach every shard in the same micro-batch; values that are small,
or no larger than before, are not told at all. It never shrinks: it bounds memory, not verdicts.
With one shard there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.blobs import BlobStore
from streamydb.frames.grant_rows import SlotRows
from streamydb.frames.hashing import KEY_SEED, hash_ragged
from streamydb.frames.messages import ValueSizes
from streamydb.frames.table import Array, Ragged, starts_of
from streamydb.frames.value_rows import ValueRows, WrittenValues

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

TELLS_MAX: Final = 65_536
"""Most values that one block tells of."""

SMALL_BYTES = 256
SMALL_COUNTS = 64
"""Values up to so many bytes are small, and count as so many: most have much fewer."""

# An announcement is lost with a batch that is given up, so it is repeated.
_STEPS: Final = 16
_BUCKETS: Final = 1 << 20
_PAGE: Final = 1 << 16
_CLASS_BITS: Final = np.uint64(31)


class SizesState(msgspec.Struct):
    """The part of a shard's state that belongs to the sizes: ``pages`` of the table that are not
    all zero; whether the table is ``known``, that is, all shards have sent the sizes of their first
    values; for how many steps it was ``unknown``.

    ``heard``: of each part that was told, by shard and number, how many its shard has told.
    """

    pages: list[int] = []
    known: bool = False
    unknown: int = 0
    heard: dict[str, int] = {}


def class_of(sizes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """0 for small values, else the number of times that 256 bytes must be doubled."""
    over = np.maximum(-(-np.asarray(sizes, np.int64) // SMALL_BYTES), 1)
    return np.ceil(np.log2(over)).astype(np.uint8)


def tells(keys: Ragged, classes: npt.NDArray[np.uint8]) -> bytes:
    """Encode the sizes of values: the hash of each key, with the class in its lowest bits."""
    words = (hash_ragged(keys, KEY_SEED) & ~_CLASS_BITS) | classes.astype(np.uint64)
    return words.astype("<u8").tobytes()


def tells_of(tables: Iterable[WrittenValues]) -> Iterator[bytes]:
    """Yield the sizes of all values of a shard that are not small."""
    for table in tables:
        classes = class_of(table.text.lengths())
        rows = np.flatnonzero((classes > 0) & (table.tag >= p.OPAQUE))
        for start in range(0, len(rows), TELLS_MAX):
            chosen = rows[start : start + TELLS_MAX]
            yield tells(table.key.take(chosen), classes[chosen])


class Sizes:
    """The table within one step."""

    def __init__(self, state: SizesState, blobs: BlobStore) -> None:
        self.state = state
        self._blobs = blobs
        self._table: npt.NDArray[np.uint8] | None = None
        self._changed: set[int] = set()

    def announcement(
        self, values: Iterable[WrittenValues], incarnation: str, shard: int
    ) -> Iterator[ValueSizes]:
        """Yield the sizes of the values of this shard while the table is not known: at first, and
        again every few steps, because they may be lost.
        """
        self.state.unknown += 1
        if self.state.unknown % _STEPS == 1:
            parts = list(tells_of(values)) or [b""]
            for chunk, part in enumerate(parts):
                yield ValueSizes(incarnation, shard, chunk, len(parts), part)

    def hear(self, data: bytes) -> None:
        """Take in the sizes of written values; repetitions change nothing."""
        if not data:
            return
        words = np.frombuffer(data, "<u8")
        classes = (words & _CLASS_BITS).astype(np.uint8)
        table = self._loaded()
        for buckets in _buckets(words):
            rows = buckets[table[buckets] < classes]
            if len(rows):
                np.maximum.at(table, buckets, classes)
                self._changed.update(np.unique(rows // _PAGE).tolist())

    def hear_from(self, part: ValueSizes, shards: int) -> None:
        """Take in a part of a shard's announcement of all its values."""
        self.hear(part.sizes)
        state = self.state
        if not state.known:
            name = f"{part.shard}/{part.chunk}"
            heard = state.heard = {**state.heard, name: part.chunks}
            state.known = all(
                f"{shard}/{chunk}" in heard
                for shard in range(shards)
                for chunk in range(heard.get(f"{shard}/0", 1))
            )

    def of(self, hashes: Hashes) -> Ints:
        """Return how many bytes the values of keys may have, about; by the keys' hashes."""
        if not self.state.pages and self._table is None:
            return np.full(len(hashes), SMALL_COUNTS, np.int64)
        table = self._loaded()
        first, second = _buckets(hashes)
        classes = np.minimum(table[first], table[second]).astype(np.int64)
        return np.where(classes == 0, SMALL_COUNTS, SMALL_BYTES << classes)

    def save(self) -> None:
        """Put the pages that have changed into blobs."""
        if not self._changed:
            return
        table = self._loaded()
        for page in sorted(self._changed):
            self._blobs.put(f"sizes/{page}", table[page * _PAGE : (page + 1) * _PAGE].tobytes())
        self.state.pages = sorted({*self.state.pages, *self._changed})
        self._changed = set()

    def _loaded(self) -> npt.NDArray[np.uint8]:
        if self._table is None:
            self._table = np.zeros(_BUCKETS, np.uint8)
            for page in self.state.pages:
                data = self._blobs.get(f"sizes/{page}")
                if data is None:
                    raise InvariantViolation(f"the blob sizes/{page} is missing from the state")
                self._table[page * _PAGE : (page + 1) * _PAGE] = np.frombuffer(data, np.uint8)
        return self._table


def _buckets(hashes: Hashes) -> tuple[Ints, Ints]:
    mask = np.uint64(_BUCKETS - 1)
    first, second = hashes >> np.uint64(8) & mask, hashes >> np.uint64(34) & mask
    return first.astype(np.int64), second.astype(np.int64)


SYSTEM: Final = ord("$")


def over_by(slots: SlotRows, now: int) -> npt.NDArray[np.bool_]:
    """Mark the slots whose values have ended by a commit time (ms)."""
    return np.asarray((slots.tag == p.EXPIRING) & (slots.number <= now))


def text_bytes(slots: SlotRows, now: int = 0) -> int:
    """Bytes of the values of slots that are no integers, and have not ended by ``now``."""
    return int(slots.text.lengths()[~over_by(slots, now)].sum())


def only_system(
    keys: Ragged, read: Callable[[Array], ValueRows], more: npt.NDArray[np.bool_] | None = None
) -> ValueRows:
    """No values but the system's own, the others absent: of a transaction that meets too much.

    ``read``: the values at given positions of ``keys``. ``more``: others that are kept, too.
    """
    chosen = np.flatnonzero(keys.data[keys.offsets[:-1]] == SYSTEM) if len(keys) else _NONE
    if more is not None:
        chosen = np.union1d(chosen, np.flatnonzero(more))
    rows = read(chosen)

    def at_chosen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        out = np.zeros(len(keys), values.dtype)
        out[chosen] = values
        return out

    text = Ragged(rows.text.data, starts_of(at_chosen(rows.text.lengths())))
    return ValueRows(at_chosen(rows.tag), at_chosen(rows.number), at_chosen(rows.version), text)


_NONE: Final = np.empty(0, np.int64)
