"""The blocks that carry payloads and grants of single transactions, and their feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamydb.columns.encoding import pack
from streamydb.columns.protocol import FORMAT
from streamydb.key_processor.locking.messages import (
    Granted,
    MessagePart,
    Payload,
    Released,
    encode_list,
)

__all__ = ["released_block", "single_block", "swept_block"]


def single_block(
    header: Mapping[str, Any], payloads: list[Payload], grants: list[Granted]
) -> bytes:
    """Encode the payloads and grants that a shard sends to an executing partition.

    The header names the life and the step of the shard, and ``feedback_bytes_max``.
    """
    lists = {"payloads": encode_list(payloads), "grants": encode_list(grants)}
    return pack({}, **header, **lists, kind="single", format=FORMAT)


def swept_block(header: Mapping[str, Any]) -> bytes:
    """Tell all shards up to which seq a shard has told the removals of what has ended.

    The header names incarnation, shard, life, step and ``swept``.
    """
    return pack({}, **header, kind="swept", format=FORMAT)


def released_block(
    header: Mapping[str, int | str], rows: list[Released], parts: list[MessagePart]
) -> bytes:
    """Feedback of single transactions to one shard.

    The header names incarnation, shard, and the life and step in which they were executed; and
    ``ends``: some wrote what ends.
    """
    lists = {"rows": encode_list(rows), "parts": encode_list(parts)}
    return pack({}, **header, **lists, kind="released", format=FORMAT)
