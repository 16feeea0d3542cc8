"""A request on its way through the facade, and its body.

A body is read within bounds of size, time and memory, and decoded strictly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

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
from streamydb.facade.answer import Sender
from streamydb.facade.asgi import Headers, Receive, Scope
from streamydb.facade.auth import ANYBODY, Caller
from streamydb.facade.bounds import Reservation
from streamydb.facade.generations import require_said
from streamydb.facade.headers import check_content, declared_bytes
from streamydb.facade.payloads import place_of
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import ReadPoint, check_seqs
from streamydb.facade.request_target import key_of, text_of
from streamydb.facade.waiting import BODY_LEFT_S, await_within
from streamydb.limits import DEPTH_MAX, VALUE_BYTES_MAX
from streamydb.records import Rejection, canonical, decode
from streamydb.records.formats import UNREADABLE
from streamydb.records.problems import problem_of_rejection
from streamydb.records.values import deeper_than

if TYPE_CHECKING:
    from streamydb.facade.console import Console
    from streamydb.facade.services import Services

_SINGLE: Final = ("Idempotency-Key", "Deadline-Ms", "Last-Event-ID")


class Peer(NamedTuple):
    """The sender of a request: address, present generation if it says it; `foreign`: for another
    host.
    """

    address: str
    generation: str | None
    foreign: bool


class FacadeRequest:
    """A request, with all that its endpoint needs.

    Attributes:
        fields: its headers as they came, names in small letters.
        query: its query string, still escaped.
        name: the rest of the path after its endpoint's, still escaped.
        client: the sender; ANYBODY until its token was looked at.
        closing: undoes what was begun when the request ends, however it ends.
    """

    def __init__(
        self,
        services: Services,
        console: Console,
        scope: Scope,
        receive: Receive,
        sender: Sender,
        peer: Peer,
    ) -> None:
        self.services = services
        self.console = console
        self.fields: Headers = scope["headers"]
        self.query: bytes = scope["query_string"]
        self.receive = receive
        self.sender = sender
        self.address, self.generation, self.foreign = peer
        self.name: bytes = b""
        self.client: Caller = ANYBODY
        self.closing = ExitStack()
        self._key: str | None = None
        self._headers: dict[str, str] | None = None

    @property
    def client_name(self) -> str:
        """The name by which the client is counted: its token's, else its address."""
        return self.address if self.client is ANYBODY else f"token {self.client.name}"

    @property
    def text(self) -> str:
        """The name in the path; empty if it is no text in UTF-8."""
        return text_of(self.name) or ""

    @property
    def key(self) -> str:
        """The key in the path. Raises ProblemError: invalid-key."""
        if self._key is None:
            self._key = key_of(self.name)
        return self._key

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name; those that were sent several times are joined.
        Raises ProblemError: invalid-parameter, if one of which there can be one was sent several
        times.
        """
        if self._headers is None:
            headers: dict[str, str] = {}
            repeated: set[str] = set()
            for field, content in self.fields:
                name, value = field.decode("latin-1"), content.decode("latin-1")
                if name in headers:
                    repeated.add(name)
                    value = f"{headers[name]}, {value}"
                headers[name] = value
            again = [name for name in _SINGLE if name.lower() in repeated]
            if again:
                detail = f"The header {again[0]} was sent several times."
                raise ProblemError("invalid-parameter", detail, parameters=again)
            self._headers = headers
        return self._headers


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


class RequestBody:
    """The body of a request, for a block; its bytes count against a bound until the block ends.

    No generator: Python's registry of those costs a request as much as the block does.
    """

    def __init__(self, request: FacadeRequest) -> None:
        self._request = request
        self._reserved = Reservation(request.services.bodies)

    async def __aenter__(self) -> bytes:
        """Read it. Raises ProblemError: unsupported-media-type, expectation-failed,
        invalid-parameter (the headers say that it is something else than JSON), too-large,
        overloaded, body-timeout.
        """
        request, services = self._request, self._request.services
        settings = services.settings
        limit = settings.body_bytes_max
        check_content(request.fields)
        if declared_bytes(request.fields) > limit:
            raise _too_large(limit)
        work = _received(request.receive, self._reserved.grow, limit)
        in_time = partial(services.ending.timeout, left_s=BODY_LEFT_S)
        try:
            return await await_within(settings.body_timeout_s, work, in_time)
        except BaseException as error:
            self._reserved.end()
            if isinstance(error, TimeoutError):
                raise _too_slow(ends=services.ending.begun) from None
            raise

    async def __aexit__(self, *error: object) -> None:
        self._reserved.end()


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
