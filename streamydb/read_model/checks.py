"""Checks of what a read model hands on to its store; see `frames.invariants`."""

from __future__ import annotations

from collections.abc import Mapping

from streamydb.frames.invariants import HANDED_ON, Seam

_BATCH = Seam("read_model", HANDED_ON, "a batch")


def progressed(before: Mapping[int, int], after: Mapping[int, int]) -> None:
    """Require that no partition is read backwards; each: partition to offset."""
    holds = before.keys() == after.keys() and all(after[n] >= at for n, at in before.items())
    _BATCH.require(holds, "no partition goes back", partitions=len(before))
