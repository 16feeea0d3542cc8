"""The Prometheus metrics of a read model's follower, read from the store when asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from streamydb.errors import StreamyError

if TYPE_CHECKING:
    from streamydb.read_model.core import Resolved
    from streamydb.read_model.model import ReadModel
    from streamydb.settings import Settings

__all__ = ["registry_of", "serve_metrics"]


def registry_of(model: ReadModel) -> CollectorRegistry:
    """Return the metrics of a read model."""
    registry = CollectorRegistry()

    def show(name: str, text: str, value: Callable[[Resolved], float]) -> None:
        def ask() -> float:
            try:
                return value(model.latest())
            except StreamyError:
                return math.nan

        gauge = Gauge(f"streamydb_read_model_{name}", text, registry=registry)
        gauge.set_function(ask)

    show("seq", "Last seq that reads see", lambda at: at.seq)
    show("timestamp_seconds", "Commit time of that seq", lambda at: at.ts_ms / 1000)
    show("covered_records", "Log records up to that seq", lambda at: sum(at.offsets.values()))
    return registry


def serve_metrics(model: ReadModel, settings: Settings) -> Callable[[], None]:
    """Serve the metrics if the settings name a port; return what ends that."""
    if settings.metrics_port is None:
        return lambda: None
    server, thread = start_http_server(
        settings.metrics_port, settings.metrics_host, registry_of(model)
    )

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end
