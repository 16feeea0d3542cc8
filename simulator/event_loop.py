"""An event loop whose time passes only while everybody waits: hours in a moment, and repeatable."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["VirtualLoop", "run_virtual"]

_T = TypeVar("_T")


class _Waits(selectors.DefaultSelector):
    """Jumps to the time for which it is asked to wait."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Look for what is ready; nothing from outside ever is."""
        if timeout is None:
            raise RuntimeError("all tasks of a simulation wait for each other")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; what is meant for threads is done at once."""

    def __init__(self) -> None:
        """Begin at 0."""
        self._waits = _Waits()
        super().__init__(self._waits)

    def time(self) -> float:
        """Return the seconds since the beginning."""
        return self._waits.now_s

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,  # noqa: ARG002 - as the loop's own
        func: Callable[..., Any],
        *args: Any,
    ) -> asyncio.Future[Any]:
        """Call a function at once."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised to whoever awaits it
            future.set_exception(error)
        return future


def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine, made for the loop, to its end; what is left is cancelled."""
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))
