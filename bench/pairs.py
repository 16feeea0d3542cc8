"""Comparisons by turns, on a machine whose speed changes more than what is compared.

What is to be compared is there all the time and takes turns, in changing order. Only what was
measured in one round, within a minute or so, is set against each other; the median of these ratios
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, TypeVar

__all__ = ["by_turns", "ratios_of", "spread"]

_T = TypeVar("_T")


def by_turns(sides: Sequence[_T], rounds: int) -> Iterator[tuple[int, _T]]:
    """Yield the number of a round, from 0, and a side: each side once in a round."""
    for number in range(rounds):
        for side in sides if number % 2 else reversed(sides):
            yield number, side


def ratios_of(most: Sequence[float], least: Sequence[float]) -> dict[str, Any]:
    """Return the median of the rounds' ratios, and all of them in ascending order: a part of an
    answer.
    """
    found = sorted(one / other for one, other in zip(most, least, strict=True))
    return {"ratio": round(median(found), 3), "ratios": [round(ratio, 3) for ratio in found]}


def spread(answer: dict[str, Any], what: str = "pairs") -> str:
    """How far the ratios lie apart of which one is the median; earlier answers have none."""
    found = answer.get("ratios")
    if not found:
        return ""
    return f" (median of {len(found)} {what}, {found[0]:.2f} to {found[-1]:.2f})"
