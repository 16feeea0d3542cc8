"""Serve Prometheus metrics to whoever asks, if the settings name a port."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server

if TYPE_CHECKING:
    from streamydb.settings import Settings

__all__ = ["serve"]


def serve(registry: CollectorRegistry, settings: Settings) -> Callable[[], None]:
    """Serve metrics if the settings name a port; return what ends that."""
    if settings.metrics_port is None:
        return lambda: None
    server, thread = start_http_server(settings.metrics_port, settings.metrics_host, registry)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end
