"""Many plain commits, as they came from Kafka: found by place and by id without an object for each.

Under load a facade reads some ten thousand results a second for each that somebody asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from streamydb.columns.hashing import hash_bytes, hash_ragged
from streamydb.columns.private import SEED
from streamydb.kafka.columns import RecordColumns
from streamydb.read_model.rows import Ints

PARTITION_BITS: Final = 16
"""A place in the log is ``offset << PARTITION_BITS | partition``."""


class CommitColumns:
    """Plain commits, each of another record of the log.

    Attributes:
        newest: the largest seq among them, with its commit timestamp.
        ends: partition of the log -> offset after the last of their records.
        size: bytes that they keep.
    """

    def __init__(self, records: RecordColumns, at: Ints, told: Ints) -> None:
        """Sort by place and by id the rows ``at`` (shape (n,)) of ``records``.

        ``told``: of each partition, offset, seq and timestamp; shape (n, 4).
        """
        places, self.newest, self.ends = extent(told)
        self._values, self._ids = records.values, records.keys
        order = np.argsort(places, kind="stable")
        self._places, self._at = places[order], at[order]
        hashes = hash_ragged(records.keys, int(SEED))[at]
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._named = hashes[order], at[order]
        self._low, self._high = int(self._places[0]), int(self._places[-1])
        arrays = (
            self._values.data, self._values.offsets, self._ids.data, self._ids.offsets,
            self._places, self._at, self._hashes, self._named,
        )  # fmt: skip
        self.size = sum(array.nbytes for array in arrays)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[bytes]:
        return (self._values[row] for row in np.sort(self._at).tolist())

    @property
    def distinct(self) -> bool:
        """Each is of another record of the log."""
        return bool((self._places[1:] > self._places[:-1]).all())

    def places(self) -> list[int]:
        """Their places in the log, in order."""
        return list(self._places.tolist())

    def beyond(self, ends: Mapping[int, int]) -> bool:
        """Return True if all lie behind these ends of the log's partitions."""
        partitions = self._places & ((1 << PARTITION_BITS) - 1)
        known = np.zeros(int(partitions.max()) + 1, np.int64)
        for number, end in ends.items():
            if number < len(known):
                known[number] = end
        return bool((self._places >> PARTITION_BITS >= known[partitions]).all())

    def meets(self, other: CommitColumns) -> bool:
        """Return True if they have a record of the log in common."""
        if not self.spans(other._low, other._high):
            return False
        return bool(np.isin(self._places, other._places, assume_unique=True).any())

    def spans(self, first: int, last: int) -> bool:
        """Return True if one of the places from ``first`` to ``last`` may be theirs."""
        return first <= self._high and self._low <= last

    def among(self, places: Iterable[int]) -> list[int]:
        """Return those of some places that are theirs."""
        asked = np.fromiter(places, np.int64)
        rows = np.minimum(self._places.searchsorted(asked), len(self._places) - 1)
        return list(asked[self._places[rows] == asked].tolist())

    def at(self, place: int) -> bytes | None:
        """Return the record of a place."""
        if not self.spans(place, place):
            return None
        row = int(self._places.searchsorted(place))
        return self._values[int(self._at[row])] if self._places[row] == place else None

    def of(self, txn_id: bytes, hashed: np.uint64) -> bytes | None:
        """Return the first record of an id with this `hash_of`."""
        first = int(self._hashes.searchsorted(hashed))
        for row in range(first, len(self._hashes)):
            if self._hashes[row] != hashed:
                break
            at = int(self._named[row])
            if self._ids[at] == txn_id:
                return self._values[at]
        return None


def extent(told: Ints) -> tuple[Ints, tuple[int, int], dict[int, int]]:
    """Return the places of plain commits; the largest seq with its timestamp; partition -> end
    offset.

    ``told``: of each partition, offset, seq and timestamp; shape (n, 4), n > 0.
    """
    partitions, offsets, seqs, stamps = told.T
    last = int(seqs.argmax())
    ends = {n: int(offsets[partitions == n].max()) + 1 for n in np.unique(partitions).tolist()}
    places = offsets << PARTITION_BITS | partitions
    return places, (int(seqs[last]), int(stamps[last])), ends


def hash_of(txn_id: bytes) -> np.uint64:
    """The hash of an id; only this process knows it."""
    return np.uint64(hash_bytes(txn_id, int(SEED)))
