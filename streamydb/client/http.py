"""Requests and answers of the facade's HTTP interface, as data.

Server-sent events are read as far as the change feed uses them (WHATWG HTML, section 9.2.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec

from streamydb.client import requests
from streamydb.client.errors import ClientError, UnexpectedAnswerError
from streamydb.client.problems import problem
from streamydb.client.watch_core import decode_event
from streamydb.errors import RecordError
from streamydb.records import Result, decode_result
from streamydb.records.formats import UNREADABLE
from streamydb.records.table import Table

REQUEST_HEADER: Final = "Streamydb-Request"
"""The name of a request, which its answer repeats."""

_JSON: Final = {"Content-Type": "application/json"}
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


class _Entry(msgspec.Struct):
    key: str
    value: msgspec.Raw
    version: int
    ts_ms: int
    expires_ms: int | None = None

    def stored(self) -> requests.Stored:
        return requests.Stored(
            self.key, bytes(self.value), self.version, self.ts_ms, self.expires_ms
        )


class _Reading(msgspec.Struct):
    seq: int
    entries: dict[str, _Entry | None]


class _Page(msgspec.Struct):
    seq: int
    entries: list[_Entry]
    cursor: str | None = None


class _Table(msgspec.Struct):
    seq: int
    columns: list[requests.Column]
    rows: list[tuple[Any, ...]]


emissions = msgspec.json.Decoder(requests.EmissionsPage).decode
"""Return the page in the answer of a stream."""

sql_answer = msgspec.json.Decoder(requests.SqlAnswer).decode
"""Return what the answer to statements says."""

_decode_table = msgspec.json.Decoder(_Table).decode
_decode_reading = msgspec.json.Decoder(_Reading).decode
_decode_page = msgspec.json.Decoder(_Page).decode


def encode(request: requests.Request[Any]) -> HttpRequest:
    if isinstance(request, requests.Read):
        body = msgspec.json.encode({"keys": request.keys, **_freshness(request.freshness)})
        return _request("POST", "/v1/read", request.timeout_s, headers=_JSON, body=body)
    if isinstance(request, requests.Scan):
        return _request("GET", "/v1/kv", request.timeout_s, params=_range(request))
    if isinstance(request, requests.Query):
        return _request("POST", "/v1/query", request.timeout_s, headers=_JSON, body=_query(request))
    if isinstance(request, requests.SqlStatements):
        named = {} if request.id is None else {"Idempotency-Key": request.id}
        headers = {**_JSON, **named}
        return _request("POST", "/v1/sql", request.timeout_s, headers=headers, body=_sql(request))
    if isinstance(request, requests.Emissions):
        path = "/v1/streams/" + quote(request.stream, safe="")
        return _request("GET", path, request.timeout_s, params=_emissions(request))
    if isinstance(request, requests.Send):
        headers = {**_JSON, **_prefer(request.timeout_s)}
        path, body = "/v1/transactions", request.payload
        return _request("POST", path, request.timeout_s, headers=headers, body=body)
    if isinstance(request, requests.Ask):
        path = "/v1/transactions/" + quote(request.id, safe="").replace(".", "%2E")
        params = {} if request.position is None else {"record": request.position}
        headers = _prefer(request.timeout_s)
        return _request("GET", path, request.timeout_s, params=params, headers=headers)
    raise TypeError(f"{type(request).__name__} is not for a transport")


def encode_open(request: requests.Open) -> HttpRequest:
    bounds = {**asdict(request.wanted), "prefix": request.wanted.prefix or None}
    params = {name: text for name, text in bounds.items() if text is not None}
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(request.since)}
    return HttpRequest("GET", "/v1/changes", params, headers, b"", _SILENCE_S)


def decode(request: requests.Request[Any], answer: HttpAnswer) -> Any:
    """Return what an answer says. Raises ClientError: it is a refusal, or makes no sense."""
    raise_for_status(answer)
    try:
        if isinstance(request, requests.Read):
            return _reading(_decode_reading(answer.body))
        if isinstance(request, requests.Scan):
            page = _decode_page(answer.body)
            return requests.Page(page.seq, [entry.stored() for entry in page.entries], page.cursor)
        if isinstance(request, requests.Query):
            return table(answer.body)
        if isinstance(request, requests.SqlStatements):
            return sql_answer(answer.body)
        if isinstance(request, requests.Emissions):
            return emissions(answer.body)
        return _outcome(answer)
    except (*UNREADABLE, RecordError) as fault:
        raise UnexpectedAnswerError("The answer is not one of a facade.", answer.status) from fault


def table(body: bytes) -> Table:
    """Return the table in the answer of a query.

    Raises:
        msgspec.DecodeError: there is none.
    """
    decoded = _decode_table(body)
    names = tuple(column.name for column in decoded.columns)
    return Table(decoded.seq, names, tuple(decoded.rows))


def raise_for_status(answer: HttpAnswer) -> None:
    """Raise what a failed request's answer stands for. Raises ClientError: it is no success."""
    if 200 <= answer.status < 300:
        return
    raise _fault(answer)


