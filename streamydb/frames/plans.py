"""The name of an attempt at a plan: the life of the query, the plan's number and shape.

A micro-batch that was not committed is repeated, perhaps by a later start of the pipeline, with
other options or of another release, and its feedback is in Kafka already. So feedback names the
*life* (one start of the query) and the plan that it belongs to, and whatever bounds a plan (its
*shape*) is part of the state: a plan is made by the shape that the state had before the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.errors import InvariantViolation
from streamydb.frames.record_rows import ReleasedRecords
from streamydb.limits import (
    FEEDBACK_BLOCK_BYTES_MAX,
    IN_FLIGHT_MAX,
    LOCK_QUEUE_MAX,
    PLAN_BYTES_MAX,
    PLAN_RECORDS_MAX,
    PLAN_VALUES_BYTES_MAX,
)

_TOLD_BYTES_MAX: Final = 1 << 29
"""What all shards together tell in a micro-batch of what needs no execution."""


class PlanShape(msgspec.Struct, frozen=True):
    """The bounds of a plan, and of the blocks of its feedback."""

    records_max: int = PLAN_RECORDS_MAX
    bytes_max: int = PLAN_BYTES_MAX
    feedback_bytes_max: int = FEEDBACK_BLOCK_BYTES_MAX
    in_flight_max: int = IN_FLIGHT_MAX
    lock_queue_max: int = LOCK_QUEUE_MAX
    values_bytes_max: int = PLAN_VALUES_BYTES_MAX

    def turn_bytes_max(self, shards: int) -> int:
        """Return how many bytes a shard tells in a micro-batch of what needs no execution.

        What all shards tell may be in one record batch of Arrow, which holds 2 GB.
        """
        return min(self.values_bytes_max, _TOLD_BYTES_MAX // shards)


class Life(msgspec.Struct, frozen=True):
    """One start of the query.

    ``name``: no other start has it. ``shape``: of the plans after the first batch of this life.
    """

    name: str
    shape: PlanShape = PlanShape()


class PlanName(NamedTuple):
    """The name of a plan: its number, the life that made it, its first and last seq, and a hash of
    who executes what (``layout``).
    """

    number: int
    life: str
    first: int
    last: int
    layout: str

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> PlanName:
        return cls(header["plan"], *(header[name] for name in cls._fields[1:]))

    def fields(self) -> dict[str, Any]:
        """Return the fields of a block's header that name the plan."""
        return {"plan": self.number, **dict(zip(self._fields[1:], self[1:], strict=True))}


class OpenPlan(msgspec.Struct):
    """The plan in flight: who executes it, what its completion resolves, which seq is before it.

    ``life``, ``layout``: see `PlanName`. ``ts_before``: the ts of the
    seq before it. ``kept``: it may be withdrawn; see `key_processor.withdrawals`. ``turns``: in how
    many micro-batches this shard tells what it knows without execution
    (`key_processor.duplicates`).
    ``deltas``: by how much the digest changes by what ends untouched: (interval, low, high).
    ``ended``: how many keys have ended by its ts (`key_processor.expiry`). ``times``: the ts of
    each seq in it at which there is a digest. ``position``: the offset behind its last record, if
    the log has one partition; -1: it has more.
    """

    number: int
    procs: list[int]
    seq: int
    ts: int
    offsets: dict[int, int]
    after: int = 0
    life: str = ""
    layout: str = ""
    ts_before: int = 0
    kept: bool = False
    turns: int = 1
    deltas: list[tuple[int, int, int]] = []
    ended: int = 0
    times: list[int] = []
    position: int = -1

    def digest_times(self, interval: int) -> dict[int, int]:
        """Return the ts of the seqs in it at which there is a digest."""
        first = (self.after // interval + 1) * interval
        return dict(zip(range(first, self.seq + 1, interval), self.times, strict=True))

    def name(self) -> PlanName:
        return PlanName(self.number, self.life, self.after + 1, self.seq, self.layout)


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
        Raises InvariantViolation: a key ends after the plan.
        """
        rows = np.searchsorted(self.ts, ends)
        if len(rows) and int(rows.max()) == len(self.ts):
            raise InvariantViolation("a key is to be removed that ends after the plan")
        return rows
