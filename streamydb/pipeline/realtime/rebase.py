"""Rebase: how the real-time gear comes to a newer base.

A second shard begins with the newer base, and executes the tail of the first one once more, without
outputs. It takes some records at a time, in the rests after groups, so that no transaction waits
for all of them. When it has caught up, both must be in the same state; then it takes the place of
the first one, with the shorter tail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streamydb.errors import InvariantViolation
from streamydb.pipeline.realtime.core import NotForThisGear, OpenBase, RealTimeShard

__all__ = ["Rebase", "Rebases"]

_APART_S: Final = 10.0
"""So long after a rebase the next one begins: each executes what came since its base was made."""

_LONG_TAIL_BYTES: Final = 20 << 20
_LONG_TAIL_APART_S: Final = 1.0
"""A tail of so many bytes of payloads is long: then the next one begins so long after a rebase."""

_TAIL_MIN: Final = 50
"""Records of a tail that is worth a rebase."""


class Rebase:
    """One change to a newer base."""

    def __init__(self, shard: RealTimeShard, opened: OpenBase) -> None:
        """``opened``: newer than the shard's own base, and not ahead of the shard.
        Raises InvariantViolation: it is not.
        """
        _require_newer(opened, shard)
        self._shard = shard
        self._successor = shard.successor(opened)

    def advance(self, records_max: int) -> RealTimeShard | None:
        """Execute some records of the tail; return the successor if it has caught up.

        Raises:
            NotForThisGear: the tail repeats an id that only the newer base knows.
            InvariantViolation: base and tail do not lead to the state that the gear has.
        """
        if not self._successor.catch_up(self._shard, records_max):
            return None
        self._shard.close()
        return self._successor

    def give_up(self) -> None:
        """Go on with the first shard."""
        self._successor.close()


class Rebases:
    """Decides when the gear looks for a newer base.

    Args:
        newest: opens the newest base; None: there is none now.
        now_s: when the gear has begun, of a clock that never goes back.
    """

    def __init__(self, newest: Callable[[], OpenBase | None], now_s: float) -> None:
        self._newest = newest
        self._ended_s = now_s
        self._rebase: Rebase | None = None

    @property
    def under_way(self) -> bool:
        return self._rebase is not None

    def advance(self, shard: RealTimeShard, records_max: int, now_s: float) -> RealTimeShard:
        """Take the next step of a rebase, or begin one; return the shard that executes from now on.

        ``records_max``: of the step. Raises InvariantViolation: as `Rebase.advance` does.
        """
        if self._rebase is None:
            self._begin(shard, now_s)
        if self._rebase is None:
            return shard
        try:
            successor = self._rebase.advance(records_max)
        except NotForThisGear:
            self._rebase.give_up()  # a later base has that record behind it
            successor = shard
        if successor is None:
            return shard
        self._rebase, self._ended_s = None, now_s
        return successor

    def _begin(self, shard: RealTimeShard, now_s: float) -> None:
        is_long = shard.tail.bytes >= _LONG_TAIL_BYTES
        if now_s - self._ended_s < (_LONG_TAIL_APART_S if is_long else _APART_S):
            return
        self._ended_s = now_s
        opened = self._newest() if len(shard.tail.records) >= _TAIL_MIN else None
        if opened is None:
            return
        if shard.is_newer(opened):
            self._rebase = Rebase(shard, opened)
        else:
            opened.values.close()


def _require_newer(opened: OpenBase, shard: RealTimeShard) -> None:
    """Require that a base is not older than that of a shard, and not ahead of the shard."""
    seq = opened.base.state.seq
    if not shard.base_seq <= seq <= shard.seq:
        what = f"a base at seq {seq:,} follows one at {shard.base_seq:,}"
        raise InvariantViolation(f"{what}; this gear is at {shard.seq:,}")
