"""The answers to reads: one key, many keys, a page of a list; whoever has taken the request apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from streamydb.facade.auth import Caller
from streamydb.facade.body import decode_fields
from streamydb.facade.codings import tagged
from streamydb.facade.conditions import conditions_of, entity_tag
from streamydb.facade.cursors import Cursor, decode_cursor, encode_cursor
from streamydb.facade.gate import Context
from streamydb.facade.generations import require_said
from streamydb.facade.paths import key_of
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import Consistency, ReadPoint, check_point, check_seqs, in_thread
from streamydb.facade.services import Services
from streamydb.limits import KEY_BYTES_MAX

__all__ = [
    "LIMIT_DEFAULT", "SNAPSHOT_HEADER", "Answer", "Listed", "answer_list", "answer_many",
    "answer_one",
]  # fmt: skip

SNAPSHOT_HEADER: Final = "Streamydb-Snapshot"
"""The seq whose state an answer shows."""

LIMIT_DEFAULT: Final = 100
"""Entries of a page of a list whose request names no number."""

_AT_ONCE: Final = 128
"""Entries that are read in the event loop, as a single one is: less work than a change of threads.
"""

_T = TypeVar("_T")


class Answer(NamedTuple):
    """The answer to a read: JSON, and the headers that tell of it."""

    body: bytes
    headers: dict[str, str]
    status: int = 200


class Listed(NamedTuple):
    """A page of a list that a request asks for."""

    prefix: str | None = None
    start: str | None = None
    end: str | None = None
    limit: int = LIMIT_DEFAULT
    cursor: str | None = None


class _ReadBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/read`."""

    keys: list[str]
    at: int | None = None
    consistency: Consistency | None = None
    min_version: int | None = None


async def answer_one(
    services: Services, context: Context, headers: Mapping[str, str], wanted: ReadPoint
) -> Answer:
    """Answer with the key that a request names; ``headers``: may hold conditions.

    Raises:
        ProblemError: as `get_value` declares.
    """
    key = key_of(context.name or b"")
    context.client.must_read(key)
    with await services.reader.snapshot(wanted) as snapshot:
        entry = snapshot.get(key)
        shown = {SNAPSHOT_HEADER: str(snapshot.seq)}
        generation = services.model.generation
    given = conditions_of(headers)
    if entry is None:  # conditions are about answers of success
        raise ProblemError("key-not-found", "The key is absent.", headers=shown)
    plain, sender = entity_tag(entry.version, generation), context.sender
    codings = {tagged(plain, coding): coding for coding in sender.codings(len(entry.value))}
    selected = given.selected(list(codings))
    if selected is None:
        raise ProblemError("precondition-failed", "If-Match does not hold.", version=entry.version)
    shown["ETag"], known = selected
    if known:
        return Answer(b"", shown, 304)
    sender.choose(codings[selected[0]])
    shown["Streamydb-Time"] = str(entry.ts_ms)
    if entry.expires_ms is not None:
        shown["Streamydb-Expires"] = str(entry.expires_ms)
    return Answer(entry.value, shown)


async def answer_many(services: Services, context: Context, raw: bytes) -> Answer:
    """Answer with the keys that a body names.

    Raises:
        ProblemError: as `read_values` declares.
    """
    body = _read_body(raw, services.settings.read_keys_max)
    context.client.must_read_all(body.keys)
    require_said(context.generation, services.model.generation, body.min_version)
    wanted = ReadPoint(body.at, body.consistency, body.min_version)
    bytes_max = services.settings.answer_bytes_max
    with await services.reader.snapshot(wanted) as snapshot:
        seq = snapshot.seq
        entries = await _reading(snapshot.get_json, len(body.keys), body.keys, bytes_max)
    if entries is None:
        raise ProblemError("answer-too-large", "Ask for fewer keys, at the same `at`.")
    answer = b'{"seq":%d,"entries":{%b}}' % (seq, entries)
    return Answer(answer, {SNAPSHOT_HEADER: str(seq)})


