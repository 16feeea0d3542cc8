"""Open blocks: their headers, and that their format is one that is read."""

from __future__ import annotations

from typing import Any

from streamydb.columns.encoding import Stored, peel
from streamydb.columns.protocol import require_format
from streamydb.columns.table import Array

__all__ = ["open_block", "open_header"]


def open_header(block: bytes) -> tuple[dict[str, Any], Stored]:
    """Decode the header of a block and check its format; its arrays can be decoded later.

    Raises:
        InvariantViolation: the block was written by a release with another format.

    """
    header, stored = peel(block)
    require_format(header)
    return header, stored


def open_block(block: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Decode a block and check its format.

    Raises:
        InvariantViolation: the block was written by a release with another format.

    """
    header, stored = open_header(block)
    return header, stored.arrays()
