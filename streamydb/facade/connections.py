"""Connections: bounded in number, in total and for each address, and in the time to send something.

A compiled parser, httptools, takes the bytes. uvicorn's protocol for it bounds connections with an
answer in plain text that tells nobody when to come back, and waits for the first request for ever,
so that a few thousand silent connections shut out all others. It bounds nothing that it holds
before a request is whole, takes requests with several hosts or with a transfer coding that nobody
undoes, makes headers of trailers, takes `GET /v1/kv/a#b` for another key than was sent, sends
chunks to clients of HTTP/1.0, and loses the body of a request that offers to upgrade the
connection, as those of Java's client do.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from streamydb.facade.asgi import Headers
from streamydb.facade.bounds import Limiter
from streamydb.facade.metrics import FacadeMetrics
from streamydb.facade.problems import ProblemError, problem_body, problem_head
from streamydb.facade.request_target import (
    METHODS,
    check_frame,
    method_of,
    place_target,
    usual_line,
    with_host,
)
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.write_groups import GroupedTransport, WriteGroup

_LENGTH: Final = b"content-length"
_CLOSING: Final = (b"connection", b"close")
_CHUNKED: Final = (b"transfer-encoding", b"chunked")
_BODILESS: Final = frozenset({204, 304})
_CONTROLS: Final = bytes({*range(0x20), 0x7F} - {ord("\t")})
"""The bytes that no header may have; two of them end each line of a head."""


class Exchange(RequestResponseCycle):
    """A request and its answer, of which nothing is written before the first message of the body.

    An answer says how long it is, or comes in chunks. HTTP/1.0 has no chunks: there the end of the
    connection is the end of an answer that does not say it.
    """

    _head = b""
    _left: int | None = None
    """The bytes that the body still has; None: nothing says how many."""

    async def send(self, message: Any) -> None:
        """Write a message once the client has read enough. Raises RuntimeError: a fault of ours."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
        else:
            # Write a part of the body, and before the first one the head.
            if not self.response_started or self.response_complete:
                raise RuntimeError("a part of a body is before or behind its answer")
            body, is_last = message["body"], not message["more_body"]
            if self._left is not None:
                self._left -= len(body)
                if self._left < 0 or (is_last and self._left > 0):
                    raise RuntimeError("a body is not as long as its head says")
            elif self.chunked_encoding:
                chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
                body = chunk + b"0\r\n\r\n" if is_last else chunk
            head, self._head = self._head, b""
            self.transport.write(head + body if head else body)
            if is_last:
                self.response_complete = True
                self.message_event.set()
                if not self.keep_alive:
                    self.transport.close()
                self.on_response()

    def _begin(self, status: int, headers: Headers) -> None:
        if self.response_started:
            raise RuntimeError("an answer begins twice")
        self.response_started = True
        self.waiting_for_100_continue = False
        headers = [*self.default_headers, *headers]
        for name, value in headers:
            if name == _LENGTH:
                self._left = int(value)
        if _CLOSING in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            headers.append(_CLOSING)
        is_bodiless = status in _BODILESS or self.scope["method"] == "HEAD"
        has_chunks = self.scope["http_version"] != "1.0"
        self.chunked_encoding = self._left is None and has_chunks and not is_bodiless
        if self.chunked_encoding:
            headers.append(_CHUNKED)
        if is_bodiless:
            self._left = 0
        lines = b"\r\n".join(map(b": ".join, headers))
        ends = len(headers) - 1
        controls = len(lines) - len(lines.translate(None, _CONTROLS))
        if controls != 2 * ends or lines.count(b"\r\n") != ends:
            raise RuntimeError("a header has a byte that none may have")
        self._head = STATUS_LINE[status] + (lines + b"\r\n\r\n")


_LINGER_S: Final = 1.0
"""How long a refused client has time to read why, before the connection is cut."""


