"""Stand-ins for records of an old log that no new log takes (pure).

A log takes no batch above `RECORD_BYTES_MAX`, unpacked; one whose setting was changed takes a
packed one. Such a record is rejected as too large, whatever it says. Its stand-in gets the same
verdict, and the same dead letter: that shows the id and the first bytes of the record.
"""

from __future__ import annotations

import hashlib
from itertools import product
from typing import Final

import msgspec

from streamydb.backup.manifest import BackupError
from streamydb.limits import DEAD_LETTER_PAYLOAD_BYTES_MAX, DEPTH_MAX, TRANSACTION_BYTES_MAX
from streamydb.records.rejection import Rejection, explain
from streamydb.records.values import outermost_field

FITTING_BYTES_MAX: Final = 1_048_000
"""Key and value of a record that fits into a batch of the largest size."""

_SMALLEST_ROOM: Final = 1_040_000
_MORE_BYTES: Final = 16
_TEXT_ENDS: Final = (b"", b'"', b'\\"')
_FIELD_ENDS: Final = (b"", b":0", b"0", b'"":0')
"""Bytes that end a text, and a field, that the first bytes of a record leave open."""


def fitting(key: bytes | None, value: bytes | None) -> bytes | None:
    """Return the value of a record, or that of its stand-in if a new log does not take it.
    Raises BackupError: it needs one, and there is none with its id.
    """
    room = FITTING_BYTES_MAX - len(key or b"")
    if value is None or len(value) <= room:
        return value
    rejection = explain(value)
    if not isinstance(rejection, Rejection) or rejection.id is None:
        return value[:room]  # it has no id either, as it breaks off
    return _named(value, rejection.id)


def _named(value: bytes, name: str) -> bytes:
    """Return a value with the id and the first bytes of another one, just too large.

    Blanks fill it. Their number, of the record's hash, tells two records with one id apart.
    """
    digest = int.from_bytes(hashlib.blake2b(value, digest_size=8).digest())
    size = TRANSACTION_BYTES_MAX + 1 + digest % (_SMALLEST_ROOM - TRANSACTION_BYTES_MAX)
    whole = value[:DEAD_LETTER_PAYLOAD_BYTES_MAX].rstrip()
    if outermost_field(whole, "id") == name:  # what follows is blank, too
        return whole.ljust(size)
    tail = b"," + msgspec.json.encode({"id": name})[1:-1]
    heads = (value[: DEAD_LETTER_PAYLOAD_BYTES_MAX + more] for more in range(_MORE_BYTES))
    nestings = range(DEPTH_MAX + 1)
    for head, text, depth, field in product(heads, _TEXT_ENDS, nestings, _FIELD_ENDS):
        beginning = head + text + b"}" * depth + field + tail
        if outermost_field(beginning + b"}", "id") == name:
            return beginning.ljust(size - 1) + b"}"
    raise BackupError(
        f"the transaction {name!r} has {len(value):,} bytes, a new log takes {FITTING_BYTES_MAX:,},"
        " and no shorter record has its id and its beginning: please report it"
    )
