"""The control topic as `kafka.presence` reads it, and the clocks that it looks at."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Self

import pytest

from streamydb.kafka import presence

__all__ = ["ControlTopic"]


class ControlTopic:
    """Stands in for the reader of the topic; who inherits it says what `last` and `batch` read."""

    def stand_in(
        self,
        monkeypatch: pytest.MonkeyPatch,
        time_ns: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        """Be what is read until the end of a test; ``time_ns``, ``monotonic``: the clocks."""
        clock = SimpleNamespace(time_ns=time_ns, monotonic=monotonic)
        monkeypatch.setattr(presence, "time", clock)
        monkeypatch.setattr(presence, "log_id", lambda *_: "log")
        monkeypatch.setattr(presence, "TopicReader", lambda *_: self)

    def __enter__(self) -> Self:
        """Nothing is to be opened."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is to be closed."""
