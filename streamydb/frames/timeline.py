"""The passing of time in a plan: at which record the keys that end by a time are removed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.errors import InvariantViolation
from streamydb.frames.record_rows import ReleasedRecords

Ints = npt.NDArray[np.int64]


class Timeline(NamedTuple):
    """The first record of each commit time of a plan: ``ts`` (ms), ``seq``, partition, offset."""

    ts: Ints
    seq: Ints
    part: Ints
    off: Ints

    @classmethod
    def of(cls, released: ReleasedRecords) -> Timeline:
        """Take it from records in their order."""
        ts = released.ts_ms
        first = np.flatnonzero(np.diff(ts, prepend=ts[0] - 1))
        columns = ts, released.seq, released.partition, released.offset
        return cls(*(column[first].astype(np.int64) for column in columns))

    @classmethod
    def unpacked(cls, data: bytes) -> Timeline:
        return cls(*np.frombuffer(data, "<i8").reshape(len(cls._fields), -1))

    def packed(self) -> bytes:
        return np.stack(self).astype("<i8").tobytes()

    def at(self, ends: Ints) -> Ints:
        """Return the rows of the records at which keys with these ends are removed: the first that
        are not earlier.

        Raises:
            InvariantViolation: a key ends after the plan.

        """
        rows = np.searchsorted(self.ts, ends)
        if len(rows) and int(rows.max()) == len(self.ts):
            raise InvariantViolation("a key is to be removed that ends after the plan")
        return rows
