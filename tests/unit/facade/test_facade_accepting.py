"""Connections are taken many at a turn of the loop, whatever loop it is."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, ClassVar

import pytest

from streamydb.facade import acceptor as accepting
from streamydb.facade.acceptor import Acceptor
from streamydb.facade.server import listen
from streamydb.facade.settings import FacadeSettings

COUNT = 60


class Connected(asyncio.Protocol):
    """Sends back what comes; remembers all connections."""

    made: ClassVar[list[Any]] = []

    def expect(self, address: str) -> float:
        assert address == "127.0.0.1"
        return 10

    def leave(self) -> None:
        raise AssertionError("every connection is made")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.append(transport)
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
        self._transport.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen(2 * COUNT)
        found.setblocking(False)
        yield found


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Run a coroutine on either loop."""
    factory: Any = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    Connected.made.clear()

    async def whole(coroutine: Awaitable[None]) -> None:
        await coroutine
        for transport in Connected.made:
            transport.abort()
        await asyncio.sleep(0.01)  # uvloop closes them in its own turns, and not after its end

    def run_it(coroutine: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(whole(coroutine))

    return run_it


def test_all_who_wait_are_let_in_at_once(
    run: Callable[[Awaitable[None]], None], listener: socket.socket
) -> None:
    async def scenario() -> None:
        acceptor = Acceptor(listener, Connected)
        turns = 0
        while len(Connected.made) < COUNT:
            turns += 1
            assert turns < COUNT / 2
            await asyncio.sleep(0)
        acceptor.close()
        await acceptor.wait_closed()

    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(listener.getsockname(), 10))
            for _ in range(COUNT)
        ]
        clients[0].sendall(b"hello")
        run(scenario())
        assert len(Connected.made) == COUNT


async def answered_and_closed(listener: socket.socket) -> None:
    """An acceptor lets one client in, which gets its answer, and is closed."""
    acceptor = Acceptor(listener, Connected)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(b"hello")
    assert await reader.read() == b"hello"
    writer.close()
    acceptor.close()
    await acceptor.wait_closed()


def test_it_answers_and_after_its_end_takes_nobody(
    run: Callable[[Awaitable[None]], None], listener: socket.socket
) -> None:
    async def scenario() -> None:
        await answered_and_closed(listener)
        with closing(socket.create_connection(listener.getsockname(), 10)):
            for _ in range(20):
                await asyncio.sleep(0)
        assert len(Connected.made) == 1

    run(scenario())


class Exhausted(socket.socket):
    """A listening socket of a process that has no file handle left, the first time."""

    refused = 0

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.refused:
            self.refused += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_without_file_handles_it_waits_and_goes_on(
    run: Callable[[Awaitable[None]], None], listener: socket.socket,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(accepting, "_PAUSE_S", 0.01)

    async def scenario(poor: Exhausted) -> None:
        await answered_and_closed(poor)

    with Exhausted(fileno=listener.detach()) as poor:
        run(scenario(poor))
    assert poor.refused == 1
    assert "no connection can be taken for 0.01 s: Too many open files" in caplog.text


def test_a_connection_sends_without_delay() -> None:
    with (
        listen(FacadeSettings(port=0)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
