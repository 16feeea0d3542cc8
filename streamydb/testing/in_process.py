"""An in-process client for tests: exact request targets, and event streams read at will.

async with InProcess(app) as client:
    answer = await client.request("PUT", "/v1/kv/a%2Fb", b"1")
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine, Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple, Self, cast
from urllib.parse import unquote

import msgspec

from streamydb.facade.gate import Gate

_WAIT_S = 20.0


class HttpAnswer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def problem(self) -> str:
        if self.headers["content-type"] != "application/problem+json":
            raise AssertionError(f"not a problem: {self.status} {self.headers}")
        return str(self.json()["type"]).removeprefix("/problems/")


def scenario(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            runner.run(test(*args, **named))

    return run


class PatientLoop(asyncio.SelectorEventLoop):
    """A loop whose clock leaves out how slow the machine is; limits of milliseconds hold on any.

    It counts how long the loop waits, at most until a timer that is due then, and of what lies
    between two waits a millisecond. So a limit is met by what does not come, and not by what a
    machine under load had no time for yet.
    """

    def __init__(self) -> None:
        self._waits = _Waits()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.now_s


_STEP_S: Final = 0.001


class _Waits(selectors.DefaultSelector):
    """Waits for events, and counts how long."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = self._waited_s = monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began_s = monotonic()
        ready = super().select(timeout)
        ended_s = monotonic()
        waited_s = ended_s - began_s if timeout is None else min(ended_s - began_s, max(timeout, 0))
        self.now_s += min(began_s - self._waited_s, _STEP_S) + waited_s
        self._waited_s = ended_s
        return ready


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until a condition holds."""
    async with asyncio.timeout(_WAIT_S):
        while not condition():  # noqa: ASYNC110 - whatever makes it hold tells nobody
            await asyncio.sleep(0)


class EventStream:
    """An answer that goes on; what has been sent is in `data`.

    Attributes:
        reading: cleared, the client takes nothing more, as one whose buffers are full.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.data = b""
        self.reading = asyncio.Event()
        self.reading.set()
        self.ended = False
        self._news = asyncio.Event()
        self._gone = asyncio.Event()

    async def until(self, text: bytes, count: int = 1) -> bytes:
        """Wait until some bytes have come `count` times; return all data."""
        async with asyncio.timeout(_WAIT_S):
            while self.data.count(text) < count:
                if self.ended:
                    raise AssertionError(f"the stream ended without {text!r}: {self.data!r}")
                await self.news()
        return self.data

    async def end(self) -> bytes:
        async with asyncio.timeout(_WAIT_S):
            while not self.ended:
                await self.news()
        return self.data

    def leave(self) -> None:
        self._gone.set()

    async def receive(self) -> dict[str, Any]:
        """Give the request's messages to the application: nothing but the end."""
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        """Take a message of the application, when the client reads."""
        await self.reading.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode("latin-1") for k, v in message["headers"]}
        else:
            self.data += message.get("body", b"")
            if not message.get("more_body", False):
                self._gone.set()
        self._news.set()

    def close(self, _: object = None) -> None:
        self.ended = True
        self._news.set()

    async def news(self) -> None:
        self._news.clear()
        await self._news.wait()


class InProcess:
    """A client of an application in the same event loop."""

    def __init__(self, app: Gate, *, address: str = "127.0.0.1") -> None:
        self._app = app
        self._address = address
        self._to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._lifespan: asyncio.Task[None] | None = None
        self._streams: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._lifespan = self._run({"type": "lifespan"}, self._to_app.get, self._from_app.put)
        await self._to_app.put({"type": "lifespan.startup"})
        message = await self._from_app.get()
        if message["type"] != "lifespan.startup.complete":
            raise AssertionError(message)
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._streams:
            task.cancel()
        await self._to_app.put({"type": "lifespan.shutdown"})
        await self._from_app.get()
        if self._lifespan is not None:
            await self._lifespan

    async def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        repeated: Sequence[tuple[str, str]] = (),
    ) -> HttpAnswer:
        """Send a request and return its answer; ``repeated``:
        headers of which there are several.
        """
        stream = EventStream()
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                return await stream.receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        scope = self._scope(method, target, {"content-length": str(len(body)), **(headers or {})})
        scope["headers"] += [(k.lower().encode(), v.encode("latin-1")) for k, v in repeated]
        async with asyncio.timeout(_WAIT_S):
            await self._app(scope, cast("Any", receive), cast("Any", stream.send))
        return HttpAnswer(stream.status, stream.headers, stream.data)

    async def stream(
        self, target: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> EventStream:
        """Open an event stream; with another method, a request whose body does not come."""
        stream = EventStream()
        scope = self._scope(method, target, headers or {})
        task = self._run(scope, stream.receive, stream.send)
        task.add_done_callback(stream.close)
        self._streams.add(task)
        async with asyncio.timeout(_WAIT_S):
            while method == "GET" and not stream.status and not stream.ended:
                await stream.news()
        return stream

    def _run(self, scope: Any, receive: Any, send: Any) -> asyncio.Task[None]:
        async def run() -> None:
            await self._app(scope, receive, send)

        return asyncio.create_task(run())

    def _scope(self, method: str, target: str, headers: Mapping[str, str]) -> Any:
        """The scope of a request as uvicorn makes it."""
        raw, _, query = target.partition("?")
        all_headers = {"host": "127.0.0.1:8080", **headers}
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": ("127.0.0.1", 8080),
            "client": (self._address, 50000),
            "scheme": "http",
            "method": method,
            "root_path": "",
            "path": unquote(raw),
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in all_headers.items()],
            "state": {},
        }
