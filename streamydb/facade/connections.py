"""Connections: bounded in number, in total and for each address, and in the time to send something.

uvicorn itself bounds connections with an answer in plain text that tells nobody when to come back,
and waits for the first request for ever, so that a few thousand silent connections shut out all
others.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamydb.facade.bounds import Limiter
from streamydb.facade.metrics import FacadeMetrics
from streamydb.facade.problems import PROBLEM_MEDIA_TYPE, ProblemError, problem_body
from streamydb.facade.request_target import (
    METHODS,
    check_frame,
    method_of,
    read_target,
    usual_line,
    with_host,
)
from streamydb.facade.settings import FacadeSettings

__all__ = ["Bounded", "Plain", "protocol_of"]

_HEAD_BYTES_MAX: Final = 65_536
"""Bytes of a head, where uvicorn's settings name no number."""
_LINGER_S: Final = 1.0
"""How long a refused client has time to read why, before the connection is cut."""


if TYPE_CHECKING:
    import uvicorn

    _Protocol = H11Protocol  # or the one for httptools, which has the same attributes
else:
    _Protocol = object


class Bounded(_Protocol):
    """The bounds of a connection, before one of uvicorn's protocols in the order of bases.

    The subclass of each facade knows its bounds.

    Attributes:
        over: it takes no more bytes: it was refused, or another protocol has taken over.
    """

    settings: FacadeSettings
    limiter: Limiter
    metrics: FacadeMetrics
    over = False
    _place: ExitStack | None = None
    _refusal: ProblemError | None = None
    _timer: asyncio.TimerHandle | None = None
    _line = b""

    def begins(self) -> bool:
        """Tell whether a request is awaited, or its head is not whole."""
        raise NotImplementedError

    def has_begun(self) -> bool:
        """Tell whether a part of a request's head is there."""
        raise NotImplementedError

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
        super().connection_made(transport)
        if self._place is None:  # another protocol has had the connection before
            self.expect(self.client[0] if self.client else "unknown")
        if self._refusal is None:
            self._expect_head()
        else:
            self._refuse(self._refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.leave()
        super().connection_lost(exc)

    def leave(self) -> None:
        """Give the place back."""
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
            super().data_received(data)
        self._watch()

    def _checked(self, data: bytes) -> bytes:
        """Return the bytes that a request begins with once its line is whole, before that none.

        What is no request line is refused here: each parser would forgive something else.
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
        """Have the connection closed unless a request begins in time."""
        if self._timer is None:
            self._timer = self.loop.call_later(self.settings.head_timeout_s, self.transport.close)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Parser(h11.Connection):
    """h11's parser, with the target read, and the frame checked, as for every other parser."""

    def next_event(self) -> Any:
        """Return the next event; an absolute target has become a path, its host the header Host.

        Raises:
            h11.RemoteProtocolError: the peer does not speak HTTP.
        """
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        try:
            check_frame(event.http_version, list(event.headers))
            target = read_target(event.method, event.target)
        except ValueError as fault:
            raise h11.RemoteProtocolError(str(fault)) from None
        if target.authority is None:
            return event
        return h11.Request(
            method=event.method,
            target=target.path + (b"?" + target.query if target.query else b""),
            headers=with_host(list(event.headers), target.authority),
            http_version=event.http_version,
        )


class Plain(Bounded, H11Protocol):
    """A connection whose requests h11 parses."""

    def __init__(self, config: uvicorn.Config, *others: Any, **named: Any) -> None:
        """Parse as every other protocol does."""
        super().__init__(config, *others, **named)
        self.conn = _Parser(h11.SERVER, config.h11_max_incomplete_event_size or _HEAD_BYTES_MAX)

    def _should_upgrade(self) -> bool:
        """Stay with HTTP; uvicorn would log each offer, and that a library be installed."""
        return False

    def begins(self) -> bool:
        """Tell whether a request is awaited, or its head is not whole."""
        return self.conn.their_state is h11.IDLE

    def has_begun(self) -> bool:
        """Tell whether a part of a request's head is there."""
        return self.begins() and bool(self.conn.trailing_data[0])


def protocol_of(settings: FacadeSettings, metrics: FacadeMetrics) -> type[asyncio.Protocol]:
    """Return the protocol of a facade's connections, for uvicorn."""
    limiter = Limiter("connections", settings.connections_max, settings.client_connections_max)
    metrics.gauge("connections", "Connections", lambda: limiter.total)
    bounds: dict[str, Any] = {
        "settings": settings, "limiter": limiter, "metrics": metrics,
        "incomplete_bytes_max": settings.incomplete_bytes_max,
    }  # fmt: skip
    plain = type("PlainConnection", (Plain,), bounds)
    fast = _fast()
    return plain if fast is None else type("FastConnection", (fast,), {**bounds, "plain": plain})


def _fast() -> type[Bounded] | None:
    """The connection whose requests httptools parses, if it is installed (the extra `fast`)."""
    try:
        from streamydb.facade.protocol import Fast
    except ImportError:
        return None
    return Fast


def _answer(error: ProblemError) -> bytes:
    """The bytes of a whole answer that is the connection's last."""
    body = problem_body(error)
    status = HTTPStatus(error.problem.status)
    headers = {
        "Content-Type": PROBLEM_MEDIA_TYPE,
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Connection": "close",
        **error.headers,
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
