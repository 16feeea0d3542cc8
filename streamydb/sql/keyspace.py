"""Choose the keys that a scan must read: those that the asker may see and the query's filter
leaves.

Only narrowing: DuckDB's whole filter is applied to the rows as well, so a part of it that is not
understood here costs time and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow.compute as pc

_PAST = "\0"
"""The smallest key after a key is the key with this behind it."""

_COMPARISON = re.compile(r'\(key (==|>=|<=|>|<) "((?:[^"\\]|\\.)*)"\)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SAME = {"n": "\n", "t": "\t", "r": "\r"}


class ScanBounds(NamedTuple):
    """Keys from `start` on, before `end` (None: to the last)."""

    start: str = ""
    end: str | None = None

    def both(self, other: ScanBounds) -> ScanBounds:
        ends = [end for end in (self.end, other.end) if end is not None]
        return ScanBounds(
            max(self.start, other.start, key=str.encode),
            min(ends, key=str.encode) if ends else None,
        )


def within(prefix: str, scopes: Iterable[str]) -> list[str]:
    """Return the prefixes of all keys that begin with ``prefix`` and with a scope; none covers
    another.
    """
    scopes = list(scopes)
    if any(prefix.startswith(scope) for scope in scopes):
        return [prefix]
    narrower = sorted({scope for scope in scopes if scope.startswith(prefix)}, key=str.encode)
    prefixes: list[str] = []
    for scope in narrower:
        if not prefixes or not scope.startswith(prefixes[-1]):
            prefixes.append(scope)
    return prefixes


def range_of(condition: Any) -> ScanBounds:
    """A range that has all keys for which an Arrow expression holds."""
    bounds = ScanBounds()
    for part in _conjuncts(str(condition)) if condition is not None else ():
        match = _COMPARISON.fullmatch(part)
        if match is None:
            continue
        operator, bound = match[1], _ESCAPED.sub(lambda m: _SAME.get(m[1], m[1]), match[2])
        if str(_expression(operator, bound)) == part:  # it was read right
            bounds = bounds.both(_range(operator, bound))
    return bounds


def _range(operator: str, bound: str) -> ScanBounds:
    if operator == "==":
        return ScanBounds(bound, bound + _PAST)
    if operator in {">", ">="}:
        return ScanBounds(bound + _PAST if operator == ">" else bound)
    return ScanBounds("", bound + _PAST if operator == "<=" else bound)


def _expression(operator: str, bound: str) -> Any:
    key = pc.field("key")
    if operator == "==":
        return key == bound
    if operator in {">", ">="}:
        return key > bound if operator == ">" else key >= bound
    return key <= bound if operator == "<=" else key < bound


def _conjuncts(text: str) -> Iterator[str]:
    """The parts of an expression's text that must all hold."""
    at = _conjunction(text)
    if at is None:
        yield text
    else:
        yield from _conjuncts(text[1:at])
        yield from _conjuncts(text[at + len(" and ") : -1])


def _conjunction(text: str) -> int | None:
    """Find the `and` of `(… and …)`; None if the text is something else."""
    if not (text.startswith("(") and text.endswith(")")):
        return None
    depth, quoted, skip, position = 0, False, False, None
    for place, character in enumerate(text):
        if skip:
            skip = False
        elif quoted:
            skip = character == "\\"
            quoted = character != '"'
        elif character == '"':
            quoted = True
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0 and place < len(text) - 1:
                return None
        elif depth == 1 and position is None and text.startswith(" and ", place):
            position = place
    return position
