"""Keep Python's garbage collector away from objects that live for ever.

A full collection walks through every container there is: of a facade that has loaded its libraries,
a tenth of a second, in which nothing else is done.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["keep_all", "no_collection"]


def keep_all() -> None:
    """Freeze all present objects, so that no collection looks at them again.

    For servers, once they have loaded everything and before they serve.
    """
    gc.collect()
    gc.freeze()


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
