"""Requests and their latencies, second by second, in a bounded space.

Latencies are counted in buckets whose bounds grow by 5 %, so that a percentile is right within 3 %
however many requests there are.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["read", "write"]

_GROWTH: Final = math.log(1.05)
_SECONDS_MIN: Final = 1e-6
_EXECUTED: Final = frozenset({409, 412})


class Slot:
    """The answers of one second; `errors` are failures of ours (5xx)."""

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.latencies: dict[Kind, Counter[int]] = {"read": Counter(), "write": Counter()}

    def latency_ms(self, kind: Kind, share: float) -> float | None:
        return percentile(self.latencies[kind], share)


class Traffic:
    """The requests of the latest seconds."""

    def __init__(self, window_s: int) -> None:
        self._window_s = window_s
        self._slots: OrderedDict[int, Slot] = OrderedDict()

    def record(self, second: int, kind: Kind, status: int, seconds: float) -> None:
        """Note an answer given in `second`; refusals have no latency worth knowing."""
        slot = self._slots.get(second)
        if slot is None:
            slot = self._slots[second] = Slot()
            while len(self._slots) > self._window_s:
                self._slots.popitem(last=False)
        slot.requests += 1
        slot.errors += status >= 500
        if 200 <= status < 400 or status in _EXECUTED:
            slot.latencies[kind][_bucket(seconds)] += 1

    def of(self, second: int) -> Slot:
        return self._slots.get(second) or Slot()


def percentile(buckets: Counter[int], share: float) -> float | None:
    """Return the time (ms) within which a share of the answers came; None if there are none."""
    wanted = math.ceil(share * buckets.total())
    for bucket in sorted(buckets):
        wanted -= buckets[bucket]
        if wanted <= 0:
            return round(1000 * _SECONDS_MIN * math.exp((bucket + 0.5) * _GROWTH), 3)
    return None


def _bucket(seconds: float) -> int:
    return int(math.log(max(seconds, _SECONDS_MIN) / _SECONDS_MIN) / _GROWTH)
