"""Keys and ids in paths: exactly the bytes that were sent, not what a router makes of them.

A router drops empty and trailing segments and may resolve `..`; a key is any text. So the part of
the raw path after `/v1/kv/` or `/v1/transactions/` is decoded here, and the router sees a fixed
word in its place (so that keys show up neither in its caches nor in its logs). What is left for the
router has been decoded, too: it sees no path that it could take for another one.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from streamydb.errors import INVALID_KEY
from streamydb.facade.problems import ProblemError
from streamydb.limits import KEY_BYTES_MAX

__all__ = ["NAMED", "check_query", "key_of", "take_name", "text_of"]

NAMED: Final = (
    "/v1/kv/", "/v1/transactions/", "/v1/explanations/", "/v1/history/", "/v1/streams/",
)  # fmt: skip
"""Paths whose rest is a name."""

_NAMED: Final = tuple(start.encode() for start in NAMED)
_UNUSUAL: Final = re.compile(rb"%|//|/\.")
_PLACEHOLDER: Final = "-"
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def take_name(scope: dict[str, Any]) -> bytes | None:
    """Take the name out of a request's path; return it still escaped, None if there is none.

    Raises:
        ProblemError: no-such-endpoint, for a path that a router could take for another one.
    """
    raw: bytes = scope.get("raw_path") or scope["path"].encode().replace(b"%", b"%25")
    raw = raw.partition(b"?")[0].removeprefix(scope.get("root_path", "").encode())
    if not raw.startswith(_NAMED):
        if not _UNUSUAL.search(raw):
            return None
        raw = scope["raw_path"] = _unescaped(raw)
        scope["path"], scope["root_path"] = raw.decode(errors="replace"), ""
    for start in NAMED:
        if raw.startswith(start.encode()):
            scope["path"] = start + _PLACEHOLDER
            scope["raw_path"] = scope["path"].encode()
            scope["root_path"] = ""
            return raw[len(start) :]
    return None


def _unescaped(raw: bytes) -> bytes:
    """Return a path without escapes but for those in its name, if it has one (RFC 3986, 6.2.2.2).

    Raises:
        ProblemError: no-such-endpoint: a segment is empty, a dot or two, has a slash, or is no
            UTF-8.
    """
    segments = raw.split(b"/")[1:]
    plain = [text_of(segment) for segment in segments]
    if f"/{plain[0]}/{''.join(map(str, plain[1:2]))}/" in NAMED and len(plain) > 2:
        return f"/{plain[0]}/{plain[1]}/".encode() + b"/".join(segments[2:])
    found = [text for text in plain if text is not None and "/" not in text]
    named = found if found[-1:] != [""] else found[:-1]  # the router passes over a last slash
    if len(found) < len(plain) or not {"", ".", ".."}.isdisjoint(named):
        detail = "A segment of the path is empty, `.`, `..`, or has a slash or no UTF-8 in it."
        raise ProblemError("no-such-endpoint", detail)
    return "".join(f"/{text}" for text in found).encode()


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
    """Decode the key in a path.

    Raises:
        ProblemError: invalid-key.
    """
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

    Raises:
        ProblemError: invalid-parameter.
    """
    if text_of(query) is None:
        raise ProblemError("invalid-parameter", "The query is not percent-encoded UTF-8.")
