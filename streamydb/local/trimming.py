"""A Python process gives memory back when it has nothing to do.

What it has freed stays with its allocators: glibc gives back the end of a heap alone, and Arrow
keeps what it may need again. After a load that is a hundred megabytes in each process. So a thread
looks every few seconds how much processor time the process has used. When it has worked, and is
idle now, both give back what they do not need.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_ARENAS: Final = "MALLOC_ARENA_MAX"
_ARENAS_MAX: Final = "2"

_LOOK_S: Final = 10.0
_IDLE_PART: Final = 0.01
"""A process that used less of a processor than this is idle."""

_WORKED_S: Final = 1.0
"""So much processor time must have been used since the last time, or there is little to gain."""


def few_arenas() -> dict[str, str]:
    """Return the environment of a process whose threads share two arenas of glibc's.

    By default each thread that allocates gets an arena of its own, whose freed blocks nobody else
    uses, and hundreds of megabytes lie idle. What the user has set stays.
    """
    return {_ARENAS: os.environ.get(_ARENAS, _ARENAS_MAX)}


class Usage(NamedTuple):
    """The time that a process has had.

    Attributes:
        elapsed_s: since any moment, in seconds.
        cpu_s: its processor time, in seconds.
    """

    elapsed_s: float
    cpu_s: float


class Trimmer:
    """Decides when memory is given back."""

    def __init__(self, give: Callable[[], None], now: Usage) -> None:
        """Nothing has been given back; the start of the process counts as work."""
        self._give = give
        self._last = now
        self._given_cpu_s = now.cpu_s - _WORKED_S

    def look(self, now: Usage) -> None:
        """Give back what is not needed, if the process was idle since the last look, and has worked
        since it last gave something.
        """
        elapsed_s, used_s = now.elapsed_s - self._last.elapsed_s, now.cpu_s - self._last.cpu_s
        self._last = now
        idle = used_s < _IDLE_PART * elapsed_s
        if idle and now.cpu_s - self._given_cpu_s >= _WORKED_S:
            self._given_cpu_s = now.cpu_s
            self._give()


def give_back() -> None:
    """Have Arrow, if it is loaded, and glibc, if it is there, give back what they do not need."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and hasattr(arrow, "default_memory_pool"):
        arrow.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


_lock: Final = threading.Lock()
_begun: set[int] = set()
"""The processes that have such a thread: a fork has none of its parent's."""


def trim_when_idle() -> None:
    """Begin to look, in a thread of its own, unless this process does already."""
    with _lock:
        if os.getpid() in _begun:
            return
        _begun.add(os.getpid())
    threading.Thread(target=_keep_on, name="streamydb-trimmer", daemon=True).start()


def _keep_on() -> None:
    trimmer, ticks = Trimmer(give_back, _usage()), threading.Event()
    while not ticks.wait(_LOOK_S):
        trimmer.look(_usage())


def _usage() -> Usage:
    return Usage(time.monotonic(), time.process_time())
