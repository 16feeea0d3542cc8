"""The first and last step of every request: size, host and origin checks, bounds, logs, metrics.

It stands before the router, so that nothing a client sends reaches the router unchecked, and no
answer goes out unbounded: a client that does not read is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from streamydb.errors import StreamyError
from streamydb.facade.auth import ANYBODY, Caller
from streamydb.facade.bounds import Limiter
from streamydb.facade.codings import accepted_codings
from streamydb.facade.cross_origin import is_preflight, preflight, shared
from streamydb.facade.ending import Ending
from streamydb.facade.generations import HEADER, require_said_in
from streamydb.facade.headers import declared_bytes, header_of
from streamydb.facade.paths import check_query, take_name
from streamydb.facade.problems import PROBLEM_MEDIA_TYPE, ProblemError, problem_body
from streamydb.facade.request_target import METHODS, WHOLE, host_name
from streamydb.facade.sender import Sender
from streamydb.records.generation import FIRST, said_as

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Scope, Send

    from streamydb.facade.metrics import FacadeMetrics
    from streamydb.facade.settings import FacadeSettings

__all__ = ["STREAMS", "Context", "Gate", "context_of", "plain_path"]

_LOG: Final = logging.getLogger("streamydb.facade")
_CONTEXT: Final = "streamydb"
STREAMS: Final = frozenset({"/v1/changes"})
"""Paths whose answers have no end, so that HEAD is none of their methods."""
_WRITING: Final = frozenset({"PUT", "POST", "DELETE"})
_NOT_WRITING: Final = frozenset({"/v1/read", "/v1/query", "/v1/sql"})
"""Paths that read; a transaction of SQL is counted once it is found to write."""
_ONLY_READING: Final = frozenset({"/v1/read", "/v1/query"})
"""Those of them that never write."""

# A body that is not wanted is read up to this size, so that its connection can be used again;
# to send more would cost both sides more than a new connection.
_UNREAD_BYTES_MAX: Final = 16_384
_OF_ANY_HOST: Final = frozenset({"/health/live", "/health/ready"})
"""Paths of probes, which name the address of a machine or a pod; their answers tell no data."""
_PORTS: Final = {"http": 80, "https": 443}
_CODINGS: Final = b"accept-encoding"
_GENERATION: Final = HEADER.lower().encode()
_LOOKED_AT: Final = (b"host", b"origin", _CODINGS, b"streamydb-request", _GENERATION)
_JOINED: Final = (_CODINGS, _GENERATION)
_NAME_CHARACTERS_MAX: Final = 128
"""The longest name of a request that its answer repeats."""


class Context:
    """The facts about a request that the router does not know.

    Attributes:
        name: the key or id in the path, still escaped.
        foreign: the request is for a host that is none of the facade's.
        client: who sends it; decided by the guard.
        address: the network address it comes from.
        sender: sends the answer, and knows its status.
        generation: the one that the request says, which is the present one; None: it says none.
        headers: all of them by name, once somebody has asked for them.
        closing: what is undone when the request ends, however it ends.
    """

    def __init__(
        self, name: bytes | None, address: str, sender: Sender, generation: str | None = None
    ) -> None:
        """Know the name, the address, who answers, and the generation that is said."""
        self.name = name
        self.foreign = False
        self.address = address
        self.sender = sender
        self.generation = generation
        self.client: Caller = ANYBODY
        self.headers: dict[str, str] | None = None
        self.closing = ExitStack()

    @property
    def client_name(self) -> str:
        """The name by which the client is counted: its token's, else its address."""
        return self.address if self.client is ANYBODY else f"token {self.client.name}"


def context_of(scope: Scope) -> Context:
    """Return the context of a request."""
    context: Context = cast("dict[str, Any]", scope)[_CONTEXT]
    return context


