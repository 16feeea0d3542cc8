"""Making clients from URLs."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from streamydb.client.awaiting.client import AsyncClient
from streamydb.client.blocking.client import Client
from streamydb.client.requests import Consistency
from streamydb.client.session import Options, Session
from streamydb.errors import ConfigurationError
from streamydb.procedures.folder import FolderModules

if TYPE_CHECKING:
    from streamydb.client.connections import HttpOptions
    from streamydb.facade.direct import DirectTransport

__all__ = ["connect", "connect_async"]

_KAFKA_FORM = "kafka://host:port[,host:port]/database?read_model=/folder"


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
        ConfigurationError: the arguments make no sense; or there is no read model in the folder.
    """
    session = _session(consistency, timeout_s, procedures)
    if _is_kafka(url):
        from streamydb.client.portal import BlockingTransport, Portal

        direct = _direct(url, token, timeout_s)
        return Client(BlockingTransport(Portal(), direct), session)
    from streamydb.client.blocking.http import HttpTransport

    return Client(HttpTransport(_http(url, token, verify, connections_max)), session)


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
        return AsyncClient(_direct(url, token, timeout_s), session)
    from streamydb.client.awaiting.http import AsyncHttpTransport

    return AsyncClient(AsyncHttpTransport(_http(url, token, verify, connections_max)), session)


def _session(
    consistency: Consistency, timeout_s: float, procedures: str | Path | None
) -> Session:
    if consistency not in {"strong", "session", "snapshot"}:
        raise ConfigurationError("consistency is one of strong, session, snapshot")
    modules = None if procedures is None else FolderModules([Path(procedures)])
    return Session(Options(consistency=consistency, timeout_s=timeout_s, modules=modules))


def _is_kafka(url: str) -> bool:
    scheme = _split(url).scheme
    if scheme not in {"http", "https", "kafka"}:
        raise ConfigurationError(
            f"the URL begins with http://, https:// or kafka://, not {scheme or 'nothing'}://"
        )
    return scheme == "kafka"


def _split(url: str) -> SplitResult:
    """The parts of a URL.

    Raises:
        ConfigurationError: it has none: a bracket is open, a port is no number.
    """
    try:
        return urlsplit(url)
    except ValueError as fault:
        raise _unreadable(url, fault) from None


def _unreadable(url: str, fault: Exception) -> ConfigurationError:
    return ConfigurationError(f"{url!r} is no URL, such as http://host:port: {fault}")


def _http(
    url: str,
    token: str | None,
    verify: bool | str | Path | ssl.SSLContext,  # noqa: FBT001 - as in httpx
    connections_max: int,
) -> HttpOptions:
    import httpx

    from streamydb.client.connections import HttpOptions

    parts = _split(url)
    try:
        httpx.URL(url)
    except httpx.InvalidURL as fault:
        raise _unreadable(url, fault) from None
    if not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError("a facade's URL is http://host:port or https://host:port")
    if token is not None and not (token.isascii() and token.isprintable() and token):
        raise ConfigurationError("a token is printable ASCII")
    trusted = Path(verify) if isinstance(verify, str) else verify
    if isinstance(trusted, Path) and not trusted.is_file():
        raise ConfigurationError(f"{trusted} is no file of certificates")
    return HttpOptions(url, token, trusted, connections_max)


def _direct(url: str, token: str | None, timeout_s: float) -> DirectTransport:
    """The transport of kafka://host:port/database?read_model=/folder."""
    from pydantic import ValidationError

    from streamydb.facade.direct import DirectTransport
    from streamydb.facade.kafka import KafkaLog
    from streamydb.facade.kafka_changes import KafkaChanges
    from streamydb.facade.settings import FacadeSettings
    from streamydb.read_model import ReadModel
    from streamydb.settings import Settings

    if token is not None:
        raise ConfigurationError("a token is for facades; Kafka has settings of its own")
    brokers, database, folder = _kafka_parts(url)
    try:
        settings = Settings(database=database, bootstrap=brokers)
        facade = FacadeSettings(verdict_timeout_s=max(timeout_s, 30))
    except ValidationError as error:
        raise ConfigurationError(f"{_KAFKA_FORM}: {error.errors()[0]['msg']}") from None
    model = ReadModel.open(folder, database)
    log, changes = KafkaLog(settings, facade), KafkaChanges(settings, facade, model)
    return DirectTransport(model, log, changes, facade, on_close=model.close)


def _kafka_parts(url: str) -> tuple[str, str, Path]:
    """The brokers, the database and the folder that a URL names."""
    parts = _split(url)
    query = parse_qs(parts.query)
    folders = query.pop("read_model", [])
    database = unquote(parts.path.removeprefix("/"))
    if not parts.netloc or not database or len(folders) != 1 or query or parts.fragment:
        raise ConfigurationError(f"the URL of a database on Kafka is {_KAFKA_FORM}")
    return parts.netloc, database, Path(folders[0])
