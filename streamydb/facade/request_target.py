"""The request line and the host of a request (RFC 9112, sections 3 and 6; RFC 3986), read once.

Parsers forgive mistakes. So the line, the target and the fields that frame a body are held against
the standard here.

Servers decode a path, and some drop empty segments or resolve `..`; a key is any text. So the raw
path is split here, and a name such as the one after `/v1/kv/` is kept as it was sent. No other path
has a segment that could be taken for another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from streamydb.errors import INVALID_KEY
from streamydb.facade.asgi import Scope
from streamydb.facade.problems import ProblemError
from streamydb.limits import KEY_BYTES_MAX

METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT")
"""Methods that some endpoint has."""

WHOLE: Final = "*"
"""The path of a request about the server as a whole."""

_WHOLE: Final = WHOLE.encode()
usual_line: Final = re.compile(rb"(?:GET|PUT|POST|DELETE|HEAD) /[!-~]* HTTP/1\.1\r\n").match
"""Match bytes that begin with a request line which needs no second look."""

_KNOWN: Final = frozenset({*METHODS, "CONNECT", "PATCH", "TRACE"})
"""Methods of RFC 9110 and RFC 5789; the parser knows others beside them."""

_VERSIONS: Final = frozenset({b"1.0", b"1.1"})
_FRAMING: Final = frozenset({b"content-length", b"host", b"transfer-encoding"})
_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) [\x21-\x7e]+ HTTP/1\.[01]\r\n")
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?#]+)([^?]*)(?:\?(.*))?", re.DOTALL)
_HOST: Final = re.compile(
    r"(?:\[(?P<literal>[0-9A-Fa-f:.]+)\]|(?P<name>(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+))"
    r"(?::[0-9]*)?"
)


class RequestTarget(NamedTuple):
    """The target of a request; path and query are still escaped, the authority stands for Host."""

    path: bytes
    query: bytes
    authority: bytes | None = None


def method_of(line: bytes) -> str | None:
    """Return the method that a whole request line of HTTP/1.0 or HTTP/1.1 begins with.

    It is empty if no standard has the method, and None if the bytes are no such line.
    """
    line_match = _LINE.match(line)
    if line_match is None:
        return None
    method = line_match[1].decode()
    return method if method in _KNOWN else ""


def read_target(method: bytes, target: bytes) -> RequestTarget:
    """Take a target apart, in whichever of its four forms it is.
    Raises ValueError: it has none of the forms that its method may have.
    """
    connects = method == b"CONNECT"
    if target.startswith(b"/") and not connects:
        path, _, query = target.partition(b"?")
        return RequestTarget(path, query)
    if connects:
        name, colon, port = target.rpartition(b":")
        if colon and port.isdigit() and _is_host(name):
            return RequestTarget(_WHOLE, b"", target)
        raise ValueError("the target of CONNECT is no host and port")
    if target == _WHOLE and method == b"OPTIONS":
        return RequestTarget(_WHOLE, b"")
    return _absolute(method, target)


def place_target(scope: dict[str, Any], method: bytes, target: bytes) -> bytes | None:
    """Write a target into an ASGI scope; return its authority, if it has one.
    Raises ValueError: see `read_target`.
    """
    if target.startswith(b"/") and method != b"CONNECT":  # at a third of the price of an object
        (path, _, query), authority = target.partition(b"?"), None
    else:
        path, query, authority = read_target(method, target)
    text = path.decode("ascii")
    scope["raw_path"] = path
    scope["path"] = unquote(text) if "%" in text else text
    scope["query_string"] = query
    return authority


def _absolute(method: bytes, target: bytes) -> RequestTarget:
    parts = _ABSOLUTE.fullmatch(target)
    if parts is None or not _is_host(parts[1]):
        raise ValueError("the target is neither a path nor an address of HTTP")
    path, query = parts[2], parts[3]
    if not path:
        path = _WHOLE if method == b"OPTIONS" and query is None else b"/"
    return RequestTarget(path, query or b"", parts[1])


def check_frame(version: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a head that does not say where its body ends, or for which host it is.

    Raises:
        ValueError: there is not one Host; a transfer coding other than `chunked`, several of them,
            one beside a Content-Length, or one in HTTP/1.0.
    """
    hosts, coding, sized = 0, None, False
    for name, value in headers:
        if name not in _FRAMING:
            continue
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            sized = True
        else:
            coding = value if coding is None else coding + b"," + value
    if hosts > 1 or (hosts == 0 and version == b"1.1"):
        raise ValueError("there is not one Host")
    if version not in _VERSIONS:
        raise ValueError("the version is neither 1.0 nor 1.1")
    if coding is not None and (
        sized or version == b"1.0" or coding.strip(b" \t").lower() != b"chunked"
    ):
        raise ValueError("the end of the body is not certain")