class Gate:
    """An ASGI application around another.

    Attributes:
        app: the other.
        metrics: what is counted of the requests.
        ending: tells those who wait in `app` that the facade ends.
    """

    def __init__(
        self, app: ASGIApp, settings: FacadeSettings, metrics: FacadeMetrics, writes: Limiter,
        ending: Ending, generation: Callable[[], str] = lambda: FIRST,
    ) -> None:
        """Guard `app`; `writes` bounds the transactions that are under way in it; `generation`
        tells the one of the database.
        """
        self.app = app
        self.ending = ending
        self._writes = writes
        self._generation = generation
        self._settings = settings
        self.metrics = metrics
        self._requests = Limiter("requests", settings.requests_max)
        metrics.gauge("requests_under_way", "Requests being served", lambda: self._requests.total)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; pass on the lifespan; refuse WebSockets."""
        kind = str(scope["type"])
        if kind == "http":
            await self._serve(cast("dict[str, Any]", scope), receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1000, "reason": ""})
        else:
            await self.app(scope, receive, send)

    async def _serve(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        method = scope["method"]
        head = method == "HEAD" and plain_path(scope["path"]) not in STREAMS
        if head:  # the server's own scope stays: it counts no body for a HEAD
            scope = {**scope, "method": "GET"}
        told = _told(scope["headers"])
        sender = self._sender(told, send, without_body=head)
        address = (scope.get("client") or ("unknown",))[0]
        began = time.perf_counter()
        try:
            self._check(scope, told)
            if is_preflight(method, scope["headers"]) and self._is_guest(told.origin):
                await _send_empty(sender, preflight(told.origin))
                return
            if scope["path"] == WHOLE:
                _must_ask_methods(method)
                await _send_empty(sender, [(b"allow", ", ".join(METHODS).encode())])
                return
            if method in _WRITING and scope["path"] not in _NOT_WRITING:
                self._writes.check(address)  # refused here it costs a third
            with self._requests.enter():
                await self._pass_on(scope, receive, sender, address, told.generation)
        except ProblemError as error:
            await _send_problem(cast("Send", sender), error, close=_leaves_much(scope))
            self.metrics.problem(error.problem.slug)
        except asyncio.CancelledError:
            if not self.ending.begun:
                raise
            if not sender.status:  # the server would answer in its own words, and log frames
                await _send_problem(cast("Send", sender), _cut_off(scope), close=True)
        except Exception as error:  # noqa: BLE001 - the last to see it; uvicorn would log keys
            self._log_fault(sender, error)
            if not sender.status:
                internal = ProblemError("internal", "See the log.")
                await _send_problem(cast("Send", sender), internal, close=True)
        seconds = time.perf_counter() - began
        route = str(scope.get("path_template") or "unmatched")
        self.metrics.request(method, route, sender.status, seconds)
        _LOG.info("%s %s %d %.1f ms", method, route, sender.status, 1000 * seconds)

    async def _pass_on(
        self, scope: dict[str, Any], receive: Receive, sender: Sender, address: str,
        generation: str | None,
    ) -> None:
        """Have the application answer; forget the request's context afterwards.

        The context knows the sender, which knows the server's object for the request, which knows
        the scope: the collector would have to find each request.
        """
        context = scope[_CONTEXT] = Context(take_name(scope), address, sender, generation)
        if scope["path"] in _OF_ANY_HOST:
            context.foreign = not self._is_ours(host_name(header_of(scope["headers"], b"host")))
        try:
            with context.closing:
                await self.app(cast("Scope", scope), receive, cast("Send", sender))
        finally:
            del scope[_CONTEXT]

    def _sender(self, told: _Told, send: Send, *, without_body: bool) -> Sender:
        """Return what sends the answer to a request."""
        settings = self._settings
        return Sender(
            send, settings.send_timeout_s, without_body=without_body,
            more=[
                *told.repeated(), *(shared(told.origin) if self._is_guest(told.origin) else []),
                (_GENERATION, said_as(self._present()).encode()),
            ],
            accepted=accepted_codings(told.accepted),
            compressed_from=settings.compressed_bytes_min,
        )  # fmt: skip

    def _present(self) -> str:
        """The generation of the database; while it cannot be read, nothing else can."""
        try:
            return self._generation()
        except StreamyError:
            return FIRST

    def _is_guest(self, origin: str) -> bool:
        """Return True if a request comes from another site that the settings allow."""
        return origin in self._settings.cors_origins

    def _is_ours(self, host: str | None) -> bool:
        """Return True if the settings let the facade answer for a host."""
        allowed = self._settings.allowed_hosts
        return allowed is None or host in allowed

    def _log_fault(self, sender: Sender, error: Exception) -> None:
        """Log the fault of a request without the request's keys and values."""
        if sender.cut_off:
            self.metrics.slow_reader()
            _LOG.warning("a reader was cut off: it read nothing for the time allowed")
        else:
            _LOG.error("a request failed with %s", type(error).__name__)

    def _check(self, scope: dict[str, Any], told: _Told) -> None:
        """Refuse what no endpoint needs to see."""
        if told.size > self._settings.header_bytes_max:
            limit = self._settings.header_bytes_max
            raise ProblemError("headers-too-large", f"Headers have at most {limit} bytes.")
        target = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if target > self._settings.target_bytes_max:
            limit = self._settings.target_bytes_max
            raise ProblemError("uri-too-long", f"Path and query have at most {limit} bytes.")
        check_query(scope["query_string"])
        name, origin = host_name(told.host), told.origin
        if name is None:
            detail = "The header Host is a name or an address, and perhaps a port."
            raise ProblemError("invalid-parameter", detail, parameters=["Host"])
        if scope["path"] not in _OF_ANY_HOST and not self._is_ours(name):
            raise ProblemError("misdirected", "The request names no host of this facade.")
        own = not origin or self._is_guest(origin) or told.host.lower() in _hosts_of(origin)
        if not own:
            raise ProblemError("cross-origin", "The header Origin names another host.")
        require_said_in(scope["query_string"], told.generation, self._present())


