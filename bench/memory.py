"""Sampling the memory of a tree of processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import psutil

__all__ = ["MemorySampler"]

_INTERVAL_S: Final = 0.5


class MemorySampler:
    """Adds up resident memory in the background; pages that processes share count for each.

    Attributes:
        now_mb: the last sample.
        peak_mb: the largest sample.
    """

    def __init__(self, processes: Callable[[], list[Any]]) -> None:
        """Sample what `processes()` returns (psutil.Process)."""
        self._processes = processes
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.now_mb = 0.0
        self.peak_mb = 0.0

    def start(self) -> None:
        """Begin to sample."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; harmless when not started."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            total = 0
            for process in self._processes():
                with suppress(psutil.Error):
                    total += process.memory_info().rss
            self.now_mb = total / 1e6
            self.peak_mb = max(self.peak_mb, self.now_mb)
