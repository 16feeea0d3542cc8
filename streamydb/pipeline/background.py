"""Work beside a query, in a thread of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self

__all__ = ["Background"]


class Background(ABC):
    """Runs `_run` in a thread of its own while the body runs; at the end `_stop` is set.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        """Nothing runs yet."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop; a request that is under way is not waited for."""
        self._stop.set()

    @abstractmethod
    def _run(self) -> None:
        """Work until `_stop` is set."""