def plain_path(path: str) -> str:
    """A path without the slashes that the router passes over."""
    return "/" + "/".join(filter(None, path.split("/")))


class _Told(NamedTuple):
    """The size of a request's headers, the first host and origin, all codings that it takes, and
    the generation that it says.
    """

    size: int
    host: str
    origin: str
    accepted: str
    request: str
    generation: str | None

    def repeated(self) -> list[tuple[bytes, bytes]]:
        """Return the header with which an answer names its request, if that has a name."""
        if not 1 <= len(self.request) <= _NAME_CHARACTERS_MAX:
            return []
        return [(b"streamydb-request", self.request.encode("latin-1"))]


def _told(headers: list[tuple[bytes, bytes]]) -> _Told:
    """Look through the headers once."""
    size = 0
    found: dict[bytes, str] = {}
    for name, value in headers:
        size += len(name) + len(value)
        if name not in _LOOKED_AT:
            continue
        if name not in found:
            found[name] = value.decode("latin-1")
        elif name in _JOINED:
            found[name] += "," + value.decode("latin-1")
    host, origin, accepted, request = (found.get(name, "") for name in _LOOKED_AT[:4])
    return _Told(size, host, origin, accepted, request, found.get(_GENERATION))


@lru_cache(maxsize=256)
def _hosts_of(origin: str) -> tuple[str, ...]:
    """The headers Host that go with a header Origin; none if it cannot be one.

    A browser leaves out the usual port; a proxy may add it to the header Host.
    """
    try:
        scheme, host = urlsplit(origin.lower())[:2]
    except ValueError:
        return ()
    return (host, f"{host}:{_PORTS[scheme]}") if scheme in _PORTS else (host,)


def _must_ask_methods(method: str) -> None:
    """Refuse a method that cannot be about the server as a whole.

    Raises:
        ProblemError: method-not-allowed.
    """
    if method != "OPTIONS":
        detail = "The target names no resource of this facade."
        raise ProblemError("method-not-allowed", detail, headers={"Allow": "OPTIONS"})


def _cut_off(scope: dict[str, Any]) -> ProblemError:
    """Return the problem of a request that is under way when the facade has ended."""
    if scope["method"] in _WRITING and scope["path"] not in _ONLY_READING:
        detail = "The facade ends; the transaction may be in the log. Send it again with its id."
        return ProblemError("verdict-unknown", detail, retry_after_s=1)
    return ProblemError("not-ready", "The facade ends; ask again.", retry_after_s=1)


def _leaves_much(scope: dict[str, Any]) -> bool:
    """Return True if a body that was not read is too long to be read for the next request's sake.
    """
    much = declared_bytes(scope["headers"]) > _UNREAD_BYTES_MAX
    return much or bool(header_of(scope["headers"], b"transfer-encoding"))


async def _send_empty(sender: Sender, headers: list[tuple[bytes, bytes]]) -> None:
    """Send an answer without a body."""
    await sender({"type": "http.response.start", "status": 204, "headers": headers})
    await sender({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_problem(send: Send, error: ProblemError, *, close: bool) -> None:
    """Send a problem as a whole answer, the connection's last if `close`."""
    body = problem_body(error)
    headers = {
        "content-type": PROBLEM_MEDIA_TYPE,
        "content-length": str(len(body)),
        "cache-control": "no-store",
        **({"connection": "close"} if close else {}),
        **error.headers,
    }
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    status = error.problem.status
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": False})
