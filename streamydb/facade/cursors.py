"""Cursors of lists: the snapshot, the range, and the last key that was given.

A cursor is no secret and grants nothing: what it says is checked like any other parameter. Its
bytes are MessagePack, which escapes nothing: four keys of any characters fit in an address.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from streamydb.facade.problems import ProblemError
from streamydb.records.formats import UNREADABLE

__all__ = ["Cursor", "decode_cursor", "encode_cursor"]


class Cursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The place where a list goes on."""

    at: int
    prefix: str
    start: str | None
    end: str | None
    after: str


def encode_cursor(cursor: Cursor) -> str:
    """Return the text of a cursor, safe in a query."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode().rstrip("=")


def decode_cursor(text: str) -> Cursor:
    """Return the cursor in a text.

    Raises:
        ProblemError: invalid-parameter.
    """
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.msgpack.decode(data, type=Cursor)
    except (binascii.Error, ValueError, *UNREADABLE):
        raise _invalid() from None
    if cursor.at < 1:
        raise _invalid()
    return cursor


def _invalid() -> ProblemError:
    detail = "The cursor is not one that a list gave; begin again without it."
    return ProblemError("invalid-parameter", detail, parameters=["cursor"])
