"""The last record read of each partition of the log, with its hash; see `sorter.state`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamydb.frames.record_rows import LastRead
from streamydb.frames.table import Array, Ragged

_MARK_BYTES = 8


def mark_of(value: bytes | None) -> str:
    """The hash of a record's value."""
    return hashlib.blake2b(value or b"", digest_size=_MARK_BYTES).hexdigest()


def last_reads(
    partitions: Array, offsets: Array, append_ms: Array, values: Sequence[bytes | None] | Ragged
) -> list[LastRead]:
    """The last record of each partition among these rows."""
    reads = []
    for row in _last_rows(partitions, offsets).tolist():
        partition, offset, stamp = (int(col[row]) for col in (partitions, offsets, append_ms))
        reads.append(LastRead(partition, offset, stamp, mark_of(values[row])))
    return reads


def _last_rows(partitions: Array, offsets: Array) -> npt.NDArray[np.int64]:
    """The rows with the highest offset of each partition; a sort only if they come unordered."""
    if not len(offsets):
        return np.empty(0, np.int64)
    if (partitions == partitions[0]).all() and (offsets[1:] > offsets[:-1]).all():
        return np.array([len(offsets) - 1])
    ends = np.flatnonzero(np.append(partitions[1:] != partitions[:-1], True))
    ordered = (offsets[1:] > offsets[:-1]) | (partitions[1:] != partitions[:-1])
    if ordered.all() and len(np.unique(partitions[ends])) == len(ends):
        return ends
    order: npt.NDArray[np.int64] = np.lexsort((offsets, partitions))
    parted = partitions[order]
    return order[np.flatnonzero(np.append(parted[1:] != parted[:-1], True))]
