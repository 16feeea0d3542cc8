"""The start and the end of a facade, as the server asks for them (ASGI's lifespan protocol)."""

from __future__ import annotations

import traceback
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from streamydb.facade.asgi import Receive, Send

Lifespan: TypeAlias = AbstractAsyncContextManager[None]


async def run_lifespan(lifespan: Lifespan, receive: Receive, send: Send) -> None:
    """Enter a context when the server starts, and leave it when the server ends.

    An error of either is told to the server, which then ends, and raised.
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
