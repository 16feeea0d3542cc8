"""A process of ours: how it spares its machine.

Open files: as many as it needs. Python's garbage collector: away from objects that live for ever; a
full collection walks through every container, a tenth of a second of a facade that has loaded its
libraries. Compilers: a process that has compiled kernels keeps 170 of 280 MB for that, so it begins
anew when they are in the cache. Freed memory: glibc gives back the end of a heap alone, and Arrow
keeps what it may need again, a hundred megabytes in each process after a load. So a thread looks
every few seconds how much processor time the process has used. When it has worked, and is idle now,
both give back what they do not need, and pages of mapped files go to the system's cache.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

_EVERY_S: Final = 10.0
_WHOLE_AFTER: Final = 6
_NEW: Final = 1  # the generations of Python's collector that one is to walk through
_WHOLE: Final = 2
_NEVER: Final = 1_000_000
_YOUNG: Final = 20_000
"""So many new objects gather before Python looks through them. Some hundreds of requests that wait
hold as many for a moment; with Python's own 700 that took a sixth of a facade's time."""


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
    milliseconds. After some seconds there is little to walk through: what is new, and once a minute
    what has come since `keep_all`. What was there before is never walked through: in a fork, each
    of its pages would become a copy.
    """
    before = gc.get_threshold()
    ended = threading.Event()
    thread = threading.Thread(target=_collect, args=(ended, every_s), name="collector", daemon=True)
    gc.set_threshold(_YOUNG, before[1], _NEVER)
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
        gc.collect(_WHOLE if turn % _WHOLE_AFTER == 0 else _NEW)


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


_ARENAS: Final = "MALLOC_ARENA_MAX"
_ARENAS_MAX: Final = "2"

_LOOK_S: Final = 10.0
_IDLE_PART: Final = 0.01  # a process that used less of a processor than this is idle
_WORKED_S: Final = 1.0
"""So much processor time must have been used since the last time, or there is little to gain."""


def few_arenas() -> dict[str, str]:
    """Return the environment of a process whose threads share two arenas of glibc's.

    By default each thread that allocates gets an arena of its own, whose freed blocks nobody else
    uses, and hundreds of megabytes lie idle. What the user has set stays.
    """
    return {_ARENAS: os.environ.get(_ARENAS, _ARENAS_MAX)}


class Usage(NamedTuple):
    """The time that a process has had.

    Attributes:
        elapsed_s: since any moment, in seconds.
        cpu_s: its processor time, in seconds.
    """

    elapsed_s: float
    cpu_s: float


class Trimmer:
    """Decides when memory is given back."""

    def __init__(self, give: Callable[[], None], now: Usage) -> None:
        """Nothing has been given back; the start of the process counts as work."""
        self._give = give
        self._last = now
        self._given_cpu_s = now.cpu_s - _WORKED_S

    def look(self, now: Usage) -> None:
        """Give back what is not needed, if the process was idle since the last look, and has worked
        since it last gave something.
        """
        elapsed_s, used_s = now.elapsed_s - self._last.elapsed_s, now.cpu_s - self._last.cpu_s
        self._last = now
        idle = used_s < _IDLE_PART * elapsed_s
        if idle and now.cpu_s - self._given_cpu_s >= _WORKED_S:
            self._given_cpu_s = now.cpu_s
            self._give()


_GIVERS: Final[list[Callable[[], None]]] = []


def also_gives(give: Callable[[], None]) -> None:
    """Have `give_back` call this, too, in any thread."""
    _GIVERS.append(give)


def give_back() -> None:
    """Have Arrow, if it is loaded, and glibc, if it is there, give back what they do not need; and
    whoever has said so.
    """
    for give in _GIVERS:
        give()
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and hasattr(arrow, "default_memory_pool"):
        arrow.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


_DONT_NEED: Final = 4  # of madvise(2)
_MAPPED: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r--s \S+ \S+ \d+ +(/.*)")


def let_go(file: Path, maps: Path = Path("/proc/self/maps")) -> int:
    """Take the pages of a file that is mapped to be read out of this process.

    They stay in the system's cache, which drops them first when others need memory, and come back
    when they are read, some sixteen at a time. Nobody may unmap the file meanwhile.

    Args:
        file: its path; as nobody else maps it there.
        maps: where the system shows what is mapped; only Linux does.

    Returns:
        How many bytes are mapped.

    """
    try:
        lines = maps.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return 0
    mapped, path = 0, str(file.resolve())
    for line in lines:
        match = _MAPPED.fullmatch(line)
        if match is not None and match[3] == path:
            begin, end = int(match[1], 16), int(match[2], 16)
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONT_NEED
            )
            mapped += end - begin
    return mapped


_NICENESS: Final = 10
_ENDS_S: Final = 0.001


def aside(body: Callable[[], None]) -> None:
    """Run ``body`` with what others leave of the processors.

    In a thread, because no process may raise its own priority again, nor that of its children. It
    has gone when this returns.
    """
    if sys.platform != "linux":  # elsewhere a thread has no priority of its own
        body()
        return

    def run() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        body()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    task = Path(f"/proc/self/task/{thread.native_id}")
    while task.exists():  # a moment longer than Python knows
        time.sleep(_ENDS_S)


_lock: Final = threading.Lock()
_begun: set[int] = set()  # the processes that have such a thread: a fork has none of its parent's


def trim_when_idle() -> None:
    """Begin to look, in a thread of its own, unless this process does already."""
    with _lock:
        if os.getpid() in _begun:
            return
        _begun.add(os.getpid())
    threading.Thread(target=_keep_on, name="streamydb-trimmer", daemon=True).start()


def _keep_on() -> None:
    trimmer, ticks = Trimmer(give_back, _usage()), threading.Event()
    while not ticks.wait(_LOOK_S):
        trimmer.look(_usage())


def _usage() -> Usage:
    return Usage(time.monotonic(), time.process_time())


_RENEWED: Final = "STREAMYDB_RENEWED"
"""Names the process that was begun anew: it is not done twice, where no cache can be kept."""

_COMPILES: Final = "numba:compile"  # numba's event of a kernel that was not in the cache


def compiles(body: Callable[[], None]) -> bool:
    """Run ``body``; return True if kernels were compiled in it,
    and not only read from the cache.
    """
    from numba.core.event import install_recorder

    with install_recorder(_COMPILES) as events:
        body()
    return bool(events.buffer)


def renew() -> None:
    """Begin this process anew, with the same id, command, environment and inherited files.

    For a process that has nothing open yet that must be closed, from its main thread. It returns if
    this was done before.
    """
    own = str(os.getpid())
    if os.environ.get(_RENEWED) == own:
        return
    os.environ[_RENEWED] = own
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves


def take_file_handles(wanted: int) -> int:
    """Raise this process's limit of open files to what it needs, if possible.

    Returns:
        How many of them it may have open.

    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