def with_host(
    headers: Sequence[tuple[bytes, bytes]], authority: bytes
) -> list[tuple[bytes, bytes]]:
    return [(b"host", authority), *((n, value) for n, value in headers if n != b"host")]


@lru_cache(maxsize=256)
def host_name(field: str) -> str | None:
    """Return the host in a header Host, in small letters, without brackets and port.

    It is empty if the header is, and None if the header is malformed.
    """
    if not field:
        return ""
    host = _HOST.fullmatch(field)
    if host is None:
        return None
    if host["literal"] is None:
        return host["name"].lower()
    try:
        IPv6Address(host["literal"])
    except AddressValueError:
        return None
    return host["literal"].lower()


def _is_host(authority: bytes) -> bool:
    return bool(host_name(authority.decode("latin-1")))


_UNUSUAL: Final = re.compile(rb"%|//|/\.")
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def split_path(scope: Scope, named: tuple[bytes, ...]) -> tuple[str, bytes | None]:
    """Split a path into one of the ``named`` beginnings and the name behind it, still escaped.

    Of any other path: all of it without escapes, and None.
    Raises ProblemError: no-such-endpoint, for a path that could be taken for another one.
    """
    raw: bytes = scope.get("raw_path") or scope["path"].encode().replace(b"%", b"%25")
    raw = raw.partition(b"?")[0].removeprefix(scope.get("root_path", "").encode())
    if not raw.startswith(named):
        if not _UNUSUAL.search(raw):
            return raw.decode(errors="replace"), None
        raw = _unescaped(raw, named)
    for start in named:
        if raw.startswith(start):
            return start.decode(), raw[len(start) :]
    return raw.decode(errors="replace"), None


def _unescaped(raw: bytes, named: tuple[bytes, ...]) -> bytes:
    """Return a path without escapes but for those in its name, if it has one (RFC 3986, 6.2.2.2).
    Raises ProblemError: no-such-endpoint: a segment is empty, a dot or two, has a slash, or is no
    UTF-8.
    """
    segments = raw.split(b"/")[1:]
    plain = [text_of(segment) for segment in segments]
    start = f"/{plain[0]}/{''.join(map(str, plain[1:2]))}/".encode()
    if start in named and len(plain) > 2:
        return start + b"/".join(segments[2:])
    texts = [text for text in plain if text is not None and "/" not in text]
    names = texts if texts[-1:] != [""] else texts[:-1]  # a last slash is passed over
    if len(texts) < len(plain) or not {"", ".", ".."}.isdisjoint(names):
        detail = "A segment of the path is empty, `.`, `..`, or has a slash or no UTF-8 in it."
        raise ProblemError("no-such-endpoint", detail)
    return "".join(f"/{text}" for text in texts).encode()


def text_of(escaped: bytes) -> str | None:
    """Decode an escaped name, strictly; None if it is not UTF-8 or badly escaped."""
    if b"%" in escaped:
        if _BAD_ESCAPE.search(escaped):
            return None
        escaped = unquote_to_bytes(escaped)
    try:
        return escaped.decode()
    except UnicodeDecodeError:
        return None


def key_of(escaped: bytes) -> str:
    key = text_of(escaped)
    if key is None:
        detail = "The key in the path is not percent-encoded UTF-8."
        raise ProblemError("invalid-key", detail, code=INVALID_KEY)
    if not 1 <= len(key.encode()) <= KEY_BYTES_MAX:
        detail = f"A key has 1 to {KEY_BYTES_MAX} bytes of UTF-8."
        raise ProblemError("invalid-key", detail, code=INVALID_KEY)
    return key


def check_query(query: bytes) -> None:
    """Refuse a query string that would be decoded to something else than was meant.
    Raises ProblemError: invalid-parameter.
    """
    if text_of(query) is None:
        raise ProblemError("invalid-parameter", "The query is not percent-encoded UTF-8.")
