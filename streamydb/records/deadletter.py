"""Dead letters: records that are no transaction, on ``<db>.deadletters``.

The record key is ``<partition>/<offset>``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

import msgspec

from streamydb.limits import DEAD_LETTER_PAYLOAD_BYTES_MAX
from streamydb.records.formats import record_decoder
from streamydb.records.result import Source


class DeadLetter(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A bad record: its place, reason code, and first bytes in base64.

    ``payload`` is null for a tombstone, and when a fault of ours came where the record's bytes are
    not at hand any more. ``error`` names a fault of ours (code ``internal``) by its type and a hash
    of where it was raised; else null.
    """

    seq: int
    ts_ms: int
    code: str
    id: str | None
    source: Source
    payload: str | None
    truncated: bool
    error: str | None


encode_dead_letter: Final[Callable[[DeadLetter], bytes]] = msgspec.json.Encoder().encode
decode_dead_letter: Final[Callable[[bytes], DeadLetter]] = record_decoder(DeadLetter, "dead-letter")
"""Return the dead letter in a record value. Raises RecordError: the bytes are not a dead letter."""


def dead_letter(
    raw: bytes | None,
    *,
    seq: int,
    ts_ms: int,
    code: str,
    id: str | None,  # noqa: A002 - the name on the wire
    source: Source,
    error: str | None = None,
) -> DeadLetter:
    head = None if raw is None else raw[:DEAD_LETTER_PAYLOAD_BYTES_MAX]
    return DeadLetter(
        seq=seq,
        ts_ms=ts_ms,
        code=code,
        id=id,
        source=source,
        payload=None if head is None else base64.b64encode(head).decode("ascii"),
        truncated=raw is not None and len(raw) > DEAD_LETTER_PAYLOAD_BYTES_MAX,
        error=error,
    )


def dead_letter_key(source: Source) -> bytes:
    return b"%d/%d" % (source.partition, source.offset)
