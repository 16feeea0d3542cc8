"""Groups of writes to connections that go out together.

A write wakes a client that waits for it, and that takes the facade ten times as long as the write
itself. Clients whose answers come together are often in one process, which the first answer wakes.
So what connections write in a turn of the event loop goes out at the next one, and as long as each
turn brings more, at the one that brings none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

_TOGETHER_S: Final = 0.002
"""How long a write waits at most for others, in the turns that bring more."""
_HELD_BYTES_MAX: Final = 64 * 1024
"""What a connection holds back at most: as much as a transport holds before it says "enough"."""


class WriteGroup:
    """The connections of an event loop that hold something back.

    ``call_soon``: of that loop. ``now_s``: a clock that only goes forward.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        now_s: Callable[[], float] = perf_counter,
    ) -> None:
        self._call_soon = call_soon
        self._now_s = now_s
        self._waiting: deque[GroupedTransport] = deque()
        self._seen = 0
        self._until_s = 0.0

    def add(self, transport: GroupedTransport) -> None:
        """Have a connection write what it holds, soon."""
        self._waiting.append(transport)
        if len(self._waiting) == 1:
            self._seen = 1
            self._until_s = self._now_s() + _TOGETHER_S
            self._call_soon(self._turn)

    def _turn(self) -> None:
        count = len(self._waiting)
        if count > self._seen and self._now_s() < self._until_s:
            self._seen = count
            self._call_soon(self._turn)
            return
        try:
            while self._waiting:
                self._waiting.popleft().flush()
        finally:
            if self._waiting:  # one has raised: the loop tells, and the others have their turn
                self._call_soon(self._turn)


class GroupedTransport:
    """A transport that writes in groups; everything else is the transport's own.

    It writes in the order in which it was called, and all of it before it closes.
    """

    def __init__(self, transport: asyncio.Transport, group: WriteGroup) -> None:
        self._transport = transport
        self._group = group
        self._held: list[bytes] = []
        self._bytes = 0
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._held:
            self._group.add(self)
        self._held.append(data)
        self._bytes += len(data)
        if self._bytes > _HELD_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what is held back, unless the connection is closed already."""
        held, self._held, self._bytes = self._held, [], 0
        if held and not self.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()
