"""The last step of every answer: common headers, compression, and an end to those who do not read.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from streamydb.facade.within import within

if TYPE_CHECKING:
    from litestar.types import Message, Send

    from streamydb.facade.cross_origin import Headers

__all__ = ["Sender", "takes_gzip"]

_FASTEST: Final = 1
"""A higher level takes several times as long for some percent."""
_GZIP: Final = re.compile(r"(?P<name>gzip|\*)(?:\s*;\s*q=(?P<q>[0-9.]+))?")


@lru_cache(maxsize=256)
def takes_gzip(accepted: str) -> bool:
    """Return True if a header Accept-Encoding allows gzip; `*` is all that it does not name."""
    found = [_GZIP.fullmatch(each.strip()) for each in accepted.lower().split(",")]
    weights = {each["name"]: each["q"] or "1" for each in found if each is not None}
    return weights.get("gzip", weights.get("*", "0")).strip("0.") != ""


class Sender:
    """Sends an answer's messages, each within a time; remembers the status.

    Args:
        send: takes the messages.
        timeout_s: for how long a reader may read nothing.
        without_body: it answers a HEAD.
        more: headers of every answer to this request.
        compressed_from: bytes from which on a whole answer is compressed; None: the reader does
            not take that.
    """

    def __init__(
        self, send: Send, timeout_s: float, *, without_body: bool, more: Headers,
        compressed_from: int | None,
    ) -> None:
        """Nothing is sent yet."""
        self._send = send
        self._timeout_s = timeout_s
        self._without_body = without_body
        self._more = [(b"x-content-type-options", b"nosniff"), *more]
        self._compressed_from = compressed_from
        self._start: dict[str, Any] | None = None
        self.status = 0
        self.cut_off = False

    async def __call__(self, message: Message) -> None:
        """Send a message; the head waits for the first piece of the body, which may shrink."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], *self._more]
            self._start = {**message, "headers": headers}
            return
        start, self._start = self._start, None
        if message["type"] == "http.response.body":
            if self._without_body:
                message = {**message, "body": b""}
            elif start is not None and self._is_large(start, message):
                message = await _compressed(start, message)
        try:
            await within(self._timeout_s, self._pass_on(start, message))
        except TimeoutError:
            self.cut_off = True
            raise

    async def _pass_on(self, start: dict[str, Any] | None, message: Message) -> None:
        if start is not None:
            await self._send(cast("Message", start))
        await self._send(message)

    def _is_large(self, start: dict[str, Any], message: Message) -> bool:
        """Return True if an answer is compressed: a whole one, which is not yet."""
        least = self._compressed_from
        whole = message["type"] == "http.response.body" and not message.get("more_body", False)
        if least is None or not whole or len(cast("Any", message)["body"]) < least:
            return False
        return all(name.lower() != b"content-encoding" for name, _ in start["headers"])


async def _compressed(start: dict[str, Any], message: Message) -> Message:
    """Return the message with its body compressed, in a thread; the head is changed to fit."""
    whole = cast("Any", message)
    body = await asyncio.to_thread(gzip.compress, whole["body"], _FASTEST, mtime=0)
    kept = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
    start["headers"] = [
        *kept,
        (b"content-length", b"%d" % len(body)),
        (b"content-encoding", b"gzip"),
        (b"vary", b"Accept-Encoding"),
    ]
    return cast("Message", {**whole, "body": body})
