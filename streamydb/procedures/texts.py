"""Texts as Unicode 14.0 has them, the version of Python 3.11, on every Python.

A later Python knows more characters: `upper` would change them, `isalpha` accept them, `repr` show
them, and a log would mean something else. So what Unicode 14.0 does not assign stays without a
meaning: functions that look at tables are shown a noncharacter (or a surrogate) in its place, of
which Unicode promises that it will never mean anything. A few characters of 14.0 got an upper-case
form later, or are no lower-case letters any more; they are shown as one that has none and will get
none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from streamydb.procedures.meter import TEXT_PER_STEP, Meter
from streamydb.procedures.sets import OrderedSet
from streamydb.procedures.unicode14 import UNASSIGNED


def _unassigned() -> bytes:
    """One byte for each code point: 1 where Unicode 14.0 does not assign it."""
    table = bytearray(0x110000)
    for run in UNASSIGNED.split():
        first, _, last = run.partition("-")
        begin, end = int(first, 16), int(last or first, 16) + 1
        table[begin:end] = b"\1" * (end - begin)
    return bytes(table)


CHARACTERS_PER_STEP: Final = 8
"""Characters beyond ASCII that one step looks up."""

_LATER: Final = _unassigned()
_RECASED: Final = frozenset("\u019b\u0264\u0277\u027c\u0295\ua7d3\ua7d5\uab4b\uab4c")
_NOTHING: Final = tuple(map(chr, (*range(0xFDD0, 0xFDF0), *range(0xD800, 0xE000))))
_UNCASED: Final = tuple("ªº\u0138\u018d\u01aa\u01ab\u01ba\u0221\u0234\u0235\u0236\u0237\u0238")


def pinned(function: Callable[..., Any], text: str, *args: Any) -> Any:
    """A method of texts, with the tables of Unicode 14.0.
    Raises ValueError: there are too many different characters that a later version has changed.
    """
    if text.isascii() and not args:
        return function(text)
    given = text + "".join(arg for arg in args if type(arg) is str)
    if given.isascii():
        return function(text, *args)
    characters = set(given)  # a text has few different characters, and each is looked up once
    later, recased = _later(characters), characters & _RECASED
    if not (later or recased):
        return function(text, *args)
    shown = _stand_ins(later, _NOTHING, characters) | _stand_ins(recased, _UNCASED, characters)
    there = str.maketrans(shown)
    back = str.maketrans({stand_in: mark for mark, stand_in in shown.items()})
    called = (arg.translate(there) if type(arg) is str else arg for arg in args)
    found = function(text.translate(there), *called)
    if type(found) is str:
        return found.translate(back)
    return [part.translate(back) for part in found] if type(found) is list else found


def _later(characters: set[str]) -> set[str]:
    """Return those that Unicode 14.0 does not assign."""
    return {each for each in characters if _LATER[ord(each)]}


def _stand_ins(marks: set[str], pool: tuple[str, ...], taken: set[str]) -> dict[str, str]:
    """Return a substitute for each of the ``marks``, which is not among those that are
    ``taken``.
    """
    found = sorted(marks.difference(pool))
    free = [each for each in pool if each not in taken]
    if len(found) > len(free):
        raise ValueError("too many characters that Unicode 14.0 does not have")
    return dict(zip(found, free, strict=False))


def pinned_repr(value: Any) -> str:
    """`repr`, which escapes what Unicode 14.0 cannot print."""
    text = repr(value)
    later = set() if text.isascii() else _later(set(text))
    return text.translate({ord(each): _escaped(ord(each)) for each in later}) if later else text


def _escaped(point: int) -> str:
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def require_known(text: str) -> str:
    """The text of a number, whose digits and spaces Unicode 14.0 has.
    Raises ValueError: it has other characters, which are no digits.
    """
    if not text.isascii() and _later(set(text)):
        raise ValueError("not a number")
    return text


# Python looks for the last place of a text, and for a character among many, by comparing each with
# each. The results are those of Python.
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


_FORMAT: Final = re.compile(r"[<>=^]?[ +-]?0?([0-9]{0,4})[,_]?(?:\.([0-9]{1,3}))?[bcdeEfFgGosxX%]?")
_WIDTH_MAX: Final = 1000
_WORDS: Final = 1 << 63
"""The text of an integer below it takes one step."""


class TextMeter(Meter):
    """A meter that makes texts."""

    __slots__ = ()

    def joined(self, *parts: str) -> str:
        """An f-string of finished parts."""
        self.left -= sum(map(len, parts)) // TEXT_PER_STEP + 1
        if self.left < 0:
            self.exceed("steps")
        return "".join(parts)

    def formatted(self, value: Any, conversion: int, spec: str) -> str:
        """One value of an f-string."""
        if type(value) is int and not spec and conversion == -1 and -_WORDS < value < _WORDS:
            self.left -= 1
            if self.left < 0:
                self.exceed("steps")
            return repr(value)
        if conversion != -1 or (spec == "" and type(value) is not str):
            value = self.shown(value, quoted=conversion in (97, 114))
        if not spec:
            return str(value)
        if type(value) not in (str, int, float, bool):
            raise TypeError("only texts and numbers have formats")
        found = _FORMAT.fullmatch(spec)
        if found is None or int(found[1] or 0) > _WIDTH_MAX:
            raise ValueError("a format has a width up to 1000 and no fill")
        self.integer(value)
        if type(value) is int:
            self.charge(value.bit_length() // 128)
        elif type(value) is float:
            self.charge(int(found[2] or 0) // 16)
        return format(value, spec)

    def shown(self, value: Any, *, quoted: bool = False) -> str:
        """The text of data."""
        kind = type(value)
        if kind is str and not quoted:
            return str(value)
        if kind is OrderedSet:
            raise TypeError("a set has no text; take a list")
        if type(self.integer(self.walk(value))) is int:
            self.charge(value.bit_length() // 128)
        least = self._spread(value)
        if least // TEXT_PER_STEP >= self.left:  # it is not made just to be refused
            self.text(least)
        text = pinned_repr(value)
        self.text(len(text))
        if not text.isascii() or "\\u" in text or "\\U" in text:
            self.charge(len(text) // CHARACTERS_PER_STEP)
        return text

    def _spread(self, value: Any) -> int:
        """The characters that the text of the value has at least;
        no integer is too long to show.
        """
        if type(value) in (list, tuple, dict):
            pairs = [*value, *value.values()] if type(value) is dict else value
            least = 0
            for item in pairs:
                if type(item) is OrderedSet:
                    raise TypeError("a set has no text; take a list")
                least += self._spread(self.integer(item))
            self.charge(len(value) // 4)
            return least
        if type(value) is float:
            self.charge(1)
        elif type(value) is int:
            self.charge(value.bit_length() // 64)
            return value.bit_length() * 3 // 10
        return 0
