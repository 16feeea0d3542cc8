"""The work of operations whose time is not told by the length of one operand, in steps (pure).

Three things make a short operation long: a key that Python finds late in a dict, a text that it
looks for by comparing each place with each, and integers of thousands of bits.
"""

from __future__ import annotations

from typing import Any, Final

GAPS_PER_STEP: Final = 256
"""Gaps of deleted entries that one step passes over."""

SEARCHED_FREE: Final = 16
"""In a dict or set with fewer entries, a key is found in no time."""

WORD: Final = 1 << 256
"""Up to here, the length of an integer does not matter."""

_NUMBERS_PER_STEP: Final = 512
_EQUAL_HASHES_PER_STEP: Final = 64
_TUPLE_ITEMS_PER_STEP: Final = 128
_TUPLE: Final = 4
_SPREAD: Final = 1 << 64
_CHARACTERS_PER_ITEM: Final = 64
_COMPARED_PER_STEP: Final = 2_048
_SHORT_TEXT: Final = 2_500
_MEDIUM_TEXT: Final = 30_000
_SHORT_PART: Final = 4
_MEDIUM_PART: Final = 100


def steps_of_search(size: int, key: Any) -> int:
    """The steps of finding a key among ``size`` entries, at worst.

    Python hashes numbers and tuples in a way that everybody can compute, so whoever chooses them
    can make it look at every entry. Few numbers below 2**64 have the same hash, so most entries
    that it looks at differ in the hash already. The hash of a text is a secret of the process: a
    text is found at once, and so is a tuple of texts and at most one such number.
    """
    kind = type(key)
    if kind is str:
        return 0
    if kind is tuple:
        if _is_spread(key):
            return 0
        return size * (_TUPLE + _size(key)) // _TUPLE_ITEMS_PER_STEP
    if kind is int and not -_SPREAD < key < _SPREAD:
        return size // _EQUAL_HASHES_PER_STEP
    return size // _NUMBERS_PER_STEP


def _is_spread(key: tuple[Any, ...]) -> bool:
    """Return True if nobody can choose such tuples with hashes of his choice."""
    others = [item for item in key if type(item) is not str or not item]  # hash("") is known
    if len(others) > 1 or len(others) == len(key):
        return False
    return all(type(item) in _NUMBERS and -_SPREAD < item < _SPREAD for item in others)


_NUMBERS: Final = (int, float, bool)


def _size(key: tuple[Any, ...]) -> int:
    """The items that are compared in two tuples that are equal up to the end."""
    total = 0
    for item in key:
        if type(item) is tuple:
            total += _TUPLE + _size(item)
        else:
            total += 1 + (len(item) // _CHARACTERS_PER_ITEM if type(item) is str else 0)
    return total


def steps_of_find(text: int, part: int, *, backwards: bool = False) -> int:
    """The steps beyond its length of looking for a part of such a length in a text.

    Python compares each place with the whole part in short texts, and for short parts; and always
    when it looks backwards. Else its time is like the lengths.
    """
    if part <= _SHORT_PART or part > text:
        return 0
    each = text < _SHORT_TEXT or (part < _MEDIUM_PART and text < _MEDIUM_TEXT)
    if not (each or backwards or part < _SHORT_PART + 2):
        return 0
    return (text - part + 1) * part // _COMPARED_PER_STEP


def steps_of_strip(text: int, characters: int) -> int:
    """The steps beyond its length of removing such a number of characters at the ends."""
    return text // 32 if characters <= _CHARACTERS_PER_ITEM else text // 8


_NESTED: Final = (list, tuple, dict)


def steps_of_levels(value: Any, depth: int = 0) -> int:
    """The steps beyond its size of finding which of two nested values is less.

    Each level looks for the first items that differ, and then the items' level does it again.
    """
    kind = type(value)
    if kind not in _NESTED:
        return 0
    steps = depth * (len(value) // 4 + 1)
    for item in value.values() if kind is dict else value:
        if type(item) in _NESTED:
            steps += steps_of_levels(item, depth + 1)
    return steps
