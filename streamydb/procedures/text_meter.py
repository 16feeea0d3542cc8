"""The texts that a procedure makes of values (f-strings, `str`, `repr`), each with its charge."""

from __future__ import annotations

import re
from typing import Any, Final

from streamydb.procedures.meter import TEXT_PER_STEP, Meter
from streamydb.procedures.sets import OrderedSet
from streamydb.procedures.texts import CHARACTERS_PER_STEP, pinned_repr

__all__ = ["TextMeter"]

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
