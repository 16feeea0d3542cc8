"""The HTTP transport for threads."""

from __future__ import annotations

from typing import Any

import httpx

from streamydb.client.awaiting.http import AsyncHttpStream, AsyncHttpTransport
from streamydb.client.connections import HttpOptions
from streamydb.client.session import Generation


class HttpStream(AsyncHttpStream):
    """An event stream that blocks."""

    async def _end(self) -> None:
        self._answer.close()

    async def _next(self) -> bytes | None:
        return next(self._chunks, None)

    def _bytes(self) -> Any:
        return self._answer.iter_bytes()


class HttpTransport(AsyncHttpTransport):
    """Performs requests over HTTP, and blocks; see `AsyncTransport`."""

    stream = HttpStream

    def __init__(
        self,
        options: HttpOptions,
        transport: httpx.BaseTransport | None = None,
        history: Generation | None = None,
    ) -> None:
        arguments = options.arguments(network=transport is None)
        self._begin(httpx.Client(**arguments, transport=transport), history)

    async def _read(self, answer: httpx.Response) -> None:
        answer.read()

    async def _end(self) -> None:
        self._client.close()
