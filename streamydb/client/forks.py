"""Things of one process: after a fork they stay the parent's, and the child makes its own.

A child of `os.fork` has a copy of all memory, but of the threads only the one that forked. The
sockets, files and handles in that memory are those of the parent: two processes that read one
socket take each other's answers, and what waits for a thread waits for ever. So what is `Owned` is
never used in a child, nor closed or finalized there.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast
from weakref import ReferenceType, WeakSet, ref

from streamydb.client.errors import NotConnectedError

_T = TypeVar("_T")
_NOTHING: Final = object()


class Owned(Generic[_T]):
    """A thing that is made at its first use, in each process that uses it.

    Args:
        make: makes it.
        leave: called in a child with the parent's; it must neither wait nor do anything that the
            parent, or who is at the other end of a connection, could see.
    """

    def __init__(self, make: Callable[[], _T], leave: Callable[[_T], None] | None = None) -> None:
        self._make, self._leave = make, leave
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._thing: object = _NOTHING
        _KNOWN.add(self)

    def put(self, thing: _T) -> None:
        self._thing = thing

    def get(self) -> _T:
        if self._process != os.getpid():  # it was forked by what calls no hooks of Python
            self.inherited()
        thing = self._thing
        return self.make() if thing is _NOTHING else cast("_T", thing)

    def make(self) -> _T:
        """Make this process's, once for all threads, and return it."""
        with self._lock:
            if self._thing is _NOTHING:
                self._thing = self._make()
            return cast("_T", self._thing)

    def made(self) -> _T | None:
        if self._process != os.getpid():
            self.inherited()
        thing = self._thing
        return None if thing is _NOTHING else cast("_T", thing)

    def inherited(self) -> None:
        """Leave the parent's; once for each child."""
        with _leaving:
            if self._process == os.getpid():
                return
            thing, self._thing = self._thing, _NOTHING
            self._lock = threading.Lock()  # a thread of the parent may have held the other one
            self._process = os.getpid()
        if thing is not _NOTHING:
            _never_finalize(thing)
            if self._leave is not None:
                self._leave(cast("_T", thing))


class AsyncOwned(Owned[_T]):
    """A thing of an event loop of one process.

    A child has a copy of the loop, too. To use it would take events from the parent, and give it
    some: they share what the kernel tells.
    """

    def __init__(self, make: Callable[[], _T], leave: Callable[[_T], None] | None = None) -> None:
        super().__init__(make, leave)
        self._loop = _running()
        self._foreign: ReferenceType[asyncio.AbstractEventLoop] | None = None

    def get(self) -> _T:
        """Return this process's. Raises NotConnectedError: the event loop is another process's."""
        loop = _running()
        if self._process != os.getpid():
            self.inherited()
        if loop is None or (self._foreign is not None and loop() is self._foreign()):
            raise NotConnectedError(
                "This event loop was begun before a fork, so it is the parent's: begin another one "
                "here, as asyncio.run(...) does",
                retriable=False,
            )
        self._loop = loop
        return super().get()

    def inherited(self) -> None:
        self._foreign = self._foreign or self._loop
        super().inherited()


class Kept(Generic[_T]):
    """Things of one process that are free: lent to one thread at a time, and used again.

    Before a fork those that are not lent are closed, as they are cheap to make, and a child could
    not even close them: that would wait for threads that it does not have.
    """

    def __init__(self, make: Callable[[], _T], close: Callable[[_T], None]) -> None:
        self._make, self._close_one = make, close
        self._free: Owned[list[_T]] = Owned(list)
        _CLOSED_BEFORE.append(ref(self, _CLOSED_BEFORE.remove))

    def take(self) -> _T:
        try:
            return self._free.get().pop()
        except IndexError:
            return self._make()

    def give(self, thing: _T) -> None:
        self._free.get().append(thing)

    def close(self) -> None:
        free = self._free.get()
        while free:
            self._close_one(free.pop())


_CLOSED_BEFORE: Final[list[ReferenceType[Kept[Any]]]] = []


_forks = 0


def process_span() -> tuple[int, int]:
    """Return what names the time of this process between two forks, which may have made copies of
    it.
    """
    return os.getpid(), _forks


def _before_fork() -> None:
    global _forks  # noqa: PLW0603 - of the whole process
    _forks += 1
    for known in tuple(_CLOSED_BEFORE):
        kept = known()
        if kept is not None:
            kept.close()


def _running() -> ReferenceType[asyncio.AbstractEventLoop] | None:
    try:
        return ref(asyncio.get_running_loop())
    except RuntimeError:
        return None


_KNOWN: Final[WeakSet[Owned[Any]]] = WeakSet()
_leaving = threading.Lock()


def _never_finalize(thing: object) -> None:
    """Keep an object to the end of the process and beyond.

    Its finalizer would close what is the parent's, or wait for locks and threads that are not here.
    A reference of a module is not enough: it goes when the interpreter ends.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    global _leaving  # noqa: PLW0603 - a thread of the parent may have held the other one
    _leaving = threading.Lock()
    for owned in _KNOWN:
        owned.inherited()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
