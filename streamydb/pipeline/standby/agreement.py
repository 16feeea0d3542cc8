"""Compare pipelines over one log by their digests of the same shard at the same seq (pure)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import msgspec

from streamydb.columns.digest import StateDigest
from streamydb.records.formats import UNREADABLE, not_read

__all__ = ["PLACES_MAX", "Agreement", "Disagreement"]

PLACES_MAX: Final = 200_000
"""Digests of so many shards and seqs are kept, for pipelines that are behind and tell theirs later.
"""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two pipelines say different things about one state."""

    first: StateDigest
    first_pipeline: str
    second: StateDigest
    second_pipeline: str

    def other(self, pipeline: str) -> str | None:
        """Return the pipeline from which ``pipeline`` differs; None if it is not concerned."""
        pair = self.first_pipeline, self.second_pipeline
        return pair[1 - pair.index(pipeline)] if pipeline in pair else None

    def __str__(self) -> str:
        """Describe the difference."""
        one, two = self.first, self.second
        return (
            f"digests of shard {one.shard} at seq {one.seq} differ: pipeline "
            f"{self.first_pipeline} has state {one.state}, outcomes {one.outcomes}; pipeline "
            f"{self.second_pipeline} has state {two.state}, outcomes {two.outcomes}"
        )


class Agreement:
    """Compares every digest with those that were told of its place before.

    What was there before the start is taken as it is: an old difference has been dealt with, and
    where there was one, either digest will do. A state that differs goes on to differ, so nothing
    is missed by that.
    """

    def __init__(self, interval: int, shards: int) -> None:
        """Compare digests of one interval and number of shards; others are of another life."""
        self._life = interval, shards
        self._known: OrderedDict[tuple[int, int], list[tuple[str, StateDigest]]] = OrderedDict()
        self.compared = 0

    def take(self, key: bytes | None, value: bytes | None, *, live: bool) -> Disagreement | None:
        """Take a record of `<db>.digests`; return the difference that it shows, if it is ``live``.

        Raises:
            RecordError: it is no digest.
        """
        try:
            digest = msgspec.json.decode(value or b"", type=StateDigest)
        except UNREADABLE as error:
            raise not_read(value or b"", "digest", error) from error
        if (digest.interval, digest.shards) != self._life:
            return None
        pipeline = (key or b"").rpartition(b"/")[2].decode("utf-8", "replace")
        known = self._known.setdefault((digest.shard, digest.seq), [])
        self.compared += bool(known)
        if any(other == digest for _, other in known):
            return None
        known.append((pipeline, digest))
        if len(self._known) > PLACES_MAX:
            self._known.popitem(last=False)  # a dict would walk past all it has forgotten
        if not live or len(known) == 1:
            return None
        return Disagreement(known[0][1], known[0][0], digest, pipeline)
