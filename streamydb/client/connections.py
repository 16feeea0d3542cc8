"""Connections of both HTTP transports: how to connect, what a failure means, how to let go."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.request import Request, getproxies

import httpx

from streamydb.client.errors import (
    ClientConfigurationError,
    ClientError,
    ClosedError,
    ConnectionLostError,
    NotConnectedError,
)
from streamydb.client.http import socket_of, wire_of

_T = TypeVar("_T")
_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_PORTS: Final = {"http": 80, "https": 443}


def proxy_of(url: httpx.URL) -> httpx.Proxy | None:
    """Return the proxy for an address, by HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.
    Raises ClientConfigurationError: it is none, or cannot be used.
    """
    known = getproxies()
    if any(_is_of(each.strip(), url) for each in known.get("no", "").split(",")):
        return None
    for kind in (url.scheme, "all"):
        if text := known.get(kind):
            return _proxy(text if "://" in text else f"http://{text}", _name_of(f"{kind}_proxy"))
    return None


def _proxy(text: str, name: str) -> httpx.Proxy:
    """Return the proxy that a variable names; the text may have a password, and is not shown."""
    try:
        proxy = httpx.Proxy(text)
        proxy.raw_auth  # noqa: B018 - it encodes name and password
        host = proxy.url.raw_host.decode("ascii")
    except (httpx.InvalidURL, ValueError):
        host = ""
    if not host:
        kinds = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise ClientConfigurationError(
            f"{name} names no proxy: it is host:port, or a URL that begins with {kinds}. Set it "
            "so, or name the facade's host in NO_PROXY."
        )
    if proxy.url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise ClientConfigurationError(
            f"{name} names a SOCKS proxy, which needs a package: pip install 'httpx[socks]'; or "
            "name the facade's host in NO_PROXY."
        )
    return proxy


def _name_of(variable: str) -> str:
    """Return a variable's name as it is written; lower case counts first, as in urllib."""
    names = sorted((each for each in os.environ if each.lower() == variable), reverse=True)
    return names[0] if names else f"The system's setting for {variable.upper()}"


def _is_of(entry: str, url: httpx.URL) -> bool:
    """Return True if an entry of NO_PROXY is about an address; what is no entry is about none. It
    is `*`, a host, which stands for those below it, too, `.host` for those below it only, an IP
    address or a network; with a port behind it or not, an IPv6 address in brackets or not.
    """
    scheme, mark, rest = entry.lower().rpartition("://")
    if mark and scheme not in {"all", url.scheme}:
        return False
    entry = rest.rstrip("/")
    if entry == "*":
        return True
    host, port = _parts(entry)
    if port and port != str(url.port or _PORTS.get(url.scheme)):
        return False
    host = host.rstrip(".")
    own = url.raw_host.decode("ascii").strip("[]").rstrip(".")
    address, network = _parsed(ipaddress.ip_address, own), _parsed(_network, host)
    if address is not None or network is not None:
        return address is not None and network is not None and address in network
    below = host.removeprefix("*").removeprefix(".")
    is_below = bool(below) and own.endswith(f".{below}")
    return is_below or (bool(host) and own == host)


def _parts(entry: str) -> tuple[str, str]:
    """Return host and port of an entry, which has one bracket, one colon or many."""
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        if port.startswith("/"):  # a network
            return host + port, ""
        return host, port.removeprefix(":")
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host, port
    return entry, ""


_network: Final = partial(ipaddress.ip_network, strict=False)


def _parsed(parse: Callable[[str], _T], text: str) -> _T | None:
    try:
        return parse(text)
    except ValueError:
        return None


