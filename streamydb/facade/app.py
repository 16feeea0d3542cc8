"""The facade put together, as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from streamydb.facade.about import About
from streamydb.facade.auth import Tokens, load_tokens
from streamydb.facade.console import Console
from streamydb.facade.console.pipelines import PipelineWatch
from streamydb.facade.console.sampler import Sampler
from streamydb.facade.endpoints import ENDPOINTS
from streamydb.facade.gate import Gate
from streamydb.facade.ports import ChangeSource, ReadModel, TransactionLog
from streamydb.facade.router import Router
from streamydb.facade.services import Services, make_services
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.traces import OFF, OpenTelemetry, exporting
from streamydb.local.folder import PipelineStatus


def create_app(
    model: ReadModel,
    log: TransactionLog,
    changes: ChangeSource,
    settings: FacadeSettings | None = None,
    tokens: Tokens | None = None,
    pipeline: Callable[[], PipelineStatus] | None = None,
    traces: OpenTelemetry | None = None,
    about: About | None = None,
) -> Gate:
    """Return the facade of a database as an ASGI application, which starts and stops `log` and
    `changes`.

    Without `settings`, `tokens` or `traces` the environment says them; without `pipeline` nobody
    sees the pipeline's status here.
    Raises ConfigurationError: the tokens cannot be read.
    """
    settings = FacadeSettings() if settings is None else settings
    tokens = load_tokens(settings) if tokens is None else tokens
    about = About() if about is None else about
    if traces is None and settings.traces == "otlp":
        traces = exporting()
    services = make_services(model, log, changes, settings, tokens, traces or OFF, pipeline, about)
    console = Console(about.database, Sampler(services, pipeline), PipelineWatch(about))
    router = Router(ENDPOINTS, services.metrics, console.sampler.traffic)
    return Gate(router, services, console, partial(_lifespan, services, console), traces)


@asynccontextmanager
async def _lifespan(services: Services, console: Console) -> AsyncGenerator[None, None]:
    await services.log.start()
    async with AsyncExitStack() as ending:  # the last one first; all, whatever fails
        for part in (
            services.log, services.changes, services.queries, services.statements,
            services.reader,
        ):  # fmt: skip
            ending.push_async_callback(part.stop)
        services.reader.begin()
        ticks = asyncio.create_task(services.ticker.run())
        ending.push_async_callback(asyncio.wait, [ticks])
        ending.callback(ticks.cancel)
        ending.push_async_callback(console.sampler.stop)
        yield
