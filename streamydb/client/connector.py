"""Make clients from URLs."""

from __future__ import annotations

import ssl
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from streamydb.client.awaiting.client import AsyncClient
from streamydb.client.awaiting.transports import AsyncOwnedTransport
from streamydb.client.blocking.client import Client
from streamydb.client.blocking.transports import OwnedTransport
from streamydb.client.errors import ClientConfigurationError, ClientError
from streamydb.client.requests import Consistency
from streamydb.client.session import Options, Session
from streamydb.errors import ConfigurationError, install
from streamydb.local.module_folder import FolderModules

if TYPE_CHECKING:
    from streamydb.client.awaiting.transports import AsyncTransport
    from streamydb.client.connections import HttpOptions

_DIRECT: Final = "streamydb.facade.direct"
"""Makes the transport of kafka:// URLs. It needs the server's packages, and those who ask a
facade have no use for it: so it is named here and not imported."""


def connect(
    url: str,
    *,
    token: str | None = None,
    verify: bool | str | Path | ssl.SSLContext = True,
    consistency: Consistency = "strong",
    timeout_s: float = 30,
    connections_max: int = 100,
    procedures: str | Path | None = None,
) -> Client:
    """Return a client of a database, for threads; use it with `with`, or close it.

    Args:
        url: a facade's address (http:// or https://), or that of Kafka and a local read model:
            kafka://host:port/database?read_model=/folder. How to authenticate to Kafka is said by
            the settings' environment variables (STREAMYDB_SECURITY_PROTOCOL and others).
        token: the facade's bearer token.
        verify: whether to verify the facade's certificate; or a file of authorities to trust.
        consistency: of reads: strong (linearizable), session (includes all that this client has
            seen) or snapshot (whatever is there, without waiting).
        timeout_s: how long calls try; they end at most 5 s later.
        connections_max: connections to the facade open at once; each `watch` holds one.
        procedures: a folder with modules of stored procedures, to find the keys of calls.

    Raises:
        ClientConfigurationError: the arguments make no sense, or variables of the environment that
            are about this address.
        ReadModelError: there is no read model in the folder.
    """
    session = _session(consistency, timeout_s, procedures)
    if _is_kafka(url):
        from streamydb.client.portal import BlockingTransport, Portal

        def begun() -> BlockingTransport:
            direct = _direct(url, token, timeout_s, session)
            return BlockingTransport(Portal(), direct)

        return Client(OwnedTransport(begun), session)
    from streamydb.client.blocking.http import HttpTransport

    options = _http(url, token, verify, connections_max)
    made = partial(HttpTransport, options, history=session.history)
    return Client(OwnedTransport(made, HttpTransport.leave), session)


def connect_async(
    url: str,
    *,
    token: str | None = None,
    verify: bool | str | Path | ssl.SSLContext = True,
    consistency: Consistency = "strong",
    timeout_s: float = 30,
    connections_max: int = 100,
    procedures: str | Path | None = None,
) -> AsyncClient:
    """Return a client of a database, for coroutines; use it with `async with`. See `connect`."""
    session = _session(consistency, timeout_s, procedures)
    if _is_kafka(url):
        direct = partial(_direct, url, token, timeout_s, session)
        return AsyncClient(AsyncOwnedTransport(direct), session)
    from streamydb.client.awaiting.http import AsyncHttpTransport

    options = _http(url, token, verify, connections_max)
    made = partial(AsyncHttpTransport, options, history=session.history)
    return AsyncClient(AsyncOwnedTransport(made, AsyncHttpTransport.leave), session)


def _session(consistency: Consistency, timeout_s: float, procedures: str | Path | None) -> Session:
    if consistency not in {"strong", "session", "snapshot"}:
        raise ClientConfigurationError("consistency is one of strong, session, snapshot")
    modules = None if procedures is None else FolderModules([Path(procedures)])
    return Session(Options(consistency=consistency, timeout_s=timeout_s, modules=modules))


def _is_kafka(url: str) -> bool:
    scheme = split(url).scheme
    if scheme not in {"http", "https", "kafka"}:
        raise ClientConfigurationError(
            f"the URL begins with http://, https:// or kafka://, not {scheme or 'nothing'}://"
        )
    return scheme == "kafka"


def split(url: str) -> SplitResult:
    """The parts of a URL.
    Raises ClientConfigurationError: it has none: a bracket is open, a port is no number.
    """
    try:
        return urlsplit(url)
    except ValueError as fault:
        raise _unreadable(url, fault) from None


def _unreadable(url: str, fault: Exception) -> ClientConfigurationError:
    return ClientConfigurationError(f"{url!r} is no URL, such as http://host:port: {fault}")


def _http(
    url: str,
    token: str | None,
    verify: bool | str | Path | ssl.SSLContext,  # noqa: FBT001 - as in httpx
    connections_max: int,
) -> HttpOptions:
    import httpx

    from streamydb.client.connections import HttpOptions

    parts = split(url)
    try:
        httpx.URL(url)
    except httpx.InvalidURL as fault:
        raise _unreadable(url, fault) from None
    if not parts.hostname or parts.query or parts.fragment:
        raise ClientConfigurationError("a facade's URL is http://host:port or https://host:port")
    if token is not None and not (token.isascii() and token.isprintable() and token):
        raise ClientConfigurationError("a token is printable ASCII")
    trusted = Path(verify) if isinstance(verify, str) else verify
    if isinstance(trusted, Path) and not trusted.is_file():
        raise ClientConfigurationError(f"{trusted} is no file of certificates")
    return HttpOptions(url, token, trusted, connections_max)


def _direct(url: str, token: str | None, timeout_s: float, session: Session) -> AsyncTransport:
    """The transport of kafka://host:port/database?read_model=/folder."""
    try:
        module = import_module(_DIRECT)
    except ModuleNotFoundError as fault:
        raise ClientConfigurationError(
            f"kafka:// needs the package {fault.name}: {install('server')}; or connect to a facade "
            "(http://)"
        ) from None
    try:
        made: AsyncTransport = module.transport(url, token, timeout_s, session.history)
    except ClientError:
        raise
    except ConfigurationError as fault:
        raise ClientConfigurationError(str(fault)) from fault
    return made
