"""The first and last step of every request: size, host and origin checks, bounds, logs, metrics.

It stands before the router, so that nothing a client sends reaches an endpoint unchecked, and no
answer goes out unbounded: a client that does not read is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from streamydb.errors import StreamyError
from streamydb.facade.answer import Sender, accepted_codings, encoded
from streamydb.facade.asgi import Headers, Lifespan, Receive, Scope, Send, run_lifespan
from streamydb.facade.bounds import Limiter
from streamydb.facade.console import Console
from streamydb.facade.generations import HEADER, other_generation
from streamydb.facade.headers import declared_bytes, header_of
from streamydb.facade.problems import ProblemError, problem_body, problem_head
from streamydb.facade.request import FacadeRequest, Peer
from streamydb.facade.request_target import METHODS, WHOLE, check_query, host_name
from streamydb.facade.router import Route, Router
from streamydb.facade.services import Services
from streamydb.facade.traces import OpenTelemetry
from streamydb.records.generation import FIRST, GENERATION, said, said_as

_METHODS: Final = b"GET, HEAD, PUT, POST, DELETE"
ALLOWED: Final = (
    b"Authorization, Content-Type, Deadline-Ms, Idempotency-Key, If-Match, If-None-Match, "
    b"Last-Event-ID, Prefer, Streamydb-Generation, traceparent"
)
"""Headers that pages of other sites may send: all that the facade understands."""
EXPOSED: Final = (
    b"Content-Location, ETag, Location, Preference-Applied, Retry-After, Streamydb-Expires, "
    b"Streamydb-Generation, Streamydb-Snapshot, Streamydb-Time"
)
"""Headers of answers that they may read beside the plain ones."""
_KEPT_S: Final = b"600"


def is_preflight(method: str, headers: Headers) -> bool:
    return method == "OPTIONS" and any(n == b"access-control-request-method" for n, _ in headers)


def preflight(origin: str) -> Headers:
    return [
        *shared(origin),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", ALLOWED),
        (b"access-control-max-age", _KEPT_S),
    ]


def shared(origin: str) -> Headers:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED),
        (b"vary", b"Origin"),
    ]


_LOG: Final = logging.getLogger("streamydb.facade")
_WRITING: Final = frozenset({"PUT", "POST", "DELETE"})

# A body that is not wanted is read up to this size, so that its connection can be used again;
# to send more would cost both sides more than a new connection.
_UNREAD_BYTES_MAX: Final = 16_384
_NOWHERE: Final = Route(None)
_PORTS: Final = {"http": 80, "https": 443}
_CODINGS: Final = b"accept-encoding"
_GENERATION: Final = HEADER.lower().encode()
_LOOKED_AT: Final = (b"host", b"origin", _CODINGS, b"streamydb-request", _GENERATION)
_JOINED: Final = (_CODINGS, _GENERATION)
_BARE: Final = {"min_version", "since", "after"}  # parameters with a seq from where on to read
_NAME_CHARACTERS_MAX: Final = 128  # the longest name of a request that its answer repeats


class Gate:
    """The facade as an ASGI application."""

    def __init__(
        self,
        router: Router,
        services: Services,
        console: Console,
        lifespan: Callable[[], Lifespan],
        traces: OpenTelemetry | None,
    ) -> None:
        self._router = router
        self._services = services
        self._console = console
        self._lifespan = lifespan
        self._traces = traces
        self._settings = services.settings
        self.metrics = services.metrics
        self.ending = services.ending
        self._requests = Limiter("requests", self._settings.requests_max)
        self.metrics.gauge(
            "requests_under_way", "Requests being served", lambda: self._requests.total
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; start and stop; refuse WebSockets."""
        kind = str(scope["type"])
        if kind == "http":
            await self._serve(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1000, "reason": ""})
        else:
            await run_lifespan(self._lifespan(), receive, send)
            if self._traces is not None:
                self._traces.shutdown()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        facts = _header_facts(scope["headers"])
        present = self._present()
        sender = self._sender(facts, send, present, without_body=method == "HEAD")
        route, began = _NOWHERE, time.perf_counter()
        try:
            peer = self._check(scope, facts, present)
            if is_preflight(method, scope["headers"]) and self._is_guest(facts.origin):
                await _send_empty(sender, preflight(facts.origin))
                return
            if scope["path"] == WHOLE:
                if method != "OPTIONS":
                    detail = "The target names no resource of this facade."
                    allow = {"Allow": "OPTIONS"}
                    raise ProblemError("method-not-allowed", detail, headers=allow)  # noqa: TRY301
                await _send_empty(sender, [(b"allow", ", ".join(METHODS).encode())])
                return
            if method in _WRITING and scope["path"] not in self._router.reading:
                self._services.writer.in_flight.check(peer.address)  # refused here it costs a third
            with self._requests.enter():
                route = self._router.find(scope)
                request = FacadeRequest(self._services, self._console, scope, receive, sender, peer)
                request.name = route.name
                await self._answer(request, route, scope)
        except ProblemError as error:
            much = declared_bytes(scope["headers"]) > _UNREAD_BYTES_MAX
            await _send_problem(
                sender, error, close=much or bool(header_of(scope["headers"], b"transfer-encoding"))
            )
            self.metrics.problem(error.problem.slug)
        except asyncio.CancelledError:
            if not self.ending.begun:
                raise
            if not sender.status:  # the server would answer in its own words, and log frames
                await _send_problem(sender, _cut_off(route), close=True)
        except Exception as error:  # noqa: BLE001 - the last to see it; uvicorn would log keys
            if sender.cut_off:
                self.metrics.slow_reader()
                _LOG.warning("a reader was cut off: it read nothing for the time allowed")
            else:
                _LOG.error("a request failed with %s", type(error).__name__)
            if not sender.status:
                internal = ProblemError("internal", "See the log.")
                await _send_problem(sender, internal, close=True)
        seconds = time.perf_counter() - began
        self.metrics.request(method, route.label, sender.status, seconds)
        _LOG.info("%s %s %d %.1f ms", method, route.label, sender.status, 1000 * seconds)

    async def _answer(self, request: FacadeRequest, route: Route, scope: Scope) -> None:
        with request.closing:
            if self._traces is None:
                await self._router.answer(request, route)
                return
            with self._traces.server(scope) as span:
                await self._router.answer(request, route)
                span.set_attribute("http.response.status_code", request.sender.status)

    def _sender(
        self, facts: _HeaderFacts, send: Send, present: str, *, without_body: bool
    ) -> Sender:
        settings = self._settings
        more = [(_GENERATION, said_as(present).encode()), *facts.repeated()]
        if self._is_guest(facts.origin):
            more += shared(facts.origin)
        return Sender(
            send, settings.send_timeout_s, without_body=without_body, more=more,
            accepted=accepted_codings(facts.accepted),
            compressed_from=settings.compressed_bytes_min,
        )  # fmt: skip

    def _present(self) -> str:
        """The generation of the database; while it cannot be read, nothing else can."""
        try:
            return self._services.model.generation
        except StreamyError:
            return FIRST

    def _is_guest(self, origin: str) -> bool:
        return origin in self._settings.cors_origins

    def _check(self, scope: Scope, facts: _HeaderFacts, present: str) -> Peer:
        """Refuse what no endpoint needs to see; return the sender. ``present``: the generation of
        the database.
        """
        if facts.size > self._settings.header_bytes_max:
            limit = self._settings.header_bytes_max
            raise ProblemError("headers-too-large", f"Headers have at most {limit} bytes.")
        target = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if target > self._settings.target_bytes_max:
            limit = self._settings.target_bytes_max
            raise ProblemError("uri-too-long", f"Path and query have at most {limit} bytes.")
        check_query(scope["query_string"])
        name, origin = host_name(facts.host), facts.origin
        if name is None:
            detail = "The header Host is a name or an address, and perhaps a port."
            raise ProblemError("invalid-parameter", detail, parameters=["Host"])
        allowed = self._settings.allowed_hosts
        foreign = not (allowed is None or name in allowed)
        if foreign and scope["path"] not in self._router.of_any_host:
            raise ProblemError("misdirected", "The request names no host of this facade.")
        own = not origin or self._is_guest(origin) or facts.host.lower() in _hosts_of(origin)
        if not own:
            raise ProblemError("cross-origin", "The header Origin names another host.")
        _require_said_in(scope["query_string"], facts.generation, present)
        address = (scope.get("client") or ("unknown",))[0]
        return Peer(address, facts.generation, foreign)


