"""Keys and ids in paths: exactly the bytes that were sent.

Servers decode a path, and some drop empty segments or resolve `..`; a key is any text. So the raw
path is split here, and the part after `/v1/kv/` or `/v1/transactions/` is kept as it was sent. No
other path has a segment that could be taken for another one.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from streamydb.errors import INVALID_KEY
from streamydb.facade.asgi import Scope
from streamydb.facade.problems import ProblemError
from streamydb.limits import KEY_BYTES_MAX

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
    found = [text for text in plain if text is not None and "/" not in text]
    kept = found if found[-1:] != [""] else found[:-1]  # a last slash is passed over
    if len(found) < len(plain) or not {"", ".", ".."}.isdisjoint(kept):
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
    """Decode the key in a path. Raises ProblemError: invalid-key."""
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
