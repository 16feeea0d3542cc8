"""Logs of local processes: kept by number, shown by their end."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

LOGS_KEPT_MAX: Final = 5
"""How many logs of earlier starts stay beside the current one (`name.log.1` is the youngest)."""

LINES_SHOWN: Final = 15


def rotate(log: Path) -> None:
    """Move `x.log` to `x.log.1`, `x.log.1` to `x.log.2`, ...; the oldest is dropped."""
    for number in range(LOGS_KEPT_MAX, 0, -1):
        source = log if number == 1 else log.with_name(f"{log.name}.{number - 1}")
        with contextlib.suppress(FileNotFoundError):
            source.replace(log.with_name(f"{log.name}.{number}"))


def tail(path: Path, lines_max: int = 20, bytes_max: int = 65_536) -> list[str]:
    """Return the last lines of a log; none if the file is absent."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - bytes_max))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines_max:]


def end_of_log(log: Path, lines_max: int = LINES_SHOWN) -> str:
    """Return the last lines of a log, indented, under the log's name."""
    lines = tail(log, lines_max)
    body = "\n".join(f"  | {line}" for line in lines) if lines else "  | (empty)"
    return f"The end of {log}:\n{body}"
