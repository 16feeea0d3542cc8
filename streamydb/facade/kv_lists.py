"""Lists of keys (`GET /v1/kv`), and many keys at one snapshot (`POST /v1/read`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from litestar import Response, get, post

from streamydb.facade import parameters as q
from streamydb.facade.body import reading
from streamydb.facade.cursors import Cursor, decode_cursor, encode_cursor
from streamydb.facade.kv import READ_PROBLEMS, SNAPSHOT_HEADER
from streamydb.facade.openapi import answers
from streamydb.facade.ports import Snapshot
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import Consistency, check_seqs, in_thread
from streamydb.facade.services import (
    AnyRequest,
    client_of,
    json_response,
    services_of,
)
from streamydb.limits import KEY_BYTES_MAX
from streamydb.read_model.ports import StoredEntry
from streamydb.records.formats import UNREADABLE

__all__ = ["list_values", "read_values"]

_LIMIT_DEFAULT: Final = 100
_CHUNK_ENTRIES: Final = 16
_KEYS_AT_ONCE: Final = 16
"""Keys that are read in the event loop, as a single one is: less work than a change of threads."""
_ENTRIES_AT_ONCE: Final = 128
"""The same for a list, whose entries lie side by side."""

_T = TypeVar("_T")
_READ_MANY_PROBLEMS: Final = (
    "invalid-json", "invalid-key", "answer-too-large", "too-large", "body-timeout",
)  # fmt: skip


class _Shown(msgspec.Struct, gc=False):
    """An entry in an answer."""

    key: str
    value: msgspec.Raw
    version: int
    ts_ms: int


class _ReadBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/read`."""

    keys: list[str]
    at: int | None = None
    consistency: Consistency | None = None
    min_version: int | None = None


@get("/v1/kv", responses=answers(*READ_PROBLEMS))
async def list_values(
    request: AnyRequest,
    prefix: q.AsPrefix = None,
    start: q.AsStart = None,
    end: q.AsEnd = None,
    limit: q.AsLimit = _LIMIT_DEFAULT,
    cursor: q.AsCursor = None,
    at: q.AsSeq = None,
    consistency: q.AsConsistency = None,
    min_version: q.AsMinVersion = None,
) -> Response[bytes]:
    """List keys in the order of their UTF-8 bytes, all pages of one list at one snapshot."""
    services = services_of(request)
    place = Cursor(at or 0, prefix or "", start, end, "")
    if cursor is not None:
        given = decode_cursor(cursor, Cursor, "a list")
        _check_same(given, prefix, start, end, at)
        place, at = given, given.at
    client_of(request).must_read(place.prefix)
    _check_bounds(place)
    opened = await services.reader.snapshot(at=at, consistency=consistency, min_version=min_version)
    with opened as snapshot:
        most = min(limit, services.settings.page_entries_max)
        bytes_max = services.settings.answer_bytes_max
        entries, more = await _reading(
            _page, snapshot, place, most, bytes_max, at_once=most <= _ENTRIES_AT_ONCE
        )
        following = None
        if more:
            last = entries[-1].key
            following = encode_cursor(
                Cursor(snapshot.seq, place.prefix, place.start, place.end, last)
            )
        body = {"seq": snapshot.seq, "entries": list(map(_shown, entries)), "cursor": following}
    return json_response(msgspec.json.encode(body), headers={SNAPSHOT_HEADER: str(body["seq"])})


@post(
    "/v1/read",
    status_code=200,
    responses=answers(*READ_PROBLEMS, *_READ_MANY_PROBLEMS),
)
async def read_values(request: AnyRequest) -> Response[bytes]:
    """Read many keys at one snapshot: a read-only transaction that never aborts."""
    services = services_of(request)
    async with reading(request, services.settings, services.bodies) as raw:
        body = _read_body(raw, services.settings.read_keys_max)
    for key in body.keys:
        client_of(request).must_read(key)
    opened = await services.reader.snapshot(
        at=body.at, consistency=body.consistency, min_version=body.min_version
    )
    with opened as snapshot:
        bytes_max = services.settings.answer_bytes_max
        at_once = len(body.keys) <= _KEYS_AT_ONCE
        reads = await _reading(_many, snapshot, body.keys, bytes_max, at_once=at_once)
        seq = snapshot.seq
    answer = msgspec.json.encode({"seq": seq, "entries": reads})
    return json_response(answer, headers={SNAPSHOT_HEADER: str(seq)})


