"""The last step of every answer: common headers, compression,
and an end to those who do not read.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from streamydb.facade.asgi import Headers, Message, Send
from streamydb.facade.codings import GZIP, PLAIN, compressed
from streamydb.facade.within import within

_NOT_MODIFIED: Final = 304
_SAFE: Final = (b"x-content-type-options", b"nosniff")
_LENGTH: Final = b"content-length"
_VARY: Final = b"vary"
_CODED: Final = (_VARY, b"Accept-Encoding")
"""Of every answer that might be compressed: all but streams, whatever their size and status."""


class Sender:
    """Sends an answer's messages, each within `timeout_s`; remembers the status.

    ``without_body``: it answers a HEAD. ``more``: headers of every answer to this request.
    ``accepted``: the codings that the client takes, the best one first.
    """

    def __init__(
        self,
        send: Send,
        timeout_s: float,
        *,
        without_body: bool,
        more: Headers,
        accepted: tuple[str, ...],
        compressed_from: int,
    ) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self._without_body = without_body
        self._more = more
        self._accepted = accepted
        self._compressed_from = compressed_from
        self._start: dict[str, Any] | None = None
        self._coding: str | None = None
        self.status = 0
        self.cut_off = False

    def codings(self, size: int) -> tuple[str, ...]:
        """Return the codings in which a body of so many bytes can be sent, the best one first."""
        if size < self._compressed_from:
            return (PLAIN,)
        return self._accepted or (PLAIN,)

    def choose(self, coding: str) -> None:
        """Have the answer sent in one of its `codings`, which need not be the best one."""
        self._coding = coding

    async def __call__(self, message: Message) -> None:
        """Send a message; the head waits for the first piece of the body, which may shrink."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._start = {**message}
            return
        start, self._start = self._start, None
        if message["type"] == "http.response.body":
            if start is not None:
                message = await self._completed(start, message)
            if self._without_body:
                message = {**message, "body": b""}
        try:
            await within(self._timeout_s, self._pass_on(start, message))
        except TimeoutError:
            self.cut_off = True
            raise

    async def _pass_on(self, start: dict[str, Any] | None, message: Message) -> None:
        if start is not None:
            await self._send(start)
        await self._send(message)

    async def _completed(self, start: dict[str, Any], message: Message) -> Message:
        """Complete a head; return the body in its coding: a whole one may be compressed."""
        whole = not message.get("more_body", False)
        headers = [*start["headers"], _SAFE, *((_CODED,) if whole else ()), *self._more]
        if self.status == _NOT_MODIFIED:  # a length would be that of the value
            headers = _without(headers, _LENGTH)
        elif whole and self._coding_of(message) == GZIP:
            body = await asyncio.to_thread(compressed, message["body"])
            headers = _without(headers, _LENGTH)
            headers += [(_LENGTH, b"%d" % len(body)), (b"content-encoding", b"gzip")]
            message = {**message, "body": body}
        start["headers"] = _with_one(headers, _VARY)
        return message

    def _coding_of(self, message: Message) -> str:
        codings = self.codings(len(message["body"]))
        return self._coding if self._coding in codings else codings[0]


def _without(headers: Headers, wanted: bytes) -> Headers:
    return [header for header in headers if header[0] != wanted]


def _with_one(headers: Headers, wanted: bytes) -> Headers:
    values = [value for name, value in headers if name == wanted]
    several = len(values) > 1
    return [*_without(headers, wanted), (wanted, b", ".join(values))] if several else headers