class HttpConnection(HttpToolsProtocol):
    """A connection, whose subclass knows the facade's bounds; once `over`, it takes no bytes."""

    settings: FacadeSettings
    limiter: Limiter
    metrics: FacadeMetrics
    group: WriteGroup
    over = False
    _place: ExitStack | None = None
    _refusal: ProblemError | None = None
    _timer: asyncio.TimerHandle | None = None
    _line = b""
    _incomplete = 0
    _in_head = True
    _begun = False
    _tunnel: bytes | None = None

    def expect(self, address: str) -> float:
        """Count a connection from an address; return how many seconds its TLS handshake may take.
        One that is too many has a moment only: it is refused when that is over.
        """
        self._place = ExitStack()
        try:
            self._place.enter_context(self.limiter.enter(address))
        except ProblemError as error:
            self._refusal = error
            return min(_LINGER_S, self.settings.head_timeout_s)
        return self.settings.head_timeout_s

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Await a request, or say why none can be served."""
        grouped = GroupedTransport(transport, self.group)
        super().connection_made(cast("asyncio.Transport", grouped))
        if self._place is None:  # it was not accepted by `acceptor`
            self.expect(self.client[0] if self.client else "unknown")
        if self._refusal is None:
            self._expect_head()
        else:
            self._refuse(self._refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        super().connection_lost(exc)

    def leave(self) -> None:
        if self._place is not None:
            self._place.close()
        self._end_timer()

    def data_received(self, data: bytes) -> None:
        """Take bytes; a request's head must be whole in time."""
        if self.over:
            return
        usual = not self._line and usual_line(data)
        if not usual and self.begins() and not self.has_begun():
            data = self._checked(data)
        if data:
            self._parse(data)
        self._watch()

    def _parse(self, data: bytes) -> None:
        self._incomplete += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        else:
            many = self._incomplete > self.settings.incomplete_bytes_max
            if many and not self.transport.is_closing():
                self.send_400_response("A request line, headers or trailers are too long.")

    def _checked(self, data: bytes) -> bytes:
        """Return the bytes that a request begins with once its line is whole, before that none.
        What is no request line is refused here: the parser would forgive something else.
        """
        data, self._line = (self._line + data).lstrip(b"\r\n"), b""
        method = method_of(data)
        if method:
            return data
        if method is None and b"\n" not in data and len(data) <= self.settings.incomplete_bytes_max:
            self._line = data
        elif method is None:
            self.send_400_response("Invalid HTTP request received.")
        else:
            detail = "No standard that is known here has this method; see the header Allow."
            allow = {"Allow": ", ".join(METHODS)}
            self._refuse(ProblemError("method-not-allowed", detail, headers=allow))
        return b""

    def on_message_begin(self) -> None:
        self._begun = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what comes after the body is none."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._incomplete, self._in_head, self._begun = 0, False, False
        version = self.parser.get_http_version()
        check_frame(version.encode(), self.headers)
        method, url = self.parser.get_method(), self.url
        if self._tunnel is not None:
            method, url = b"CONNECT", self._tunnel
        target: dict[str, Any] = {"method": method.decode()}
        authority = place_target(target, method, url)
        if self.parser.should_upgrade():
            return
        if authority is not None:
            self.headers[:] = with_host(self.headers, authority)
        self._tunnel = None
        cast("dict[str, Any]", self.scope).update(target, http_version=version)
        self._serve()

    def _serve(self) -> None:
        before, is_old = self.cycle, self.scope["http_version"] == "1.0"
        self.cycle = exchange = Exchange(
            self.scope, self.transport, self.flow, self.logger, self.access_logger, self.access_log,
            self.server_state.default_headers, asyncio.Event(), self.expect_100_continue,
            keep_alive=not is_old and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )  # fmt: skip
        if before is None or before.response_complete:
            self._start_asgi_task(exchange, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))

    def on_body(self, body: bytes) -> None:
        self._incomplete = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._incomplete, self._in_head = 0, True
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _decline(self, rest: bytes) -> None:
        """Serve a client that offers another protocol, or asks for a tunnel, as others are. The
        parser takes no body then, so that another one gets the same head without the offer.
        """
        if self.is_answering():
            self.send_400_response("An upgrade cannot be offered in a pipeline.")
            return
        method, target = self.parser.get_method(), self.url
        if method == b"CONNECT":
            self._tunnel, method, target = target, b"TRACE", b"*"
        line = method + b" " + target + b" HTTP/"
        head = [line + self.parser.get_http_version().encode()]
        head += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._parse(b"\r\n".join([*head, b"", b""]) + rest)

    def is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def begins(self) -> bool:
        """Return True if a request is awaited, or its head is not whole."""
        return self._in_head and not self.is_answering()

    def has_begun(self) -> bool:
        return self._begun and self.begins()

    def on_response_complete(self) -> None:
        """Go on with the next request; a part of it may have come with the last one."""
        super().on_response_complete()
        if self._line or self.has_begun():
            self._watch()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
        """Answer what is no HTTP as everything else is answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer is under way that ours would be mixed with
            return
        detail = "The request is not HTTP as RFC 9112 has it, or its head is too long."
        self._refuse(ProblemError("invalid-parameter", detail))

    def _refuse(self, error: ProblemError) -> None:
        """Answer without having read a request, let the client read it, and close."""
        self.over = True
        self.metrics.problem(error.problem.slug)
        self.transport.write(_answer(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._end_timer()
            self._timer = self.loop.call_later(_LINGER_S, self.transport.abort)
        else:
            self.transport.close()

    def _watch(self) -> None:
        """Await a head that is not whole yet; a request that is under way may take its time."""
        if self.over:
            return
        if self.begins() and not self.transport.is_closing():
            self._expect_head()
        else:
            self._end_timer()

    def _expect_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.settings.head_timeout_s, self.transport.close)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def protocol_of(settings: FacadeSettings, metrics: FacadeMetrics) -> type[asyncio.Protocol]:
    limiter = Limiter("connections", settings.connections_max, settings.client_connections_max)
    metrics.gauge("connections", "Connections", lambda: limiter.total)
    group = WriteGroup(lambda turn: asyncio.get_running_loop().call_soon(turn))
    bounds = {"settings": settings, "limiter": limiter, "metrics": metrics, "group": group}
    return type("FacadeConnection", (HttpConnection,), bounds)


def _answer(error: ProblemError) -> bytes:
    body = problem_body(error)
    status = HTTPStatus(error.problem.status)
    headers = problem_head(error, body, close=True)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
