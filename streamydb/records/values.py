"""Values: JSON in one canonical form, so that equality is equality of bytes.

Canonical bytes have no whitespace, object keys sorted by code point, text as UTF-8 with only the
escapes that JSON requires, floats that are whole and at most 2**53 in magnitude written as integers
(``1.0`` is ``1``, ``-0.0`` is ``0``), other floats in their shortest form, integers within 64 bits.
"""

from __future__ import annotations

import math
import re
from itertools import accumulate
from typing import Any

import msgspec

from streamydb.errors import INVALID_JSON, NUMBER_RANGE, TOO_DEEP, ValueRejected
from streamydb.limits import DEPTH_MAX, INTEGER_MAX, INTEGER_MIN, INTEGRAL_FLOAT_MAX
from streamydb.records.formats import UNREADABLE

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_BRACKETS = b"[{]}"
_OTHERS = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = bytes.maketrans(_BRACKETS, b"\x01\x01\xff\xff")
"""Turns brackets into +1 and -1, as signed bytes."""
_decode = msgspec.json.Decoder().decode


def deeper_than(raw: bytes, limit: int) -> bool:
    """Return True if arrays and objects are nested more than ``limit`` deep, counted outside
    strings.
    """
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False
    escapes = b"\\" in raw
    bare = _STRING.sub(b"", raw) if escapes else b"".join(raw.split(b'"')[::2])
    steps = memoryview(bare.translate(_STEPS, _OTHERS)).cast("b")
    return max(accumulate(steps), default=0) > limit


def outermost_field(raw: bytes, name: str) -> Any:
    """The text or number in field ``name`` of the outermost object; None if there is none.

    Whatever is nested in the object counts as null, without a look at its syntax.
    """
    parts: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(raw):
        text = token.group()
        if text in (b"[", b"{"):
            depth += 1
            if depth == 2:
                parts += raw[start : token.start()], b"null"
        elif text in (b"]", b"}"):
            depth -= 1
            if depth == 1:
                start = token.end()
    parts.append(raw[start:])
    try:
        outer = _decode(b"".join(parts))
    except UNREADABLE:
        return None
    return outer.get(name) if isinstance(outer, dict) else None


_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode
_PLAIN = {str, bool, type(None)}
_NESTED = {dict, list, tuple}
_ATOMS = {None: b"null", True: b"true", False: b"false"}


def canonical(value: Any) -> bytes:
    """Canonical bytes of a JSON value given as Python objects (null included).
    Raises ValueRejected: with code ``number-range``, ``too-deep``, or ``invalid-json`` (NaN,
    infinities, lone surrogates, objects that are not JSON).
    """
    kind = type(value)
    try:
        if kind is str:
            return _encode(value)
        if kind is int:
            if INTEGER_MIN <= value <= INTEGER_MAX:
                return b"%d" % value
            raise _out_of_range()
        if kind is bool or value is None:
            return _ATOMS[value]
        if kind in _NESTED and _is_normal(value, 1):
            return _encode_sorted(value)
        return _encode_sorted(_normal(value, 1))
    except UnicodeEncodeError:
        raise ValueRejected(
            INVALID_JSON, "Text has a lone surrogate; send valid Unicode."
        ) from None


encode_normal = _encode_sorted
"""As `canonical`, of a list or map that has nothing in it which is written in another form.

A text that has a lone surrogate is a UnicodeEncodeError.
"""


def decode_value(data: bytes) -> Any:
    """Python objects of a value's canonical bytes (anything else: msgspec's errors)."""
    return _decode(data)


def canonical_number(number: float) -> int | float:
    """The canonical form of a number: an integer when it is whole and small enough, else the float.
    Raises ValueRejected: code ``number-range`` or ``invalid-json`` (NaN and infinities).
    """
    if isinstance(number, int):
        if INTEGER_MIN <= number <= INTEGER_MAX:
            return number
        raise _out_of_range()
    if not math.isfinite(number):
        raise ValueRejected(INVALID_JSON, "NaN and infinities are not JSON; send a finite number.")
    if -INTEGRAL_FLOAT_MAX <= number <= INTEGRAL_FLOAT_MAX and number.is_integer():
        return int(number)
    return number


def is_number(value: Any) -> bool:
    """Return True if a decoded value is a JSON number (true and false are not)."""
    kind = type(value)
    return kind is int or kind is float


def _normal(value: Any, depth: int) -> Any:
    """The value with canonical numbers in it, checked to be JSON and not too deep."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int or kind is float:
        return canonical_number(value)
    if depth > DEPTH_MAX:
        raise ValueRejected(
            TOO_DEEP, f"The value is nested more than {DEPTH_MAX} deep; flatten it."
        )
    if kind is list or kind is tuple:
        return [
            item
            if type(item) in _PLAIN or (type(item) is int and INTEGER_MIN <= item <= INTEGER_MAX)
            else _normal(item, depth + 1)
            for item in value
        ]
    if kind is dict and _has_text_names(value):
        return {
            name: item
            if type(item) in _PLAIN or (type(item) is int and INTEGER_MIN <= item <= INTEGER_MAX)
            else _normal(item, depth + 1)
            for name, item in value.items()
        }
    raise ValueRejected(
        INVALID_JSON, f"A {kind.__name__} is not JSON; send text, numbers, lists or maps."
    )


def _is_normal(value: Any, depth: int) -> bool:
    """Return True if a list or map has nothing in it that is written in another form, or not at
    all; False also if that is not found out here.
    """
    if depth > DEPTH_MAX:
        return False
    if type(value) is dict:
        if not _has_text_names(value):
            return False
        value = value.values()
    for item in value:
        kind = type(item)
        if kind is int:
            if not INTEGER_MIN <= item <= INTEGER_MAX:
                return False
        elif kind not in _PLAIN and not (kind in _NESTED and _is_normal(item, depth + 1)):
            return False
    return True


def _has_text_names(value: dict[Any, Any]) -> bool:
    for name in value:
        if type(name) is not str:
            return False
    return True


def _out_of_range() -> ValueRejected:
    return ValueRejected(NUMBER_RANGE, "An integer does not fit in 64 bits; send it as text.")
