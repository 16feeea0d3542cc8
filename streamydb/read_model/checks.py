"""Checks of what a read model is handed, and hands on to its store; see `columns.invariants`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from streamydb.columns.invariants import HANDED_IN, HANDED_ON, Seam

__all__ = ["progressed", "resolved", "timed"]

_RESOLVED = Seam("read_model", HANDED_IN, "a resolved record")
_BATCH = Seam("read_model", HANDED_ON, "a batch")


def resolved(before: tuple[int, int], found: tuple[int, int]) -> None:
    """Require that time goes on with the seqs; each: seq, and ms.

    A read model that began with a snapshot knows the time of its last change only, so what comes
    again from before it is not judged.
    """
    holds = found[0] < before[0] or found[1] >= before[1]
    _RESOLVED.require(holds, "time goes on with the seqs", seq=found[0], ts_ms=found[1])


def timed(times: Mapping[int, int]) -> None:
    """Require that time goes on with the seqs; ``times``: the smallest seq of each ms."""
    holds = all(one[1] < other[1] for one, other in pairwise(sorted(times.items())))
    _BATCH.require(holds, "time goes on with the seqs", times=len(times))


def progressed(before: Mapping[int, int], after: Mapping[int, int]) -> None:
    """Require that no partition is read backwards; each: partition to offset."""
    holds = before.keys() == after.keys() and all(after[n] >= at for n, at in before.items())
    _BATCH.require(holds, "no partition goes back", partitions=len(before))
