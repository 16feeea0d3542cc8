"""Accept all waiting connections, up to a bound, in one turn of the event loop.

libuv, which is below uvloop, takes one in a turn. On a loop with more requests than it can serve a
turn is half a second long: those who have a connection would be served, and nobody else let in.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

import uvicorn

from streamydb.facade.waiting import Shutdown

_AT_A_TURN: Final = 128
"""Connections taken in one turn. With a single one, accepted writes under overload had a p99 of
26 s; with 128 it is 3 to 5 s."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S: Final = 1.0
_LOG: Final = logging.getLogger(__name__)


class CountedProtocol(Protocol):
    """A connection's protocol, which is told of the connection before its TLS handshake."""

    def expect(self, address: str) -> float:
        """Count a connection from an address; return how many seconds its handshake may take."""

    def leave(self) -> None:
        """Count it no longer."""


class Acceptor:
    """Takes the connections of a listening socket, which its owner closes."""

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], CountedProtocol],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._make_protocol = make_protocol
        self._context = context
        self._begun: set[asyncio.Task[None]] = set()
        self._paused: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept no more connections; those that were accepted go on."""
        if self._paused is None:
            self._loop.remove_reader(self._listener.fileno())
        else:
            self._paused.cancel()

    async def wait_closed(self) -> None:
        """Wait until what was taken is a connection, or given up."""
        await asyncio.gather(*self._begun)

    def _listen(self) -> None:
        self._paused = None
        self._loop.add_reader(self._listener.fileno(), self._take)

    def _take(self) -> None:
        for _ in range(_AT_A_TURN):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._connect(connection, peer[0]))
            self._begun.add(task)
            task.add_done_callback(self._begun.discard)

    def _pause(self, error: OSError) -> None:
        """Let those who wait wait on: their connections cannot be taken now."""
        if error.errno not in _EXHAUSTED:
            raise error
        _LOG.error("no connection can be taken for %g s: %s", _PAUSE_S, error.strerror)
        self._loop.remove_reader(self._listener.fileno())
        self._paused = self._loop.call_later(_PAUSE_S, self._listen)

    async def _connect(self, connection: socket.socket, address: str) -> None:
        """Make a connection, which is counted from now on: it may be silent in its handshake."""
        protocol = self._make_protocol()
        handshake_s = protocol.expect(address)
        try:
            await self._loop.connect_accepted_socket(
                lambda: cast("asyncio.Protocol", protocol), connection, ssl=self._context,
                ssl_handshake_timeout=None if self._context is None else handshake_s,
            )  # fmt: skip
        except BaseException as error:
            protocol.leave()
            connection.close()
            if not isinstance(error, OSError):  # it is gone already, or its TLS handshake failed
                raise


class Server(uvicorn.Server):
    """uvicorn's server, with our acceptors on the sockets that it is given."""

    def __init__(self, config: uvicorn.Config, ending: Shutdown) -> None:
        super().__init__(config)
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(None if sockets is None else [])
        for listener in sockets or []:
            listener.setblocking(False)
            acceptor = Acceptor(listener, self._protocol, self.config.ssl)
            self.servers.append(cast("Any", acceptor))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending.begin()
        await super().shutdown(sockets)

    def _protocol(self) -> CountedProtocol:
        make = cast("Callable[..., CountedProtocol]", self.config.http_protocol_class)
        return make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
