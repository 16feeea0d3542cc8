"""Answer OPTIONS with all methods of an endpoint; Litestar tells those of one of its handlers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from litestar import Response, route
from litestar.handlers import HTTPRouteHandler

from streamydb.facade.gate import STREAMS

__all__ = ["with_options"]


def with_options(handlers: Sequence[HTTPRouteHandler]) -> list[HTTPRouteHandler]:
    """Return `handlers` and, before them, those of OPTIONS: else Litestar would add its own."""
    methods: dict[str, set[str]] = defaultdict(set)
    for handler in handlers:
        for path in handler.paths:
            methods[path] |= handler.http_methods
    return [*(_handler(path, found) for path, found in methods.items()), *handlers]


def _handler(path: str, methods: set[str]) -> HTTPRouteHandler:
    head = {"HEAD"} if "GET" in methods and path not in STREAMS else set()
    allow = ", ".join(sorted({*methods, *head, "OPTIONS"}))

    @route(path, http_method="OPTIONS", status_code=204, include_in_schema=False)
    async def tell_methods() -> Response[None]:
        """Name the methods."""
        return Response(None, headers={"Allow": allow})

    return tell_methods
