"""Epoch markers, which a sequencer appends to every partition (docs/semantics.md, order).

Wire form, exactly these fields: ``{"marker": <ms>, "partitions": <n>, "sequencer": "<name>"}``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from streamydb.limits import MARKER_NUMBER_MAX, PARTITIONS_MAX, TRANSACTION_BYTES_MAX
from streamydb.records.formats import decoded


class Marker(msgspec.Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """A marker: its number (ms), the number of partitions that it closes, and who wrote it."""

    marker: Annotated[int, msgspec.Meta(ge=0, le=MARKER_NUMBER_MAX)]
    partitions: Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)]
    sequencer: str


encode_marker: Final[Callable[[Marker], bytes]] = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Marker).decode


def decode_marker(raw: bytes | None) -> Marker | None:
    """The marker in a record value, or None when the record is anything else. Never raises."""
    if not raw or len(raw) > TRANSACTION_BYTES_MAX:
        return None
    if b"marker" not in raw and b"\\" not in raw:
        return None
    return decoded(_decode, raw)
