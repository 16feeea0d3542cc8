"""A closed loop of transfers on PostgreSQL: each connection has one call under way."""

from __future__ import annotations

import gc
import select
import socket
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.errors import BenchError
from bench.peer_wire import Call, error_code, is_ready, prepare, startup

__all__ = ["AMOUNT", "STATEMENT", "Transfers", "offer"]

AMOUNT: Final = 1
STATEMENT: Final = "SELECT transfer($1, $2, $3)"

_AGAIN: Final = frozenset({"40001", "40P01"})
"""Serialization failure, deadlock: the client has to send the transaction again."""

_REFUSED: Final = "23514"
"""A balance would be below 0."""

_ANSWER_S_MAX: Final = 30.0
_BYTES: Final = 65_536

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Transfers:
    """What came of a load.

    Attributes:
        committed: transfers that were answered within the measured time.
        seconds: the measured time.
        latencies_s: of these, from the first try to the answer.
        again: tries of these that PostgreSQL could not serialize.
        refused: transfers that found too little money, warm-up included.
        client_s: processor time of this process within the measured time.
        moved: by account, what all committed transfers changed, warm-up included.
    """

    moved: Ints
    committed: int = 0
    seconds: float = 0.0
    latencies_s: array[float] = field(default_factory=lambda: array("d"))
    again: int = 0
    refused: int = 0
    client_s: float = 0.0


@dataclass(slots=True)
class _Connection:
    """A connection and the transfer that it has under way."""

    socket: socket.socket
    source: int = 0
    target: int = 0
    call: bytes = b""
    began: float = 0.0
    answer: bytes = b""
    tries: int = 0


def offer(
    folder: Path, user: str, settings: dict[str, str], pairs: Iterator[tuple[int, int]],
    accounts: int, connections: int, warm_up_s: float, seconds: float,
    measuring: Callable[[bool], object] = lambda _: None,
) -> Transfers:  # fmt: skip
    """Send transfers over `connections` connections for `seconds`, each one behind the last.

    Args:
        folder: where the server's socket lies.
        user: who connects; the database is `postgres`.
        settings: of each connection.
        pairs: the accounts of the transfers, without an end.
        accounts: how many accounts there are.
        connections: how many have a call under way at a time.
        warm_up_s: so long a load goes before.
        seconds: so long it is measured.
        measuring: is told True when the measured time begins, and False at its end.

    Raises:
        BenchError: PostgreSQL refused something, or did not answer.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(_connected(folder, user, settings))
                  for _ in range(connections)]  # fmt: skip
        stack.enter_context(_uncollected())
        poll = stack.enter_context(select.epoll())
        by_number = {one.fileno(): _Connection(one) for one in opened}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        loop = _Loop(pairs, Transfers(np.zeros(accounts, np.int64)))
        for connection in by_number.values():
            loop.send_next(connection)
        loop.run(poll, by_number, warm_up_s)
        measuring(True)
        loop.measured = True
        cpu_s, begun = time.process_time(), time.perf_counter()
        loop.run(poll, by_number, seconds)
        loop.found.seconds = time.perf_counter() - begun
        loop.found.client_s = time.process_time() - cpu_s
        loop.measured = False
        measuring(False)
        loop.finish(poll, by_number)
        return loop.found


class _Loop:
    """Reads answers, and sends the next transfer or the same again."""

    def __init__(self, pairs: Iterator[tuple[int, int]], found: Transfers) -> None:
        self.found, self.measured = found, False
        self._pairs, self._call = pairs, Call(3)
        self._done: bytes | None = None

    def run(self, poll: Any, by_number: dict[int, _Connection], seconds: float) -> None:
        """Keep all connections busy for so long."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for number in _readable(poll):
                connection = by_number[number]
                if self._settled(connection):
                    self.send_next(connection)

    def finish(self, poll: Any, by_number: dict[int, _Connection]) -> None:
        """Wait for what is under way."""
        left = set(by_number)
        while left:
            for number in _readable(poll):
                if self._settled(by_number[number]):
                    left.discard(number)

    def send_next(self, connection: _Connection) -> None:
        """Send a connection's next transfer."""
        connection.source, connection.target = next(self._pairs)
        connection.call = self._call.of(connection.source, connection.target, AMOUNT)
        connection.tries = 0
        connection.began = time.perf_counter()
        connection.socket.send(connection.call)

    def _settled(self, connection: _Connection) -> bool:
        """Take what has come; True if the transfer is settled, and not tried again."""
        data = connection.socket.recv(_BYTES)
        if not data:
            raise BenchError("PostgreSQL closed a connection under load")
        answer = connection.answer + data if connection.answer else data
        if answer != self._done:
            if not is_ready(answer):
                connection.answer = answer
                return False
            code = error_code(answer)
            if code in _AGAIN:
                connection.answer, connection.tries = b"", connection.tries + 1
                connection.socket.send(connection.call)
                return False
            if code not in (None, _REFUSED):
                raise BenchError(f"PostgreSQL answered {answer[:300]!r}")
            if code is not None:
                connection.answer = b""
                self.found.refused += 1
                return True
            self._done = answer
        connection.answer = b""
        found = self.found
        found.moved[connection.source] -= AMOUNT
        found.moved[connection.target] += AMOUNT
        if self.measured:
            found.committed += 1
            found.again += connection.tries
            found.latencies_s.append(time.perf_counter() - connection.began)
        return True


def _readable(poll: Any) -> list[int]:
    found = poll.poll(_ANSWER_S_MAX)
    if not found:
        raise BenchError(f"PostgreSQL did not answer for {_ANSWER_S_MAX:.0f} s")
    return [number for number, _ in found]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Python does not collect garbage meanwhile: the load makes no cycles."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _connected(folder: Path, user: str, settings: dict[str, str]) -> Iterator[socket.socket]:
    """Connect to the server and prepare the statement."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
        opened.settimeout(_ANSWER_S_MAX)
        opened.connect(str(folder / ".s.PGSQL.5432"))
        for message in (startup(user, "postgres", settings), prepare(STATEMENT, 3)):
            opened.sendall(message)
            answer = b""
            while not is_ready(answer):
                data = opened.recv(_BYTES)
                if not data:
                    raise BenchError(f"PostgreSQL closed the connection: {answer[-300:]!r}")
                answer += data
                if error_code(answer) is not None:
                    raise BenchError(f"PostgreSQL answered {answer[-300:]!r}")
        yield opened
