"""A load whose rate changes: when each transaction is due (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

__all__ = ["FORMS", "Floats", "LoadProfile"]

Floats = npt.NDArray[np.float64]

FORMS: Final = ("steps", "ramps")
"""The rate jumps from one plateau to the next, or it grows and falls evenly between them."""


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """A rate over time: straight lines between points.

    ``at_s``: the points, in seconds since the load began, in order; shape (n,). Two at one time are
    a jump. ``rates``: transactions a second there; shape (n,).
    """

    at_s: Floats
    rates: Floats

    @classmethod
    def cycles(
        cls,
        levels: Sequence[float],
        plateau_s: float,
        count: int,
        forms: Sequence[str],
        rest_s: float,
    ) -> Self:
        """Return a profile that goes up through ``levels`` and down again, ``count`` times.

        ``forms``: of the cycles, by turns. ``rest_s``: seconds without load before each cycle, and
        behind the last one. Each level has its plateau, the highest one only one. Between ramps a
        plateau takes half of its time, and the ramp to the next one the other half.
        """
        points: list[tuple[float, float]] = [(0.0, 0.0), (rest_s, 0.0)]
        for number in range(count):
            ramps = forms[number % len(forms)] == "ramps"
            ramp_s = plateau_s / 2 if ramps else 0.0
            for level in (*levels, *reversed(levels[:-1]), 0.0):
                begun_s = points[-1][0] + ramp_s
                lasts_s = rest_s if level == 0.0 else plateau_s - ramp_s
                points += [(begun_s, level), (begun_s + lasts_s, level)]
        at_s, rates = zip(*points, strict=True)
        return cls(np.array(at_s), np.array(rates))

    @classmethod
    def rising(cls, rate: float, rise_s: float, seconds: float) -> Self:
        """Return a profile that grows evenly for ``rise_s`` and then stays; ``seconds`` in all."""
        rates = np.array([0.0 if rise_s else rate, rate, rate])
        return cls(np.array([0.0, rise_s, seconds]), rates)

    @property
    def seconds(self) -> float:
        """Return how long it lasts."""
        return float(self.at_s[-1])

    @property
    def count(self) -> int:
        """Return how many transactions are due in all."""
        return int(self._due_at_points()[-1])

    def rate_at(self, at_s: Floats) -> Floats:
        """Return the rate at some times; shape as ``at_s``."""
        rates: Floats = np.interp(at_s, self.at_s, self.rates)
        return rates

    def due_s(self) -> Floats:
        """Return when each transaction is due, in seconds since the load began; (count,).

        The n-th one is due when n have been due before it: the area under the rate is n.
        """
        due, numbers = self._due_at_points(), np.arange(self.count, dtype=np.float64)
        at = np.searchsorted(due, numbers, side="right") - 1
        lasts_s = self.at_s[at + 1] - self.at_s[at]
        rate, slope = self.rates[at], (self.rates[at + 1] - self.rates[at]) / lasts_s
        more = numbers - due[at]
        # more = rate x + slope x^2 / 2, solved without a difference of two large numbers
        root = np.sqrt(np.maximum(rate * rate + 2 * slope * more, 0.0))
        found: Floats = self.at_s[at] + np.divide(
            2 * more, rate + root, out=np.zeros_like(more), where=rate + root > 0
        )
        return found

    def _due_at_points(self) -> Floats:
        """Return how many are due before each point; (n,)."""
        means = (self.rates[1:] + self.rates[:-1]) / 2
        due: Floats = np.concatenate([[0.0], np.cumsum(means * np.diff(self.at_s))])
        return due
