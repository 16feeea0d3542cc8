"""Finds names in spans and spans of names, for many of both, in the time of one sort (pure)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

Span: TypeAlias = tuple[bytes, bytes]
"""Names from one to before another."""

_NEVER = 1 << 63


class SpanSeqs:
    """Spans that have a seq each.

    The names are cut where a span begins or ends, and each piece is told the smallest seq of the
    spans that cover it.
    """

    def __init__(self, spans: Iterable[tuple[int, Span]]) -> None:
        """Take spans, each with its seq."""
        begun = sorted((first, last, seq) for seq, (first, last) in spans if first < last)
        self._cuts = sorted({name for first, last, _ in begun for name in (first, last)})
        self._seqs: list[int] = []
        open_spans: list[tuple[int, bytes]] = []
        taken = 0
        for cut in self._cuts:
            while taken < len(begun) and begun[taken][0] == cut:
                _, last, seq = begun[taken]
                heappush(open_spans, (seq, last))
                taken += 1
            while open_spans and open_spans[0][1] <= cut:
                heappop(open_spans)
            self._seqs.append(open_spans[0][0] if open_spans else _NEVER)

    def earlier(self, name: bytes, seq: int) -> bool:
        """Return True if a span with a smaller seq has a name."""
        piece = bisect_right(self._cuts, name) - 1
        return piece >= 0 and self._seqs[piece] < seq

    def has(self, name: bytes) -> bool:
        """Return True if any span has a name."""
        return self.earlier(name, _NEVER)


class FirstWriters:
    """Names in order, with the seq of the first writer of each (0: none): a tree of minima."""

    def __init__(self, names: Sequence[bytes], writers: Iterable[int]) -> None:
        """Take names and their first writers, in order."""
        self._names = names
        count = len(names)
        self._least = [_NEVER] * count + [seq or _NEVER for seq in writers]
        for node in range(count - 1, 0, -1):
            self._least[node] = min(self._least[2 * node], self._least[2 * node + 1])

    def earlier(self, span: Span, seq: int) -> bool:
        """Return True if a name in a span has a writer with a smaller seq."""
        low = bisect_left(self._names, span[0]) + len(self._names)
        high = bisect_left(self._names, span[1]) + len(self._names)
        while low < high:
            if low & 1:
                if self._least[low] < seq:
                    return True
                low += 1
            if high & 1:
                high -= 1
                if self._least[high] < seq:
                    return True
            low //= 2
            high //= 2
        return False
