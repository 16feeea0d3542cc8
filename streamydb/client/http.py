"""Requests and answers of the facade's HTTP interface, as data.

Server-sent events are read as far as the change feed uses them (WHATWG HTML, section 9.2.6).
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec

from streamydb.client import requests
from streamydb.client.errors import ConnectionLostError, UnexpectedAnswerError
from streamydb.client.problems import problem
from streamydb.client.session import Generation
from streamydb.client.watch_core import decode_event
from streamydb.errors import RecordError
from streamydb.records import decode_result
from streamydb.records.formats import UNREADABLE
from streamydb.records.table import Table

if TYPE_CHECKING:
    import httpx

REQUEST_HEADER: Final = "Streamydb-Request"  # the name of a request, which its answer repeats

_CONNECT_S: Final = 5.0  # how long a connection may take to make, or to become free

_PROBLEM: Final = "application/problem+json"

_SILENCE_S: Final = 60.0
"""How long an event stream may be silent; a facade sends a heartbeat every 15 s."""


class HttpRequest(NamedTuple):
    """A request as it is sent; `timeout_s` is how long the other side may be silent."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes
    timeout_s: float


class HttpAnswer(NamedTuple):
    """An answer as it came; the names of the headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Table(msgspec.Struct):
    seq: int
    columns: list[requests.ResultColumn]
    rows: list[tuple[Any, ...]]


emissions = msgspec.json.Decoder(requests.EmissionsPage).decode
"""Return the page in the answer of a stream."""

sql_answer = msgspec.json.Decoder(requests.SqlAnswer).decode
"""Return what the answer to statements says."""

_decode_table = msgspec.json.Decoder(_Table).decode
_decode_reading = msgspec.json.Decoder(requests.Reading).decode
_decode_page = msgspec.json.Decoder(requests.Page).decode


def encode(request: requests.Request[Any]) -> HttpRequest:
    params: dict[str, Any] = {}
    headers: dict[str, str] = {}
    body: Any = None
    if isinstance(request, requests.Read):
        path, body = "/v1/read", {"keys": request.keys, **_freshness(request.freshness)}
    elif isinstance(request, requests.Scan):
        path, params = "/v1/kv", {"limit": request.limit, "cursor": request.cursor}
        if request.cursor is None:  # one has the parameters of the first page in it
            bounds = request.keys.texts()
            params = {**bounds, **_freshness(request.freshness), "limit": request.limit}
    elif isinstance(request, requests.Query):
        fields = {"sql": request.sql, "params": request.params, "prefix": request.prefix}
        path, body = "/v1/query", {**fields, **_freshness(request.freshness)}
    elif isinstance(request, requests.SqlStatements):
        headers = {} if request.id is None else {"Idempotency-Key": request.id}
        statements = [{"sql": sql, "params": params} for sql, params in request.statements]
        fields = {"tables": request.tables, "statements": statements}
        path, body = "/v1/sql", {**fields, **_freshness(request.freshness)}
    elif isinstance(request, requests.Emissions):
        path = "/v1/streams/" + quote(request.stream, safe="")
        wait = f"{request.wait_s:g}"
        params = {"cursor": request.cursor, "after": request.after, "wait": wait}
    elif isinstance(request, requests.Send):
        path, headers, body = "/v1/transactions", _prefer(request), msgspec.Raw(request.payload)
    elif isinstance(request, requests.Ask):
        path = "/v1/transactions/" + quote(request.id, safe="").replace(".", "%2E")
        params, headers = {"record": request.position}, _prefer(request)
    else:
        raise TypeError(f"{type(request).__name__} is not for a transport")
    texts = {name: str(value) for name, value in params.items() if value is not None}
    timeout_s = request.timeout_s + requests.MARGIN_S
    if body is None:
        return HttpRequest("GET", path, texts, headers, b"", timeout_s)
    headers = {"Content-Type": "application/json", **headers}
    return HttpRequest("POST", path, texts, headers, msgspec.json.encode(body), timeout_s)


def encode_open(request: requests.Open) -> HttpRequest:
    wanted = request.wanted
    checks = {"where": wanted.where, "where_before": wanted.where_before}
    params = wanted.keys.texts() | {name: text for name, text in checks.items() if text is not None}
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(request.since)}
    return HttpRequest("GET", "/v1/changes", params, headers, b"", _SILENCE_S)


def build(
    client: httpx.Client | httpx.AsyncClient, request: HttpRequest, tag: str, history: Generation
) -> httpx.Request:
    """Make httpx's form of a request, which says of which generation its seqs are."""
    return client.build_request(
        request.method,
        request.path,
        params=request.params,
        headers={**request.headers, **history.headers(), REQUEST_HEADER: tag},
        content=request.body,
        timeout=(_CONNECT_S, request.timeout_s, request.timeout_s, _CONNECT_S),
    )


class Tags:
    """Makes names for the requests of a transport: no two of any processes are the same."""

    def __init__(self) -> None:
        self._stem = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def __iter__(self) -> Tags:
        return self

    def __next__(self) -> str:
        return f"{self._stem}-{os.getpid()}-{next(self._numbers)}"


