"""Doing requests and recording them, over HTTP, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import httpx

from histories.answers import LATE, AttemptAnswer, HttpCall, ask_call, call_of, page_call, told
from histories.records import (
    Answer,
    AppendOperation,
    Line,
    Operation,
    Request,
    ScanOperation,
    WriteOperation,
)
from histories.workload import HistoryClient, Shape

__all__ = ["PATIENCE_S", "HttpRecorder", "Recorder"]

PATIENCE_S: Final = 90.0
"""How long a client asks for a verdict that it was not told."""

_PAUSE_S: Final = 0.2
_READ_TIMEOUT_S: Final = 45.0
_IMPATIENT_S: Final = 0.15


class Recorder(ABC):
    """Does requests, and hands operations to a sink.

    Some writes are cut off by the client before the answer; most outcomes that are unknown then are
    found out, by asking or by sending the same again.
    """

    def __init__(self, rng: random.Random, sink: Callable[[Line], None], shape: Shape) -> None:
        """Be as impatient as `shape` says."""
        self._rng = rng
        self._sink = sink
        self._shape = shape

    async def perform(self, client: HistoryClient, request: Request) -> Operation:
        """Do a request and record it."""
        began = time.monotonic_ns()
        attempts: list[str] = []
        last = await self._do(request, attempts)
        unknown = last.outcome == "unknown"
        operation = Operation(
            client=client.number, session=client.session, invoked_ns=began, request=request,
            outcome=last.outcome, returned_ns=None if unknown else time.monotonic_ns(),
            answer=last.answer, attempts=attempts,
        )  # fmt: skip
        client.learn(operation)
        self._sink(operation)
        return operation

    @abstractmethod
    async def _do(self, request: Request, attempts: list[str]) -> AttemptAnswer:
        """Do a request; note how each attempt ended."""

    def _impatience_s(self) -> float | None:
        """Return how long the next write may take before its client leaves; None: as long as it
        takes.
        """
        if self._rng.random() < self._shape.impatient:
            return self._rng.random() * _IMPATIENT_S
        return None


class HttpRecorder(Recorder):
    """Does requests on facades chosen at random; some writes ask for an answer within a second."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        urls: Sequence[str],
        rng: random.Random,
        sink: Callable[[Line], None],
        shape: Shape,
    ) -> None:
        """Send with `http` to `urls`."""
        super().__init__(rng, sink, shape)
        self._http = http
        self._urls = urls

    async def _do(self, request: Request, attempts: list[str]) -> AttemptAnswer:
        """Do a request."""
        if isinstance(request, WriteOperation | AppendOperation):
            return await self._write(request, attempts)
        if isinstance(request, ScanOperation):
            return await self._scan(request, attempts)
        return await self._attempt(request, call_of(request), attempts)

    async def _write(
        self, request: WriteOperation | AppendOperation, attempts: list[str]
    ) -> AttemptAnswer:
        """Send a write; find out what became of it."""
        call = call_of(request)
        timeout_s = self._impatience_s()
        if timeout_s is None and self._rng.random() < self._shape.put_off:
            call.headers["prefer"] = self._rng.choice(["wait=1", "respond-async"])
        last = await self._attempt(request, call, attempts, timeout_s or _READ_TIMEOUT_S)
        call.headers.pop("prefer", None)
        give_up = self._rng.random() < self._shape.give_up
        deadline = time.monotonic() + PATIENCE_S
        while last.outcome == "unknown" and not give_up and time.monotonic() < deadline:
            location = last.location
            await asyncio.sleep(_PAUSE_S)
            again = call if self._rng.random() < 0.3 else ask_call(request.id, location)
            following = await self._attempt(request, again, attempts)
            if following.outcome == "ok":
                return following
            if following.note == LATE:  # and so will be every later copy
                break
            last = AttemptAnswer("unknown", "", location=following.location or location)
        return last

    async def _scan(self, request: ScanOperation, attempts: list[str]) -> AttemptAnswer:
        """Read all pages; the cursor may be taken to another facade."""
        last = await self._attempt(request, call_of(request), attempts)
        whole = last.answer or Answer()
        while last.outcome == "ok" and last.cursor is not None:
            last = await self._attempt(request, page_call(request, last.cursor), attempts)
            if last.answer is not None:
                whole.seen |= last.answer.seen
                whole.pages += last.answer.pages
        return last._replace(answer=whole if last.outcome == "ok" else None)

    async def _attempt(
        self,
        request: Request,
        call: HttpCall,
        attempts: list[str],
        timeout_s: float = _READ_TIMEOUT_S,
    ) -> AttemptAnswer:
        """Send one HTTP request."""
        url = self._rng.choice(self._urls)
        try:
            answer = await self._http.request(
                call.method, url + call.target, headers=call.headers, content=call.body,
                timeout=httpx.Timeout(timeout_s, connect=5.0),
            )  # fmt: skip
            last = told(request, answer.status_code, answer.headers, answer.content)
        except httpx.ConnectError as error:
            last = AttemptAnswer("failed", type(error).__name__)
        except httpx.TransportError as error:
            sent = isinstance(request, WriteOperation | AppendOperation)
            last = AttemptAnswer("unknown" if sent else "failed", type(error).__name__)
        attempts.append(last.note)
        return last
