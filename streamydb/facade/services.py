"""The objects that the endpoints work with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from litestar import Request, Response

from streamydb.facade.auth import Caller, Tokens
from streamydb.facade.bounds import Budget, Limiter
from streamydb.facade.ending import Ending
from streamydb.facade.feed import Feed
from streamydb.facade.feed_ports import ChangeSource
from streamydb.facade.gate import context_of
from streamydb.facade.health import HealthMonitor
from streamydb.facade.metrics import FacadeMetrics
from streamydb.facade.ports import ReadModel, TransactionLog
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import Reader
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.sql_queries import QueryRunner
from streamydb.facade.sql_statements import StatementRunner
from streamydb.facade.stream_pages import StreamFeed
from streamydb.facade.ticks import Ticker
from streamydb.facade.traces import OFF, Traces
from streamydb.facade.writes import TransactionWriter
from streamydb.local.folder import PipelineStatus

if TYPE_CHECKING:
    from litestar.types import Receive, Scope

__all__ = [
    "JSON_HEADERS",
    "AnyRequest",
    "Sent",
    "Services",
    "client_of",
    "headers_of",
    "json_response",
    "make_services",
    "services_of",
]

JSON_HEADERS: Final = {"Cache-Control": "no-cache", "Vary": "Authorization"}
"""Headers of every answer of JSON."""

_SINGLE: Final = ("Idempotency-Key", "Deadline-Ms", "Last-Event-ID")

AnyRequest: TypeAlias = Request[Any, Any, Any]


class Sent(Protocol):
    """A request as it came, whoever has found out where it goes."""

    @property
    def scope(self) -> Scope:
        """Return what the server tells of it."""

    @property
    def receive(self) -> Receive:
        """Gives its body."""


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one facade."""

    settings: FacadeSettings
    model: ReadModel
    log: TransactionLog
    changes: ChangeSource
    tokens: Tokens
    metrics: FacadeMetrics
    ending: Ending
    bodies: Budget
    reader: Reader
    queries: QueryRunner
    statements: StatementRunner
    writer: TransactionWriter
    feed: Feed
    emitted: StreamFeed
    streams: Limiter
    health: HealthMonitor
    ticker: Ticker


def make_services(
    model: ReadModel,
    log: TransactionLog,
    changes: ChangeSource,
    settings: FacadeSettings,
    tokens: Tokens,
    traces: Traces = OFF,
    pipeline: Callable[[], PipelineStatus] | None = None,
) -> Services:
    """Put the parts of a facade together."""
    metrics, ending = FacadeMetrics(), Ending()
    reader = Reader(model, log, settings, ending)
    queries = QueryRunner(model, reader, settings)
    services = Services(
        settings=settings,
        model=model,
        log=log,
        changes=changes,
        tokens=tokens,
        metrics=metrics,
        ending=ending,
        bodies=Budget(settings.bodies_bytes_max),
        reader=reader,
        queries=queries,
        statements=StatementRunner(queries, reader, settings),
        writer=TransactionWriter(model, log, settings, metrics, traces, ending),
        feed=Feed(changes, settings.stream_bytes_max, settings.catch_ups_max, ending),
        emitted=StreamFeed(
            changes.streams, settings.stream_bytes_max, settings.catch_ups_max, ending
        ),
        streams=Limiter("event streams", settings.streams_max, settings.client_streams_max),
        health=HealthMonitor(model, log, changes, settings, reader.passed, pipeline),
        ticker=Ticker(model, log, settings),
    )
    _show(services)
    return services


def services_of(request: AnyRequest) -> Services:
    """Return the parts of the facade that a request is sent to."""
    services: Services = request.app.state["services"]
    return services


def client_of(request: Sent) -> Caller:
    """Return who sends a request."""
    return context_of(request.scope).client


def headers_of(request: Sent) -> dict[str, str]:
    """Return a request's headers; those that were sent several times are joined.

    Raises:
        ProblemError: invalid-parameter, if one of which there can be one was sent several times.
    """
    context = context_of(request.scope)
    if context.headers is None:
        context.headers = _joined(request.scope["headers"])
    return context.headers


def _joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a scope by name; raises as `headers_of`."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    again = [name for name in _SINGLE if len(found.get(name.lower(), ())) > 1]
    if again:
        detail = f"The header {again[0]} was sent several times."
        raise ProblemError("invalid-parameter", detail, parameters=again)
    return {name: ", ".join(values) for name, values in found.items()}


def json_response(
    body: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> Response[bytes]:
    """Return an answer of JSON that may not be kept without asking."""
    shown = {**JSON_HEADERS, **(headers or {})}
    return Response(body, status_code=status, media_type="application/json", headers=shown)


def _show(services: Services) -> None:
    """Show what is under way in the metrics."""
    show = services.metrics.gauge
    show("in_flight", "Transactions waited for", lambda: services.writer.in_flight.total)
    show("waiting_reads", "Reads that wait", lambda: services.reader.waiters.total)
    show("queries", "Queries in SQL", lambda: services.queries.running.total)
    show("streams", "Event streams", lambda: services.streams.total)
    show("body_bytes", "Bytes of bodies held", lambda: services.bodies.held)
    show(
        "commit_ahead_seconds", "The newest commit time less this machine's clock",
        lambda: services.log.clocks().ahead_ms / 1000,
    )  # fmt: skip
    show(
        "commit_still_seconds", "How long commit times stand still",
        lambda: services.log.clocks().still_ms / 1000,
    )  # fmt: skip
    show("ticks", "Transactions that let time go on", lambda: services.ticker.appended)
    show("feed_seq", "Last seq of the change feed", lambda: services.feed.latest)
    services.metrics.counts("Results of the database that were seen", services.log.counts)
    show("log_faulty", "1 if the log cannot be used", lambda: float(bool(services.log.fault())))
    show("read_model_seq", "Last seq that reads see", lambda: services.model.latest().seq)
