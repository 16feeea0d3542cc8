"""Format versions of JSON records: absent means 1, and a later one is refused.

Every decoder of a record refuses fields that it does not know; this says why, where the record
names a later format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from streamydb.errors import RecordError

_T = TypeVar("_T")

FORMAT: Final = 1
"""Version of all records on the wire; a record of a later one has the field ``format``."""

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises on bytes that are no such record: text that is no UTF-8, and nesting that is
too deep, have errors of Python's own.
"""


def decoded(decode: Callable[[bytes], _T], data: bytes) -> _T | None:
    """Return what a decoder makes of some bytes; None: they are no such record."""
    try:
        return decode(data)
    except UNREADABLE:
        return None


def record_decoder(kind: Any, what: str) -> Callable[[bytes], Any]:
    """Return a function that decodes the records of a kind.
    It raises RecordError: the bytes are no such record; ``what`` they are not.
    """
    decode = msgspec.json.Decoder(kind).decode

    def decode_record(value: bytes) -> Any:
        try:
            return decode(value)
        except UNREADABLE as fault:
            raise not_read(value, what, fault) from fault

    return decode_record


class _Formatted(msgspec.Struct):
    format: int = FORMAT


_decode = msgspec.json.Decoder(_Formatted).decode


def later_format(value: bytes) -> int | None:
    """The format of a JSON object, if it is another one than ours."""
    record = decoded(_decode, value)
    return None if record is None or record.format == FORMAT else record.format


def not_read(value: bytes, what: str, fault: Exception) -> RecordError:
    """Why a record cannot be read: it is of a later format, or no such record at all."""
    number = later_format(value)
    if number is None:
        return RecordError(f"Not a {what} record ({fault}); is this a {what}s topic?")
    return RecordError(
        f"This {what} record has format {number}, this release reads {FORMAT}: use the release "
        "that wrote it, or a newer one (docs/upgrading.md)"
    )
