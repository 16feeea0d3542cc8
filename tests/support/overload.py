"""An open-loop HTTP load: requests begin when it is time, whether or not others were answered."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from streamydb.client.session import new_id

_AT_ONCE = 10


@dataclass(slots=True)
class Tally:
    """What came of the requests.

    Attributes:
        statuses: how many answers of each status; "none": the connection broke, "late": no
            connection was free when it was time.
        seconds: of answered writes that were accepted, from when they were sent.
        due: the same from when it was time to send them: with the connecting, which the kernel
            does, and with what this side took.
        accepted: the ids of these.
        refused: ids of writes that were refused: they must not be in the log.
        faults: refusals that do not say what they should.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.statuses += other.statuses
        self.seconds += other.seconds
        self.due += other.due
        self.accepted += other.accepted
        self.refused += other.refused
        self.faults += other.faults

    def quantile(self, part: float) -> float:
        return float(np.quantile(self.seconds, part)) if self.seconds else float("nan")

    def text(self) -> str:
        statuses = ", ".join(f"{n} x {status}" for status, n in sorted(self.statuses.items()))
        times = ", ".join(f"p{p:g} {self.quantile(p / 100):.3f} s" for p in (50, 99, 100))
        due = f"{np.quantile(self.due, 0.99):.3f} s" if self.due else "-"
        return f"{statuses}; accepted writes: {times}; p99 with connecting {due}"


class _Connection(asyncio.Protocol):
    """One request at a time on a connection that is kept."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._data = b""
        self._waiting: asyncio.Future[tuple[int, bytes, bytes] | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol
        self.transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        head = head.lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self._data = b""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result((int(head[9:12]), head, body))

    async def ask(self, request: bytes) -> tuple[int, bytes, bytes] | None:
        """Send a request; status, head and body of the answer, None if the connection broke."""
        if self.transport is None or self.transport.is_closing():
            return None
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._waiting


class Load:
    """Writes from one address at a rate, with at most so many connections."""

    def __init__(self, url: str, address: str, connections: int, seed: int) -> None:
        place = urlsplit(url)
        self._place = (str(place.hostname), int(place.port or 80))
        self._address = address
        self._most = connections
        self._open = 0
        self._idle: list[_Connection] = []
        self._rng = random.Random(seed)
        self.tally = Tally()

    async def run(self, rate: float, seconds: float, leave: float = 0.0) -> Tally:
        """Send `rate` requests a second; a part of them leaves before the answer.

        Connections are opened beforehand, some at a time: a burst of thousands of new ones would
        measure how the kernel hands them over.
        """
        while len(self._idle) < min(self._most, rate):
            opened = await asyncio.gather(*(self._connection(fresh=True) for _ in range(_AT_ONCE)))
            self._idle += [connection for connection in opened if connection is not None]
            if None in opened:
                break
        began = time.perf_counter()
        tasks: set[asyncio.Task[None]] = set()
        sent = 0
        while (now := time.perf_counter() - began) < seconds:
            while sent < rate * now:
                due = began + sent / rate
                sent += 1
                task = asyncio.create_task(self._one(due, leaves=self._rng.random() < leave))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(0.002)
        await asyncio.gather(*tasks)
        for connection in self._idle:
            if connection.transport is not None:
                connection.transport.close()
        return self.tally

    async def _one(self, due: float, *, leaves: bool) -> None:
        connection = await self._connection()
        if connection is None:
            return
        txn_id = new_id()
        if leaves:
            await self._leave(connection, txn_id)
            return
        sent = time.perf_counter()
        answer = await connection.ask(_write(txn_id, self._rng.randrange(1000)))
        if connection.transport is None or connection.transport.is_closing():
            self._open -= 1
        else:
            self._idle.append(connection)
        now = time.perf_counter()
        self._note(txn_id, answer, now - sent, now - due)

    async def _connection(self, *, fresh: bool = False) -> _Connection | None:
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.transport is not None and not connection.transport.is_closing():
                return connection
            self._open -= 1
        if self._open >= self._most:
            self.tally.statuses["late"] += 1
            return None
        self._open += 1
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection, *self._place, local_addr=(self._address, 0)
            )
        except OSError:
            self._open -= 1
            self.tally.statuses["none"] += 1
            return None
        return connection

    async def _leave(self, connection: _Connection, txn_id: str) -> None:
        """Go away within the request, or right after it."""
        request = _write(txn_id, 0)
        if connection.transport is not None:
            connection.transport.write(request[: self._rng.choice([30, len(request) - 1, 10_000])])
            connection.transport.close()
        self._open -= 1
        self.tally.statuses["left"] += 1
        await asyncio.sleep(0)

    def _note(
        self, txn_id: str, answer: tuple[int, bytes, bytes] | None, seconds: float, due: float
    ) -> None:
        tally = self.tally
        if answer is None:
            tally.statuses["none"] += 1
            return
        status, head, body = answer
        tally.statuses[str(status)] += 1
        if status == 200:
            tally.seconds.append(seconds)
            tally.due.append(due)
            tally.accepted.append(txn_id)
            if json.loads(body)["status"] != "committed":
                tally.faults.append(body.decode())
        elif status in {429, 503}:
            tally.refused.append(txn_id)
            if b"retry-after:" not in head or b"application/problem+json" not in head:
                tally.faults.append(head.decode())
        elif status != 504 or b"location:" not in head:
            tally.faults.append(head.decode())


def _write(txn_id: str, key: int) -> bytes:
    return (
        f"PUT /v1/kv/o/{key:04} HTTP/1.1\r\nHost: 127.0.0.1\r\nIdempotency-Key: {txn_id}\r\n"
        "Content-Length: 10\r\n\r\n1234567890"
    ).encode()


def run_load(url: str, addresses: list[str], seed: int, options: dict[str, Any]) -> Tally:
    """A load from several addresses, in a process of its own (`ProcessPoolExecutor`)."""

    async def run() -> Tally:
        rate = options["rate"] / len(addresses)
        most = options["connections"] // len(addresses)
        loads = [Load(url, address, most, seed + n) for n, address in enumerate(addresses)]
        whole = Tally()
        for tally in await asyncio.gather(
            *(load.run(rate, options["seconds"], options.get("leave", 0)) for load in loads)
        ):
            whole.add(tally)
        return whole

    return asyncio.run(run())
