"""A watcher: an event stream that is resumed wherever it broke off."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple

import httpx
import msgspec

from histories.records import Delivered, Delivery, Line, WatchOperation

__all__ = ["Event", "Watcher", "parse_event"]

_PAUSE_S: Final = 0.2
_SILENCE_S: Final = 40.0


class Event(NamedTuple):
    """A block of a stream; `seq` is its id."""

    kind: str
    seq: int | None
    data: Any


def parse_event(block: bytes) -> Event:
    """Return the event in a block (WHATWG HTML, section 9.2.6), a comment as one without kind."""
    lines = [line for line in block.decode().split("\n") if not line.startswith(":")]
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    data = msgspec.json.decode(fields["data"]) if "data" in fields else None
    return Event(fields.get("event", ""), int(fields["id"]) if "id" in fields else None, data)


class Watcher:
    """Follows a prefix on facades chosen at random; what comes before an id breaks off is dropped.

    Attributes:
        seq: the last id.
        connections: how often it has connected.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        urls: Sequence[str],
        rng: random.Random,
        sink: Callable[[Line], None],
        watch: WatchOperation,
        leave: float,
    ) -> None:
        """Watch what `watch` says; after an event, connect anew with probability `leave`."""
        self._http = http
        self._urls = urls
        self._rng = rng
        self._sink = sink
        self._watch = watch
        self._leave = leave
        self.seq = watch.since
        self.connections = 0

    def stay(self) -> None:
        """Leave no connection from now on: the load has ended, and much may be left to read."""
        self._leave = 0.0

    async def run(self) -> None:
        """Watch until cancelled."""
        self._sink(self._watch)
        while True:
            try:
                await self._connect()
            except httpx.TransportError:
                await asyncio.sleep(_PAUSE_S)

    async def _connect(self) -> None:
        """One connection, until it breaks or the watcher leaves."""
        self.connections += 1
        url = self._rng.choice(self._urls) + "/v1/changes"
        query: dict[str, str | int] = {"prefix": self._watch.prefix}
        headers = {}
        if self.seq == self._watch.since:
            query["since"] = self.seq
        else:
            headers["last-event-id"] = str(self.seq)
        timeout = httpx.Timeout(_SILENCE_S, connect=5.0)
        async with self._http.stream(
            "GET", url, params=query, headers=headers, timeout=timeout
        ) as answer:
            if answer.status_code != 200:
                await asyncio.sleep(_PAUSE_S)
                return
            changes: list[Delivered] = []
            async for event in _events(answer):
                self._take(event, changes)
                if self._rng.random() < self._leave:
                    return

    def _take(self, event: Event, changes: list[Delivered]) -> None:
        """Keep a change; what has come is delivered with the id."""
        if event.kind == "change":
            change = event.data
            changes.append(Delivered(change["key"], change["before"], change["after"]))
        if event.seq is not None:
            self.seq = event.seq
            self._sink(
                Delivery(
                    watcher=self._watch.watcher, seq=event.seq, received_ns=time.monotonic_ns(),
                    connection=self.connections, changes=changes.copy(),
                )
            )  # fmt: skip
            changes.clear()


async def _events(answer: httpx.Response) -> AsyncIterator[Event]:
    """The events of a stream, however its bytes are cut."""
    rest = b""
    async for chunk in answer.aiter_bytes():
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            yield parse_event(block)
