"""Ask the scheduler for short turns, for processes that answer somebody who waits."""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import struct
from typing import Final

__all__ = ["TURN_NS", "take_short_turns"]

TURN_NS: Final = 100_000
"""The shortest turn that Linux gives."""

_SET_ATTRIBUTES: Final = {"x86_64": 314, "aarch64": 274}
"""The number of the system call `sched_setattr`, by processor."""

_NORMAL: Final = 0

_log = logging.getLogger(__name__)


def take_short_turns() -> bool:
    """Have this thread, and those that it starts later, run for 0.1 ms at a time; True if they do.

    Linux (6.12 and later) lets who asks for a short turn go before others that have longer ones, as
    soon as there is something to do. Its share of the processor stays the same. So an answer of
    half a millisecond does not wait for a micro-batch to end its turn of some milliseconds. Earlier
    kernels, and other systems, ignore it.
    """
    number = _SET_ATTRIBUTES.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.Struct("=IIQiIQQQ")
    asked = attributes.pack(attributes.size, _NORMAL, 0, nice, 0, TURN_NS, 0, 0)
    failed = ctypes.CDLL(None, use_errno=True).syscall(number, 0, asked, 0)
    if failed:
        _log.info("no short turns: %s", os.strerror(ctypes.get_errno()))
    return not failed
