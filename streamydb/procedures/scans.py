"""The ranges of keys that a procedure scans: each lies within one that its call has declared."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from streamydb.records.ranges import Bounds, Range, end_of_prefix


def named_bounds(prefix: Any, start: Any, end: Any) -> Bounds | None:
    """Return the bounds of a range that a procedure names; None: no key can be in it.

    Raises:
        TypeError: it has neither a prefix nor a start and an end, or they are no texts.
    """
    given = [start, end] if prefix is None else [prefix]
    if prefix is not None and (start is not None or end is not None):
        raise TypeError("a range has a prefix, or start and end, not both")
    if not all(type(bound) is str for bound in given):
        raise TypeError("a range has a prefix, or start and end, which are texts")
    try:
        first, last = given[0].encode(), given[-1].encode()
    except UnicodeEncodeError:
        return None
    if prefix is None:
        return first, last
    return (first, end_of_prefix(first)) if first else None


class DeclaredRanges:
    """The ranges that a call declares: finds one that has all keys of another."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        """Put them in order; beside each start stands the one that goes farthest from there."""
        self._starts: list[bytes] = []
        self._farthest: list[Bounds] = []
        for bounds in sorted({named.bounds() for named in ranges}):
            self._starts.append(bounds[0])
            before = self._farthest[-1] if self._farthest else bounds
            self._farthest.append(bounds if bounds[1] > before[1] else before)

    def around(self, bounds: Bounds) -> Bounds | None:
        """Return a declared range that all keys of another one are in; None: there is none."""
        at = bisect_right(self._starts, bounds[0])
        if not at or bounds[1] > self._farthest[at - 1][1]:
            return None
        return self._farthest[at - 1]