async def _reading(function: Callable[..., _T], *args: Any, at_once: bool) -> _T:
    """Run a function that reads, in a thread if that may take long."""
    return function(*args) if at_once else await in_thread(function, *args)


def _shown(entry: StoredEntry) -> _Shown:
    return _Shown(entry.key, msgspec.Raw(entry.value), entry.version, entry.ts_ms)


def _page(
    snapshot: Snapshot, place: Cursor, most: int, bytes_max: int
) -> tuple[list[StoredEntry], bool]:
    """The entries of a page, and whether others follow; values of `bytes_max` bytes, at least one.

    They are read a few at a time, so that large values do not fill the memory before they count.
    """
    entries: list[StoredEntry] = []
    size = 0
    after = place.after or None
    while True:
        wanted = min(_CHUNK_ENTRIES, most + 1 - len(entries))
        chunk = snapshot.scan(
            prefix=place.prefix, start=place.start, end=place.end, after=after, limit=wanted
        )
        for entry in chunk:
            size += len(entry.value)
            if entries and (size > bytes_max or len(entries) == most):
                return entries, True
            entries.append(entry)
        if len(chunk) < wanted:
            return entries, False
        after = chunk[-1].key


def _many(snapshot: Snapshot, wanted: list[str], bytes_max: int) -> dict[str, _Shown | None]:
    """The entries of keys, None for those that are absent; read a few at a time."""
    found: dict[str, _Shown | None] = {}
    size = 0
    for begin in range(0, len(wanted), _CHUNK_ENTRIES):
        keys = wanted[begin : begin + _CHUNK_ENTRIES]
        for key, entry in zip(keys, snapshot.get_many(keys), strict=True):
            size += 0 if entry is None else len(entry.value)
            found[key] = None if entry is None else _shown(entry)
        if size > bytes_max:
            raise ProblemError("answer-too-large", "Ask for fewer keys, at the same `at`.")
    return found


def _check_bounds(place: Cursor) -> None:
    """Refuse bounds that are longer than any key."""
    bounds = (place.prefix, place.start or "", place.end or "", place.after)
    if any(len(bound.encode()) > KEY_BYTES_MAX for bound in bounds):
        detail = f"prefix, start and end have at most {KEY_BYTES_MAX} bytes of UTF-8."
        raise ProblemError("invalid-parameter", detail)


def _check_same(
    given: Cursor, prefix: str | None, start: str | None, end: str | None, at: int | None
) -> None:
    """Refuse a cursor together with the parameters of another list."""
    pairs = ((prefix, given.prefix), (start, given.start), (end, given.end), (at, given.at))
    if any(sent is not None and sent != kept for sent, kept in pairs):
        detail = "The cursor belongs to another list; send it alone or with the same parameters."
        raise ProblemError("invalid-parameter", detail, parameters=["cursor"])


def _read_body(raw: bytes, keys_max: int) -> _ReadBody:
    """The body of a read of many keys."""
    try:
        body = msgspec.json.decode(raw, type=_ReadBody)
    except UNREADABLE:
        detail = 'Send {"keys": [...]} and, if you like, at, consistency, min_version.'
        raise ProblemError("invalid-json", detail) from None
    if len(body.keys) > keys_max:
        raise ProblemError("too-large", f"A read has at most {keys_max} keys.")
    check_seqs(at=body.at, min_version=body.min_version)
    if not all(1 <= len(key.encode()) <= KEY_BYTES_MAX for key in body.keys):
        raise ProblemError("invalid-key", f"A key has 1 to {KEY_BYTES_MAX} bytes of UTF-8.")
    return body
