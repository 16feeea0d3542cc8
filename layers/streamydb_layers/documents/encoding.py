"""Values as text that sorts like them: the order of encoded keys is the order of values.

Values are null, booleans, numbers and texts, in this order. Numbers compare by their exact value,
integers of 64 bits with floats too: a number is the largest double that is not above it, as hex
digits that sort like it, and what the integer has above that. Texts compare by code point, which is
the order of their UTF-8 bytes; spaces and what is below are escaped, so that a space ends a text.
An encoded value is never the beginning of another one, so that several can follow each other, and
what follows one is an ASCII digit or a slash. Descending values have complemented digits.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from streamydb.client import first_behind
from streamydb.limits import INTEGER_MAX, INTEGER_MIN

Scalar: TypeAlias = bool | int | float | str | None

AFTER: Final = ":"
"""Sorts after all that follows an encoded value."""

_NULL, _FALSE, _TRUE, _NUMBER, _TEXT = range(5)
_LOW: Final = re.compile("[\x00-!]")
_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1
_REST_DIGITS: Final = 3


def is_scalar(value: Any) -> bool:
    """Return True if a value can be in an index."""
    if isinstance(value, int) and not isinstance(value, bool):
        return INTEGER_MIN <= value <= INTEGER_MAX
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | str)


def encode(values: Sequence[Scalar], descending: Sequence[bool]) -> str:
    """The text of some values, each ascending or descending.

    Args:
        values: as many as the fields that are given, from the first on.
        descending: for each field of the index.
    """
    return "".join(_one(value, down=down) for value, down in zip(values, descending, strict=False))


def texts_with(prefix: str, *, descending: bool) -> tuple[str, str]:
    """The range of the encodings of all texts that begin with ``prefix``: [start, end)."""
    start = _tag(_TEXT, down=descending) + _text(prefix, down=descending)
    return start, first_behind(start) or ""


def bracket(value: Scalar, *, descending: bool) -> tuple[str, str]:
    """The range of the encodings of all values that compare with this one: [start, end)."""
    kinds = [_kind(value)]
    if kinds[0] in (_FALSE, _TRUE):
        kinds = [_FALSE, _TRUE]
    tags = sorted(_tag(kind, down=descending) for kind in kinds)
    return tags[0], chr(ord(tags[-1]) + 1)


def _one(value: Scalar, *, down: bool) -> str:
    kind = _kind(value)
    tag = _tag(kind, down=down)
    if isinstance(value, str):
        return tag + _text(value, down=down) + ("~" if down else " ")
    if kind == _NUMBER:
        return tag + _number(value or 0, down=down)
    return tag


def _kind(value: Scalar) -> int:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    return _TEXT if isinstance(value, str) else _NUMBER


def _tag(kind: int, *, down: bool) -> str:
    return str(9 - kind if down else kind)


def _text(text: str, *, down: bool) -> str:
    if down:
        return bytes(0xFF - byte for byte in text.encode()).hex()
    return _LOW.sub(lambda found: "!" + chr(ord(found[0]) + 0x40), text)


def _number(number: float, *, down: bool) -> str:
    double = _not_above(number) + 0.0  # -0.0 + 0.0 is 0.0
    rest = int(number) - int(double) if isinstance(number, int) else 0
    (bits,) = struct.unpack(">Q", struct.pack(">d", double))
    digits = (bits ^ _ALL) if bits & _SIGN else (bits | _SIGN)
    if down:
        digits, rest = digits ^ _ALL, 16**_REST_DIGITS - 1 - rest
    return f"{digits:016x}{rest:0{_REST_DIGITS}x}"


def _not_above(number: float) -> float:
    """The largest double that is not above a number."""
    double = float(number)
    if isinstance(number, int) and int(double) > number:
        return math.nextafter(double, -math.inf)
    return double