def trusted() -> ssl.SSLContext | None:
    """Return whom SSL_CERT_FILE, or else SSL_CERT_DIR, says to trust; None: nobody is named.
    Raises ClientConfigurationError: there are no certificates; or nobody can write SSLKEYLOGFILE.
    """
    require_key_log()
    file, folders = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        if file:
            return ssl.create_default_context(cafile=file)
        if folders:
            if not any(map(os.path.isdir, folders.split(os.pathsep))):
                raise FileNotFoundError("there is no such folder")
            return ssl.create_default_context(capath=folders)
    except (OSError, ValueError) as error:
        shown = f"SSL_CERT_FILE is {file!r}" if file else f"SSL_CERT_DIR is {folders!r}"
        raise ClientConfigurationError(
            f"{shown}, where no certificates can be read: {error}. Set it to those to trust, unset "
            "it, or name a file: connect(..., verify=file)."
        ) from error
    return None


def require_key_log() -> None:
    """Refuse what every context of TLS would fail on.
    Raises ClientConfigurationError: SSLKEYLOGFILE names what cannot be written.
    """
    path = os.environ.get("SSLKEYLOGFILE")
    if not path:
        return
    try:
        with open(path, "ab"):  # noqa: PTH123 - as OpenSSL opens it, without a tidier path
            pass
    except (OSError, ValueError) as error:
        raise ClientConfigurationError(
            f"SSLKEYLOGFILE is {path!r}, which cannot be written: {error}. Name another file, or "
            "unset it."
        ) from error


_NOT_SENT: Final = (
    httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError,
    httpx.UnsupportedProtocol,
)  # fmt: skip

_BROKEN_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""TLS that the other side left in the middle, as a facade does that ends."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The options of a connection to a facade; see `connect`."""

    url: str
    token: str | None = None
    verify: bool | Path | ssl.SSLContext = True
    connections_max: int = 100

    def __repr__(self) -> str:
        return f"HttpOptions({self.url!r})"

    def arguments(self, *, network: bool = True) -> dict[str, Any]:
        """Return the arguments of httpx's clients; without a ``network`` there is no proxy.
        Raises ClientConfigurationError: there are no certificates in the file; or the environment
        names no proxy, or no certificates, in variables that are about these.
        """
        proxy = proxy_of(httpx.URL(self.url)) if network else None
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        verify = self.verify
        if isinstance(verify, Path):
            verify = _trusting(verify)
        elif verify is True and not self.url.startswith("https:"):
            # Nothing is verified; to read the authorities to trust would take a tenth of a second.
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        elif verify is True:
            verify = trusted() or True
        limits = httpx.Limits(
            max_connections=self.connections_max, max_keepalive_connections=self.connections_max
        )
        return {
            "base_url": self.url, "headers": headers, "verify": verify, "limits": limits,
            "cookies": CookieJar(_Sendable()), "trust_env": False, "proxy": proxy,
        }  # fmt: skip


class _Sendable(DefaultCookiePolicy):
    """Cookies, of something in between, that can be sent back: httpx encodes them as ASCII."""

    def set_ok(self, cookie: Cookie, request: Request) -> bool:
        """Return True if a cookie is kept; with another one every later request would fail."""
        return f"{cookie.name}{cookie.value}".isascii() and super().set_ok(cookie, request)


def _trusting(authorities: Path) -> ssl.SSLContext:
    require_key_log()
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        detail = f"{authorities} has no certificates to trust: {error}"
        raise ClientConfigurationError(detail) from error


def abandon(wires: Iterable[Any]) -> None:
    """Let go of the sockets of connections that are the parent's, in a child of a fork. Nothing is
    sent on them, no end of TLS either, and nothing is shut down. Their numbers stay taken, so that
    nobody who closes one later closes what has the number then.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for wire in wires:
        connection = socket_of(wire)
        if connection is not None and connection.fileno() >= 0:
            os.dup2(nothing, connection.fileno(), inheritable=False)
    os.close(nothing)


def fault(error: httpx.RequestError) -> ClientError:
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
    if answer.is_closed or not isinstance(answer.stream, httpx.SyncByteStream):
        return
    connection = socket_of(wire_of(answer))
    if isinstance(connection, socket.socket):
        with suppress(OSError):  # the other side has closed it
            connection.shutdown(socket.SHUT_RDWR)


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
    return ConnectionLostError(f"The connection broke ({type(error).__name__}: {error})")
