"""Requests as HTTP, and answers of HTTP as what a client was told (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from histories.records import (
    Answer,
    AppendOperation,
    Get,
    Outcome,
    ReadOperation,
    Request,
    ScanOperation,
    Seen,
    WriteOperation,
)

__all__ = ["LATE", "AttemptAnswer", "HttpCall", "ask_call", "call_of", "page_call", "told"]


_TOO_LATE: Final = "deadline-passed"

LATE: Final = f"409 {_TOO_LATE}"
"""Notes that a copy of a transaction was appended after its deadline; an earlier one may have been
executed.
"""


class HttpCall(NamedTuple):
    """An HTTP request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""


class AttemptAnswer(NamedTuple):
    """The outcome of an attempt.

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


def call_of(request: Request) -> HttpCall:
    """Return the HTTP request; of a scan, that of its first page."""
    match request:
        case WriteOperation():
            return _write_call(request)
        case AppendOperation():
            return HttpCall("POST", "/v1/transactions", {}, msgspec.json.encode(_fields(request)))
        case Get():
            query = urlencode(_wanted(request))
            return HttpCall("GET", f"/v1/kv/{quote(request.key)}?{query}", {})
        case ReadOperation():
            body = {"keys": request.keys, **_wanted(request)}
            return HttpCall("POST", "/v1/read", {}, msgspec.json.encode(body))
        case ScanOperation():
            query = urlencode({"prefix": request.prefix, "limit": request.limit} | _wanted(request))
            return HttpCall("GET", f"/v1/kv?{query}", {})


def page_call(request: ScanOperation, cursor: str) -> HttpCall:
    """Return the request for the next page of a scan."""
    query = urlencode({"limit": request.limit, "cursor": cursor})
    return HttpCall("GET", f"/v1/kv?{query}", {})


def ask_call(txn_id: str, location: str | None) -> HttpCall:
    """Return the question for the verdict of a transaction."""
    return HttpCall("GET", location or f"/v1/transactions/{quote(txn_id, safe='')}", {})


def told(request: Request, status: int, headers: Mapping[str, str], body: bytes) -> AttemptAnswer:
    """Return what an answer says of a request, or of the question for its verdict.

    Raises:
        ValueError: the answer is none that the documentation has; that is a fault in itself.
    """
    if isinstance(request, WriteOperation | AppendOperation):
        return _told_write(request, status, headers, body)
    if status == 200 or (status == 404 and isinstance(request, Get)):
        return _told_read(request, status, headers, body)
    if status in {429, 503}:
        return AttemptAnswer("failed", f"{status} {_slug(body)}")
    raise ValueError(f"{status} for {request}: {body[:300]!r}")


def _told_write(
    request: WriteOperation | AppendOperation, status: int, headers: Mapping[str, str], body: bytes
) -> AttemptAnswer:
    if status == 202:
        return AttemptAnswer("unknown", "202", location=headers.get("location"))
    if status == 504:
        return AttemptAnswer("unknown", f"504 {_slug(body)}", location=headers.get("location"))
    if status in {429, 503}:
        return AttemptAnswer("failed", f"{status} {_slug(body)}")
    if status == 409 and _slug(body) == _TOO_LATE:
        return AttemptAnswer("failed", LATE)
    if status == 404 and _slug(body) == "transaction-unknown":
        return AttemptAnswer("unknown", "404 transaction-unknown")
    if status not in {200, 201, 412}:
        raise ValueError(f"{status} for {request}: {body[:300]!r}")
    fields: dict[str, Any] = msgspec.json.decode(body)
    committed = status != 412 and fields["status"] == "committed"
    if not committed and fields.get("code") == _TOO_LATE:  # so the question is answered
        return AttemptAnswer("failed", LATE)
    if not committed and fields.get("code", "check-failed") != "check-failed":
        raise ValueError(f"{fields['code']} for {request}")
    seen = {key: Seen(value) for key, value in fields.get("reads", {}).items()}
    answer = Answer(status, committed, fields["seq"], fields.get("ts_ms"), seen)
    for found in fields.get("ranges", ()):
        entries = {entry["key"]: _seen(entry) for entry in found["entries"]}
        answer.ranges[found["range"]["prefix"]] = entries
    return AttemptAnswer("ok", str(status), answer)


def _told_read(
    request: Get | ReadOperation | ScanOperation,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
) -> AttemptAnswer:
    if isinstance(request, Get):
        seq = int(headers["streamydb-snapshot"])
        seen = Seen(None, 0)
        if status == 200:
            version, end = int(headers["etag"].strip('"')), headers.get("streamydb-expires")
            seen = Seen(msgspec.json.decode(body), version, None if end is None else int(end))
        return AttemptAnswer("ok", str(status), Answer(status, seq=seq, seen={request.key: seen}))
    fields: dict[str, Any] = msgspec.json.decode(body)
    if isinstance(request, ReadOperation):
        found = {key: _seen(entry) for key, entry in fields["entries"].items()}
        return AttemptAnswer("ok", str(status), Answer(status, seq=fields["seq"], seen=found))
    page = (fields["seq"], [entry["key"] for entry in fields["entries"]])
    found = {entry["key"]: _seen(entry) for entry in fields["entries"]}
    answer = Answer(status, seq=fields["seq"], seen=found, pages=[page])
    return AttemptAnswer("ok", str(status), answer, cursor=fields["cursor"])


def _write_call(request: WriteOperation) -> HttpCall:
    headers = {"idempotency-key": request.id}
    expected = request.expected
    if expected is not None and expected.value is None:
        headers["if-none-match"] = "*"
    elif expected is not None:
        headers["if-match"] = f'"{expected.version}"'
    target = f"/v1/kv/{quote(request.key)}"
    if request.value is None:
        return HttpCall("DELETE", target, headers)
    return HttpCall("PUT", target, headers, msgspec.json.encode(request.value))


def _fields(request: AppendOperation) -> dict[str, Any]:
    """The transaction of a request."""
    ttls = {key: {"ttl_ms": ttl_ms} for key, ttl_ms in request.ttls.items()}
    updates = [{"op": "append", "key": key, "value": element, **ttls.get(key, {})}
               for key, new in request.appends.items() for element in new]  # fmt: skip
    updates += [{"op": "touch", "key": key, **ttls[key]} for key in request.touches]
    updates += [{"op": "delete", "key": key} for key in request.removes]
    present = [*request.removes, *request.touches]
    checks: list[dict[str, Any]] = [{"key": key, "exists": True} for key in present]
    checks += [
        {"range": {"prefix": prefix}, "count": len(known.seen), "version_le": known.seq}
        for prefix, known in request.unchanged.items()
    ]
    checks += [
        {"range": {"prefix": prefix}, "count_le": most} for prefix, most in request.most.items()
    ]
    ranges = [{"range": {"prefix": prefix}} for prefix in request.scans]
    return {"id": request.id, "checks": checks, "updates": updates,
            "reads": [*request.reads, *ranges]}  # fmt: skip


def _wanted(request: Get | ReadOperation | ScanOperation) -> dict[str, str | int]:
    """The consistency that a read asks for."""
    wanted: dict[str, str | int] = {"consistency": request.consistency}
    if request.min_version is not None:
        wanted["min_version"] = request.min_version
    return wanted


def _seen(entry: dict[str, Any] | None) -> Seen:
    if entry is None:
        return Seen(None, 0)
    return Seen(entry["value"], entry["version"], entry.get("expires_ms"))


def _slug(body: bytes) -> str:
    """The problem type of an answer; every refusal must have one."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    return str(fields["type"]).rpartition("/")[2]
