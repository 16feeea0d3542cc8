"""The way out of an answer: its head, in one write with its first bytes, and the rest behind it.

uvicorn's own way searches each header twice for what may not be in one, and writes the head apart
from the body, in a call of the operating system for each.
"""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from streamydb.facade.asgi import Headers, Message

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
        """Write a message of the answer, once the client has read enough of what went before.
        Raises RuntimeError: the answer is no HTTP: a fault of ours.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
        else:
            self._continue(message)

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
        self._head = STATUS_LINE[status] + _lines(headers)

    def _continue(self, message: Message) -> None:
        """Write a part of the body, and before the first one the head."""
        if not self.response_started or self.response_complete:
            raise RuntimeError("a part of a body is before or behind its answer")
        body, is_last = message["body"], not message["more_body"]
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (is_last and self._left > 0):
                raise RuntimeError("a body is not as long as its head says")
        elif self.chunked_encoding:
            body = _chunks(body, is_last=is_last)
        head, self._head = self._head, b""
        self.transport.write(head + body if head else body)
        if is_last:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()


def _lines(headers: Headers) -> bytes:
    """Return the lines of some headers, and the empty one behind them.
    Raises RuntimeError: a header has a byte that could end it.
    """
    lines = b"\r\n".join(map(b": ".join, headers))
    ends = len(headers) - 1
    controls = len(lines) - len(lines.translate(None, _CONTROLS))
    if controls != 2 * ends or lines.count(b"\r\n") != ends:
        raise RuntimeError("a header has a byte that none may have")
    return lines + b"\r\n\r\n"


def _chunks(body: bytes, *, is_last: bool) -> bytes:
    chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return chunk + b"0\r\n\r\n" if is_last else chunk
