"""Requests as HTTP, and answers of HTTP as what a client was told (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from streamydb.verify.histories.records import (
    Answer,
    Append,
    Get,
    Outcome,
    Read,
    Request,
    Scan,
    Seen,
    Write,
)

__all__ = ["Call", "Told", "ask_call", "call_of", "page_call", "told"]


class Call(NamedTuple):
    """An HTTP request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""


class Told(NamedTuple):
    """What an attempt came to.

    Attributes:
        note: how it ended, for the record of attempts.
        location: where to ask for the verdict, if the answer said so.
        cursor: of the next page of a scan.
    """

    outcome: Outcome
    note: str
    answer: Answer | None = None
    location: str | None = None
    cursor: str | None = None


def call_of(request: Request) -> Call:
    """Return the HTTP request; of a scan, that of its first page."""
    match request:
        case Write():
            return _write_call(request)
        case Append():
            updates = [{"op": "append", "key": key, "value": element}
                       for key, new in request.appends.items() for element in new]  # fmt: skip
            txn = {"id": request.id, "updates": updates, "reads": request.reads}
            return Call("POST", "/v1/transactions", {}, msgspec.json.encode(txn))
        case Get():
            query = urlencode(_wanted(request))
            return Call("GET", f"/v1/kv/{quote(request.key)}?{query}", {})
        case Read():
            body = {"keys": request.keys, **_wanted(request)}
            return Call("POST", "/v1/read", {}, msgspec.json.encode(body))
        case Scan():
            query = urlencode({"prefix": request.prefix, "limit": request.limit} | _wanted(request))
            return Call("GET", f"/v1/kv?{query}", {})


def page_call(request: Scan, cursor: str) -> Call:
    """Return the request for the next page of a scan."""
    query = urlencode({"limit": request.limit, "cursor": cursor})
    return Call("GET", f"/v1/kv?{query}", {})


def ask_call(txn_id: str, location: str | None) -> Call:
    """Return the question for the verdict of a transaction."""
    return Call("GET", location or f"/v1/transactions/{quote(txn_id, safe='')}", {})


def told(request: Request, status: int, headers: Mapping[str, str], body: bytes) -> Told:
    """Return what an answer says of a request, or of the question for its verdict.

    Raises:
        ValueError: the answer is none that the documentation has; that is a fault in itself.
    """
    if isinstance(request, Write | Append):
        return _told_write(request, status, headers, body)
    if status == 200 or (status == 404 and isinstance(request, Get)):
        return _told_read(request, status, headers, body)
    if status in {429, 503}:
        return Told("failed", f"{status} {_slug(body)}")
    raise ValueError(f"{status} for {request}: {body[:300]!r}")


def _told_write(
    request: Write | Append, status: int, headers: Mapping[str, str], body: bytes
) -> Told:
    if status == 202:
        return Told("unknown", "202", location=headers.get("location"))
    if status == 504:
        return Told("unknown", f"504 {_slug(body)}", location=headers.get("location"))
    if status in {429, 503}:
        return Told("failed", f"{status} {_slug(body)}")
    if status == 404 and _slug(body) == "transaction-unknown":
        return Told("unknown", "404 transaction-unknown")
    if status not in {200, 201, 412}:
        raise ValueError(f"{status} for {request}: {body[:300]!r}")
    fields: dict[str, Any] = msgspec.json.decode(body)
    committed = status != 412 and fields["status"] == "committed"
    if not committed and fields.get("code", "check-failed") != "check-failed":
        raise ValueError(f"{fields['code']} for {request}")
    seen = {key: Seen(value) for key, value in fields.get("reads", {}).items()}
    answer = Answer(status, committed, fields["seq"], seen)
    return Told("ok", str(status), answer)


def _told_read(
    request: Get | Read | Scan, status: int, headers: Mapping[str, str], body: bytes
) -> Told:
    if isinstance(request, Get):
        seq = int(headers["streamydb-snapshot"])
        seen = Seen(None, 0)
        if status == 200:
            seen = Seen(msgspec.json.decode(body), int(headers["etag"].strip('"')))
        return Told("ok", str(status), Answer(status, seq=seq, seen={request.key: seen}))
    fields: dict[str, Any] = msgspec.json.decode(body)
    if isinstance(request, Read):
        found = {key: _seen(entry) for key, entry in fields["entries"].items()}
        return Told("ok", str(status), Answer(status, seq=fields["seq"], seen=found))
    page = (fields["seq"], [entry["key"] for entry in fields["entries"]])
    found = {entry["key"]: _seen(entry) for entry in fields["entries"]}
    answer = Answer(status, seq=fields["seq"], seen=found, pages=[page])
    return Told("ok", str(status), answer, cursor=fields["cursor"])


def _write_call(request: Write) -> Call:
    headers = {"idempotency-key": request.id}
    expected = request.expected
    if expected is not None and expected.value is None:
        headers["if-none-match"] = "*"
    elif expected is not None:
        headers["if-match"] = f'"{expected.version}"'
    target = f"/v1/kv/{quote(request.key)}"
    if request.value is None:
        return Call("DELETE", target, headers)
    return Call("PUT", target, headers, msgspec.json.encode(request.value))


def _wanted(request: Get | Read | Scan) -> dict[str, str | int]:
    """The consistency that a read asks for."""
    wanted: dict[str, str | int] = {"consistency": request.consistency}
    if request.min_version is not None:
        wanted["min_version"] = request.min_version
    return wanted


def _seen(entry: dict[str, Any] | None) -> Seen:
    return Seen(None, 0) if entry is None else Seen(entry["value"], entry["version"])


def _slug(body: bytes) -> str:
    """The problem type of an answer; every refusal must have one."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    return str(fields["type"]).rpartition("/")[2]
