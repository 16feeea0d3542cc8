"""The variables of the environment that say how to reach a facade: proxies, and whom to trust.

httpx reads them for all hosts that there are, and fails on what it does not understand, though it
is about another host. A client has one address. So what is about that is found here, and httpx is
told no more.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from importlib.util import find_spec
from typing import Final
from urllib.request import getproxies

import httpx

from streamydb.client.errors import ClientConfigurationError

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
    """Return True if an entry of NO_PROXY is about an address; what is no entry is about none.

    It is `*`, a host, which stands for those below it, too, `.host` for those below it only, an IP
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
    address, network = _address(own), _network(host)
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


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
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
