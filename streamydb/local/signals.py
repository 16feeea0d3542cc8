"""Stop on SIGTERM, SIGINT and SIGHUP: services without a lock where a signal interrupts, and
commands by an exception.

SIGHUP comes when a terminal is closed, often twice: from the shell, and from the system. Under
`nohup` it is ignored, and stays so.

A handler in Python runs in the main thread between two of its steps. If it takes a lock that the
main thread holds just then, as `threading.Event.set` does while the main thread is in `Event.wait`,
the process hangs for ever. So the handler here does nothing. The interpreter writes each signal's
number into a pipe (`signal.set_wakeup_fd`), from C and at once, whatever the main thread waits for;
a thread reads them there, and may take any lock.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

_END: Final = b"\0"


def hangs_up() -> bool:
    """Return True if SIGHUP would end this process: it was not started with `nohup`."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


class StopSignals:
    """Hands each SIGTERM and SIGINT, and the first SIGHUP, to a function, in a thread of its own.

    Outside the main thread no signal can be caught: then it does nothing.

    ``notice``: is called with the number of signals that have come; it may take locks.
    """

    def __init__(self, notice: Callable[[int], None]) -> None:
        self._notice = notice
        self._count = 0
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1
        self._read_end = self._write_end = -1
        self._thread = threading.Thread(target=self._run, name="streamydb-signals", daemon=True)

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._thread.start()
        self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        numbers = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangs_up() else [])]
        self._before = {number: signal.getsignal(number) for number in numbers}
        self.catch()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._write_end < 0:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        with suppress(BlockingIOError):
            os.write(self._write_end, _END)
        self._thread.join(1)
        os.close(self._write_end)

    def catch(self) -> None:
        """Catch the signals again after a library (PySpark: SIGINT) has taken one for itself."""
        with suppress(ValueError):  # not the main thread
            for number in self._before:
                signal.signal(number, _ignored)

    def _run(self) -> None:
        while True:
            for number in os.read(self._read_end, 64):
                if number == _END[0]:
                    os.close(self._read_end)
                    return
                if number == signal.SIGHUP:
                    _leave_terminal()
                if number in self._before and not (number == signal.SIGHUP and self._count):
                    self._count += 1
                    self._notice(self._count)


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """An event that SIGTERM, SIGINT and SIGHUP set, within the block."""
    event = threading.Event()
    with StopSignals(lambda _: event.set()):
        yield event


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP has come: a kind of Ctrl-C, as libraries undo what they do for no other."""


@contextmanager
def unwinding() -> Iterator[None]:
    """Have SIGTERM and SIGHUP leave the block as Ctrl-C does, so that what is half made is removed.

    Then it ends the process, as it would have without this; a second SIGTERM does so at once. Who
    catches them already, or ignores them, goes on doing so.
    """
    came: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    caught = [
        number for number in (signal.SIGTERM, signal.SIGHUP)
        if in_main and signal.getsignal(number) is signal.SIG_DFL
    ]  # fmt: skip

    def unwind(number: int, _: object) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
        if came:  # SIGHUP, once more
            return
        came.append(number)
        if signal.SIGTERM in caught:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    for number in caught:
        signal.signal(number, unwind)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)
        for each in came:
            signal.raise_signal(each)


def _leave_terminal() -> None:
    """Have all that is said to a terminal, which was closed, go nowhere: it would raise errors."""
    for number in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, number)
                os.close(null)


def _ignored(*_: object) -> None:
    """Keep the default action away; the pipe has the signal's number."""
