"""The objects that the endpoints work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamydb.facade.about import About
from streamydb.facade.auth import Tokens
from streamydb.facade.bounds import Budget, Limiter
from streamydb.facade.feed import Feed
from streamydb.facade.health import HealthMonitor
from streamydb.facade.life.explainer import Explainer
from streamydb.facade.metrics import FacadeMetrics
from streamydb.facade.ports import ChangeSource, ReadModel, TransactionLog
from streamydb.facade.reads import Reader
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.sql_queries import QueryRunner
from streamydb.facade.sql_statements import StatementRunner
from streamydb.facade.stream_pages import StreamFeed
from streamydb.facade.ticks import Ticker
from streamydb.facade.traces import OFF, Traces
from streamydb.facade.waiting import Shutdown
from streamydb.facade.writes import TransactionWriter
from streamydb.local.folder import PipelineStatus


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one facade."""

    settings: FacadeSettings
    model: ReadModel
    log: TransactionLog
    changes: ChangeSource
    tokens: Tokens
    metrics: FacadeMetrics
    ending: Shutdown
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
    explainer: Explainer


def make_services(
    model: ReadModel,
    log: TransactionLog,
    changes: ChangeSource,
    settings: FacadeSettings,
    tokens: Tokens,
    traces: Traces = OFF,
    pipeline: Callable[[], PipelineStatus] | None = None,
    about: About | None = None,
) -> Services:
    metrics, ending = FacadeMetrics(), Shutdown()
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
        explainer=Explainer(model, settings, about or About()),
    )
    _show(services)
    return services


def _show(services: Services) -> None:
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
