"""A network that can be cut: a proxy in front of a broker, which drops, delays, resets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from streamydb.local.broker import EmbeddedBroker, free_port

_CHUNK = 65_536
_PRODUCE = b"\x00\x00"
"""The number of Kafka's Produce request, after the four bytes of its length."""
_APPEND_S = 0.3
"""How long a broker has to append a record before the connection breaks."""


class Proxy:
    """Connects whoever comes to a port of this machine, as well as the test wants it to.

    While a direction is cut, nothing goes through it and connections stay open, as if packets were
    lost; when it is healed what was held back arrives, unless `reset` has broken the connections.

    Attributes:
        port: where it listens.
        resets: how many connections were broken.
    """

    def __init__(self, target: int) -> None:
        """Name the port that it connects to; nothing listens yet."""
        self.port = free_port(besides=target)
        self.resets = 0
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._writers: set[asyncio.StreamWriter] = set()
        self._open: dict[str, asyncio.Event] = {}
        self._delay_s = 0.0
        self._losing, self._loser = 0, b""
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        return self

    def __exit__(self, *_error: object) -> None:
        """Break all connections and end."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, *directions: str) -> None:
        """Let nothing through `to_broker`, `to_client`; without arguments: neither."""
        self._do(lambda: self._set(directions or tuple(self._open), through=False))

    def heal(self) -> None:
        """Let everything through again, at once."""
        self._delay_s = 0.0
        self._do(lambda: self._set(tuple(self._open), through=True))

    def _set(self, directions: Sequence[str], *, through: bool) -> None:
        for name in directions:
            if through:
                self._open[name].set()
            else:
                self._open[name].clear()

    def delay(self, seconds: float) -> None:
        """Let every piece of data wait from now on."""
        self._delay_s = seconds

    def lose_acknowledgements(self, count: int, client: str) -> None:
        """Break the connection instead of answering so many requests of a client to append.

        ``client``: its `client.id`; others append through the proxy, too.
        """
        self._losing, self._loser = count, client.encode()

    @property
    def losing(self) -> int:
        """How many acknowledgements are still to be lost."""
        return self._losing

    def reset(self) -> int:
        """Break all connections; what is held back is lost. How many there were."""
        before = self.resets
        self._do(self._abort)
        return self.resets - before

    def _do(self, action: Callable[[], Any]) -> None:
        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    async def _listen(self) -> None:
        self._open = {"to_broker": asyncio.Event(), "to_client": asyncio.Event()}
        for gate in self._open.values():
            gate.set()
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        self._abort()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _abort(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()
            self.resets += 1
        self._writers.clear()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, here = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, here}
        mute = asyncio.Event()
        with suppress(asyncio.CancelledError):  # at the end
            await asyncio.gather(
                self._pump(reader, here, "to_broker", mute),
                self._pump(there, writer, "to_client", mute),
            )

    def _appends(self, data: bytes) -> bool:
        """Return True if the client whose acknowledgements are lost asks to append."""
        name = len(self._loser).to_bytes(2, "big") + self._loser  # behind the number of the request
        return data[4:6] == _PRODUCE and data[12:].startswith(name)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str,
        mute: asyncio.Event,
    ) -> None:  # fmt: skip
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._open[direction].wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if direction == "to_client" and mute.is_set():
                    continue
                if direction == "to_broker" and self._losing and self._appends(data):
                    self._losing -= 1
                    mute.set()
                writer.write(data)
                await writer.drain()
                if direction == "to_broker" and mute.is_set():
                    await asyncio.sleep(_APPEND_S)
                    break
        self._writers.discard(writer)
        writer.transport.abort()


def proxied_broker(
    home: Path, proxy_of: Callable[[int], Proxy] = Proxy
) -> tuple[EmbeddedBroker, Proxy]:
    """A broker with two addresses: its own, and one behind a proxy; neither is started."""
    own, behind, control = free_port(), free_port(), free_port()
    proxy = proxy_of(behind)
    properties = {
        "listeners": f"BROKER://127.0.0.1:{own},BEHIND://127.0.0.1:{behind},"
        f"CONTROLLER://127.0.0.1:{control}",
        "advertised.listeners": f"BROKER://127.0.0.1:{own},BEHIND://127.0.0.1:{proxy.port}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,BEHIND:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{control}",
    }
    broker = EmbeddedBroker(home, port=own, heap_mb=512, properties=properties)
    return broker, proxy
