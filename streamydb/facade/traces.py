"""Traces: OpenTelemetry spans around a request, its append and the wait for its verdict.

Off, which is the default, nothing of its SDK is imported and a request passes one `if`. On,
the trace goes on in the log: the record of the transaction carries a `traceparent` header (W3C),
beside its value, so that what the database computes stays a function of the values. Spans tell
routes, statuses and places in the log, never keys, values or ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from streamydb.errors import ConfigurationError, install
from streamydb.facade.asgi import Scope

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_NAME: Final = "streamydb.facade"


class Traces:
    """The tracer of the facade; this one makes no traces."""

    def span(self, name: str, **attributes: str | int) -> AbstractContextManager[Any]:
        """Return a span of the request that is being served, to be entered."""
        del name, attributes
        return nullcontext()

    def headers(self) -> Mapping[str, bytes] | None:
        """Return what a record carries so that the trace goes on; None without a trace."""
        return None


OFF: Final = Traces()


class OpenTelemetry(Traces):
    """Spans of OpenTelemetry, which `provider` makes and exports."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer(_NAME)
        self._propagator = TraceContextTextMapPropagator()

    def span(self, name: str, **attributes: str | int) -> AbstractContextManager[Any]:
        return self._tracer.start_as_current_span(name, attributes=dict(attributes))

    def headers(self) -> Mapping[str, bytes] | None:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return {name: value.encode() for name, value in carrier.items()} or None

    def server(self, scope: Scope) -> AbstractContextManager[Any]:
        """Return the span of an HTTP request, below the caller's if it sent a `traceparent`."""
        from opentelemetry.trace import SpanKind

        sent = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
            if name.lower() in {b"traceparent", b"tracestate"}
        }
        return self._tracer.start_as_current_span(
            f"HTTP {scope['method']}",
            context=self._propagator.extract(sent),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": scope["method"]},
        )

    def shutdown(self) -> None:
        self._provider.shutdown()


def exporting() -> OpenTelemetry:
    """Return traces that OTLP sends over HTTP. Raises ConfigurationError: the extra `otel` is
    missing.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigurationError(
            f"traces need a package that is missing ({error.name}): {install('otel')}; or unset "
            "STREAMYDB_SERVE_TRACES"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "streamydb-facade"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OpenTelemetry(provider)