def check_tag(answer: httpx.Response) -> None:
    """Drop the connection of an answer to another request. Raises ConnectionLostError."""
    answered = answer.headers.get(REQUEST_HEADER)
    if answered is None or answered == answer.request.headers[REQUEST_HEADER]:
        return
    connection = socket_of(wire_of(answer))
    if connection is not None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionLostError("The answer is that to another request; the connection is dropped.")


def wire_of(answer: httpx.Response) -> Any:
    """Return httpx's object for the connection that an answer came on; None without a network."""
    return answer.extensions.get("network_stream")


def socket_of(wire: Any) -> Any:
    """Return the socket of such an object, if it has one."""
    return None if wire is None else wire.get_extra_info("socket")


def decode(request: requests.Request[Any], answer: HttpAnswer) -> Any:
    """Return what an answer says. Raises ClientError: it is a refusal, or makes no sense."""
    raise_for_status(answer)
    try:
        if isinstance(request, requests.Read):
            return _decode_reading(answer.body)
        if isinstance(request, requests.Scan):
            return _decode_page(answer.body)
        if isinstance(request, requests.Query):
            return table(answer.body)
        if isinstance(request, requests.SqlStatements):
            return sql_answer(answer.body)
        if isinstance(request, requests.Emissions):
            return emissions(answer.body)
        # A verdict, or the place where to ask for it.
        if answer.status != 202:
            return decode_result(answer.body)
        location = urlsplit(answer.headers.get("location", ""))
        txn_id = unquote(location.path.rpartition("/")[2])
        return requests.Pending(parse_qs(location.query).get("record", [None])[0], txn_id or None)
    except (*UNREADABLE, RecordError) as fault:
        raise UnexpectedAnswerError("The answer is not one of a facade.", answer.status) from fault


def table(body: bytes) -> Table:
    """Return the table in the answer of a query. Raises msgspec.DecodeError: there is none."""
    decoded = _decode_table(body)
    names = tuple(column.name for column in decoded.columns)
    return Table(decoded.seq, names, tuple(decoded.rows))


def raise_for_status(answer: HttpAnswer) -> None:
    """Raise what a failed request's answer stands for. Raises ClientError: it is no success."""
    if not 200 <= answer.status < 300:
        raise _fault(answer)


def _fault(answer: HttpAnswer) -> Exception:
    if answer.headers.get("content-type", "").partition(";")[0].strip() == _PROBLEM:
        with suppress(*UNREADABLE):
            return problem_of(answer.body, _retry_after(answer))
    detail = f"Status {answer.status} and no problem document: is this the address of a facade?"
    error = UnexpectedAnswerError(detail, answer.status)
    error.retry_after_s = _retry_after(answer)
    return error


def _freshness(freshness: requests.Freshness) -> dict[str, Any]:
    at, level, version = freshness.at, freshness.consistency, freshness.min_version
    fields = {"at": at, "consistency": level, "min_version": version}
    return {name: value for name, value in fields.items() if value is not None}


def _prefer(request: requests.Send | requests.Ask) -> dict[str, str]:
    return {"Prefer": f"wait={int(min(request.timeout_s, 1e6))}"}


def _retry_after(answer: HttpAnswer) -> float:
    """The seconds that an answer asks for; a time of day counts from the answer's own."""
    text = answer.headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
        now = parsedate_to_datetime(answer.headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return 0.0


_BUFFER_BYTES_MAX: Final = 16_777_216
"""No event of a facade is nearly as long: two values, and what is around them."""


class EventParser:
    """Makes events of the bytes of a stream, however those are cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[requests.Event]:
        """Take bytes; return the events that they complete. Raises RequestError: the stream says
        why it ends; UnexpectedAnswerError: it is not a stream of changes.
        """
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        if len(self._rest) > _BUFFER_BYTES_MAX:
            raise UnexpectedAnswerError("An event of the stream has no end.", 200)
        events: list[requests.Event] = []
        for block in blocks:
            events += _events(block)
        return events


def _events(block: bytes) -> list[requests.Event]:
    """The events in the lines between two empty ones: a change and the progress with it."""
    fields: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        if line.startswith(b":"):
            return [requests.Alive()]
        name, _, value = line.partition(b":")
        fields[name] = value.removeprefix(b" ")
    kind, data = fields.get(b"event"), fields.get(b"data", b"")
    events: list[requests.Event] = []
    try:
        if kind == b"change":
            events.append(decode_event(data))
        elif kind == b"error":
            raise problem_of(data, 0)
        if b"id" in fields:
            events.append(requests.Progress(int(fields[b"id"].partition(b"@")[0])))
    except (*UNREADABLE, ValueError) as fault:
        raise UnexpectedAnswerError("The stream is not one of changes.", 200) from fault
    return events


def problem_of(body: bytes, retry_after_s: float) -> Exception:
    """Return the exception of a problem document (RFC 9457); a `DecodeError` if it is none."""
    fields = msgspec.json.decode(body, type=dict[str, object])
    slug = str(fields.get("type", "")).rpartition("/")[2]
    status, detail = fields.get("status"), fields.get("detail", "")
    known = {"type", "title", "status", "detail"}
    members = {name: value for name, value in fields.items() if name not in known}
    return problem(
        slug, status if isinstance(status, int) else 0, str(detail), retry_after_s, members
    )
