"""Writing the answer of a measurement to a file."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import msgspec

from bench.errors import BenchError
from streamydb.local.file_lock import write_whole

__all__ = ["keep", "require_place"]


def require_place(path: Path) -> None:
    """See to it, before hours are measured, that an answer could be written to a file.

    Raises:
        BenchError: it could not.
    """
    if path.is_dir():
        raise BenchError(f"{path} is a folder: name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise BenchError(f"{path} could not be written: {error.strerror}") from None


def keep(answer: dict[str, Any], path: Path) -> None:
    """Write an answer to a file, whole or not at all."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(answer)) + b"\n")
