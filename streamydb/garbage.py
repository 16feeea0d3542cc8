"""Python's garbage collector, kept away from where it has nothing to find."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_collection"]


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no cycles while the body runs.

    For bodies that make many objects and hardly any cycles: the collector would only walk through
    what lives, again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
