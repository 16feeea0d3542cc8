"""A plan that makes too many bytes is withdrawn, and the first of its records are planned anew.

What appends and calls leave behind is known only when they are executed. So a partition that makes
more bytes than its plan may (`outcome.Most`) stops, writes nothing, and tells all shards how many
of the plan's first records fit. They take the plan back as if it had never been, and release so
many. What other partitions have written of it is written again, to the byte, as after a crash.

Until its feedback has come, the shard keeps of such a plan its records, and the ids that it uses:
they are remembered only when the plan stands.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamydb.columns import program as p
from streamydb.columns.blobs import BlobStore
from streamydb.columns.encoding import pack, unpack
from streamydb.columns.plans import OpenPlan, PlanShape
from streamydb.columns.record_rows import ReleasedRecords, TimedRecords
from streamydb.columns.table import Array
from streamydb.errors import InvariantViolation
from streamydb.key_processor.id_rows import UsedIds

__all__ = ["KeptPlan", "makes_max", "may_be_too_much", "next_pace"]

_RECORDS: Final = "plan/records"
_IDS: Final = "plan/ids"


def may_be_too_much(released: TimedRecords) -> bool:
    """Return True if a plan of these records may make more than its weight tells;
    alone none does.
    """
    ranged = released.ranges is not None
    return len(released) > 1 and (ranged or bool(np.any(released.kind == p.GENERIC)))


def makes_max(plan: OpenPlan, shape: PlanShape) -> int:
    """Bytes that a partition of a plan may make; 0: any number."""
    return max(shape.values_bytes_max, 1) if plan.kept else 0


def next_pace(pace: int, made: int, bound: int, most: int) -> int:
    """Return how many records to release after a plan that fitted; 0: as many as there may be.

    Args:
        pace: how many there might be; 0: no plan was cut.
        made: bytes that a partition of the plan before has made, at most.
        bound: bytes that one may make.
        most: as many as a plan has at most.
    """
    if 2 * made > bound:
        return pace
    return 4 * pace if 4 * pace < most else 0


class KeptPlan:
    """The records and ids that a shard keeps of the plan in flight,
    in case that it is withdrawn.
    """

    def __init__(self, blobs: BlobStore) -> None:
        """Keep it in ``blobs``."""
        self._blobs = blobs

    def keep(self, released: ReleasedRecords, used: UsedIds) -> None:
        """Keep the records as they were released, and the ids that they use."""
        self._blobs.put(_RECORDS, pack(released.flatten()))
        self.keep_ids(used)

    def keep_ids(self, used: UsedIds) -> None:
        """Keep the ids alone: the plan stands, but older ids are still asked for."""
        self._blobs.put(_IDS, pack(used.flatten()))

    def ids(self) -> UsedIds:
        """Return the ids of the plan."""
        return UsedIds.unflatten(self._arrays(_IDS))

    def records(self) -> ReleasedRecords:
        """Return the records of the plan, as they were released."""
        return ReleasedRecords.unflatten(self._arrays(_RECORDS))

    def forget(self) -> None:
        """Keep the plan no more."""
        self._blobs.delete(_RECORDS)
        self._blobs.delete(_IDS)

    def _arrays(self, name: str) -> dict[str, Array]:
        data = self._blobs.get(name)
        if data is None:
            raise InvariantViolation(f"the blob {name} is missing from the state")
        return unpack(data)[1]
