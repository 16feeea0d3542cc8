"""Logs of local processes: kept by number, kept short, shown by their end."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Final

LOGS_KEPT_MAX: Final = 5
"""How many logs of earlier starts stay beside the current one (`name.log.1` is the youngest)."""

LINES_SHOWN: Final = 15

LOG_BYTES_MAX: Final = 64 << 20
"""How long a log may get while its process runs."""

OUTPUT: Final = "STREAMYDB_OUTPUT"
"""Names the log of a process that is to keep it short itself, as nobody else watches it."""

_STANDARD_OUTPUT: Final = 1
_LOOK_S: Final = 60.0


def rotate(log: Path, first: int = 0) -> None:
    """Move `x.log` to `x.log.1`, `x.log.1` to `x.log.2`, ...; the oldest is dropped.

    ``first``: the number of the first one that is moved.
    """
    for number in range(LOGS_KEPT_MAX, first, -1):
        source = log if number == 1 else log.with_name(f"{log.name}.{number - 1}")
        with contextlib.suppress(FileNotFoundError):
            source.replace(log.with_name(f"{log.name}.{number}"))


def keep_short() -> None:
    """Keep the log of this process short from now on, if whoever started it has asked for that."""
    named = os.environ.get(OUTPUT)
    if named is not None:
        name = "streamydb-output"
        threading.Thread(target=_keep_short, args=[Path(named)], name=name, daemon=True).start()


def _keep_short(log: Path) -> None:
    while True:
        time.sleep(_LOOK_S)
        with contextlib.suppress(OSError):  # a full disk, say; it is tried again
            shorten(log)


def shorten(log: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Copy the log of this process to `x.log.1` and empty it, if it is too long.

    Whoever writes to it goes on, since all append. What is written between the two steps is lost.

    Raises:
        OSError: it cannot be copied.
    """
    output = os.fstat(_STANDARD_OUTPUT)
    if output.st_size <= bytes_max or not os.path.samestat(output, log.stat()):
        return
    rotate(log, first=1)
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)


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
