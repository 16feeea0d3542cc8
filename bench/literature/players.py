"""Clients over HTTP in a process of their own: `python -m bench.literature.players`.

A play comes as JSON on standard input: requests, each sent once, in order, by whichever client is
free (closed loop), or when it is due (a rate; a latency runs from then: no coordinated omission).
What became of them goes to standard output, a line each. Times are those of the machine's monotonic
clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

import msgspec
import numpy as np

from bench.errors import BenchError
from bench.rest.wire import Answer, AnswerParser

__all__ = ["Play", "Played", "Playing", "latency_facts", "main", "play", "playing"]

_HOST: Final = "127.0.0.1"
_GRACE_S: Final = 120.0
_READ_BYTES: Final = 65_536


class Play(msgspec.Struct, kw_only=True):
    """What to send.

    Attributes:
        clients: connections; each has one request under way.
        seconds: no request begins later than this after the first.
        rate: requests due in a second; 0: as many as are answered.
        requests: target and body (JSON) of each, sent by POST.
    """

    port: int
    clients: int
    seconds: float
    rate: float = 0.0
    requests: list[tuple[str, bytes]]


class Played(msgspec.Struct, array_like=True):
    """A request that was answered.

    Attributes:
        request: its place in the play.
        client: who sent it.
        began_ns: when it was sent, or due.
        ended_ns: when its answer was there.
    """

    request: int
    client: int
    began_ns: int
    ended_ns: int
    status: int
    body: bytes

    @property
    def ms(self) -> float:
        """Its latency."""
        return (self.ended_ns - self.began_ns) / 1e6


class _Stage:
    """A play under way."""

    def __init__(self, given: Play, tell: Callable[[Played], object]) -> None:
        self.given = given
        self.tell = tell
        self._next = 0
        self._begin_ns = time.monotonic_ns()

    async def run(self) -> None:
        async with asyncio.timeout(self.given.seconds + _GRACE_S):
            await asyncio.gather(*(self._client(number) for number in range(self.given.clients)))

    async def _client(self, number: int) -> None:
        reader, writer = await asyncio.open_connection(_HOST, self.given.port)
        parser = AnswerParser()
        try:
            while (taken := await self._take()) is not None:
                request, began_ns = taken
                writer.write(self._message(request))
                answer = await _answer(reader, parser)
                ended_ns = time.monotonic_ns()
                status, body = answer.status, answer.body
                self.tell(Played(request, number, began_ns, ended_ns, status, body))
        finally:
            writer.close()

    async def _take(self) -> tuple[int, int] | None:
        """The next request and when it begins; None after the end."""
        given, request = self.given, self._next
        now_ns = time.monotonic_ns()
        over = now_ns - self._begin_ns >= given.seconds * 1e9
        if over or request >= len(given.requests):
            return None
        self._next += 1
        if given.rate <= 0:
            return request, now_ns
        due_ns = self._begin_ns + int(request * 1e9 / given.rate)
        if due_ns > now_ns:
            await asyncio.sleep((due_ns - now_ns) / 1e9)
        return request, due_ns

    def _message(self, request: int) -> bytes:
        target, body = self.given.requests[request]
        head = (
            f"POST {target} HTTP/1.1\r\nHost: {_HOST}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def _answer(reader: asyncio.StreamReader, parser: AnswerParser) -> Answer:
    while True:
        data = await reader.read(_READ_BYTES)
        if not data:
            raise BenchError("the server closed a connection under load")
        answer = parser.feed(data)
        if answer is not None:
            return answer


def play(given: Play) -> list[Played]:
    """Play in this process; what was answered, by the ends.

    Raises:
        BenchError: the server closed a connection, or did not speak HTTP/1.1.
        TimeoutError: answers did not come.
    """
    played: list[Played] = []

    async def run() -> None:
        await _Stage(given, played.append).run()

    asyncio.run(run())
    return played


class Playing:
    """A play in a process of its own."""

    def __init__(self, given: Play, output: IO[bytes]) -> None:
        """Start it."""
        self._output = output
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.literature.players"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
        )
        if self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode(given))
            self._process.stdin.close()
            self._process.stdin = None

    def end(self) -> list[Played]:
        """Wait for the end; what was answered.

        Raises:
            BenchError: it failed; with what it said.
        """
        _, said = self._process.communicate()
        if self._process.returncode:
            text = said.decode(errors="replace")[-2000:]
            raise BenchError(f"the clients failed: {text}")
        self._output.seek(0)
        decoder = msgspec.json.Decoder(Played)
        return [decoder.decode(line) for line in self._output]

    def kill(self) -> None:
        """End it at once; harmless when it has ended."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def playing(given: Play) -> Iterator[Playing]:
    """Play in a process of its own, which has ended after the block."""
    with tempfile.TemporaryFile() as output:
        running = Playing(given, output)
        try:
            yield running
        finally:
            running.kill()


def latency_facts(played: Sequence[Played]) -> dict[str, Any]:
    """Rate, latencies and refusals of answered requests."""
    if not played:
        return {"answers": 0, "per_s": 0.0, "p50": None, "p99": None, "refused": 0}
    ms = np.array([each.ms for each in played])
    p50, p99 = np.percentile(ms, (50, 99)).tolist()
    began, ended = min(p.began_ns for p in played), max(p.ended_ns for p in played)
    return {
        "answers": len(played), "per_s": round(len(played) * 1e9 / max(1, ended - began), 1),
        "p50": round(p50, 2), "p99": round(p99, 2),
        "refused": sum(each.status != 200 for each in played),
    }  # fmt: skip


def main() -> int:
    """Play what is on standard input; the exit code."""
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Play)
    try:
        played = play(given)
    except (BenchError, OSError, TimeoutError) as error:
        sys.stderr.write(f"{error or type(error).__name__}\n")
        return 2
    encoder = msgspec.json.Encoder()
    sys.stdout.buffer.writelines(encoder.encode(each) + b"\n" for each in played)
    return 0


if __name__ == "__main__":
    sys.exit(main())
