"""Keep Python's garbage collector away from objects that live for ever.

A full collection walks through every container there is: of a facade that has loaded its libraries,
a tenth of a second, in which nothing else is done.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

_EVERY_S: Final = 10.0
_KEPT_AFTER: Final = 6
_WHOLE_AFTER: Final = 180
_NEVER: Final = 1_000_000


def keep_all() -> None:
    """Freeze all present objects, so that no collection looks at them again.

    For servers, once they have loaded everything and before they serve.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def often_collected(every_s: float = _EVERY_S) -> Iterator[None]:
    """Collect the last cycles again and again, in a thread, while the body runs.

    Python itself walks through all objects when a quarter more have gathered, for tens of
    milliseconds. After some seconds there is little to walk through, as long as what lives for ever
    is left out: what lives after a minute is, for half an hour. It is done so rarely that fewer
    than one request in a hundred meets it.
    """
    before = gc.get_threshold()
    ended = threading.Event()
    thread = threading.Thread(target=_collect, args=(ended, every_s), name="collector", daemon=True)
    gc.set_threshold(before[0], before[1], _NEVER)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        gc.set_threshold(*before)


def _collect(ended: threading.Event, every_s: float) -> None:
    for turn in count(1):
        if ended.wait(every_s):
            return
        if turn % _WHOLE_AFTER == 0:
            gc.unfreeze()
        gc.collect()
        if turn % _KEPT_AFTER == 0:
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
