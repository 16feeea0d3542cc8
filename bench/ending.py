"""Ending by SIGTERM as by Ctrl-C: what was started is stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["ending_in_order"]


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Turn SIGTERM into SystemExit (code 143) within the block, so that `finally` blocks run."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
