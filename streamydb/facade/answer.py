"""The answers of endpoints, and how they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final, NamedTuple

from streamydb.facade.asgi import Headers, Receive, Send
from streamydb.facade.problems import PROBLEM_MEDIA_TYPE, ProblemError, problem_body

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
    """A whole answer; `headers` are those that `common`, the kind's headers, and the length leave
    out.
    """

    body: bytes
    headers: Mapping[str, str]
    status: int = 200
    common: tuple[tuple[bytes, bytes], ...] = _ASK_AGAIN

    async def send(self, receive: Receive, send: Send) -> None:
        """Send it; the request's body may be left unread."""
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
        """Send the chunks; end them when the client leaves."""
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
    """Return the answer that the client has the present JSON already."""
    return Answer(b"", headers, 304, _KNOWN)


def unkept_json(body: bytes) -> Answer:
    """Return an answer of JSON that nobody may keep."""
    return Answer(body, {}, common=_UNKEPT)


def problem_answer(error: ProblemError) -> Answer:
    """Return the answer of a failed request."""
    return Answer(problem_body(error), error.headers, error.problem.status, _PROBLEM)


def encoded(headers: Mapping[str, str]) -> Headers:
    """Return headers as they are sent."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
