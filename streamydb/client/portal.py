"""An event loop in a thread of its own, for blocking callers of coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from streamydb.client.awaiting.transports import AsyncStream, AsyncTransport
from streamydb.client.errors import ClosedError, ConnectionLostError
from streamydb.client.requests import Event, Open, Request

_T = TypeVar("_T")


class Portal:
    """Runs coroutines in a loop that others need not know of; close it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="streamydb-client", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and wait for its result; an interrupt cancels it.
        Raises ClosedError: the portal is closed; ConnectionLostError: it was closed meanwhile.
        """
        with self._lock:  # so that the loop ends after all that is submitted to it
            if self._closing:
                coroutine.close()
                raise ClosedError("The client is closed.")
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except CancelledError:
            if self._closing:
                raise ConnectionLostError("The client was closed meanwhile.") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what is under way and end the thread; a second time does nothing."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.run_until_complete(_cancel_others())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class BlockingTransport:
    """Makes a transport of a loop one for threads: it blocks them."""

    def __init__(self, portal: Portal, inner: AsyncTransport, *, owner: bool = True) -> None:
        self._portal = portal
        self._inner = inner
        self._owner = owner

    async def send(self, request: Request[Any]) -> Any:
        return self._portal.call(self._inner.send(request))

    async def open(self, request: Open) -> BlockingStream:
        return BlockingStream(self._portal, self._portal.call(self._inner.open(request)))

    async def close(self) -> None:
        """End, the portal too, whatever the inner one raises."""
        with ExitStack() as stack:
            if self._owner:
                stack.callback(self._portal.close)
            with suppress(ClosedError, ConnectionLostError):
                self._portal.call(self._inner.close())


class BlockingStream:
    """Makes a stream of a loop one for threads."""

    def __init__(self, portal: Portal, inner: AsyncStream) -> None:
        self._portal = portal
        self._inner = inner

    async def receive(self) -> list[Event]:
        return self._portal.call(self._inner.receive())

    async def close(self) -> None:
        with suppress(ClosedError, ConnectionLostError):
            self._portal.call(self._inner.close())
