"""Bodies of requests: read within bounds of size, time and memory, and decoded strictly."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from streamydb.errors import (
    INVALID_JSON,
    NULL_VALUE,
    NUMBER_RANGE,
    REJECTED_CODES,
    TOO_DEEP,
    VALUE_TOO_LARGE,
    ValueRejected,
)
from streamydb.facade.bounds import Budget, Reservation
from streamydb.facade.headers import declared_bytes
from streamydb.facade.problems import ProblemError
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.within import within
from streamydb.limits import DEPTH_MAX, VALUE_BYTES_MAX
from streamydb.records import Rejection, canonical, decode
from streamydb.records.depth import deeper_than
from streamydb.records.formats import UNREADABLE
from streamydb.records.problems import problem_of_rejection

if TYPE_CHECKING:
    from litestar.types import Receive, Scope

__all__ = ["decode_value_body", "reading"]

_NO_JSON: Final = "Send one JSON value in UTF-8; a text needs quotes."


@asynccontextmanager
async def reading(
    scope: Scope, receive: Receive, settings: FacadeSettings, budget: Budget
) -> AsyncGenerator[bytes, None]:
    """Read a body; its bytes count against `budget` until the block ends.

    Raises:
        ProblemError: too-large, overloaded, body-timeout.
    """
    limit = settings.body_bytes_max
    if declared_bytes(scope["headers"]) > limit:
        raise _too_large(limit)
    with budget.reserve() as reservation:
        try:
            body = await within(settings.body_timeout_s, _received(receive, reservation, limit))
        except TimeoutError:
            raise ProblemError("body-timeout", "Send the body faster, or a smaller one.") from None
        yield body


async def _received(receive: Receive, reservation: Reservation, limit: int) -> bytes:
    """Receive a body of at most ``limit`` bytes, and reserve room for it."""
    chunks, size = [], 0
    while True:
        message = cast("dict[str, Any]", await receive())
        if message["type"] == "http.disconnect":
            raise ProblemError("body-timeout", "The connection ended within the body.")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        reservation.grow(len(chunk))
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def decode_value_body(body: bytes) -> bytes:
    """Return the canonical bytes of the value that a body holds.

    What a transaction that stores it would be refused for is refused here, by the same code.

    Raises:
        ProblemError: invalid-json, too-large.
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
    """Return the problem of a body with the reason code of a transaction that has it."""
    return ProblemError(problem_of_rejection(code).slug, detail, code=code)


def _too_large(limit: int) -> ProblemError:
    return ProblemError("too-large", f"A body has at most {limit} bytes.")
