"""Find how deeply a record is nested, and its outermost fields, without decoding the rest.

Both work on any bytes in linear time, so that no record can exhaust a stack or a processor.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from streamydb.records.formats import UNREADABLE

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_STEP = np.zeros(256, dtype=np.int8)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1
_decode = msgspec.json.Decoder().decode


def deeper_than(raw: bytes, limit: int) -> bool:
    """Return True if arrays and objects are nested more than ``limit`` deep, counted outside
    strings.
    """
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False
    escapes = b"\\" in raw
    bare = _STRING.sub(b"", raw) if escapes else b"".join(raw.split(b'"')[::2])
    steps = _STEP[np.frombuffer(bare, dtype=np.uint8)]
    return bool(steps.size) and int(np.cumsum(steps, dtype=np.int64).max()) > limit


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
