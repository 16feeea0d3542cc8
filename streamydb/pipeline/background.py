"""Work beside a query, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import Final, Self

log = logging.getLogger("streamydb.pipeline")

_AGAIN_S: Final = 10.0


class Background(ABC):
    """Runs `_run` in a thread of its own while the body runs; at the end `_stop` is set.

    If it fails, the log says so, and it begins again.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_on, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop; a request that is under way is not waited for."""
        self._stop.set()

    def _keep_on(self) -> None:
        while not self._stop.is_set():
            try:
                self._run()
            except Exception:
                log.exception("%s failed; it begins again", self._thread.name)
                self._stop.wait(_AGAIN_S)
            else:
                return

    @abstractmethod
    def _run(self) -> None:
        """Work until `_stop` is set."""
