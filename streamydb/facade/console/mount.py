"""The routes and middleware of the console, which the facade mounts."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from litestar import Litestar
from litestar.handlers import HTTPRouteHandler

from streamydb.facade.about import About
from streamydb.facade.console.history import get_history
from streamydb.facade.console.pipelines import PipelineWatch, pipelines_handler
from streamydb.facade.console.sampler import Sampler
from streamydb.facade.console.static import get_file, get_page
from streamydb.facade.console.stats import stats_handler
from streamydb.facade.console.traffic import Kind
from streamydb.facade.gate import context_of
from streamydb.facade.services import Services
from streamydb.local.folder import PipelineStatus

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Scope, Send

__all__ = ["Console"]

_SERVED: Final = frozenset({"kv", "read", "transactions", "history"})


class Console:
    """The console of one facade.

    Attributes:
        opened: handlers for everybody: the page, which holds no data.
        guarded: handlers for those whom the facade knows.
    """

    def __init__(
        self, services: Services, pipeline: Callable[[], PipelineStatus] | None, about: About
    ) -> None:
        """Show `services` and, if it can be seen from here, what the pipeline says of itself."""
        self._sampler = Sampler(services, pipeline)
        self.opened: list[HTTPRouteHandler] = [get_page, get_file]
        self.guarded: list[HTTPRouteHandler] = [
            get_history,
            stats_handler(self._sampler, about.database),
            pipelines_handler(PipelineWatch(about)),
        ]

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None, None]:
        """Stop the sampler when the application ends."""
        try:
            yield
        finally:
            await self._sampler.stop()

    def observing(self, app: ASGIApp) -> ASGIApp:
        """Return `app`, with the time of every answer noted; it stands behind the facade's gate."""

        async def observed(scope: Scope, receive: Receive, send: Send) -> None:
            kind = _kind(str(scope.get("method", "")), str(scope.get("path", "")))
            if kind is None:  # the lifespan too: it has no path
                await app(scope, receive, send)
                return
            began = time.perf_counter()
            try:
                await app(scope, receive, send)
            finally:
                seconds, status = time.perf_counter() - began, context_of(scope).sender.status
                self._sampler.traffic.record(int(time.time()), kind, status, seconds)

        return observed


def _kind(method: str, path: str) -> Kind | None:
    """Tell a read from a write; None for requests that are no work of the database."""
    parts = path.split("/", 3)
    if len(parts) < 3 or parts[1] != "v1" or parts[2] not in _SERVED:
        return None
    writes = method in {"PUT", "DELETE"} or (method == "POST" and parts[2] == "transactions")
    return "write" if writes else "read"
