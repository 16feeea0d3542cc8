"""The Prometheus metrics of a read model's follower, read from the store when asked."""

from __future__ import annotations

import math
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

from streamydb.errors import StreamyError
from streamydb.read_model.core import ResolvedPoint
from streamydb.read_model.model import ReadModel


def registry_of(model: ReadModel) -> CollectorRegistry:
    registry = CollectorRegistry()

    def show(name: str, text: str, value: Callable[[ResolvedPoint], float]) -> None:
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
