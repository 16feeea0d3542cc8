"""The place of a score: digits of a path, counters of the paths below each beginning.

A member stands under a path of base-32 digits: its score, the highest first, then the *bucket* of
its arrival, which is the number of those who reached that score before it, divided by
`BUCKET_ARRIVALS`. A counter for each beginning of a path has the number of members below it: a trie
with counts (an order-statistic tree of fixed shape, whose nodes are known without reading any).
A rank is a sum over the smaller siblings along the path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from streamydb_layers.errors import InvalidArgumentError

SCORE_MAX: Final = 2**53 - 1
"""Largest magnitude of a score."""

BUCKET_ARRIVALS: Final = 256
"""Arrivals at one score whose order is by their versions, not by their paths."""

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"
_SCORE_DIGITS: Final = 11
_BUCKET_DIGITS: Final = 4
PATH_DIGITS: Final = _SCORE_DIGITS + _BUCKET_DIGITS


def check_score(score: int) -> int:
    """Return a score. Raises InvalidArgumentError: it is no integer, or too large."""
    if not isinstance(score, int) or isinstance(score, bool) or abs(score) > SCORE_MAX:
        raise InvalidArgumentError("A score is an integer of at most 53 bits.")
    return score


def score_digits(score: int) -> str:
    """The part of a path that stands for a score; higher scores come first."""
    return _base32(SCORE_MAX - score, _SCORE_DIGITS)


def path_of(score: int, bucket: int) -> str:
    """The path of a member."""
    return score_digits(score) + _base32(bucket, _BUCKET_DIGITS)


def score_of(path: str) -> int:
    """The score that a path begins with."""
    return SCORE_MAX - int(path[:_SCORE_DIGITS], 32)


def beginnings(path: str) -> list[str]:
    """All beginnings of a path that have a counter."""
    return [path[:length] for length in range(1, len(path) + 1)]


def siblings_before(path: str) -> Iterator[str]:
    """The beginnings whose members are all before those of the path, together all of them."""
    for place, digit in enumerate(path):
        for other in _DIGITS[: _DIGITS.index(digit)]:
            yield path[:place] + other


def children(beginning: str) -> list[str]:
    """The beginnings that are one digit longer, in order."""
    return [beginning + digit for digit in _DIGITS]


def changed(counts: Mapping[str, int]) -> dict[str, int]:
    """Beginnings whose counters change, and by how much; paths -> members more or less there."""
    sums: dict[str, int] = {}
    for path, by in counts.items():
        for beginning in beginnings(path):
            sums[beginning] = sums.get(beginning, 0) + by
    return {beginning: by for beginning, by in sums.items() if by}


def _base32(number: int, digits: int) -> str:
    made = ""
    for _ in range(digits):
        number, digit = divmod(number, 32)
        made = _DIGITS[digit] + made
    if number:
        raise InvalidArgumentError("Too many arrivals at one score.")
    return made
