"""Tables of the records of the log: as they were compiled, with their times, and as released."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.frames import program as p
from streamydb.frames.hashing import KEY_SEED, hash_ragged
from streamydb.frames.invariants import Seam
from streamydb.frames.jit import kernel
from streamydb.frames.program import ProgramSteps
from streamydb.frames.table import Array, Bytes, ChildRows, ColumnTable, Ragged
from streamydb.frames.value_rows import KEYS_FACT

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_RECORD_FACTS: Final = (
    "records are of a known kind, with one home, and markers alone have numbers",
    "counts add up to the rows",
    KEYS_FACT,
)


class LastRead(NamedTuple):
    """The last record of a partition in a piece of the log; ``mark``: its hash."""

    partition: int
    offset: int
    append_ms: int
    mark: str


class RecordKeys(ColumnTable, frozen=True):
    """The keys of records.

    ``write``: 0: it is read, 1: it may be written, ENDING: and given an end. ``hash``: of the key;
    a block may lack it, because to compute it costs less than to move it.
    """

    write: Bytes
    hash: Hashes
    key: Ragged

    @classmethod
    def unflatten(cls, arrays: Mapping[str, Array], prefix: str = "") -> Self:
        """As of any table; makes the hashes if they are missing."""
        if f"{prefix}hash" in arrays:
            return super().unflatten(arrays, prefix)
        keys = Ragged(arrays[f"{prefix}key$"], arrays[f"{prefix}key#"])
        return cls(arrays[f"{prefix}write"], hash_ragged(keys, KEY_SEED), keys)


class RecordMarkers(ColumnTable, frozen=True):
    """Epoch markers: the number of each, and how many partitions it names."""

    number: Ints
    partitions: Ints


class RecordRanges(ColumnTable, frozen=True):
    """Ranges that records name, from ``start`` to before ``end``; ``read``: 1 if it is read."""

    read: Bytes
    start: Ragged
    end: Ragged


class HomeRows(ColumnTable, frozen=True):
    """The part of records that only the home shard of each id gets.

    ``code``: of a rejected record the index in REJECT_CODES. ``deadline``: ms, 0: none.
    ``payload``: hash of the payload without the deadline. ``id``; ``raw``: the record, if Python
    executes it, or what `parser.fault` keeps of a refused one; else empty. ``steps``: that
    it was compiled to.
    """

    code: Bytes
    deadline: Ints
    payload: Hashes
    id: Ragged
    raw: Ragged
    steps: ChildRows[ProgramSteps]


class SharedRows(ColumnTable, frozen=True):
    """Compiled records as all shards know them.

    ``kind``: SIMPLE, GENERIC, REJECTED or MARKER (see `program`). ``id0``: a half of the hash of
    the id, 0 if it has none; it names the home shard. ``partition``, ``offset``: the place in the
    log. ``size``: bytes of the record. ``append_ms``: its LogAppendTime. ``keys``; ``ranges`` that
    it names, None if no record names one; ``marker``: what it says, if it is an epoch marker.
    """

    kind: Bytes
    id0: Hashes
    partition: Array
    offset: Ints
    size: Array
    append_ms: Ints
    keys: ChildRows[RecordKeys]
    marker: ChildRows[RecordMarkers]
    ranges: ChildRows[RecordRanges] | None


class CompiledRecords(ColumnTable, frozen=True):
    """Compiled records as one shard knows them; as `SharedRows`.

    ``id1``: the other half of the hash of the id; 0 where the home is elsewhere. ``home``: the rest
    of those whose home is here.
    """

    kind: Bytes
    id0: Hashes
    id1: Hashes
    partition: Array
    offset: Ints
    size: Array
    append_ms: Ints
    keys: ChildRows[RecordKeys]
    marker: ChildRows[RecordMarkers]
    ranges: ChildRows[RecordRanges] | None
    home: ChildRows[HomeRows]

    @classmethod
    def of(cls, shared: SharedRows, id1: Hashes, home: ChildRows[HomeRows]) -> Self:
        return shared.cast(cls, id1=id1, home=home)

    def shared(self) -> SharedRows:
        return self.cast(SharedRows)

    def check(self, seam: Seam) -> None:
        wrong = _wrong_record(
            self.kind,
            (self.keys.counts, self.home.counts, self.marker.counts),
            (len(self.keys.rows), len(self.home.rows), len(self.marker.rows)),
            self.keys.rows.key.offsets,
            limits.KEY_BYTES_MAX,
        )
        seam.require_none(wrong, _RECORD_FACTS)

    def timed(self, ts_ms: Ints) -> TimedRecords:
        return self.cast(TimedRecords, ts_ms=ts_ms)


class TimedRecords(ColumnTable, frozen=True):
    """Records with their effective times ``ts_ms``; as `CompiledRecords`, without markers."""

    kind: Bytes
    id0: Hashes
    partition: Array
    offset: Ints
    size: Array
    append_ms: Ints
    id1: Hashes
    ts_ms: Ints
    keys: ChildRows[RecordKeys]
    ranges: ChildRows[RecordRanges] | None
    home: ChildRows[HomeRows]

    def released(self, seq: Ints) -> ReleasedRecords:
        return self.cast(ReleasedRecords, seq=seq)


class ReleasedRecords(TimedRecords, frozen=True):
    """Records in the total order, with their ``seq``."""

    seq: Ints

    def timed(self) -> TimedRecords:
        return self.cast(TimedRecords)


@kernel
def _wrong_record(
    kinds: Bytes,
    counts: tuple[Array, Array, Array],
    rows: tuple[int, int, int],
    keys: Ints,
    key_bytes_max: int,
) -> tuple[int, int]:
    of_keys, of_homes, of_markers = counts
    key, home, marker = 0, 0, 0
    for i in range(len(kinds)):
        if kinds[i] > p.MARKER or of_homes[i] < 0 or of_homes[i] > 1:
            return 0, i
        if of_markers[i] != (kinds[i] == p.MARKER):
            return 0, i
        if of_keys[i] < 0:
            return 1, i
        key, home, marker = key + of_keys[i], home + of_homes[i], marker + of_markers[i]
    if key != rows[0] or home != rows[1] or marker != rows[2]:
        return 1, -1
    for k in range(len(keys) - 1):
        length = keys[k + 1] - keys[k]
        if length < 1 or length > key_bytes_max:
            return 2, k
    return -1, -1
