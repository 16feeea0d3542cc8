"""A facade over a database in memory, served on a socket in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

from streamydb.facade import FacadeSettings
from streamydb.facade.server import listen, make_server
from streamydb.testing.memory import MemoryDatabase

__all__ = ["Served", "running", "serving"]

ANY_PORT: Final = FacadeSettings(port=0)


class Served:
    """A facade that is served.

    Attributes:
        server: what serves it.
        url: where.
    """

    def __init__(self, server: uvicorn.Server, url: str) -> None:
        """Name them."""
        self.server = server
        self.url = url

    @property
    def connections(self) -> list[Any]:
        """The connections that are open."""
        return list(self.server.server_state.connections)

    def cut(self) -> None:
        """Break all connections."""
        for connection in self.connections:
            connection.loop.call_soon_threadsafe(connection.transport.abort)


@contextmanager
def running(server: uvicorn.Server, listener: socket.socket) -> Iterator[int]:
    """Run a server in a thread until the end of the context; its port."""
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(120)
        assert not thread.is_alive()


@contextmanager
def serving(
    settings: FacadeSettings = ANY_PORT, database: MemoryDatabase | None = None
) -> Iterator[Served]:
    """Serve a database, by default an empty one, until the end of the context."""
    database = MemoryDatabase() if database is None else database
    with listen(settings) as listener:
        server = make_server(settings, database.model, database.log, database.changes)
        with running(server, listener) as port:
            served = Served(server, f"{settings.scheme}://127.0.0.1:{port}")
            try:
                yield served
            finally:
                server.should_exit = True
                served.cut()
