"""Stop on SIGTERM and SIGINT: services without a lock where a signal interrupts, commands by an
exception.

A handler in Python runs in the main thread between two of its steps. If it takes a lock that the
main thread holds just then, as `threading.Event.set` does while the main thread is in `Event.wait`,
the process hangs for ever. So the handler here does nothing. The interpreter writes each signal's
number into a pipe (`signal.set_wakeup_fd`), from C and at once, whatever the main thread waits for;
a thread reads them there, and may take any lock.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

__all__ = ["StopSignals", "Terminated", "stop_event", "unwinding"]

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)
_END: Final = b"\0"


class StopSignals:
    """Hands each SIGTERM and SIGINT to a function, in a thread of its own.

    Outside the main thread no signal can be caught: then it does nothing.

    Args:
        told: is called with the number of signals that have come; it may take locks.
    """

    def __init__(self, told: Callable[[int], None]) -> None:
        """Nothing is caught yet."""
        self._told = told
        self._count = 0
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1
        self._read_end = self._write_end = -1
        self._thread = threading.Thread(target=self._run, name="streamydb-signals", daemon=True)

    def __enter__(self) -> Self:
        """Catch the signals from here on."""
        if threading.current_thread() is not threading.main_thread():
            return self
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._thread.start()
        self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._before = {number: signal.getsignal(number) for number in _NUMBERS}
        self.catch()
        return self

    def __exit__(self, *_error: object) -> None:
        """Leave the signals to whom they were before."""
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
            for number in _NUMBERS:
                signal.signal(number, _ignored)

    def _run(self) -> None:
        while True:
            for number in os.read(self._read_end, 64):
                if number == _END[0]:
                    os.close(self._read_end)
                    return
                if number in _NUMBERS:
                    self._count += 1
                    self._told(self._count)


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, within the block."""
    event = threading.Event()
    with StopSignals(lambda _: event.set()):
        yield event


class Terminated(KeyboardInterrupt):
    """SIGTERM has come: a kind of Ctrl-C, because libraries undo what they do for no other."""


@contextmanager
def unwinding() -> Iterator[None]:
    """Have SIGTERM leave the block as Ctrl-C does, so that what is half made is removed.

    Then it ends the process, as it would have without this; a second one does so at once. Who
    catches it already, or ignores it, goes on doing so.
    """
    came: list[int] = []

    def unwind(number: int, _: object) -> None:
        came.append(number)
        signal.signal(number, signal.SIG_DFL)
        raise Terminated

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number in came:
            signal.raise_signal(number)


def _ignored(*_: object) -> None:
    """Keep the default action away; the pipe has the signal's number."""
