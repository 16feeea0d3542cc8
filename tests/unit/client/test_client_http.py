"""The client's HTTP side: requests, answers, every exception class, TLS, URLs, event streams."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb import client as api
from streamydb import errors
from streamydb.client import (
    AsyncClient,
    Client,
    ClientError,
    ConnectionLostError,
    NotConnectedError,
    Options,
    OutcomeUnknownError,
    RequestError,
    UnexpectedAnswerError,
    connect,
    connect_async,
)
from streamydb.client.awaiting.http import AsyncHttpTransport
from streamydb.client.blocking.http import HttpTransport
from streamydb.client.connections import HttpOptions
from streamydb.client.errors import KINDS
from streamydb.client.http import EventParser, encode, encode_open
from streamydb.client.problems import ABORTS, refusal
from streamydb.client.requests import (
    Alive,
    Ask,
    Change,
    Freshness,
    Open,
    Progress,
    Scan,
    Selection,
    Send,
)
from streamydb.client.session import Session
from streamydb.errors import ABORTED_CODES, REJECTED_CODES, ConfigurationError, StreamyError
from streamydb.facade import FacadeSettings, load_tokens
from streamydb.facade.direct import kafka_parts
from streamydb.facade.payloads import refuse_code
from streamydb.facade.problems import ProblemError, problem_body
from streamydb.read_model import ReadModel
from streamydb.records.problems import PROBLEMS
from streamydb.records.ranges import ScanRange
from streamydb.testing.clients import Awaited, MemoryHost
from tests.support.read_model import example, follow

Handler = Callable[[httpx.Request], httpx.Response]
NOW = Options(timeout_s=0)
URL = HttpOptions("http://facade.test/base", "a-secret-token")


def blocking(handler: Handler, options: Options = NOW) -> Client:
    transport = HttpTransport(URL, httpx.MockTransport(handler))
    return Client(transport, Session(options), lambda _: None)


def get(handler: Handler, driver: str, options: Options = NOW) -> Any:
    """Read a key through a driver."""
    if driver == "blocking":
        return blocking(handler, options).get("k")

    async def read() -> Any:
        transport = AsyncHttpTransport(URL, httpx.MockTransport(handler))

        async def pause(_: float) -> None:
            return

        async with AsyncClient(transport, Session(options), pause) as client:
            return await client.get("k")

    return asyncio.run(read())


def problem(slug: str, **members: Any) -> httpx.Response:
    body = problem_body(ProblemError(slug, "what and why", **members))
    headers = {"Content-Type": "application/problem+json"}
    return httpx.Response(PROBLEMS[slug].status, headers=headers, content=body)


DRIVERS = pytest.mark.parametrize("driver", ["blocking", "awaiting"])


@DRIVERS
@pytest.mark.parametrize("slug", PROBLEMS)
def test_every_problem_type_has_its_class(slug: str, driver: str) -> None:
    with pytest.raises(RequestError) as raised:
        get(lambda _: problem(slug, id="t", more=[1]), driver)
    error = raised.value
    assert type(error) is KINDS[slug]
    assert (error.slug, error.status) == (slug, PROBLEMS[slug].status)
    assert (error.detail, error.id, error.members["more"]) == ("what and why", "t", [1])
    assert type(error).__name__ in api.__all__


def test_the_classes_are_those_of_the_facades_table() -> None:
    assert set(KINDS) == set(PROBLEMS)
    assert set(ABORTS) == set(ABORTED_CODES)
    kinds = [*KINDS.values(), *ABORTS.values()]
    assert len(set(kinds)) == len(kinds) - 2  # a failed check and a violated constraint are both
    assert all(issubclass(kind, ClientError) and kind.__doc__ for kind in kinds)


@pytest.mark.parametrize("code", REJECTED_CODES)
def test_a_rejection_is_the_same_whoever_finds_it(code: str) -> None:
    assert refusal(code).slug == refuse_code(code).problem.slug
    assert refusal(code, None, "t").members == {"code": code, "id": "t"}


@pytest.mark.parametrize("code", ABORTED_CODES)
def test_a_problem_with_the_code_of_an_abort(code: str) -> None:
    with pytest.raises(ABORTS[code]) as raised:
        get(lambda _: problem("aborted", code=code, id="t"), "blocking")
    assert raised.value.code == code


@DRIVERS
def test_a_problem_of_a_newer_facade_is_no_surprise(driver: str) -> None:
    body = {"type": "/problems/brand-new", "status": 418, "detail": "?"}
    headers = {"Content-Type": "application/problem+json; charset=utf-8"}
    with pytest.raises(RequestError) as raised:
        get(lambda _: httpx.Response(418, headers=headers, json=body), driver)
    assert type(raised.value) is RequestError
    assert (raised.value.slug, raised.value.status) == ("brand-new", 418)


@DRIVERS
@pytest.mark.parametrize(
    ("status", "more"),
    [
        (502, {"html": "<h1>Bad gateway</h1>"}),
        (404, {"text": "not here"}),
        (301, {"headers": {"Location": "https://elsewhere.test/"}}),
        (200, {"text": "hello"}),
        (500, {"headers": {"Content-Type": "application/problem+json"}, "text": "?"}),
    ],
)
def test_an_answer_of_something_else(status: int, more: dict[str, Any], driver: str) -> None:
    with pytest.raises(UnexpectedAnswerError) as raised:
        get(lambda _: httpx.Response(status, **more), driver)
    assert raised.value.status == status
    assert raised.value.retriable == (status >= 500)


@DRIVERS
@pytest.mark.parametrize("status", [302, 502])
def test_cookies_of_something_in_between_make_no_request_fail(status: int, driver: str) -> None:
    """One is kept, as some balance load by it; one that cannot be sent back is not."""
    sent: list[str | None] = []
    given = [(b"Set-Cookie", f"{pair}; Path=/".encode()) for pair in ("node=1", "name=\u00e9")]

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("Cookie"))
        if len(sent) > 1:
            return httpx.Response(404, text="not here")
        return httpx.Response(status, headers=[*given, (b"Location", b"/elsewhere")])

    with pytest.raises(UnexpectedAnswerError):
        get(handler, driver, Options(timeout_s=5))
    assert sent == ([None, "node=1"] if status == 502 else [None])


@DRIVERS
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (httpx.ConnectError("refused"), NotConnectedError),
        (httpx.ConnectTimeout("slow"), NotConnectedError),
        (httpx.PoolTimeout("full"), NotConnectedError),
        (httpx.ReadTimeout("slow"), ConnectionLostError),
        (httpx.RemoteProtocolError("gone"), ConnectionLostError),
        (httpx.WriteError("gone"), ConnectionLostError),
        (httpx.DecodingError("gzip"), ConnectionLostError),
    ],
)
def test_failures_of_the_connection(
    fault: httpx.RequestError, kind: type[ClientError], driver: str
) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise fault

    with pytest.raises(kind) as raised:
        get(fail, driver)
    assert raised.value.retriable
    assert raised.value.uncertain == (kind is ConnectionLostError)
    full = isinstance(fault, httpx.PoolTimeout)
    assert ("connections_max" if full else str(fault)) in str(raised.value)
    unknown: type[ClientError] = (
        OutcomeUnknownError if kind is ConnectionLostError else NotConnectedError
    )
    with pytest.raises(unknown):
        blocking(fail).put("k", 1)


def test_a_failure_without_words_is_named_by_its_class() -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("")

    with pytest.raises(NotConnectedError, match="ConnectTimeout"):
        get(fail, "blocking")


def test_a_certificate_that_is_not_trusted_is_no_passing_trouble() -> None:
    calls: list[int] = []

    def fail(_: httpx.Request) -> httpx.Response:
        calls.append(1)
        raise httpx.ConnectError("tls") from ssl.SSLCertVerificationError("self-signed")

    with pytest.raises(NotConnectedError):
        get(fail, "blocking", Options())
    assert calls == [1]


@DRIVERS
def test_what_may_pass_is_tried_again_after_the_time_that_was_asked_for(driver: str) -> None:
    answers = [problem("overloaded"), problem("read-model-behind"), problem("not-ready")]
    for answer in answers:
        answer.headers["Retry-After"] = "1"
    entry = {"key": "k", "value": [1], "version": 3, "ts_ms": 5}
    answers.append(httpx.Response(200, json={"seq": 4, "entries": {"k": entry}}))
    assert get(lambda _: answers.pop(0), driver, Options()) == [1]
    assert not answers
    with pytest.raises(api.OverloadedError) as raised:
        get(lambda _: problem("overloaded"), driver, Options(timeout_s=0.01))
    assert raised.value.retry_after_s == 0


def test_a_pause_lasts_as_long_as_the_facade_asks() -> None:
    session = Session(Options(backoff_s=0), clock=lambda: 0.0)
    fault = api.OverloadedError("busy", retry_after_s=7)
    pause = session.retry(30).again(fault)
    assert pause is not None
    assert pause.seconds == 7
    short = session.retry(2).again(fault)
    assert short is not None
    assert short.seconds == 2
    assert session.retry(0).again(fault) is None


def test_the_token_is_sent_and_never_shown() -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return problem("unauthorized")

    with pytest.raises(api.UnauthorizedError) as raised:
        blocking(handle).get("k")
    assert seen[0].headers["authorization"] == "Bearer a-secret-token"
    assert seen[0].url == "http://facade.test/base/v1/read"
    assert "secret" not in f"{raised.value!r} {URL!r}"


def test_tokens_and_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"name": "t", "token": "0123456789abcdef", "read": ["a/"], "write": ["a/"]}
    monkeypatch.setenv("STREAMYDB_SERVE_TOKENS", json.dumps([entry]))
    settings = FacadeSettings()
    with MemoryHost(settings, load_tokens(settings)) as host:
        client = host.connect(token="0123456789abcdef")  # noqa: S106 - of this test
        assert client.put("a/1", 1).seq == 1
        with pytest.raises(api.ForbiddenError):
            client.get("b")
        with pytest.raises(api.ForbiddenError):
            next(client.watch("b"))
        for wrong in (host.connect(), host.connect(token="wrong")):  # noqa: S106 - of this test
            with pytest.raises(api.UnauthorizedError):
                wrong.put("a/1", 1)


def test_requests_as_they_are_sent() -> None:
    sent = encode(Send("t", b"{}", 7.9))
    assert (sent.method, sent.path, sent.body) == ("POST", "/v1/transactions", b"{}")
    assert sent.headers["Prefer"] == "wait=7"
    assert sent.timeout_s == pytest.approx(12.9)
    asked = encode(Ask("a/../é", "3:17", 0.5))
    assert asked.path == "/v1/transactions/a%2F%2E%2E%2F%C3%A9"
    assert asked.params == {"record": "3:17"}
    scan = Scan(ScanRange("", "a"), 5, None, Freshness(consistency="session", min_version=9), 1)
    assert encode(scan).params == {
        "start": "a", "limit": "5", "consistency": "session", "min_version": "9",
    }  # fmt: skip
    opened = encode_open(Open(12, Selection(ScanRange("é"))))
    assert opened.headers["Last-Event-ID"] == "12"
    assert opened.params == {"prefix": "é"}
    narrow = encode_open(Open(1, Selection(ScanRange("", "a", "b"), '{"ge":1}')))
    assert narrow.params == {"start": "a", "end": "b", "where": '{"ge":1}'}
    with pytest.raises(TypeError):
        encode(Open(1, Selection()))


def test_verification_of_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert HttpOptions("https://h").arguments()["verify"] is True
    assert HttpOptions("https://h", verify=False).arguments()["verify"] is False
    own = ssl.create_default_context()
    assert HttpOptions("https://h", verify=own).arguments()["verify"] is own
    authorities = tmp_path / "ca.pem"
    authorities.write_text("no certificate", "utf-8")
    with pytest.raises(ConfigurationError, match="certificates"):
        connect("https://h", verify=authorities)
    with pytest.raises(ConfigurationError, match="missing"):
        connect("https://h", verify=str(tmp_path / "missing"))


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8080", "ftp://h", "http://", "http://h?x=1", "kafka://h:1", "kafka://h:1/db",
     "kafka:///db?read_model=x", "kafka://h:1/db?read_model=x&more=1", "kafka://h/db?read_model=x",
     "kafka://h:1/DB?read_model=x"],
)  # fmt: skip
def test_urls_that_make_no_sense(url: str) -> None:
    for make in (connect, connect_async):
        with pytest.raises(ConfigurationError):
            make(url)


def test_urls_of_kafka(tmp_path: Path) -> None:
    found = kafka_parts("kafka://a:1,b:2/bank?read_model=/var/lib/read%20model")
    assert found == ("a:1,b:2", "bank", Path("/var/lib/read model"))
    with pytest.raises(StreamyError, match="read model"):
        connect(f"kafka://127.0.0.1:1/bank?read_model={tmp_path}/none")
    with pytest.raises(ConfigurationError, match="token"):
        connect("kafka://h:1/db?read_model=x", token="t")  # noqa: S106 - of this test


def test_a_local_read_model_is_read_without_kafka(tmp_path: Path) -> None:
    with ReadModel.open(tmp_path, "bank", write=True) as model:
        follow(model, example())
        expected = [(entry.key, entry.version) for entry in model.snapshot().scan()]
    url = f"kafka://127.0.0.1:1/bank?read_model={tmp_path}"
    with connect(url, consistency="snapshot") as client:
        assert [(entry.key, entry.version) for entry in client.scan()] == expected
        assert client.read([expected[0][0]]).entries[expected[0][0]].version == expected[0][1]

    async def scenario() -> list[tuple[str, int]]:
        async with connect_async(url, consistency="snapshot") as client:
            return [(entry.key, entry.version) async for entry in client.scan()]

    assert asyncio.run(scenario()) == expected


def test_clients_of_urls() -> None:
    with connect("http://127.0.0.1:1", timeout_s=0) as client, pytest.raises(NotConnectedError):
        client.get("k")
    with pytest.raises(ConfigurationError, match="consistency"):
        connect("http://h", consistency="eventual")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="ASCII"):
        connect("http://h", token="a\nb")  # noqa: S106 - of this test
    with pytest.raises(StreamyError) as unknown:
        blocking(lambda _: problem("verdict-unknown")).put("k", 1)
    assert isinstance(unknown.value, OutcomeUnknownError)


def test_a_stream_that_is_refused_tells_why() -> None:
    host = MemoryHost(FacadeSettings(streams_max=1))
    with host:
        holder = host.connect().watch()
        with holder:
            host.connect().put("a", 1)
            next(holder)
            refused = host.connect(options=Options(reconnect_s=0)).watch(since=0)
            with pytest.raises(api.OverloadedError):
                next(refused)
            client = host.connect_async(options=Options(reconnect_s=0))
            with pytest.raises(api.OverloadedError):
                next(Awaited(host.portal, client.watch(since=0)))


def event(seq: int, number: int, *, last: bool) -> bytes:
    data = {
        "key": "k", "op": "u", "before": 1, "after": "\n\n: é", "ts_ms": 1,
        "source": {"seq": seq}, "transaction": {"id": "t", "total_order": number},
    }  # fmt: skip
    head = b"id: %d\n" % seq if last else b""
    return head + b"event: change\ndata: " + json.dumps(data).encode() + b"\n\n"


STREAM = (
    b"retry: 1000\n\n" + event(1, 1, last=False) + event(1, 2, last=True) + b": heartbeat\n\n"
    b'id: 7\nevent: resolved\ndata: {"resolved":7}\n\n'
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_stream_means_the_same_however_it_is_cut(places: list[int]) -> None:
    parser = EventParser()
    bounds = [0, *sorted(places), len(STREAM)]
    events = [event for begin, end in pairwise(bounds) for event in parser.feed(STREAM[begin:end])]
    assert [type(event) for event in events] == [Change, Change, Progress, Alive, Progress]
    assert [event.seq for event in events if isinstance(event, Change | Progress)] == [1, 1, 1, 7]


def test_a_stream_that_ends_with_a_problem_or_is_none() -> None:
    body = problem_body(ProblemError("slow-reader", "too slow"))
    with pytest.raises(api.SlowReaderError) as slow:
        EventParser().feed(b"event: error\ndata: " + body + b"\n\n")
    assert slow.value.retriable
    with pytest.raises(UnexpectedAnswerError):
        EventParser().feed(b"event: change\ndata: nonsense\n\n")
    with pytest.raises(UnexpectedAnswerError):
        EventParser().feed(b"x" * 20_000_000)


def test_the_code_of_an_abort_is_in_its_message() -> None:
    assert (
        str(api.CheckFailedError("x", members={"code": errors.CHECK_FAILED})) == "check-failed: x"
    )
    assert str(api.OverloadedError("busy")) == "overloaded: busy"
