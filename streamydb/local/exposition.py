"""Serve Prometheus metrics to whoever asks, if the settings name a port."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server

from streamydb.errors import ConfigurationError

if TYPE_CHECKING:
    from streamydb.settings import Settings


def serve(registry: CollectorRegistry, settings: Settings) -> Callable[[], None]:
    """Serve metrics if the settings name a port; return what ends that.
    Raises ConfigurationError: the port is taken, or there is no such address.
    """
    host, port = settings.metrics_host, settings.metrics_port
    if port is None:
        return lambda: None
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigurationError(
            f"metrics cannot be served at {host}:{port} ({error.strerror}): free it, or name "
            "another one (STREAMYDB_METRICS_PORT, STREAMYDB_METRICS_HOST)"
        ) from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end
