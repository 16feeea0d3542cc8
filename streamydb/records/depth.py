"""Find how deeply a record is nested, and its outermost fields, without decoding the rest.

Both work on any bytes in linear time, so that no record can exhaust a stack or a processor.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

import msgspec

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
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(raw):
        text = token.group()
        if text in (b"[", b"{"):
            depth += 1
            if depth == 2:
                kept += raw[start : token.start()], b"null"
        elif text in (b"]", b"}"):
            depth -= 1
            if depth == 1:
                start = token.end()
    kept.append(raw[start:])
    try:
        outer = _decode(b"".join(kept))
    except UNREADABLE:
        return None
    return outer.get(name) if isinstance(outer, dict) else None
