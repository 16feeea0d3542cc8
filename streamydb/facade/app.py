"""The facade as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import re
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from litestar import Litestar, Response, Router
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.exceptions import HTTPException, ValidationException
from litestar.handlers import BaseRouteHandler

from streamydb.errors import StreamyError
from streamydb.facade.about import About
from streamydb.facade.auth import Tokens, load_tokens
from streamydb.facade.changes import get_changes
from streamydb.facade.constraints import get_constraints
from streamydb.facade.feed_ports import ChangeSource
from streamydb.facade.gate import Gate, context_of
from streamydb.facade.kv import delete_value, get_value, put_value
from streamydb.facade.kv_lists import list_values, read_values
from streamydb.facade.life.endpoint import explanation_handler
from streamydb.facade.methods import allowed, with_options
from streamydb.facade.openapi import openapi_config
from streamydb.facade.operations import (
    get_limits,
    get_live,
    get_metrics,
    get_problem,
    get_problems,
    get_ready,
)
from streamydb.facade.ports import LogUnavailableError, ReadModel, TransactionLog
from streamydb.facade.problems import ProblemError, problem_response, told_of
from streamydb.facade.services import Services, make_services
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.shortcut import Shortcut
from streamydb.facade.sql_endpoint import post_query, post_sql
from streamydb.facade.streams import get_stream
from streamydb.facade.traces import OFF, OpenTelemetry, exporting, traced
from streamydb.facade.transactions import get_transaction, post_transaction
from streamydb.local.folder import PipelineStatus

if TYPE_CHECKING:
    from litestar.types import ASGIApp

__all__ = ["create_app"]

_Connection: TypeAlias = ASGIConnection[Any, Any, Any, Any]

_LOG: Final = logging.getLogger("streamydb.facade")
_GUARDED: Final = [
    get_constraints,
    get_value, put_value, delete_value, list_values, read_values, post_transaction,
    get_transaction, get_changes, get_stream, get_limits, get_metrics, post_query,
    post_sql,
]  # fmt: skip
_OPEN: Final = [get_live, get_ready, get_problems, get_problem]
_TEXTS: Final = frozenset({"prefix", "start", "end", "cursor", "where", "where_before"})
"""Query parameters that may be any text."""
_NUMBERS: Final[dict[Any, re.Pattern[str]]] = {
    int: re.compile(r"-?(?:0|[1-9][0-9]*)"),
    float: re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"),
}
"""The forms of numbers, as JSON has them."""
_OF_STATUS: Final = {
    400: ("invalid-parameter", "A parameter is missing or malformed."),
    404: ("no-such-endpoint", "See /schema for the endpoints."),
    405: ("method-not-allowed", "See the header Allow."),
    413: ("too-large", "The body is too large."),
}


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
    """Return the facade of a database as an ASGI application.

    Args:
        model: what is read.
        log: what is written; started and stopped with the application.
        changes: the change feed; started and stopped with the application.
        settings: its limits; by default from the environment.
        tokens: who may do what; by default those that the settings name.
        pipeline: what the pipeline says of itself; None: that is not to be seen here.
        traces: where spans go; by default where the settings say, which is nowhere.
        about: what the console tells besides: the database's name, and all its pipelines.

    Raises:
        ConfigurationError: the tokens cannot be read.
    """
    from streamydb.facade.console import Console  # it is made of parts of this package

    settings = FacadeSettings() if settings is None else settings
    tokens = load_tokens(settings) if tokens is None else tokens
    if traces is None and settings.traces == "otlp":
        traces = exporting()
    services = make_services(model, log, changes, settings, tokens, traces or OFF, pipeline)
    console = Console(services, pipeline, about or About())
    explained = explanation_handler(
        about or About(), settings.searches_max, settings.client_searches_max
    )
    failed = _failed(services)
    guarded = Router(
        "/", route_handlers=with_options([*_GUARDED, explained, *console.guarded]),
        guards=[_authenticate(services)],
    )
    opened = Router(
        "/", route_handlers=with_options([*_OPEN, *console.opened]), guards=[_known_query]
    )
    inner = Litestar(
        route_handlers=[guarded, opened],
        state=State({"services": services}),
        exception_handlers={Exception: lambda request, error: failed(error, request.scope["path"])},
        lifespan=[_lifespan(services), console.lifespan],
        openapi_config=openapi_config(),
        logging_config=None,
        request_max_body_size=None,  # the facade counts what it reads itself
        debug=False,
    )
    observed = console.observing(cast("ASGIApp", Shortcut(inner, services, failed)))
    app = observed if traces is None else traced(observed, traces)
    return Gate(
        app, settings, services.metrics, services.writer.in_flight, services.ending,
        lambda: model.generation,
    )  # fmt: skip


def _lifespan(services: Services) -> Callable[[Litestar], Any]:
    """Start and stop what the facade uses."""

    @asynccontextmanager
    async def run(_: Litestar) -> AsyncGenerator[None, None]:
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
            yield

    return run


def _authenticate(services: Services) -> Callable[..., Coroutine[Any, Any, None]]:
    """The guard that finds out who sends a request, and then looks at its query.

    Guards are coroutines, since Litestar calls plain functions in a thread, which would cost more
    than the rest of a read; and one does both, since Litestar copies the handler for each of them.
    """

    async def guard(connection: _Connection, handler: BaseRouteHandler) -> None:
        header = connection.headers.get("authorization")
        context_of(connection.scope).client = services.tokens.identify(header)
        await _known_query(connection, handler)

    return guard


async def _known_query(connection: _Connection, handler: BaseRouteHandler) -> None:
    """Refuse query parameters that the endpoint does not know, or that are given twice.

    So is `null` in place of a number or a word: the router would take it for none. So is a number
    that JSON writes otherwise, as `1e3` for an integer: a body may not have it either.
    """
    pairs = list(connection.query_params.multi_items())
    given = [name for name, _ in pairs]
    known = {name.rstrip("_") for name in handler.parsed_fn_signature.parameters} - {"request"}
    if not set(given) <= known or len(set(given)) != len(given):
        names = ", ".join(sorted(known)) or "none"
        detail = f"A query parameter is unknown or given twice. Known here: {names}."
        raise ProblemError("invalid-parameter", detail)
    nulls = [name for name, text in pairs if name not in _TEXTS and text.lower() == "null"]
    if nulls:
        raise ProblemError("invalid-parameter", "null is no value here.", parameters=nulls)
    _check_numbers(pairs, handler)


def _check_numbers(pairs: list[tuple[str, str]], handler: BaseRouteHandler) -> None:
    """Refuse query parameters that are to be numbers and are none as JSON writes them.

    Raises:
        ProblemError: invalid-parameter.
    """
    fields = handler.parsed_fn_signature.parameters
    for name, text in pairs:
        field = fields.get(name)
        types = () if field is None else (field, *field.inner_types)
        forms = [_NUMBERS[each.annotation] for each in types if each.annotation in _NUMBERS]
        if forms and forms[0].fullmatch(text) is None:
            detail = f"{name} is a number, written as in JSON, and perhaps whole."
            raise ProblemError("invalid-parameter", detail, parameters=[name])


def _failed(services: Services) -> Callable[..., Response[bytes]]:
    """Return what makes an answer of an exception, and of the path that was asked for."""

    def failed(error: Exception, path: str = "") -> Response[bytes]:
        problem = _problem_of(error, path)
        services.metrics.problem(problem.problem.slug)
        return problem_response(problem)

    return failed


def _problem_of(error: Exception, path: str) -> ProblemError:
    """The problem that an exception stands for, at a path."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, LogUnavailableError):
        return ProblemError("log-unavailable", f"{told_of(error)}.", retry_after_s=1)
    if isinstance(error, StreamyError):
        _LOG.warning("the read model failed with %s", type(error).__name__)
        return ProblemError("not-ready", "The read model cannot be read.", retry_after_s=1)
    if isinstance(error, HTTPException) and error.status_code in _OF_STATUS:
        slug, detail = _OF_STATUS[error.status_code]
        told = (error.headers or {}).get("allow")  # as Litestar writes it
        headers = {} if told is None else {"Allow": allowed(told.split(", "), path)}
        if isinstance(error, ValidationException):
            return ProblemError(slug, detail, parameters=_names(error))
        return ProblemError(slug, detail, headers=headers)
    frames = "".join(traceback.format_tb(error.__traceback__))  # where, and none of the values
    _LOG.error("a request failed with %s\n%s", type(error).__name__, frames)
    return ProblemError("internal", "A fault in streamy-db; its log tells where.")


def _names(error: ValidationException) -> list[str]:
    """The parameters that a request got wrong."""
    extra = error.extra if isinstance(error.extra, list) else []
    named = [str(item["key"]) for item in extra if isinstance(item, dict) and "key" in item]
    return [name.rstrip("_") for name in named]
