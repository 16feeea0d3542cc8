"""The types of ASGI (version 3), and its protocol of the start and the end of an application."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An application; servers and frameworks each have types of their own for what it is called with.
"""

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names and values, as they are sent; names in small letters."""


Lifespan: TypeAlias = AbstractAsyncContextManager[None]


async def run_lifespan(lifespan: Lifespan, receive: Receive, send: Send) -> None:
    """Enter a context when the server starts, and leave it when the server ends; tell it of an
    error.
    """
    await receive()
    phase = "startup"
    try:
        async with lifespan:
            await send({"type": "lifespan.startup.complete"})
            phase = "shutdown"
            await receive()
    except BaseException:
        await send({"type": f"lifespan.{phase}.failed", "message": traceback.format_exc()})
        raise
    await send({"type": "lifespan.shutdown.complete"})
