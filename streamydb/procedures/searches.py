"""Methods of texts that take long in Python when both texts are long, in a time like their length.

Python looks for the last place of a text, and for a character among many, by comparing each with
each. The results are those of Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

SHORT: Final = 64
"""Shorter texts are left to Python."""


def _is_long(args: tuple[Any, ...]) -> bool:
    return bool(args) and type(args[0]) is str and len(args[0]) > SHORT


def _rfind(text: str, *args: Any) -> int:
    if not _is_long(args) or len(args) > 3:
        return text.rfind(*args)
    part, start, end = (*args, None, None)[:3]
    first, behind, _ = slice(start, end).indices(len(text))
    found = text[first:behind][::-1].find(part[::-1])
    return -1 if found < 0 else behind - found - len(part)


def _rindex(text: str, *args: Any) -> int:
    found = _rfind(text, *args)
    if found < 0:
        raise ValueError("substring not found")
    return found


def _rpartition(text: str, *args: Any) -> tuple[str, str, str]:
    if not _is_long(args) or len(args) > 1:
        return text.rpartition(*args)
    found = _rfind(text, *args)
    return ("", "", text) if found < 0 else (text[:found], args[0], text[found + len(args[0]) :])


def _rsplit(text: str, *args: Any) -> list[str]:
    if not _is_long(args):
        return text.rsplit(*args)
    parts = text[::-1].split(args[0][::-1], *args[1:])
    return [part[::-1] for part in reversed(parts)]


def _stripped(name: str, *, left: bool, right: bool) -> Callable[..., str]:
    function = getattr(str, name)

    def call(text: str, *args: Any) -> str:
        if not _is_long(args) or len(args) > 1:
            return function(text, *args)  # type: ignore[no-any-return]
        gone = set(args[0])
        start, end = 0, len(text)
        while left and start < end and text[start] in gone:
            start += 1
        while right and start < end and text[end - 1] in gone:
            end -= 1
        return text[start:end]

    return call


SEARCHES: Final[dict[str, Callable[..., Any]]] = {
    "rfind": _rfind, "rindex": _rindex, "rpartition": _rpartition, "rsplit": _rsplit,
    "strip": _stripped("strip", left=True, right=True),
    "lstrip": _stripped("lstrip", left=True, right=False),
    "rstrip": _stripped("rstrip", left=False, right=True),
}  # fmt: skip
"""By the name of the method; called with the text and the method's arguments."""
