"""The answers of endpoints, and how they are sent: as they are, or compressed.

A client's field Accept-Encoding and the answer's size decide its coding (RFC 9110, sections 8.4 and
12.5.3), and nothing else; so whoever makes a head knows beforehand which tag and length it has.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import lru_cache
from typing import Any, Final, NamedTuple

from streamydb.facade.asgi import Headers, Message, Receive, Send
from streamydb.facade.problems import PROBLEM_MEDIA_TYPE, ProblemError, problem_body
from streamydb.facade.waiting import await_within

PLAIN: Final = ""  # the coding of an answer that is sent as it is
GZIP: Final = "gzip"

SUFFIXES: Final = {PLAIN: "", GZIP: "-gzip"}
"""The end of the entity tag of a representation, by its coding."""

_FASTEST: Final = 1  # a higher level takes several times as long for some percent

_MEMBER: Final = re.compile(
    r"(?P<name>[!#$%&'*+.^_`|~0-9a-z-]+)"
    r"(?:[ \t]*;[ \t]*q=(?P<q>0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?"
)
_ALIASES: Final = {"x-gzip": GZIP, "identity": PLAIN}


@lru_cache(maxsize=256)
def accepted_codings(field: str) -> tuple[str, ...]:
    """Return those of our codings that a field Accept-Encoding allows; the best, or compressed,
    first.
    """
    weights_sent: dict[str, float] = {}
    for each in field.lower().split(","):
        match = _MEMBER.fullmatch(each.strip(" \t"))
        if match is not None:
            name = _ALIASES.get(match["name"], match["name"])
            weights_sent[name] = max(weights_sent.get(name, 0.0), float(match["q"] or 1))
    rest = weights_sent.get("*")
    compressed = weights_sent.get(GZIP, rest or 0.0)
    if PLAIN not in weights_sent and rest is None:  # accepted unless it is excluded
        return (GZIP, PLAIN) if compressed else (PLAIN,)
    plain = weights_sent.get(PLAIN, rest or 0.0)
    order = (GZIP, PLAIN) if compressed >= plain else (PLAIN, GZIP)
    weights = {GZIP: compressed, PLAIN: plain}
    return tuple(coding for coding in order if weights[coding])


def tagged(tag: str, coding: str) -> str:
    """Return the entity tag of a representation in a coding; ``tag``: the one of the plain one."""
    suffix = SUFFIXES[coding]
    return f'{tag[:-1]}{suffix}"' if suffix else tag


def compressed(body: bytes) -> bytes:
    return gzip.compress(body, _FASTEST, mtime=0)


_VARY: Final = (b"vary", b"Authorization")
_NO_STORE: Final = (b"cache-control", b"no-store")
_JSON: Final = (b"content-type", b"application/json")
_KNOWN: Final = ((b"cache-control", b"no-cache"), _VARY)
_ASK_AGAIN: Final = (*_KNOWN, _JSON)
_UNKEPT: Final = (_NO_STORE, _VARY, _JSON)
_PROBLEM: Final = (_NO_STORE, (b"content-type", PROBLEM_MEDIA_TYPE.encode()))
_EVENTS: Final = (
    _NO_STORE, (b"x-accel-buffering", b"no"),
    (b"content-type", b"text/event-stream; charset=utf-8"),
)  # fmt: skip


class Answer(NamedTuple):
    """A whole answer; `common` are headers of all answers of its kind."""

    body: bytes
    headers: Mapping[str, str]
    status: int = 200
    common: tuple[tuple[bytes, bytes], ...] = _ASK_AGAIN

    async def send(self, receive: Receive, send: Send) -> None:
        del receive
        headers = [*self.common, *encoded(self.headers)]
        if self.status != 204:  # it has no body, and so no length
            headers.append((b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


class EventStream(NamedTuple):
    """Server-sent events, until there are no more or the client leaves."""

    chunks: AsyncGenerator[bytes, None]

    async def send(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [*_EVENTS]})
        tasks = [
            asyncio.ensure_future(self._pass_on(send)), asyncio.ensure_future(_departure(receive)),
        ]  # fmt: skip
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            unfinished = [task for task in tasks if not task.done()]
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _pass_on(self, send: Send) -> None:
        async with aclosing(self.chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def json_answer(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer of JSON that may not be used again without asking."""
    return Answer(body, headers or {}, status)


def unchanged(headers: Mapping[str, str]) -> Answer:
    return Answer(b"", headers, 304, _KNOWN)


def unkept_json(body: bytes) -> Answer:
    return Answer(body, {}, common=_UNKEPT)


def problem_answer(error: ProblemError) -> Answer:
    return Answer(problem_body(error), error.headers, error.problem.status, _PROBLEM)


def encoded(headers: Mapping[str, str]) -> Headers:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]


_NOT_MODIFIED: Final = 304
_SAFE: Final = (b"x-content-type-options", b"nosniff")
_LENGTH_NAME: Final = b"content-length"
_VARY_NAME: Final = b"vary"
_CODED: Final = (_VARY_NAME, b"Accept-Encoding")
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
            await await_within(self._timeout_s, self._pass_on(start, message))
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
            headers = _without(headers, _LENGTH_NAME)
        elif whole and self._coding_of(message) == GZIP:
            body = await asyncio.to_thread(compressed, message["body"])
            headers = _without(headers, _LENGTH_NAME)
            headers += [(_LENGTH_NAME, b"%d" % len(body)), (b"content-encoding", b"gzip")]
            message = {**message, "body": body}
        start["headers"] = _with_one(headers, _VARY_NAME)
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
