"""The facade's Prometheus metrics; labels are routes and statuses, never keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily

from streamydb.errors import ABORTED_CODES, REJECTED_CODES, StreamyError

METRICS_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"})
_BUCKETS: Final = (0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30)


_NONE_YET: Final = {
    ("committed", ""): 0,
    **{("aborted", code): 0 for code in ABORTED_CODES},
    **{("rejected", code): 0 for code in REJECTED_CODES},
}
"""What may come. Prometheus sees an increase only of what was there before, if only as zero."""


class _Results:
    """Results by status and code, counted elsewhere."""

    def __init__(self, text: str, value: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._text = text
        self._value = value

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "streamydb_facade_results", self._text, labels=("status", "code")
        )
        for (status, code), count in sorted({**_NONE_YET, **self._value()}.items()):
            family.add_metric((status, code), count)
        yield family


class FacadeMetrics:
    """The metrics of one facade, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._of: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._requests = self._counter("requests", "Requests", "method", "route", "status")
        self._problems = self._counter("problems", "Failed requests", "type")
        self._verdicts = self._counter("verdicts", "Answered transactions", "status")
        self._cut_off = self._counter("slow_readers", "Readers that were cut off")
        self._seconds = Histogram(
            "streamydb_facade_request_seconds",
            "Time to answer a request",
            ["method", "route"],
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        counters = self._of.get((method, route, status))
        if counters is None:
            label = method if method in _METHODS else "OTHER"
            count = self._requests.labels(label, route, str(status))
            counters = count, self._seconds.labels(label, route)
            if label == method:  # else there would be no end of them
                self._of[method, route, status] = counters
        counters[0].inc()
        counters[1].observe(seconds)

    def problem(self, slug: str) -> None:
        self._problems.labels(slug).inc()

    def verdict(self, status: str) -> None:
        """Count a transaction: committed, aborted, rejected, unknown, pending."""
        self._verdicts.labels(status).inc()

    def slow_reader(self) -> None:
        self._cut_off.inc()

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a number that is asked for when the metrics are."""
        gauge = Gauge(f"streamydb_facade_{name}", text, registry=self.registry)

        def ask() -> float:
            try:
                return value()
            except StreamyError:
                return math.nan

        gauge.set_function(ask)

    def counts(self, text: str, value: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        """Show how many results of each status and code there were, asked for when needed."""
        self.registry.register(_Results(text, value))

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"streamydb_facade_{name}", text, labels, registry=self.registry)
