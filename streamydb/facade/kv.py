"""Reads and writes of keys: `/v1/kv`, `/v1/read`, `/v1/constraints`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from streamydb.client.session import new_id
from streamydb.facade.answer import Answer, json_answer, tagged, unchanged
from streamydb.facade.conditions import KeyConditions, conditions_of, entity_tag
from streamydb.facade.cursors import ListCursor, decode_cursor, encode_cursor
from streamydb.facade.headers import idempotency_key, preference
from streamydb.facade.payloads import conditional_write
from streamydb.facade.ports import ModelSnapshot
from streamydb.facade.problems import ProblemError
from streamydb.facade.queries import ExpiryQuery, ListQuery, NoQuery, ReadQuery
from streamydb.facade.reads import ReadPoint, check_point, in_thread
from streamydb.facade.request import (
    FacadeRequest,
    RequestBody,
    StateBody,
    decode_fields,
    decode_value_body,
)
from streamydb.facade.transactions import execute
from streamydb.limits import KEY_BYTES_MAX
from streamydb.read_model.ports import JsonPage
from streamydb.records import CONSTRAINTS_KEY, Result
from streamydb.records.ranges import ScanRange

SNAPSHOT_HEADER: Final = "Streamydb-Snapshot"  # the seq whose state an answer shows
_AT_ONCE: Final = 128
"""Entries that are read in the event loop, as a single one is: less work than a change of threads.
"""

_T = TypeVar("_T")


class _ReadBody(StateBody):
    keys: list[str]


async def get_value(request: FacadeRequest, query: ReadQuery) -> Answer:
    """Read a key: its value as JSON, its version as ETag.

    If it has an end, the header Streamydb-Expires tells it, in ms since 1970.
    """
    services, sender = request.services, request.sender
    with await services.reader.snapshot(query.point) as snapshot:
        entry = snapshot.get(request.key)
        headers = {SNAPSHOT_HEADER: str(snapshot.seq)}
        generation = services.model.generation
    conditions = conditions_of(request.headers)
    if entry is None:  # conditions are about answers of success
        raise ProblemError("key-not-found", "The key is absent.", headers=headers)
    plain = entity_tag(entry.version, generation)
    codings = {tagged(plain, coding): coding for coding in sender.codings(len(entry.value))}
    selected = conditions.selected(list(codings))
    if selected is None:
        raise ProblemError("precondition-failed", "If-Match does not hold.", version=entry.version)
    headers["ETag"], known = selected
    if known:
        return unchanged(headers)
    sender.choose(codings[selected[0]])
    headers["Streamydb-Time"] = str(entry.ts_ms)
    if entry.expires_ms is not None:
        headers["Streamydb-Expires"] = str(entry.expires_ms)
    return json_answer(entry.value, headers=headers)


async def read_values(request: FacadeRequest, _: NoQuery) -> Answer:
    """Read many keys at one snapshot: a read-only transaction that never aborts."""
    services = request.services
    async with RequestBody(request) as raw:
        pass  # a read that waits for the log does not hold its body
    body = decode_fields(
        raw, _decode_read, 'Send {"keys": [...]} and, if you like, at, consistency, min_version.'
    )
    if len(body.keys) > services.settings.read_keys_max:
        raise ProblemError(
            "too-large", f"A read has at most {services.settings.read_keys_max} keys."
        )
    sizes = list(map(len, map(str.encode, body.keys)))
    if sizes and not (min(sizes) >= 1 and max(sizes) <= KEY_BYTES_MAX):
        raise ProblemError("invalid-key", f"A key has 1 to {KEY_BYTES_MAX} bytes of UTF-8.")
    request.client.must_read_all(body.keys)
    point = body.point(request)
    bytes_max = services.settings.answer_bytes_max
    with await services.reader.snapshot(point) as snapshot:
        seq = snapshot.seq
        entries = await _run_read(snapshot.get_json, len(body.keys), body.keys, bytes_max)
    if entries is None:
        raise ProblemError("answer-too-large", "Ask for fewer keys, at the same `at`.")
    answer = b'{"seq":%d,"entries":{%b}}' % (seq, entries)
    return json_answer(answer, headers={SNAPSHOT_HEADER: str(seq)})


async def list_values(request: FacadeRequest, query: ListQuery) -> Answer:
    """List keys in the order of their UTF-8 bytes, all pages of one list at one snapshot."""
    services = request.services
    place, point = _place(query, services.model.generation)
    request.client.must_read(place.prefix)
    bounds = (place.prefix, place.start or "", place.end or "", place.after)
    if any(len(bound.encode()) > KEY_BYTES_MAX for bound in bounds):
        detail = f"prefix, start and end have at most {KEY_BYTES_MAX} bytes of UTF-8."
        raise ProblemError("invalid-parameter", detail)
    limit = min(query.limit, services.settings.page_entries_max)
    with await services.reader.snapshot(point) as snapshot:
        seq = snapshot.seq
        page = await read_page(snapshot, place.keys, limit, services.settings.answer_bytes_max)
    following = b"null"
    if page.last is not None:
        next_place = ListCursor(seq, place.prefix, place.start, place.end, page.last)
        cursor = encode_cursor(next_place, services.model.generation)
        following = b'"%b"' % cursor.encode()
    answer = b'{"seq":%d,"entries":[%b],"cursor":%b}' % (seq, page.items, following)
    return json_answer(answer, headers={SNAPSHOT_HEADER: str(seq)})


async def read_page(
    snapshot: ModelSnapshot, keys: ScanRange, limit: int, bytes_max: int
) -> JsonPage:
    """Read the first page of a range of keys; in a thread if that may take long."""
    scan = partial(snapshot.scan_json, keys, limit=limit, bytes_max=bytes_max)
    page = scan(at_once=True) if limit <= _AT_ONCE else None
    if page is None or not page.whole:  # many keys that have been deleted lie before it
        page = await in_thread(scan)
    return page


async def _run_read(function: Callable[..., _T], count: int, *args: Any, **named: Any) -> _T:
    """Run a function that reads so many entries, in a thread if that may take long."""
    if count <= _AT_ONCE:
        return function(*args, **named)
    return await in_thread(lambda: function(*args, **named))


def _place(query: ListQuery, generation: str) -> tuple[ListCursor, ReadPoint]:
    """Find the place where a page begins, and its snapshot: a cursor says both. With a cursor,
    `consistency` has said already how recent the first page was.
    """
    point = query.point
    if query.cursor is None:
        return ListCursor(query.at or 0, query.prefix or "", query.start, query.end, ""), point
    cursor = decode_cursor(query.cursor, ListCursor, "a list", generation)
    pairs = (
        (query.prefix, cursor.prefix), (query.start, cursor.start), (query.end, cursor.end),
        (query.at, cursor.at),
    )  # fmt: skip
    if any(sent is not None and sent != kept for sent, kept in pairs):
        detail = "The cursor belongs to another list; send it alone or with the same parameters."
        raise ProblemError("invalid-parameter", detail, parameters=["cursor"])
    check_point(point)
    return cursor, ReadPoint(at=cursor.at, min_version=query.min_version)


_decode_read = msgspec.json.Decoder(_ReadBody).decode


async def get_constraints(request: FacadeRequest, query: ReadQuery) -> Answer:
    """List the constraints by name, with the seq of their declaration (`since`).

    They are declared and dropped by transactions, see `POST /v1/transactions`.
    """
    with await request.services.reader.snapshot(query.point) as snapshot:
        entry = snapshot.get(CONSTRAINTS_KEY)
        value = msgspec.Raw(b"{}" if entry is None else entry.value)
        seq = snapshot.seq
    body = msgspec.json.encode({"seq": seq, "constraints": value})
    return json_answer(body, headers={SNAPSHOT_HEADER: str(seq)})


async def put_value(request: FacadeRequest, query: ExpiryQuery) -> Answer:
    """Store a value; If-Match and If-None-Match make it conditional."""
    async with RequestBody(request) as body:
        return await _write(request, _KeyWrite(decode_value_body(body), query.ttl_ms))


async def delete_value(request: FacadeRequest, _: NoQuery) -> Answer:
    """Remove a key; it may be absent, unless If-Match says otherwise."""
    return await _write(request, _KeyWrite(None))


class _KeyWrite(NamedTuple):
    """A write of one key: its value (None: a delete), and for how long."""

    value: bytes | None
    ttl_ms: int | None = None


async def _write(request: FacadeRequest, written: _KeyWrite) -> Answer:
    key, headers = request.key, request.headers
    generation = request.services.model.generation
    conditions = KeyConditions(key, conditions_of(headers), generation)
    checks = conditions.checks()
    if checks is None:
        detail = "No version can meet If-Match and If-None-Match; nothing was appended."
        raise ProblemError("precondition-failed", detail)
    txn_id, wait = idempotency_key(headers) or new_id(), preference(headers)
    payload = conditional_write(txn_id, key, written.value, checks, written.ttl_ms)
    steps = _Steps(conditions, written, checks)
    if conditions.in_steps:
        wait = wait._replace(respond_async=False)  # the facade takes the steps
    return await execute(request, txn_id, payload, wait, steps.following, steps.conclude)


class _Steps:
    """The steps of a conditional write (`conditions`), and the answer to the last one."""

    def __init__(
        self, conditions: KeyConditions, written: _KeyWrite, checks: list[dict[str, Any]]
    ) -> None:
        self._conditions = conditions
        self._written = written
        self._creates = checks in ([conditions.absent()], [conditions.check(0)])

    def following(self, txn_id: str, payload: bytes, result: Result) -> tuple[str, bytes] | None:
        """Return id and bytes of the step after a verdict, None: it is the last."""
        step = self._conditions.following(txn_id, payload, result)
        if step is not None:
            self._creates = self._conditions.met(result) == 0
        return step

    def conclude(self, result: Result) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of the last verdict, or raise its problem."""
        if self._conditions.allow_again(result):
            detail = "Others kept changing the key while its condition was judged; send it again."
            raise ProblemError("aborted", detail, code=result.code, id=result.id)
        if result.status != "committed":
            if result.code == "check-failed":
                version = result.failed[0].version if result.failed else 0
                detail = "The key has another version; nothing was written."
                raise ProblemError(
                    "precondition-failed", detail, version=version, id=result.id, seq=result.seq
                )
            if result.code == "constraint-violated" and result.failed:
                failed = result.failed[0]
                detail = f"{failed.violated} is what constraint {failed.constraint} demands."
                raise ProblemError(
                    "constraint-violated",
                    detail,
                    code=result.code,
                    constraint=failed.constraint,
                    key=failed.key,
                    violated=failed.violated,
                    id=result.id,
                    seq=result.seq,
                )
            raise ProblemError("aborted", "Nothing was written.", code=result.code, id=result.id)
        if self._written.value is None:
            return 200, {}
        return 201 if self._creates else 200, {
            "ETag": entity_tag(result.seq, self._conditions.generation)
        }