def _request(
    method: str,
    path: str,
    timeout_s: float,
    *,
    params: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> HttpRequest:
    return HttpRequest(
        method, path, params or {}, headers or {}, body, timeout_s + requests.MARGIN_S
    )


def _fault(answer: HttpAnswer) -> Exception:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
    if kind == _PROBLEM:
        try:
            return problem_of(answer.body, _retry_after(answer))
        except UNREADABLE:
            pass
    error: ClientError = UnexpectedAnswerError(
        f"Status {answer.status} and no problem document: is this the address of a facade?",
        answer.status,
    )
    error.retry_after_s = _retry_after(answer)
    return error


def _reading(decoded: _Reading) -> requests.Reading:
    entries = decoded.entries.items()
    return requests.Reading(decoded.seq, {k: None if e is None else e.stored() for k, e in entries})


def _outcome(answer: HttpAnswer) -> Result | requests.Pending:
    """A verdict, or the place where to ask for it."""
    if answer.status != 202:
        return decode_result(answer.body)
    location = urlsplit(answer.headers.get("location", ""))
    txn_id = unquote(location.path.rpartition("/")[2])
    return requests.Pending(parse_qs(location.query).get("record", [None])[0], txn_id or None)


def _freshness(freshness: requests.Freshness) -> dict[str, Any]:
    at, level, version = freshness.at, freshness.consistency, freshness.min_version
    fields = {"at": at, "consistency": level, "min_version": version}
    return {name: value for name, value in fields.items() if value is not None}


def _range(request: requests.Scan) -> dict[str, str]:
    """The parameters of a page; a cursor has those of the first one in it."""
    if request.cursor is not None:
        return {"limit": str(request.limit), "cursor": request.cursor}
    bounds = {"prefix": request.prefix or None, "start": request.start, "end": request.end}
    fields = {**bounds, **_freshness(request.freshness), "limit": request.limit}
    return {name: str(value) for name, value in fields.items() if value is not None}


def _emissions(request: requests.Emissions) -> dict[str, str]:
    fields = {"cursor": request.cursor, "after": request.after, "wait": f"{request.wait_s:g}"}
    return {name: value for name, value in fields.items() if value is not None}


def _query(request: requests.Query) -> bytes:
    fields = {"sql": request.sql, "params": request.params, "prefix": request.prefix}
    return msgspec.json.encode({**fields, **_freshness(request.freshness)})


def _sql(request: requests.SqlStatements) -> bytes:
    statements = [{"sql": sql, "params": params} for sql, params in request.statements]
    fields = {"tables": request.tables, "statements": statements}
    return msgspec.json.encode({**fields, **_freshness(request.freshness)})


def _prefer(timeout_s: float) -> dict[str, str]:
    return {"Prefer": f"wait={int(min(timeout_s, 1e6))}"}


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
        """Take bytes; return the events that they complete.
        Raises RequestError: the stream says why it ends; UnexpectedAnswerError: it is not a stream
        of changes.
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
