"""A fork's own command and environment, where the system shows them (`ps`, `/proc`).

They lie in the memory in which the program was started. A fork has its parent's, so it writes its
own over them. Linux shows one text up to its end once the last byte of the arguments' room is not
zero (`setproctitle` relies on that, too); the words are then parted by spaces.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOM: Final = "STREAMYDB_ROOM"
"""A variable of a process that forks others: it only takes room for what these write over it."""

ROOM_BYTES: Final = 16_384

_SHOWN_BYTES_MAX: Final = 4_095
"""Linux shows one page of such a text."""

_ADDRESSES: Final = slice(45, 49)
"""Among the fields of a process's `stat` that follow its name: the beginning and the end of its
arguments, and of its environment."""


class _Room(NamedTuple):
    """The addresses of a process's arguments, and of the environment right behind them."""

    arguments: int
    arguments_end: int
    environment: int
    environment_end: int


def take_title(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have the system show this command and environment as those of this process.

    What of the environment finds no room is left out, from its end; before it the end of a command
    may be shown that is longer than the parent's. Elsewhere than on Linux, the parent's stay.
    Python must have copied them: `os.environ` has been given new values.
    """
    room = _room() if sys.platform == "linux" else None
    if room is None:
        return
    size = room.environment_end - room.arguments
    text = b" ".join(map(os.fsencode, command))[: min(_SHOWN_BYTES_MAX, size - 2)]
    data = bytearray(text.ljust(room.arguments_end - room.arguments - 1, b"\0"))
    data += b"." if len(data) == room.arguments_end - room.arguments - 1 else b"\0"
    for name, value in environment.items():
        entry = os.fsencode(f"{name}={value}\0")
        if len(data) + len(entry) > size:
            break
        data += entry
    ctypes.memmove(room.arguments, bytes(data.ljust(size, b"\0")), size)


def _room() -> _Room | None:
    """Return where the system has them; None if it does not tell, or parts them."""
    try:
        stat = Path("/proc/self/stat").read_bytes()
    except OSError:
        return None
    room = _Room(*map(int, stat.rpartition(b")")[2].split()[_ADDRESSES]))
    whole = 0 < room.arguments < room.arguments_end == room.environment < room.environment_end
    return room if whole else None
