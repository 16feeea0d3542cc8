"""Something between may answer anything, at any time: a call returns, or raises a `ClientError`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from streamydb.client import AsyncClient, Client, ClientError, Options
from streamydb.client.awaiting.http import AsyncHttpTransport
from streamydb.client.blocking.http import HttpTransport
from streamydb.client.connections import HttpOptions
from streamydb.client.session import Session

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]

_NAMES = [
    b"Set-Cookie", b"Location", b"Retry-After", b"Content-Type", b"Content-Encoding", b"ETag",
    b"Streamydb-Seq", b"Streamydb-Expires", b"Streamydb-Version", b"X",
]  # fmt: skip
_VALUES = st.one_of(
    st.sampled_from([
        "k=\u00e9; Path=/", "k=v; Path=/", "/elsewhere", "http://[", "\u00e9://\u00e9", "1e999",
        "-1", "application/json", "application/problem+json; charset=\u00e9", "gzip", "br, gzip",
        '"7"', "9" * 5_000, "nan",
    ]).map(str.encode),
    st.binary(max_size=20).map(lambda value: value.translate(None, b"\r\n\0")),
)  # fmt: skip
_BODIES = st.one_of(
    st.sampled_from([
        b"", b"null", b"{}", b"[]", b'{"entries": [7]}', b'{"type": 7, "title": [], "status": "x"}',
        b'{"type": "https://x/problems/not-ready", "status": 1e400}', b'{"id": "x", "seq": -1}',
        b"[" * 100_000, b'{"seq": ' + b"9" * 5_000 + b"}",
        "\ud800".encode("utf-8", "surrogatepass"),
    ]),
    st.binary(max_size=40),
)  # fmt: skip
_ANSWERS = st.tuples(
    st.sampled_from([200, 201, 202, 204, 206, 301, 302, 304, 400, 401, 404, 409, 412, 421, 429,
                     500, 502, 503, 599, 999]),
    st.lists(st.tuples(st.sampled_from(_NAMES), _VALUES), max_size=4), _BODIES,
)  # fmt: skip
_CALLS: list[Callable[[Any], Any]] = [
    lambda client: client.get("k"), lambda client: client.put("k", 1),
    lambda client: client.read(["a", "b"]), lambda client: client.entry("k"),
    lambda client: client.atomic().add("k", 1).commit(),
]  # fmt: skip
_CASES = st.lists(_ANSWERS, min_size=1, max_size=4), st.lists(st.sampled_from(_CALLS), max_size=4)


class _Between:
    """Gives some answers, one after the other, and then the last one for ever."""

    def __init__(self, answers: list[Answer]) -> None:
        self._answers = list(answers)

    def __call__(self, _: httpx.Request) -> httpx.Response:
        status, headers, body = self._answers[0]
        if len(self._answers) > 1:
            self._answers.pop(0)
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))


def _session() -> Session:
    return Session(Options(timeout_s=0.01))


@given(*_CASES)
def test_whatever_is_answered_a_call_ends_with_an_error_of_the_client(
    answers: list[Answer], calls: list[Callable[[Any], Any]]
) -> None:
    transport = HttpTransport(HttpOptions("http://x.test"), httpx.MockTransport(_Between(answers)))
    with Client(transport, _session(), lambda _: None) as client:
        for call in calls:
            with suppress(ClientError):
                call(client)


@given(*_CASES)
def test_so_do_coroutines(answers: list[Answer], calls: list[Callable[[Any], Any]]) -> None:
    async def run() -> None:
        between = httpx.MockTransport(_Between(answers))
        transport = AsyncHttpTransport(HttpOptions("http://x.test"), between)

        async def pause(_: float) -> None:
            return

        async with AsyncClient(transport, _session(), pause) as client:
            for call in calls:
                with suppress(ClientError):
                    await call(client)

    asyncio.run(run())
