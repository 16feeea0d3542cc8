"""Let pages of other web sites use the facade, if the settings name their origins (CORS).

The browser asks first (a preflight), without a token; what it may then send still needs one.
"""

from __future__ import annotations

from typing import Final

from streamydb.facade.asgi import Headers

_METHODS: Final = b"GET, HEAD, PUT, POST, DELETE"
ALLOWED: Final = (
    b"Authorization, Content-Type, Deadline-Ms, Idempotency-Key, If-Match, If-None-Match, "
    b"Last-Event-ID, Prefer, Streamydb-Generation, traceparent"
)
"""Headers that pages of other sites may send: all that the facade understands."""
EXPOSED: Final = (
    b"Content-Location, ETag, Location, Preference-Applied, Retry-After, Streamydb-Expires, "
    b"Streamydb-Generation, Streamydb-Snapshot, Streamydb-Time"
)
"""Headers of answers that they may read beside the plain ones."""
_KEPT_S: Final = b"600"


def is_preflight(method: str, headers: Headers) -> bool:
    """Return True if a browser asks what a page may send."""
    return method == "OPTIONS" and any(n == b"access-control-request-method" for n, _ in headers)


def preflight(origin: str) -> Headers:
    """Return the headers of the answer to a preflight of an allowed origin."""
    return [
        *shared(origin),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", ALLOWED),
        (b"access-control-max-age", _KEPT_S),
    ]


def shared(origin: str) -> Headers:
    """Return the headers by which a page of an allowed origin may read an answer."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED),
        (b"vary", b"Origin"),
    ]
