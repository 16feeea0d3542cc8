"""The load generator: `python -m bench.rest.load` in a process of its own.

A job comes as JSON on standard input, the figures go as JSON to standard output. It is asyncio's
plain protocol and not an HTTP client library, which would need more processor time than the servers
do: see `cpu_percent` in the figures, which tells how busy the generator was.

Without a rate, every client sends its next request when the answer to the last one is there (closed
loop). With one, requests are due at fixed times, and a latency runs from then (no coordinated
omission).
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Final, cast

import msgspec

from bench.errors import BenchError
from bench.rest.cases import CASES, requests
from bench.rest.wire import Answer, AnswerParser

__all__ = ["Figures", "Job", "main", "measure"]

_LOOKED_INTO: Final = 16
_ENTRY: Final = b'"version"'
_GRACE_S: Final = 60.0
_OK: Final = frozenset({200, 201})


class Job(msgspec.Struct, kw_only=True):
    """What to send.

    Attributes:
        case: a name in `CASES`.
        clients: connections; each has one request under way.
        begin_s: when the warm-up begins, by the machine's monotonic clock.
        rate: requests due in a second, of all clients together; 0: as many as are answered.
    """

    case: str
    host: str = "127.0.0.1"
    port: int
    clients: int
    begin_s: float
    warm_up_s: float
    seconds: float
    rate: float = 0.0
    keys: int
    value_bytes: int
    seed: int = 1


class Figures(msgspec.Struct, kw_only=True):
    """What came of the requests that began after the warm-up and before the end; all were answered.

    If none began between, the first after the end counts.

    Attributes:
        per_s: how many began in a second, which is the rate of answers once it is steady.
        p50: latency in milliseconds that half of them had at most; `p90`, `p99`, `max` likewise.
        cpu_percent: processor time of the generator, in percent of one core.
    """

    answers: int
    per_s: float
    p50: float
    p90: float
    p99: float
    max: float
    cpu_percent: float
    statuses: dict[int, int]


class _Client(asyncio.Protocol):
    """A connection with one request under way at a time."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._parser = AnswerParser()
        self._transport: asyncio.Transport | None = None
        self._due: Iterator[float] | None = None
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def start(self, due: Iterator[float] | None) -> None:
        """Begin to send: at once and whenever an answer is there, or when a request is due."""
        self._due = due
        self._next()

    def data_received(self, data: bytes) -> None:
        try:
            answer = self._parser.feed(data)
            if answer is not None:
                self._load.note(answer, self._began)
        except BenchError as error:
            self._load.fail(error)
            return
        if answer is not None:
            self._next()

    def connection_lost(self, _: Exception | None) -> None:
        self._load.lost()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _next(self) -> None:
        """Send the next request when its time has come; none after the end."""
        load, now = self._load, time.perf_counter()
        if self._due is None:
            began = now
        else:
            began = next(self._due)
            if began > now:
                load.loop.call_at(load.loop.time() + began - now, self._send, began)
                return
        self._send(began)

    def _send(self, began: float) -> None:
        self._began = began
        load = self._load
        if load.is_over(began):
            load.leave()
        elif self._transport is not None:
            self._transport.write(next(load.requests))


class _Load:
    """All clients of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.loop = asyncio.get_running_loop()
        self.requests = requests(job.case, job.keys, job.value_bytes, job.seed)
        self.begin = self.end = 0.0
        self._entries = CASES[job.case].entries
        self._latencies = array("d")
        self._statuses: Counter[int] = Counter()
        self._answers = 0
        self._left = job.clients
        self._done: asyncio.Future[None] = self.loop.create_future()

    async def run(self) -> Figures:
        """Connect, send, measure."""
        job = self.job
        clients = [await self._connect() for _ in range(job.clients)]
        wait_s = job.begin_s - time.monotonic()
        await asyncio.sleep(max(0.0, wait_s))
        start = time.perf_counter()
        self.begin, self.end = start + job.warm_up_s, start + job.warm_up_s + job.seconds
        cpu = time.process_time()
        for number, client in enumerate(clients):
            client.start(self._due(start, number))
        async with asyncio.timeout(job.warm_up_s + job.seconds + _GRACE_S):
            await self._done
        cpu_percent = 100 * (time.process_time() - cpu) / (time.perf_counter() - start)
        for client in clients:
            client.close()
        return self._figures(cpu_percent)

    def note(self, answer: Answer, began: float) -> None:
        """Take note of an answer to a request that began, or was due, at a time."""
        self._answers += 1
        if self._entries and self._answers % _LOOKED_INTO == 1:
            self._look_into(answer)
        if began >= self.begin:
            self._latencies.append(time.perf_counter() - began)
        self._statuses[answer.status] += 1
        if answer.status not in _OK:
            raise BenchError(f"answered {answer.status}: {answer.body[:200]!r}")

    def is_over(self, now: float) -> bool:
        """Tell whether no request shall begin any more: the time is up, and one was measured."""
        return now >= self.end and bool(self._latencies)

    def leave(self) -> None:
        """A client has sent its last request."""
        self._left -= 1
        if self._left == 0 and not self._done.done():
            self._done.set_result(None)

    def lost(self) -> None:
        """A connection was closed."""
        if not self._done.done():
            self.fail(BenchError("the server closed a connection under load"))

    def fail(self, error: BenchError) -> None:
        """End with an error."""
        if not self._done.done():
            self._done.set_exception(error)

    def _look_into(self, answer: Answer) -> None:
        found = answer.body.count(_ENTRY)
        if found != self._entries:
            raise BenchError(f"an answer has {found} entries, not {self._entries}")

    async def _connect(self) -> _Client:
        job = self.job
        _, client = await self.loop.create_connection(lambda: _Client(self), job.host, job.port)
        return client

    def _due(self, start: float, number: int) -> Iterator[float] | None:
        """When a client's requests are due."""
        job = self.job
        if job.rate <= 0:
            return None
        return itertools.count(start + number / job.rate, job.clients / job.rate)

    def _figures(self, cpu_percent: float) -> Figures:
        ms = sorted(1000 * latency for latency in self._latencies)
        p50, p90, p99 = (ms[int(share * (len(ms) - 1))] for share in (0.5, 0.9, 0.99))
        return Figures(
            answers=len(ms), per_s=round(len(ms) / self.job.seconds, 1), p50=round(p50, 3),
            p90=round(p90, 3), p99=round(p99, 3), max=round(ms[-1], 3),
            cpu_percent=round(cpu_percent, 1), statuses=dict(self._statuses),
        )  # fmt: skip


async def measure(job: Job) -> Figures:
    """Do a job in this process.

    Raises:
        BenchError: the server answered wrongly, or closed a connection.
    """
    return await _Load(job).run()


def main() -> int:
    """Do the job on standard input; the exit code."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    gc.disable()  # requests make no cycles, and a collection would be measured
    try:
        figures = asyncio.run(measure(job))
    except (BenchError, OSError, TimeoutError) as error:
        sys.stderr.write(f"{error or type(error).__name__}\n")
        return 2
    sys.stdout.buffer.write(msgspec.json.encode(figures) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
