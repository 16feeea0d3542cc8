"""Appends of the facade: in groups, each told of in the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from streamydb.facade.append_groups import AppendGroups
from streamydb.facade.clocks import LogClock
from streamydb.facade.ports import LogPosition
from streamydb.facade.waiting import run_in
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.kafka.producer import Appended, AppendError, AppendUnknownError, Producer
from streamydb.settings import Settings

_TRIED_S: Final = 30.0
_LINGER_MS: Final = 0.2
"""The records of a group are handed over one by one, within this time."""


def facade_producer(settings: Settings) -> Producer:
    """Return a producer that sends a group at once."""
    return Producer(settings, timeout_s=_TRIED_S, linger_ms=_LINGER_MS)


_Fate = tuple["_Append", Appended | None, AppendError | None]


class KafkaAppends:
    """Appends to the log of one database; used in one event loop.

    ``executor``: for what would wait.
    """

    def __init__(self, producer: Producer, clock: LogClock, executor: ThreadPoolExecutor) -> None:
        """Call it in the event loop. ``producer``: see `facade_producer`; it is closed here."""
        self._clock = clock
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._producer = producer
        self._groups = AppendGroups(self._loop.call_later, self._loop.time)
        self._fates: deque[_Fate] = deque()
        self._is_told = False
        self._late: set[asyncio.Task[None]] = set()

    async def append(self, payload: bytes, headers: Mapping[str, bytes] | None) -> LogPosition:
        """Append a transaction, see `TransactionLog.append`."""
        append = _Append(payload, headers, self._loop.create_future())
        self._groups.add(partial(self._send, append))
        return await append.position

    def decided(self, ends: Mapping[int, int]) -> None:
        """Note up to where the log is decided: partition -> end."""
        self._groups.decided(ends)

    async def close(self, timeout_s: float) -> None:
        """Wait until what was appended is in the log, and end."""
        self._groups.flush()
        with suppress(AppendError):
            await run_in(self._executor, self._producer.close, timeout_s)

    def _send(self, append: _Append) -> None:
        if append.position.done():  # who sent it has gone before it was handed over
            self._groups.failed()
            return
        append.sent_ms = self._clock.local_ms()
        heard = partial(self._hear, append)
        if not self._producer.append_at_once(append.payload, heard, headers=append.headers):
            task = self._loop.create_task(self._send_late(append))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    async def _send_late(self, append: _Append) -> None:
        """Append in a thread: it may have to wait."""
        send = partial(self._producer.append_async, headers=append.headers)
        try:
            await run_in(self._executor, send, append.payload, partial(self._hear, append))
        except AppendError as error:
            append.fail(KafkaUnavailableError(str(error)))
            self._groups.failed()

    def _hear(self, append: _Append, appended: Appended | None, error: AppendError | None) -> None:
        """Have the event loop hear of an append; called in the producer's thread."""
        self._fates.append((append, appended, error))
        if not self._is_told:
            self._is_told = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        """Tell those who wait what became of their appends."""
        self._is_told = False
        while self._fates:
            append, appended, error = self._fates.popleft()
            if appended is None:
                append.fail(AppendUnknownError(str(error)))
                self._groups.failed()
                continue
            self._clock.appended(appended.timestamp_ms, append.sent_ms)
            position = LogPosition(appended.partition, appended.offset)
            append.succeed(position)
            self._groups.appended(position)


class _Append:
    """A transaction to be appended, and who waits for its position."""

    def __init__(
        self,
        payload: bytes,
        headers: Mapping[str, bytes] | None,
        position: asyncio.Future[LogPosition],
    ) -> None:
        self.payload = payload
        self.headers = headers
        self.position = position
        self.sent_ms = 0

    def succeed(self, position: LogPosition) -> None:
        if not self.position.done():
            self.position.set_result(position)

    def fail(self, error: Exception) -> None:
        if not self.position.done():
            self.position.set_exception(error)
