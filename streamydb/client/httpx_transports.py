"""The HTTP transports: httpx, blocking and awaiting, with connections that are kept and reused."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from streamydb.client.errors import ClientError, ConnectionLostError, NotConnectedError
from streamydb.client.http import (
    HttpAnswer,
    HttpRequest,
    decode,
    encode,
    encode_open,
    raise_for_status,
)
from streamydb.client.requests import Event, Open, Request
from streamydb.client.sse import EventParser
from streamydb.errors import ConfigurationError

__all__ = [
    "AsyncHttpStream",
    "AsyncHttpTransport",
    "HttpOptions",
    "HttpStream",
    "HttpTransport",
]

_CONNECT_S: Final = 5.0
"""How long a connection may take to make, or to become free."""

_NOT_SENT: Final = (
    httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError,
    httpx.UnsupportedProtocol,
)  # fmt: skip

_BROKEN_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""TLS that the other side left in the middle, as a facade does that ends."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How to connect to a facade.

    Attributes:
        url: its address.
        token: its bearer token.
        verify: whether to verify its certificate, or a file of authorities to trust, or a context.
        connections_max: connections open at once; each `watch` holds one.
    """

    url: str
    token: str | None = None
    verify: bool | Path | ssl.SSLContext = True
    connections_max: int = 100

    def __repr__(self) -> str:
        """Show no token."""
        return f"HttpOptions({self.url!r})"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of httpx's clients.

        Raises:
            ConfigurationError: there are no certificates in the file.
        """
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        verify = self.verify
        if isinstance(verify, Path):
            verify = _trusting(verify)
        limits = httpx.Limits(
            max_connections=self.connections_max, max_keepalive_connections=self.connections_max
        )
        return {"base_url": self.url, "headers": headers, "verify": verify, "limits": limits}


class HttpTransport:
    """Performs requests over HTTP; see `Transport`."""

    def __init__(self, options: HttpOptions, transport: httpx.BaseTransport | None = None) -> None:
        """Connect when the first request is sent; `transport` stands in for the network."""
        self._client = httpx.Client(**options.arguments(), transport=transport)

    def send(self, request: Request[Any]) -> Any:
        """Perform a request."""
        try:
            answer = self._client.send(_build(self._client, encode(request)))
        except httpx.RequestError as error:
            raise _fault(error) from error
        return decode(request, HttpAnswer(answer.status_code, answer.headers, answer.content))

    def open(self, request: Open) -> HttpStream:
        """Open a stream of changes."""
        with ExitStack() as stack:
            try:
                sent = _build(self._client, encode_open(request))
                answer = self._client.send(sent, stream=True)
                stack.callback(answer.close)
                if not answer.is_success:
                    answer.read()
            except httpx.RequestError as error:
                raise _fault(error) from error
            body = b"" if answer.is_success else answer.content
            raise_for_status(HttpAnswer(answer.status_code, answer.headers, body))
            stack.pop_all()
        return HttpStream(answer)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class HttpStream:
    """An event stream; see `Stream`."""

    def __init__(self, answer: httpx.Response) -> None:
        """Read the body of an answer."""
        self._answer = answer
        self._chunks: Iterator[bytes] = answer.iter_bytes()
        self._parser = EventParser()

    def receive(self) -> list[Event]:
        """Wait for the next bytes; return the events that they complete."""
        try:
            chunk = next(self._chunks, None)
        except (httpx.RequestError, httpx.StreamError) as error:
            raise _lost(error) from error
        if chunk is None:
            raise ConnectionLostError("The stream of changes has ended.")
        return self._parser.feed(chunk)

    def close(self) -> None:
        """Close the connection."""
        self._answer.close()


class AsyncHttpTransport:
    """Performs requests over HTTP; see `AsyncTransport`."""

    def __init__(
        self, options: HttpOptions, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """Connect when the first request is sent; `transport` stands in for the network."""
        self._client = httpx.AsyncClient(**options.arguments(), transport=transport)

    async def send(self, request: Request[Any]) -> Any:
        """Perform a request."""
        try:
            answer = await self._client.send(_build(self._client, encode(request)))
        except httpx.RequestError as error:
            raise _fault(error) from error
        return decode(request, HttpAnswer(answer.status_code, answer.headers, answer.content))

    async def open(self, request: Open) -> AsyncHttpStream:
        """Open a stream of changes."""
        async with AsyncExitStack() as stack:
            try:
                sent = _build(self._client, encode_open(request))
                answer = await self._client.send(sent, stream=True)
                stack.push_async_callback(answer.aclose)
                if not answer.is_success:
                    await answer.aread()
            except httpx.RequestError as error:
                raise _fault(error) from error
            body = b"" if answer.is_success else answer.content
            raise_for_status(HttpAnswer(answer.status_code, answer.headers, body))
            stack.pop_all()
        return AsyncHttpStream(answer)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class AsyncHttpStream:
    """An event stream; see `AsyncStream`."""

    def __init__(self, answer: httpx.Response) -> None:
        """Read the body of an answer."""
        self._answer = answer
        self._chunks: AsyncIterator[bytes] = answer.aiter_bytes()
        self._parser = EventParser()

    async def receive(self) -> list[Event]:
        """Wait for the next bytes; return the events that they complete."""
        try:
            chunk = await anext(self._chunks, None)
        except (httpx.RequestError, httpx.StreamError) as error:
            raise _lost(error) from error
        if chunk is None:
            raise ConnectionLostError("The stream of changes has ended.")
        return self._parser.feed(chunk)

    async def close(self) -> None:
        """Close the connection."""
        await self._answer.aclose()


def _trusting(authorities: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise ConfigurationError(f"{authorities} has no certificates to trust: {error}") from error


def _build(client: httpx.Client | httpx.AsyncClient, request: HttpRequest) -> httpx.Request:
    return client.build_request(
        request.method,
        request.path,
        params=request.params,
        headers=request.headers,
        content=request.body,
        timeout=httpx.Timeout(request.timeout_s, connect=_CONNECT_S, pool=_CONNECT_S),
    )


def _fault(error: httpx.RequestError) -> ClientError:
    """What a failure of the connection means for a request."""
    if not isinstance(error, _NOT_SENT):
        return _lost(error)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None or isinstance(cause, _BROKEN_OFF):
        return NotConnectedError(f"No connection to the facade: {error or type(error).__name__}")
    return NotConnectedError(_insecure(cause), retriable=False)


def _insecure(fault: ssl.SSLError) -> str:
    """What is wrong with the facade's side of TLS, and what to do."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        why = getattr(fault, "verify_message", None) or fault  # set by OpenSSL, not by the class
        return (
            f"The facade's certificate is not trusted: {why}. If that should not "
            "be so, name the file of the authority that signed it: connect(..., verify=file)."
        )
    reason = fault.reason or fault
    return f"TLS with the facade failed ({reason}): does it serve https at this port?"


def _lost(error: Exception) -> ClientError:
    return ConnectionLostError(f"The connection broke ({type(error).__name__}: {error})")
