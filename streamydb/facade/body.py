"""Bodies of requests: read within bounds of size, time and memory, and decoded strictly."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import msgspec

from streamydb.client.requests import Consistency
from streamydb.errors import (
    INVALID_JSON,
    NULL_VALUE,
    NUMBER_RANGE,
    REJECTED_CODES,
    TOO_DEEP,
    VALUE_TOO_LARGE,
    ValueRejected,
)
from streamydb.facade.asgi import Receive
from streamydb.facade.generations import require_said
from streamydb.facade.headers import check_content, declared_bytes
from streamydb.facade.payloads import place_of
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import ReadPoint, check_seqs
from streamydb.facade.request import FacadeRequest
from streamydb.facade.waiting import BODY_LEFT_S, await_within
from streamydb.limits import DEPTH_MAX, VALUE_BYTES_MAX
from streamydb.records import Rejection, canonical, decode
from streamydb.records.formats import UNREADABLE
from streamydb.records.problems import problem_of_rejection
from streamydb.records.values import deeper_than

_Body = TypeVar("_Body")


class StateBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A body that says which state it reads."""

    at: int | None = None
    consistency: Consistency | None = None
    min_version: int | None = None

    def point(self, request: FacadeRequest) -> ReadPoint:
        """Return the state. Raises ProblemError: invalid-parameter; other-generation, if nothing
        says that `min_version` is of the present one.
        """
        check_seqs(at=self.at, min_version=self.min_version)
        require_said(request.generation, request.services.model.generation, self.min_version)
        return ReadPoint(self.at, self.consistency, self.min_version)


_NO_JSON: Final = "Send one JSON value in UTF-8; a text needs quotes."


@asynccontextmanager
async def request_body(request: FacadeRequest) -> AsyncGenerator[bytes, None]:
    """Read the body of a request; its bytes count against a bound until the block ends.
    Raises ProblemError: unsupported-media-type, expectation-failed, invalid-parameter (the headers
    say that it is something else than JSON), too-large, overloaded, body-timeout.
    """
    services, headers = request.services, request.fields
    settings = services.settings
    limit = settings.body_bytes_max
    check_content(headers)
    if declared_bytes(headers) > limit:
        raise _too_large(limit)
    with services.bodies.reserve() as grow:
        work = _received(request.receive, grow, limit)
        in_time = partial(services.ending.timeout, left_s=BODY_LEFT_S)
        try:
            body = await await_within(settings.body_timeout_s, work, in_time)
        except TimeoutError:
            raise _too_slow(ends=services.ending.begun) from None
        yield body


async def _received(receive: Receive, grow: Callable[[int], None], limit: int) -> bytes:
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ProblemError("body-timeout", "The connection ended within the body.")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        grow(len(chunk))
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def decode_fields(body: bytes, decode: Callable[[bytes], _Body], wanted: str) -> _Body:
    """Decode a body of known fields.
    Raises ProblemError: invalid-json; invalid-parameter for JSON of another shape.
    """
    try:
        return decode(body)
    except UNREADABLE as error:
        fault = error
    try:
        msgspec.json.decode(body)
    except UNREADABLE:
        raise ProblemError("invalid-json", wanted) from None
    place = place_of(fault)
    if not place:
        raise ProblemError("invalid-parameter", wanted)
    detail = f"The field {place} has another type or value than it may have. {wanted}"
    raise ProblemError("invalid-parameter", detail, parameters=[place])


def decode_value_body(body: bytes) -> bytes:
    """Return the canonical bytes of the value that a body holds. What a transaction that stores it
    would be refused for is refused here, by the same code. Raises ProblemError: invalid-json,
    too-large.
    """
    if deeper_than(body, DEPTH_MAX):
        raise _refused(TOO_DEEP, f"It is nested more than {DEPTH_MAX} deep.")
    try:
        value = msgspec.json.decode(body)
    except UNREADABLE:
        stored = decode(b'{"id":"-","updates":[{"op":"put","key":"-","value":%b}]}' % body)
        code = stored.code if isinstance(stored, Rejection) else INVALID_JSON
        detail = REJECTED_CODES[NUMBER_RANGE] if code == NUMBER_RANGE else _NO_JSON
        raise _refused(code, detail) from None
    if value is None:
        raise _refused(NULL_VALUE, "null cannot be stored; DELETE removes a key.")
    try:
        data = canonical(value)
    except ValueRejected as fault:
        raise _refused(fault.code, REJECTED_CODES[fault.code]) from None
    if len(data) > VALUE_BYTES_MAX:
        detail = f"A value has at most {VALUE_BYTES_MAX} bytes of canonical JSON."
        raise _refused(VALUE_TOO_LARGE, detail)
    return data


def _refused(code: str, detail: str) -> ProblemError:
    return ProblemError(problem_of_rejection(code).slug, detail, code=code)


def _too_slow(*, ends: bool) -> ProblemError:
    detail = "The facade ends; send it again." if ends else "Send it faster, or a smaller one."
    return ProblemError("body-timeout", detail, headers={"Connection": "close"})


def _too_large(limit: int) -> ProblemError:
    return ProblemError("too-large", f"A body has at most {limit} bytes.")
