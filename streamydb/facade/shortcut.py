"""Plain requests past the router, which would take twice as long as all the rest of a read.

The router makes an object of the request, converts the parameters by their types, and encodes the
answer. A request is plain if it has nothing that needs this. A plain read has parameters without
escapes, of the form that is taken, and no condition; a plain write has no parameters. What is not
plain, good or bad, goes through the router. Both ways end in the same functions, and a test holds
their answers against each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast, get_args

from litestar import Response

from streamydb.facade.body import reading
from streamydb.facade.gate import context_of
from streamydb.facade.kv import store_value
from streamydb.facade.read_answers import (
    LIMIT_DEFAULT,
    Answer,
    Listed,
    answer_list,
    answer_many,
    answer_one,
)
from streamydb.facade.reads import Consistency, ReadPoint
from streamydb.facade.services import JSON_HEADERS, Services
from streamydb.facade.transactions import send_transaction

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Scope, Send

    from streamydb.facade.cross_origin import Headers

__all__ = ["Shortcut"]

_ONE: Final = "/v1/kv/{key}"
_LIST: Final = "/v1/kv"
_MANY: Final = "/v1/read"
_TRANSACTIONS: Final = "/v1/transactions"
_WANTED: Final = frozenset(ReadPoint._fields)
_NO_PARAMETERS: Final = frozenset[str]()

_ROUTES: Final = {
    ("GET", "/v1/kv/-"): (_ONE, _WANTED),  # the gate has put the key aside
    ("GET", _LIST): (_LIST, _WANTED | frozenset(Listed._fields)),
    ("POST", _MANY): (_MANY, _NO_PARAMETERS),
    ("PUT", "/v1/kv/-"): (_ONE, _NO_PARAMETERS),
    ("POST", _TRANSACTIONS): (_TRANSACTIONS, _NO_PARAMETERS),
}
"""Method and path of plain requests: their route, and the parameters that it knows."""

_WRITES: Final = {("PUT", _ONE): store_value, ("POST", _TRANSACTIONS): send_transaction}
"""Method and route of writes: what answers them."""

_NOT_PLAIN: Final = frozenset(
    {b"if-match", b"if-none-match", b"idempotency-key", b"deadline-ms", b"last-event-id"}
)
"""Headers that the router's handlers of reads look at."""

_COMMON: Final = [
    (name.lower().encode(), value.encode())
    for name, value in {**JSON_HEADERS, "Content-Type": "application/json"}.items()
]
"""Headers of every answer that is no problem."""

_NO_HEADERS: Final = frozenset[bytes]()

_FORMS: Final = {
    "at": re.compile(r"[1-9][0-9]{0,17}"),
    "min_version": re.compile(r"[1-9][0-9]{0,17}"),
    "limit": re.compile(r"[1-9][0-9]{0,8}"),
    "consistency": re.compile("|".join(get_args(Consistency))),
}
_TEXT: Final = re.compile(r"[\x21-\x7e]{1,1024}")
"""Other parameters."""


class _Sent(NamedTuple):
    """A request as it came; see `services.Sent`."""

    scope: Scope
    receive: Receive


class _Plain(NamedTuple):
    """A plain request: its method and route, its parameters, who it says that it comes from."""

    method: str
    route: str
    wanted: ReadPoint
    listed: Listed
    authorization: str | None


class Shortcut:
    """An ASGI application before the router.

    Args:
        app: the router, with what it routes to.
        services: the parts of the facade.
        failed: makes an answer of an exception.
    """

    def __init__(
        self, app: ASGIApp, services: Services, failed: Callable[[Exception], Response[bytes]]
    ) -> None:
        """Stand before `app`."""
        self._app = app
        self._services = services
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a plain request, pass on everything else."""
        plain = _plain(cast("dict[str, Any]", scope))
        if plain is None:
            await self._app(scope, receive, send)
            return
        cast("dict[str, Any]", scope)["path_template"] = plain.route
        try:
            answer = await self._answer(plain, scope, receive)
        except Exception as error:  # noqa: BLE001 - as the router does
            answer = self._failed(error)
        if isinstance(answer, Response):
            await _send_response(answer, send)
        else:
            await _send(200, _COMMON, answer.headers, answer.body, send)

    async def _answer(
        self, plain: _Plain, scope: Scope, receive: Receive
    ) -> Answer | Response[bytes]:
        context, services = context_of(scope), self._services
        context.client = caller = services.tokens.identify(plain.authorization)
        write = _WRITES.get((plain.method, plain.route))
        if write is not None:
            return await write(_Sent(scope, receive), services)
        if plain.route == _ONE:
            return await answer_one(services, context, {}, plain.wanted)
        if plain.route == _LIST:
            return await answer_list(services, caller, plain.listed, plain.wanted)
        async with reading(_Sent(scope, receive), services) as raw:
            pass  # a read that waits for the log does not hold its body
        return await answer_many(services, context, raw)


def _plain(scope: dict[str, Any]) -> _Plain | None:
    """Take a request apart if it is plain."""
    found = _ROUTES.get((scope.get("method", ""), scope.get("path", "")))
    if found is None or scope["root_path"]:
        return None
    route, known = found
    not_plain = _NO_HEADERS if (scope["method"], route) in _WRITES else _NOT_PLAIN
    authorization = None
    for name, value in scope["headers"]:
        if name in not_plain or (name == b"authorization" and authorization is not None):
            return None
        if name == b"authorization":
            authorization = value.decode("latin-1")
    given = _parameters(scope["query_string"], known)
    if given is None:
        return None
    consistency = cast("Consistency | None", given.get("consistency"))
    wanted = ReadPoint(_number(given, "at"), consistency, _number(given, "min_version"))
    listed = Listed(
        given.get("prefix"), given.get("start"), given.get("end"),
        _number(given, "limit") or LIMIT_DEFAULT, given.get("cursor"),
    )  # fmt: skip
    return _Plain(scope["method"], route, wanted, listed, authorization)


def _number(given: dict[str, str], name: str) -> int | None:
    """The number in a parameter, if it is given."""
    text = given.get(name)
    return None if text is None else int(text)


def _parameters(query: bytes, known: frozenset[str]) -> dict[str, str] | None:
    """The parameters of a query by name; None unless each is known, of its form, and given once."""
    if not query:
        return {}
    if b"%" in query or b"+" in query or b";" in query or not query.isascii():
        return None
    given: dict[str, str] = {}
    for pair in query.decode().split("&"):
        name, _, value = pair.partition("=")
        if name not in known or name in given or not _FORMS.get(name, _TEXT).fullmatch(value):
            return None
        given[name] = value
    return given


async def _send_response(response: Response[bytes], send: Send) -> None:
    """Send an answer that was made for the router."""
    told = {**response.headers, "Content-Type": str(response.media_type)}
    await _send(response.status_code or 200, [], told, response.content, send)


async def _send(
    status: int, common: Headers, more: dict[str, str], body: bytes, send: Send
) -> None:
    """Send a whole answer."""
    headers = [
        *common,
        *((name.lower().encode(), value.encode("latin-1")) for name, value in more.items()),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
