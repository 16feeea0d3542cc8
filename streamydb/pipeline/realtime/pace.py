"""The pace of the micro-batch gear while the other one leads: few and large micro-batches.

The driver leaves a file in the folder of the shard; while it is there, a micro-batch that has
executed everything waits before it ends, for eight seconds at most. A task that waits costs
nothing, and each micro-batch takes a tenth of a second from the gear that leads. Nor does it look
for data often then. When the micro-batch gear is to lead the driver removes the file, the
micro-batch ends, and the next one reads all that has come.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from streamydb.pipeline.reads import Reads

__all__ = ["Pace", "keep_pace"]

_FILE: Final = "paced"
_WAIT_S_MAX: Final = 8.0
_LOOK_S: Final = 0.02


class Pace:
    """The driver's side; what is so already costs nothing."""

    def __init__(self, folder: Path, reads: Reads) -> None:
        """Have no micro-batch wait.

        ``folder``: of the shard's local files. ``reads``: of the micro-batch gear.
        """
        self._path = folder / _FILE
        self._reads = reads
        self._slow = True
        self.hurry()

    def slow_down(self) -> None:
        """Have each micro-batch wait from now on."""
        if not self._slow:
            with suppress(OSError):  # then it does not wait
                self._path.touch()
            self._slow = True
            self._reads.rarely()

    def hurry(self) -> None:
        """Have no micro-batch wait, the one that does included."""
        if self._slow:
            self._path.unlink(missing_ok=True)
            self._slow = False
            self._reads.often()


def keep_pace(folder: Path) -> None:
    """Wait while the other gear leads, for some seconds at most; the worker's side."""
    path, ends_s = folder / _FILE, time.monotonic() + _WAIT_S_MAX
    while path.exists() and time.monotonic() < ends_s:
        time.sleep(_LOOK_S)
