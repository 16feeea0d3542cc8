"""Traces of the facade: off they cost nothing, on they go from the caller into the log."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.traces import OFF, OpenTelemetry
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = int(CALLER.split("-")[1], 16)
SECRETS = ("acct/secret-key", "secret-value", "secret-id")
BODY = b'{"id":"secret-id","updates":[{"op":"put","key":"acct/secret-key","value":"secret-value"}]}'


def traced(database: MemoryDatabase) -> tuple[InProcess, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = FacadeSettings()
    app = create_app(
        database.model, database.log, database.changes, settings, traces=OpenTelemetry(provider)
    )
    return InProcess(app), exporter


@scenario
async def test_a_trace_goes_from_the_caller_into_the_log() -> None:
    database = MemoryDatabase()
    client, exporter = traced(database)
    async with client:
        headers = {"traceparent": CALLER}
        assert (await client.request("POST", "/v1/transactions", BODY, headers)).status == 200
        spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"HTTP POST", "append", "wait for verdict"}
    request = spans["HTTP POST"]
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == CALLER.split("-")[2]
    assert {span.context.trace_id for span in spans.values()} == {TRACE}
    for name in ("append", "wait for verdict"):
        assert spans[name].parent == request.context
    assert dict(request.attributes or {})["http.response.status_code"] == 200
    (sent,) = database.log.headers
    version, trace, span, _ = sent["traceparent"].decode().split("-")
    assert (version, int(trace, 16)) == ("00", TRACE)
    assert span == f"{spans['append'].context.span_id:016x}"
    shown = "".join(each.to_json() for each in spans.values())
    assert not [secret for secret in SECRETS if secret in shown]


@pytest.mark.parametrize("sent", ["", "x", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "é" * 99])
@scenario
async def test_a_traceparent_that_is_none_begins_a_new_trace(sent: str) -> None:
    database = MemoryDatabase()
    client, exporter = traced(database)
    async with client:
        answer = await client.request("POST", "/v1/transactions", BODY, {"traceparent": sent})
    assert answer.status == 200
    roots = [span for span in exporter.get_finished_spans() if span.parent is None]
    assert [span.name for span in roots] == ["HTTP POST"]


@scenario
async def test_the_value_of_the_record_is_the_same_with_and_without_a_trace() -> None:
    databases = MemoryDatabase(), MemoryDatabase()
    plain = InProcess(create_app(*_parts(databases[0]), FacadeSettings()))
    client, _ = traced(databases[1])
    for database in databases:
        database.clock = lambda: 1_700_000_000_000
    for each in (plain, client):
        async with each:
            assert (await each.request("POST", "/v1/transactions", BODY)).status == 200
    assert databases[0].log.records == databases[1].log.records
    assert databases[0].log.headers == [{}]


@scenario
async def test_spans_are_sent_by_otlp(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, bytes]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        """Takes what is posted."""

        def do_POST(self) -> None:
            """Keep the body."""
            taken.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        database = MemoryDatabase()
        settings = FacadeSettings(traces="otlp")
        async with InProcess(create_app(*_parts(database), settings)) as client:
            assert (await client.request("POST", "/v1/transactions", BODY)).status == 200
        server.shutdown()  # after the facade, whose end sends what is left
        thread.join()
    assert {path for path, _ in taken} == {"/v1/traces"}
    sent = b"".join(body for _, body in taken)
    assert b"wait for verdict" in sent
    assert b"streamydb-facade" in sent
    assert not [secret for secret in SECRETS if secret.encode() in sent]


def test_without_traces_nothing_is_imported() -> None:
    program = (
        "import sys; from streamydb.facade import FacadeSettings, create_app; "
        "from streamydb.testing.memory import MemoryDatabase; d = MemoryDatabase(); "
        "create_app(d.model, d.log, d.changes, FacadeSettings()); "
        "sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert OFF.headers() is None


def _parts(database: MemoryDatabase) -> tuple[Any, Any, Any]:
    return database.model, database.log, database.changes
