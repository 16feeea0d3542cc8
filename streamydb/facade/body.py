"""Bodies of requests: read within bounds of size, time and memory, and decoded strictly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from litestar import Request
from litestar.exceptions import InternalServerException

from streamydb.errors import REJECTED_CODES, ValueRejected
from streamydb.facade.bounds import Budget
from streamydb.facade.problems import ProblemError
from streamydb.facade.settings import FacadeSettings
from streamydb.limits import DEPTH_MAX, VALUE_BYTES_MAX
from streamydb.records import canonical
from streamydb.records.depth import deeper_than
from streamydb.records.formats import UNREADABLE

__all__ = ["decode_json", "decode_value_body", "invalid_json", "reading"]


@asynccontextmanager
async def reading(
    request: Request[Any, Any, Any], settings: FacadeSettings, budget: Budget
) -> AsyncGenerator[bytes, None]:
    """Read a body; its bytes count against `budget` until the block ends.

    Raises:
        ProblemError: too-large, overloaded, body-timeout.
    """
    limit = settings.body_bytes_max
    declared = request.headers.get("content-length", "0")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    with budget.reserve() as reservation:
        body = bytearray()
        try:
            async with asyncio.timeout(settings.body_timeout_s):
                async for chunk in request.stream():
                    if len(body) + len(chunk) > limit:
                        raise _too_large(limit)
                    reservation.grow(len(chunk))
                    body += chunk
        except TimeoutError:
            raise ProblemError("body-timeout", "Send the body faster, or a smaller one.") from None
        except InternalServerException:  # so Litestar says that the client has gone
            raise ProblemError("body-timeout", "The connection ended within the body.") from None
        yield bytes(body)


def decode_json(body: bytes) -> Any:
    """Decode a body, strictly.

    Raises:
        ProblemError: invalid-json.
    """
    if deeper_than(body, DEPTH_MAX):
        raise invalid_json(f"It is nested more than {DEPTH_MAX} deep.")
    try:
        return msgspec.json.decode(body)
    except UNREADABLE:
        raise invalid_json("Send one JSON value in UTF-8; a text needs quotes.") from None


def decode_value_body(body: bytes) -> bytes:
    """Return the canonical bytes of the value that a body holds.

    Raises:
        ProblemError: invalid-json, too-large.
    """
    value = decode_json(body)
    if value is None:
        raise invalid_json("null cannot be stored; DELETE removes a key.")
    try:
        data = canonical(value)
    except ValueRejected as fault:
        raise invalid_json(REJECTED_CODES[fault.code], fault.code) from None
    if len(data) > VALUE_BYTES_MAX:
        detail = f"A value has at most {VALUE_BYTES_MAX} bytes of canonical JSON."
        raise ProblemError("too-large", detail)
    return data


def invalid_json(detail: str, code: str = "invalid-json") -> ProblemError:
    """Return the problem of a body that is not as it must be."""
    return ProblemError("invalid-json", detail, code=code)


def _too_large(limit: int) -> ProblemError:
    return ProblemError("too-large", f"A body has at most {limit} bytes.")
