"""Joins: from which time on each partition of the log takes part in the order; see `core`."""

from __future__ import annotations

from streamydb.sorter.state import NEVER, SorterState

__all__ = ["joins_of"]


def joins_of(state: SorterState) -> tuple[list[int | None], list[int]]:
    """Per known partition: when it joined (None: not decided), and what caps the watermark till
    then.
    """
    joins: list[int | None] = [NEVER] * state.initial_partitions
    caps: list[int] = []
    for q in range(state.initial_partitions, _known(state)):
        firsts = [_first_naming(state, lower, q + 1, joins[lower]) for lower in range(q)]
        seen = [time for time in firsts if time is not None]
        if len(seen) == q:
            joins.append(max(seen))
        else:
            joins.append(None)
            caps += [max(seen)] if seen else []
    return joins, caps


def _known(state: SorterState) -> int:
    """Return how many partitions exist as far as markers tell."""
    named = [s.named[-1][0] for s in state.partitions.values() if s.named]
    return max([state.initial_partitions, *named])


def _first_naming(state: SorterState, partition: int, count: int, join: int | None) -> int | None:
    """The effective time of the first marker in a partition that names ``count`` partitions."""
    known = state.partitions.get(partition)
    if known is None or join is None:
        return None
    return next((max(join, time) for named, time in known.named if named >= count), None)
