"""`db.random`: a generator of our own, the same in every version of Python.

SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), seeded by the transaction's seq. Whoever knows the
seq knows the numbers: they are for sampling, not for secrets.
"""

from __future__ import annotations

import hashlib
from typing import Any

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


class Random:
    """Numbers that follow from a seq alone."""

    __slots__ = ("_state",)

    def __init__(self, seq: int) -> None:
        digest = hashlib.sha256(b"streamydb random %d" % seq).digest()
        self._state = int.from_bytes(digest[:8], "little")

    def bits(self) -> int:
        """The next 64 bits."""
        self._state = z = (self._state + _GAMMA) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def random(self) -> float:
        """A float in [0, 1), of 53 bits."""
        return (self.bits() >> 11) / (1 << 53)

    def below(self, bound: int) -> int:
        """An integer in [0, bound), each as likely; ``bound`` has at most 64 bits."""
        most = _MASK + 1 - (_MASK + 1) % bound
        while (drawn := self.bits()) >= most:
            pass
        return drawn % bound

    def randint(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        if type(low) is not int or type(high) is not int:
            raise TypeError("randint takes integers")
        if not 0 <= high - low < _MASK:
            raise ValueError("randint needs low <= high, and fewer than 2**64 integers")
        return low + self.below(high - low + 1)

    def choice(self, items: Any) -> Any:
        """One of the items of a list, tuple or text."""
        if type(items) not in (list, tuple, str):
            raise TypeError("choice takes a list, a tuple or a text")
        if not items:
            raise IndexError("choice from nothing")
        return items[self.below(len(items))]