async def answer_list(
    services: Services, caller: Caller, listed: Listed, wanted: ReadPoint
) -> Answer:
    """Answer with a page of a list.

    Raises:
        ProblemError: as `list_values` declares.
    """
    place, wanted = _place(listed, wanted, services.model.generation)
    caller.must_read(place.prefix)
    _check_bounds(place)
    most = min(listed.limit, services.settings.page_entries_max)
    with await services.reader.snapshot(wanted) as snapshot:
        seq = snapshot.seq
        scan = partial(
            snapshot.scan_json, prefix=place.prefix, start=place.start, end=place.end,
            after=place.after or None, limit=most, bytes_max=services.settings.answer_bytes_max,
        )  # fmt: skip
        page = scan(at_once=True) if most <= _AT_ONCE else None
        if page is None or not page.whole:  # many keys that have been deleted lie before it
            page = await in_thread(scan)
    following = b"null"
    if page.last is not None:
        next_place = Cursor(seq, place.prefix, place.start, place.end, page.last)
        cursor = encode_cursor(next_place, services.model.generation)
        following = b'"%b"' % cursor.encode()
    answer = b'{"seq":%d,"entries":[%b],"cursor":%b}' % (seq, page.items, following)
    return Answer(answer, {SNAPSHOT_HEADER: str(seq)})


async def _reading(function: Callable[..., _T], count: int, *args: Any, **named: Any) -> _T:
    """Run a function that reads so many entries, in a thread if that may take long."""
    if count <= _AT_ONCE:
        return function(*args, **named)
    return await in_thread(lambda: function(*args, **named))


def _place(listed: Listed, wanted: ReadPoint, generation: str) -> tuple[Cursor, ReadPoint]:
    """Find the place where a page begins, and its snapshot: a cursor says both.

    With a cursor, `consistency` has said already how recent the first page was.
    """
    if listed.cursor is None:
        at = wanted.at or 0
        return Cursor(at, listed.prefix or "", listed.start, listed.end, ""), wanted
    given = decode_cursor(listed.cursor, Cursor, "a list", generation)
    pairs = (
        (listed.prefix, given.prefix), (listed.start, given.start), (listed.end, given.end),
        (wanted.at, given.at),
    )  # fmt: skip
    if any(sent is not None and sent != kept for sent, kept in pairs):
        detail = "The cursor belongs to another list; send it alone or with the same parameters."
        raise ProblemError("invalid-parameter", detail, parameters=["cursor"])
    check_point(wanted)
    return given, ReadPoint(at=given.at, min_version=wanted.min_version)


def _check_bounds(place: Cursor) -> None:
    """Refuse bounds that are longer than any key."""
    bounds = (place.prefix, place.start or "", place.end or "", place.after)
    if any(len(bound.encode()) > KEY_BYTES_MAX for bound in bounds):
        detail = f"prefix, start and end have at most {KEY_BYTES_MAX} bytes of UTF-8."
        raise ProblemError("invalid-parameter", detail)


def _read_body(raw: bytes, keys_max: int) -> _ReadBody:
    """The body of a read of many keys."""
    body = decode_fields(
        raw, _decode_read, 'Send {"keys": [...]} and, if you like, at, consistency, min_version.'
    )
    if len(body.keys) > keys_max:
        raise ProblemError("too-large", f"A read has at most {keys_max} keys.")
    check_seqs(at=body.at, min_version=body.min_version)
    sizes = list(map(len, map(str.encode, body.keys)))
    if sizes and not (min(sizes) >= 1 and max(sizes) <= KEY_BYTES_MAX):
        raise ProblemError("invalid-key", f"A key has 1 to {KEY_BYTES_MAX} bytes of UTF-8.")
    return body


_decode_read = msgspec.json.Decoder(_ReadBody).decode
