"""Results that are known without execution: of plain commits, and of copies of an original."""

from __future__ import annotations

import msgspec

Position = tuple[int, int, int, int]
"""Where a record lies: seq, effective time in ms, partition, offset."""

_text = msgspec.json.Encoder().encode


def plain_result(id_: bytes, position: Position) -> bytes:
    """Return the result of a transaction that committed and read nothing."""
    seq, ts, part, off = position
    return (
        b'{"id":%b,"seq":%d,"ts_ms":%d,"status":"committed","reads":{},"failed":[],"code":null,'
        b'"source":{"partition":%d,"offset":%d}}'
        % (_text(id_.decode() or None), seq, ts, part, off)
    )


def copy_of(original: bytes, position: Position) -> bytes:
    """Return the original's result with the position of its copy."""
    copy = b',"duplicate":{"seq":%d,"ts_ms":%d,"partition":%d,"offset":%d}}' % position
    return original[:-1] + copy
