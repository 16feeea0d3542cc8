"""Writing the answer of a measurement to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from streamydb.local.file_lock import write_whole

__all__ = ["keep"]


def keep(answer: dict[str, Any], path: Path) -> None:
    """Write an answer to a file, whole or not at all."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(answer)) + b"\n")
