"""Results as they come from Kafka: many plain ones stay in columns, without an object for each.

A facade reads the results of the whole database, of which it waits for few. A kernel takes apart
what the pipeline writes for a plain commit: all fields in their order without blanks, an id of
plain ASCII text that is the record's key too. Everything else is decoded one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from streamydb.errors import RecordError
from streamydb.facade.ports import LogPosition
from streamydb.frames import characters as c
from streamydb.frames.addresses import SPARE_BYTES, start_of
from streamydb.frames.hashing import SEED, hash_bytes, hash_ragged
from streamydb.frames.jit import kernel, leaf
from streamydb.frames.json_tokens import text_end
from streamydb.frames.table import Ragged, Texts
from streamydb.kafka.columns import RecordColumns
from streamydb.read_model.json_values import value_end
from streamydb.read_model.recognise import behind, counted
from streamydb.read_model.rows import Ints, compare
from streamydb.records import Result, decode_result, is_strange_result
from streamydb.records.formats import FORMAT, later_format

PARTITION_BITS: Final = 16  # a place in the log is ``offset << PARTITION_BITS | partition``


class CommitColumns:
    """Plain commits, each of another record of the log.

    ``newest``: the largest seq with its timestamp. ``ends``: partition -> offset after the last
    record.
    """

    def __init__(self, records: RecordColumns, at: Ints, told: Ints) -> None:
        """Sort by place and by id the rows ``at`` (shape (n,)) of ``records``. ``told``: of each
        partition, offset, seq and timestamp; shape (n, 4).
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
        return bool((self._places[1:] > self._places[:-1]).all())

    def places(self) -> list[int]:
        return list(self._places.tolist())

    def beyond(self, ends: Mapping[int, int]) -> bool:
        """Return True if all lie at or after these ends of the log's partitions."""
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
        if not self.spans(place, place):
            return None
        row = int(self._places.searchsorted(place))
        return self._values[int(self._at[row])] if self._places[row] == place else None

    def of(self, txn_id: bytes, hashed: np.uint64) -> bytes | None:
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
    offset. ``told``: of each partition, offset, seq and timestamp; shape (n, 4), n > 0.
    """
    partitions, offsets, seqs, stamps = told.T
    last = int(seqs.argmax())
    ends = {n: int(offsets[partitions == n].max()) + 1 for n in np.unique(partitions).tolist()}
    places = offsets << PARTITION_BITS | partitions
    return places, (int(seqs[last]), int(stamps[last])), ends


def hash_of(txn_id: bytes) -> np.uint64:
    """The hash of an id; only this process knows it."""
    return np.uint64(hash_bytes(txn_id, int(SEED)))


_PARTITIONS_MAX: Final = 1 << PARTITION_BITS
_OFFSETS_MAX: Final = 1 << (62 - PARTITION_BITS)
_NOT_PLAIN: Final = -1
_COLUMNS_MIN: Final = 2_000
"""From so many plain commits on they stay in columns. Who asks for one looks into each of those, so
there must not be many."""

_ID, _SEQ, _TS, _READS, _PARTITION, _OFFSET, _END = range(7)
_PIECES: Final = Ragged.of(
    [
        b'{"id":',
        b',"seq":',
        b',"ts_ms":',
        b',"status":"committed","reads":',
        b',"failed":[],"code":null,"source":{"partition":',
        b',"offset":',
        b"}}",
        bytes(SPARE_BYTES),
    ]
)
"""The pieces between the parts of a plain commit; see `txn_processor.format`."""


class Commits(NamedTuple):
    """Some plain commits that came one after the other; `places` as `place_of` has them.

    ``newest``: the largest seq with its timestamp. ``ends``: partition -> offset after the last
    record.
    """

    places: list[int]
    ids: list[bytes]
    values: list[bytes]
    newest: tuple[int, int]
    ends: dict[int, int]


ResultBatch = list[Commits | CommitColumns | tuple[Result, bytes]]
"""Results: plain commits together, any other with the record it is in. They are in their order, but
for commits in columns, which come first.
"""


def place_of(position: LogPosition) -> Hashable:
    """A place in the log as a key of a dictionary: an integer, unless its numbers are huge."""
    partition, offset = position
    if partition < _PARTITIONS_MAX and offset < _OFFSETS_MAX:
        return offset << PARTITION_BITS | partition
    return position


def position_of(result: Result) -> LogPosition:
    """Return where the record is that a result answers; for a repetition, the repeated one."""
    source = result.duplicate or result.source
    return LogPosition(source.partition, source.offset)


def newest_in(batch: ResultBatch) -> tuple[int, int]:
    """Return the largest seq of results with its commit time; zeros if there are none."""
    told = (
        each.newest if isinstance(each, Commits | CommitColumns) else _newest_of(each[0])
        for each in batch
    )
    return max(told, default=(0, 0))


def _newest_of(result: Result) -> tuple[int, int]:
    again = result.duplicate
    own = (result.seq, result.ts_ms)
    return max(own, (again.seq, again.ts_ms)) if again else own


def ends_in(batch: ResultBatch) -> Iterator[Mapping[int, int]]:
    """Yield the ends of these results: partition of the log -> offset after the last record."""
    for each in batch:
        if isinstance(each, Commits | CommitColumns):
            yield each.ends
        else:
            place = position_of(each[0])
            yield {place.partition: place.offset + 1}


def count_in(batch: ResultBatch) -> int:
    return sum(
        len(each.values) if isinstance(each, Commits)
        else len(each) if isinstance(each, CommitColumns) else 1
        for each in batch
    )  # fmt: skip


def result_in(value: bytes) -> Result | None:
    """The result in a record; None if the record is no result of any release.
    Raises RecordError: it is a result that this release cannot read.
    """
    try:
        return decode_result(value)
    except RecordError:
        if is_strange_result(value):
            return None
    later = later_format(value)
    told = "that it cannot read" if later is None else f"of format {later}, and reads {FORMAT}"
    raise RecordError(
        f"this facade has met a result {told}: upgrade the facade (docs/upgrading.md)"
    )


@leaf
def _object_end(data: Any, at: int, end: int) -> int:
    return value_end(data, at, end) if 0 <= at < end and data[at] == c.OPEN_BRACE else -1


@kernel
def _recognised(keys: Texts, values: Texts, pieces: Texts) -> Ints:
    """Of each record partition, offset, seq and timestamp; a negative seq: no plain commit."""
    n = len(values.offsets) - 1
    out = np.full((n, 4), _NOT_PLAIN, np.int64)
    data = values.data
    for i in range(n):
        at, end = values.offsets[i], values.offsets[i + 1]
        at = behind(data, at, end, pieces, _ID)
        stop = text_end(data, at, end) if at >= 0 else -1
        key, key_bytes = keys.offsets[i], keys.offsets[i + 1] - keys.offsets[i]
        if stop < 0 or compare(
            start_of(data) + at + 1, stop - at - 1, start_of(keys.data) + key, key_bytes
        ):
            continue
        at, seq = counted(data, stop + 1, end, pieces, _SEQ)
        at, ts_ms = counted(data, at, end, pieces, _TS)
        at = _object_end(data, behind(data, at, end, pieces, _READS), end)
        at, partition = counted(data, at, end, pieces, _PARTITION)
        at, offset = counted(data, at, end, pieces, _OFFSET)
        if behind(data, at, end, pieces, _END) != end or min(seq, ts_ms, partition, offset) < 0:
            continue
        if partition < _PARTITIONS_MAX and offset < _OFFSETS_MAX:
            out[i, 0], out[i, 1], out[i, 2], out[i, 3] = partition, offset, seq, ts_ms
    return out


def batch_of(records: RecordColumns) -> ResultBatch:
    """Return the results in records; a record that is no result is skipped.
    Raises RecordError: one is a result that this release cannot read.
    """
    told = _recognised(records.keys.texts(), records.values.texts(), _PIECES.texts())
    plain = told[:, 2] >= 0
    many = np.flatnonzero(plain)
    if len(many) >= _COLUMNS_MIN:
        commits = CommitColumns(records, many, told[many])
        if commits.distinct:
            others = np.flatnonzero(~plain).tolist()
            return [commits, *_decoded(records.values[row] for row in others)]
    ids, values = records.keys.tolist(), records.values.tolist()
    bounds = [0, *(np.flatnonzero(plain[1:] != plain[:-1]) + 1).tolist(), len(records)]
    batch: ResultBatch = []
    for start, end in pairwise(bounds):
        if start < end and plain[start]:
            cuts = [*range(start, end, _COLUMNS_MIN), end]
            batch += [_commits(told[a:b], ids[a:b], values[a:b]) for a, b in pairwise(cuts)]
        else:
            batch += _decoded(values[start:end])
    return batch


def _commits(told: Ints, ids: list[bytes], values: list[bytes]) -> Commits:
    places, newest, ends = extent(told)
    return Commits(places.tolist(), ids, values, newest, ends)


def _decoded(values: Iterable[bytes]) -> list[tuple[Result, bytes]]:
    found = ((result_in(value), value) for value in values)
    return [(result, value) for result, value in found if result is not None]
