"""Routing: a token per destination whose Spark hash gives each destination a partition of its own.

`repartition(n, column)` and `groupBy(column)` put a row on partition `pmod(Murmur3(column, 42),
n)`. Hashing the destinations themselves lets them collide, and the load is lopsided.
"""

from __future__ import annotations

from functools import cache
from typing import Final

# The seed of Spark's own `hash`, by which it partitions a shuffle.
_SEED: Final = 42
_MASK: Final = 0xFFFFFFFF


def spark_hash(value: int, seed: int = _SEED) -> int:
    """Spark's Murmur3 hash (x86, 32 bit) of an INT, as a signed 32-bit number."""
    k = (value & _MASK) * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    h = seed ^ (k * 0x1B873593 & _MASK)
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


@cache
def tokens(n: int) -> tuple[int, ...]:
    """For each of ``n`` destinations an INT that Spark puts on the partition of that number."""
    found: dict[int, int] = {}
    value = 0
    while len(found) < n:
        found.setdefault(spark_hash(value) % n, value)
        value += 1
    return tuple(found[q] for q in range(n))
