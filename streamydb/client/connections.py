"""The shared parts of both HTTP transports: how to connect, and what a failure means."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, Final
from urllib.request import Request

import httpx

from streamydb.client.errors import ClientError, ClosedError, ConnectionLostError, NotConnectedError
from streamydb.client.generation import Generation
from streamydb.client.http import HttpRequest
from streamydb.errors import ConfigurationError

__all__ = ["HttpOptions", "build", "fault", "lost", "raise_if_closed", "wake"]

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
    """The options of a connection to a facade.

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
        elif verify is True and not self.url.startswith("https:"):
            # Nothing is verified; to read the authorities to trust would take a tenth of a second.
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        limits = httpx.Limits(
            max_connections=self.connections_max, max_keepalive_connections=self.connections_max
        )
        return {
            "base_url": self.url, "headers": headers, "verify": verify, "limits": limits,
            "cookies": CookieJar(_Sendable()),
        }  # fmt: skip


class _Sendable(DefaultCookiePolicy):
    """Cookies, of something in between, that can be sent back: httpx encodes them as ASCII."""

    def set_ok(self, cookie: Cookie, request: Request) -> bool:
        """Return True if a cookie is kept; with another one every later request would fail."""
        return f"{cookie.name}{cookie.value}".isascii() and super().set_ok(cookie, request)


def _trusting(authorities: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise ConfigurationError(f"{authorities} has no certificates to trust: {error}") from error


def build(
    client: httpx.Client | httpx.AsyncClient, request: HttpRequest, history: Generation
) -> httpx.Request:
    """Make httpx's form of a request, which says of which generation its seqs are."""
    return client.build_request(
        request.method,
        request.path,
        params=request.params,
        headers={**request.headers, **history.headers()},
        content=request.body,
        timeout=httpx.Timeout(request.timeout_s, connect=_CONNECT_S, pool=_CONNECT_S),
    )


def fault(error: httpx.RequestError) -> ClientError:
    """Return the error that a failure of the connection means for a request."""
    if not isinstance(error, _NOT_SENT):
        return lost(error)
    if isinstance(error, httpx.PoolTimeout):
        return NotConnectedError(
            "All connections of this client are taken, and each watch holds one: allow more "
            "(connections_max), or close some."
        )
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None or isinstance(cause, _BROKEN_OFF):
        what = str(error) or type(error).__name__
        return NotConnectedError(f"No connection to the facade: {what}")
    return NotConnectedError(_insecure(cause), retriable=False)


def raise_if_closed(client: httpx.Client | httpx.AsyncClient) -> None:
    """Raise `ClosedError` if httpx refuses to send because another thread has closed it."""
    if client.is_closed:
        raise ClosedError("The client is closed.") from None


def wake(answer: httpx.Response) -> None:
    """Have a thread that waits for more of an answer wait no longer, before the answer is closed.

    To close a socket wakes nobody who waits for it. A coroutine is woken by the event loop.
    """
    stream = answer.extensions.get("network_stream")
    if stream is None or answer.is_closed or not isinstance(answer.stream, httpx.SyncByteStream):
        return
    held = stream.get_extra_info("socket")
    if isinstance(held, socket.socket):
        with suppress(OSError):  # the other side has closed it
            held.shutdown(socket.SHUT_RDWR)


def _insecure(fault: ssl.SSLError) -> str:
    """Say what is wrong with the facade's TLS, and what to do."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        why = getattr(fault, "verify_message", None) or fault  # set by OpenSSL, not by the class
        return (
            f"The facade's certificate is not trusted: {why}. If that should not "
            "be so, name the file of the authority that signed it: connect(..., verify=file)."
        )
    reason = fault.reason or fault
    return f"TLS with the facade failed ({reason}): does it serve https at this port?"


def lost(error: Exception) -> ClientError:
    """Return the error that a broken connection means for a request that was sent."""
    return ConnectionLostError(f"The connection broke ({type(error).__name__}: {error})")
