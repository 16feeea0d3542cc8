"""Zones of values: a fast test that finds most violations of linearizability.

A value that is written once is there for one stretch of time. All operations that wrote or saw it
lie in that stretch at a point each, so that it surely is there from the first return to the last
invocation of these (its forward zone, if that is a time at all). Forward zones must not overlap,
and no operation of another value may lie wholly within one (Gibbons and Korach, "Testing shared
memories", SIAM J. Comput. 1997, section 4).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from histories.steps import RegisterStep

__all__ = ["Clash", "clashing"]


class Clash(NamedTuple):
    """Steps that contradict one another, and why."""

    why: str
    steps: tuple[RegisterStep, ...]


class _Zone(NamedTuple):
    """The steps of a value; it is there from `first`'s return to `last`'s invocation."""

    value: str | None
    first: RegisterStep
    last: RegisterStep
    writer: RegisterStep | None

    @property
    def begin(self) -> float:
        return _end(self.first)

    @property
    def end(self) -> float:
        return self.last.invoked_ns

    @property
    def steps(self) -> tuple[RegisterStep, ...]:
        named = [self.writer] if self.writer is not None else []
        return tuple(dict.fromkeys([*named, self.first, self.last]))


def clashing(steps: Sequence[RegisterStep]) -> Clash | None:
    """Find steps that no order explains; None if the zones do not clash (there may be none yet)."""
    zones = []
    for zone in _zones(steps):
        if zone.value is not None and zone.writer is None:
            return Clash(f"{zone.value} was seen, and nobody wrote it", zone.steps)
        if zone.writer is not None and zone.begin < zone.writer.invoked_ns:
            return Clash(f"{zone.value} was seen before it was written", zone.steps)
        zones.append(zone)
    forward = sorted((z for z in zones if z.begin < z.end), key=lambda zone: zone.begin)
    for one, other in pairwise(forward):
        if other.begin < one.end:
            why = f"{one.value} and {other.value} must both have been there at one time"
            return Clash(why, (*one.steps, *other.steps))
    begins = [zone.begin for zone in forward]
    for zone in zones:
        if zone.begin >= zone.end:
            around = _around(forward, begins, zone.end, zone.begin)
            if around is not None:
                why = f"{around.value} was there all the time when {_name(zone.value)} had to be"
                return Clash(why, (*around.steps, *zone.steps))
    return _refused_in_vain(steps, forward)


def _zones(steps: Sequence[RegisterStep]) -> Iterator[_Zone]:
    """The zone of each value; each operation on an absent key has a zone of its own."""
    groups: dict[str, list[RegisterStep]] = {}
    writers: dict[str, RegisterStep] = {}
    for step in steps:
        if step.kind in {"write", "set"}:
            if step.value is not None:
                writers[step.value] = step
                groups.setdefault(step.value, []).append(step)
            elif step.returned_ns is not None:
                yield _Zone(None, step, step, None)
        if step.kind == "set" and step.returned_ns is not None and step.expected is not None:
            groups.setdefault(step.expected, []).append(step)
        elif step.kind == "read" and step.value is not None:
            groups.setdefault(step.value, []).append(step)
        elif step.kind == "read":
            yield _Zone(None, step, step, None)
    for value, group in groups.items():
        if all(step.returned_ns is None for step in group):
            continue  # it may never have been there
        first = min(group, key=_end)
        last = max(group, key=lambda step: step.invoked_ns)
        yield _Zone(value, first, last, writers.get(value))


def _around(
    forward: Sequence[_Zone], begins: Sequence[float], begin: float, end: float
) -> _Zone | None:
    """The forward zone in which an interval lies wholly; they do not overlap."""
    at = bisect_right(begins, begin) - 1
    inside = at >= 0 and forward[at].begin < begin and end < forward[at].end
    return forward[at] if inside else None


def _refused_in_vain(steps: Sequence[RegisterStep], forward: Sequence[_Zone]) -> Clash | None:
    """A refusal while what it expected was there all the time."""
    zones = {zone.value: zone for zone in forward}
    for step in steps:
        zone = zones.get(step.expected) if step.kind == "refused" else None
        if zone is not None and zone.begin < step.invoked_ns and _end(step) < zone.end:
            return Clash(f"{zone.value} was there all the time", (*zone.steps, step))
    return None


def _name(value: str | None) -> str:
    return "no value" if value is None else value


def _end(step: RegisterStep) -> float:
    return math.inf if step.returned_ns is None else step.returned_ns
