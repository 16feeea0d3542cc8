"""The deadline in a record's bytes: they are compared without its digits.

Who sends a transaction again, and does not know which deadline it had, may set a new one. So two
payloads with one id are compared with the digits of their deadlines blanked out.
"""

from __future__ import annotations

import re

import msgspec

_NAME = "deadline_ms"
_QUOTED = b'"deadline_ms"'
_LAST = re.compile(rb'"deadline_ms"\s*:\s*([0-9]+)\s*\}\s*\Z')
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_NUMBER = re.compile(rb"\s*:\s*([-+0-9.eE]+)")


def deadline_span(raw: bytes) -> tuple[int, int]:
    """Find the digits of the deadline of a valid transaction: [start, end)."""
    last = _LAST.match(raw, max(raw.rfind(_QUOTED), 0))
    if last is not None:
        return last.span(1)
    depth, span = 0, (0, 0)
    for token in _TOKEN.finditer(raw):
        text = token.group()
        if text in (b"[", b"{"):
            depth += 1
        elif text in (b"]", b"}"):
            depth -= 1
        elif depth == 1 and (text == _QUOTED or _is_escaped(text)):
            number = _NUMBER.match(raw, token.end())
            span = span if number is None else number.span(1)
    return span


def identity(raw: bytes) -> bytes:
    """The bytes by which the payload of a valid transaction with a deadline is compared."""
    start, end = deadline_span(raw)
    return raw[:start] + b"0" * (end - start) + raw[end:]


def redated(payload: bytes, deadline_ms: int) -> bytes:
    """A valid transaction's payload with another deadline, if it has one."""
    start, end = deadline_span(payload)
    return payload if start == end else b"%s%d%s" % (payload[:start], deadline_ms, payload[end:])


def with_deadline(payload: bytes, deadline_ms: int) -> bytes:
    """A payload without a deadline, a JSON object with an id, with one."""
    return b'%s,"deadline_ms":%d}' % (payload.rstrip()[:-1], deadline_ms)


def _is_escaped(text: bytes) -> bool:
    """Return True if a JSON string with escapes is the field's name."""
    return b"\\" in text and msgspec.json.decode(text) == _NAME
