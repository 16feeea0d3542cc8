"""Compare pipelines over one log by their digests of the same shard at the same seq (pure)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamydb.frames.digest import StateDigest, Teller, teller_of
from streamydb.records.formats import record_decoder

KNOWN_DIGESTS_MAX: Final = 200_000
"""Digests of so many shards and seqs are kept, for pipelines that are behind and tell theirs later.
"""


_NEVER: Final = 1 << 62
_decode: Final[Callable[[bytes], StateDigest]] = record_decoder(StateDigest, "digest")


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
        one, two = self.first, self.second
        return (
            f"digests of shard {one.shard} at seq {one.seq} differ: pipeline "
            f"{self.first_pipeline} has state {one.state}, outcomes {one.outcomes}; pipeline "
            f"{self.second_pipeline} has state {two.state}, outcomes {two.outcomes}"
        )


class _TimedDigest(NamedTuple):
    """A digest as it was told; ``live``: since the start."""

    teller: Teller
    digest: StateDigest
    told_ms: int
    live: bool

    def is_lost(self, ts_ms: int | None) -> bool:
        """Return True if it is of a history that the log does not have any more.

        Its seq was another transaction's, and it was told before the one that has the seq now was
        appended.

        ``ts_ms``: the commit timestamp that the seq has now.
        """
        mine = self.teller.ts_ms
        if self.live or mine is None or ts_ms is None:
            return False
        return mine != ts_ms and self.told_ms < ts_ms


class Agreement:
    """Compares every digest with those that were told of its seq and shard before.

    What was there before the start is taken as it is: an old difference has been dealt with, and
    where there was one, either digest will do. A state that differs goes on to differ, so nothing
    is missed by that. What was told of a history that the log has lost since does not count.
    """

    def __init__(self, interval: int, shards: int) -> None:
        """Compare digests of one interval and number of shards; others are of another life."""
        self._life = interval, shards
        self._known: OrderedDict[tuple[int, int], list[_TimedDigest]] = OrderedDict()
        self.compared = 0

    def take(
        self, key: bytes | None, value: bytes | None, *, live: bool, told_ms: int = _NEVER
    ) -> Disagreement | None:
        """Take a record of `<db>.digests`; return the difference that it shows, if it is ``live``.

        ``told_ms``: when it was appended.
        Raises RecordError: it is no digest.
        """
        digest = _decode(value or b"")
        if (digest.interval, digest.shards) != self._life:
            return None
        entry = _TimedDigest(teller_of(key), digest, told_ms, live)
        known = self._known.setdefault((digest.shard, digest.seq), [])
        others = [other for other in known if not other.is_lost(entry.teller.ts_ms)]
        self.compared += bool(others)
        if any(other.digest == digest for other in others):
            return None
        known.append(entry)
        if len(self._known) > KNOWN_DIGESTS_MAX:
            self._known.popitem(last=False)  # a dict would walk past all it has forgotten
        if not live or not others:
            return None
        first, pipeline = others[0].digest, others[0].teller.pipeline
        return Disagreement(first, pipeline, digest, entry.teller.pipeline)