def _require_said_in(query: bytes, header: str | None, present: str) -> None:
    """Refuse seqs of another generation in the parameters of a query; see `generations`.
    Raises ProblemError: other-generation; invalid-parameter, if the header says no generation.
    """
    if header is None:
        pairs = parse_qsl(query.decode("latin-1")) if present != FIRST else ()
        bare = any(name in _BARE and value.strip("0.") for name, value in pairs)
        generation = FIRST if bare else present
    elif GENERATION.fullmatch(header):
        generation = said(header)
    else:
        detail = f"{HEADER} is sent once, with a generation as answers tell it."
        raise ProblemError("invalid-parameter", detail, parameters=[HEADER])
    if generation != present:
        raise other_generation(generation, present)


class _HeaderFacts(NamedTuple):
    """The facts that the gate needs of a request's headers."""

    size: int
    host: str
    origin: str
    accepted: str
    request: str
    generation: str | None

    def repeated(self) -> Headers:
        if not 1 <= len(self.request) <= _NAME_CHARACTERS_MAX:
            return []
        return [(b"streamydb-request", self.request.encode("latin-1"))]


def _header_facts(headers: Headers) -> _HeaderFacts:
    size = 0
    values: dict[bytes, str] = {}
    for name, value in headers:
        size += len(name) + len(value)
        if name not in _LOOKED_AT:
            continue
        if name not in values:
            values[name] = value.decode("latin-1")
        elif name in _JOINED:
            values[name] += "," + value.decode("latin-1")
    host, origin, accepted, request = (values.get(name, "") for name in _LOOKED_AT[:4])
    return _HeaderFacts(size, host, origin, accepted, request, values.get(_GENERATION))


@lru_cache(maxsize=256)
def _hosts_of(origin: str) -> tuple[str, ...]:
    """The headers Host that go with a header Origin; none if it cannot be one. A browser leaves out
    the usual port; a proxy may add it to the header Host.
    """
    try:
        scheme, host = urlsplit(origin.lower())[:2]
    except ValueError:
        return ()
    return (host, f"{host}:{_PORTS[scheme]}") if scheme in _PORTS else (host,)


def _cut_off(route: Route) -> ProblemError:
    """Return the problem of a request that is under way when the facade has ended."""
    if route.row is not None and route.row.endpoint.appends != "never":
        detail = "The facade ends; the transaction may be in the log. Send it again with its id."
        return ProblemError("verdict-unknown", detail, retry_after_s=1)
    return ProblemError("not-ready", "The facade ends; ask again.", retry_after_s=1)


async def _send_empty(sender: Sender, headers: Headers) -> None:
    await sender({"type": "http.response.start", "status": 204, "headers": headers})
    await sender({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_problem(send: Sender, error: ProblemError, *, close: bool) -> None:
    body = problem_body(error)
    headers, status = encoded(problem_head(error, body, close=close)), error.problem.status
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
