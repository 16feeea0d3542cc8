"""Metrics that are served at an address, or cannot be."""

from __future__ import annotations

import socket
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Gauge

from streamydb.errors import ConfigurationError
from streamydb.local.exposition import serve
from streamydb.settings import Settings


def test_metrics_are_served_until_that_is_ended_and_a_port_that_is_taken_is_told() -> None:
    registry = CollectorRegistry()
    Gauge("some_figure", "A figure", registry=registry).set(7)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings(metrics_port=port)
        with pytest.raises(ConfigurationError, match=rf"at 127\.0\.0\.1:{port} \(Address already"):
            serve(registry, settings)
    end = serve(registry, settings)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"some_figure 7.0" in answer.read()
    end()
    serve(registry, Settings())()
