"""A plan: who executes each of some transactions, and the slot of each of their keys."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamydb.planner.ranges import PlanRanges

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Plan:
    """A plan over n transactions with k keys in all and s distinct keys (slots).

    ``slot``: the slot of each key occurrence, (k,). ``first``: an occurrence of each slot, (s,).
    ``proc``: the executing partition of each transaction, (n,). ``groups``: how many conflict
    groups; ``largest``: transactions in the largest. ``ranges``: that transactions name, if any do.
    """

    slot: Ints
    first: Ints
    proc: Ints
    groups: int
    largest: int
    ranges: PlanRanges | None = None

    def procs(self) -> list[int]:
        """The executing partitions that have something to do."""
        members: list[int] = np.bincount(self.proc).nonzero()[0].tolist()
        return members

    def layout(self, feedback_bytes_max: int) -> str:
        """A hash of who executes which transaction, and of how the feedback is cut."""
        digest = hashlib.blake2b(self.proc.astype(np.uint8).tobytes(), digest_size=8)
        digest.update(b"%d" % feedback_bytes_max)
        return digest.hexdigest()
