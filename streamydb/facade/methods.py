"""Tell all methods of an endpoint: to OPTIONS, where Litestar tells those of one of its handlers,
and with 405, where Litestar knows nothing of HEAD.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from litestar import Response, route
from litestar.handlers import HTTPRouteHandler

from streamydb.facade.gate import STREAMS, plain_path

__all__ = ["allowed", "with_options"]


def allowed(methods: Iterable[str], path: str) -> str:
    """Return the header Allow of an endpoint whose handlers take these methods."""
    found = {*methods, "OPTIONS"}
    head = {"HEAD"} if "GET" in found and plain_path(path) not in STREAMS else set()
    return ", ".join(sorted(found | head))


def with_options(handlers: Sequence[HTTPRouteHandler]) -> list[HTTPRouteHandler]:
    """Return `handlers` and, before them, those of OPTIONS: else Litestar would add its own."""
    methods: dict[str, set[str]] = defaultdict(set)
    for handler in handlers:
        for path in handler.paths:
            methods[path] |= handler.http_methods
    return [*(_handler(path, found) for path, found in methods.items()), *handlers]


def _handler(path: str, methods: set[str]) -> HTTPRouteHandler:
    allow = allowed(methods, path)

    @route(path, http_method="OPTIONS", status_code=204, include_in_schema=False)
    async def tell_methods() -> Response[None]:
        """Name the methods."""
        return Response(None, headers={"Allow": allow})

    return tell_methods
