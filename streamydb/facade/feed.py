"""The changes of a database in the order of their transactions, for any number of event streams.

`Merger` puts the records of the partitions of `<db>.changes` in order: at each seq that all
partitions say is resolved, everything up to it is one batch. `Feed` keeps the latest batches,
bounded in bytes. A stream has only a position in them, so a slow reader costs no memory: when its
position is no longer among those kept, it is cut off, and reads on from the topic when it returns.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from streamydb.errors import RecordError
from streamydb.facade.bounds import Limiter
from streamydb.facade.ports import ChangeBatch, ChangeEvent, ChangeSource
from streamydb.facade.problems import ProblemError, log_failure_text
from streamydb.facade.waiting import Shutdown
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.limits import KEY_BYTES_MAX
from streamydb.records import Change, ChangeName, Resolved, Transaction, change_name
from streamydb.records.decoder import condition, condition_form
from streamydb.records.expiry import is_removal
from streamydb.records.formats import UNREADABLE
from streamydb.records.ranges import ALL_KEYS, ScanRange
from streamydb.txn_processor.comparisons import failed_checks

_OVERHEAD_BYTES: Final = 300
_RETRY_AFTER_S: Final = 1


class _Envelope(msgspec.Struct):
    """The data of an event: the change record with its key in front."""

    key: str
    op: str
    before: msgspec.Raw
    after: msgspec.Raw
    ts_ms: int
    source: Any
    transaction: Any
    expires_ms: int | msgspec.UnsetType = msgspec.UNSET


_decode = msgspec.json.Decoder(_Envelope).decode


def change_event(key: bytes, change: Change) -> ChangeEvent:
    name = key.decode()
    data = msgspec.json.encode(
        _Envelope(name, change.op, change.before, change.after, change.ts_ms,
                  change.source, change.transaction, change.expires_ms)
    )  # fmt: skip
    return ChangeEvent(change.source.seq, change.transaction.total_order, name, data)


def visible_changes(
    changes: Iterable[ChangeEvent], may_read: Callable[[str], bool]
) -> Iterator[ChangeEvent]:
    """Yield the changes that a client may read, numbered as if there were no others. The number of
    a change among all those of its transaction would tell how many others there are. That of a
    removal by time tells nothing: it follows from the key.
    """
    seq = number = 0
    for event in changes:
        if not may_read(event.key):
            continue
        seq, number = event.seq, number + 1 if event.seq == seq else 1
        yield event if event.number == number or is_removal(event.number) else _at(event, number)


def _at(event: ChangeEvent, number: int) -> ChangeEvent:
    envelope = _decode(event.data)
    envelope.transaction |= {"total_order": number, "data_collection_order": number}
    return event._replace(number=number, data=msgspec.json.encode(envelope))


class Merger:
    """Puts the records of all partitions of the changes in order; drops repetitions."""

    def __init__(self, partitions: int, since: int) -> None:
        self._resolved = [since] * partitions
        self._open: list[dict[ChangeName, ChangeEvent]] = [{} for _ in range(partitions)]
        self._held = [0] * partitions
        self.done = since

    def take(
        self, partition: int, key: bytes | None, record: Change | Resolved
    ) -> ChangeBatch | None:
        """Take the next record of a partition; return a batch if that resolves something."""
        if isinstance(record, Resolved):
            return self._resolve(partition, record.resolved)
        name = change_name(key, record)
        if name.seq > self.done and name not in self._open[partition]:
            event = change_event(name.key, record)
            self._open[partition][name] = event
            self._held[partition] += len(event.data) + _OVERHEAD_BYTES
        return None

    def is_ahead(self, partition: int, bytes_max: int) -> bool:
        """Tell whether a partition holds much while others must be read first."""
        ahead = self._resolved[partition] > min(self._resolved)
        return ahead and self._held[partition] > bytes_max

    def _resolve(self, partition: int, seq: int) -> ChangeBatch | None:
        """Note that a partition has everything up to a seq; release what all of them have."""
        self._resolved[partition] = max(self._resolved[partition], seq)
        done = min(self._resolved)
        if done <= self.done:
            return None
        self.done = done
        events: list[ChangeEvent] = []
        for number, waiting in enumerate(self._open):
            ready = [name for name in waiting if name.seq <= done]
            for name in ready:
                event = waiting.pop(name)
                self._held[number] -= len(event.data) + _OVERHEAD_BYTES
                events.append(event)
        return ChangeBatch(done, tuple(sorted(events)))


class Feed:
    """The latest batches of changes; used in one event loop."""

    def __init__(
        self,
        source: ChangeSource,
        bytes_max: int,
        catch_ups_max: int,
        ending: Shutdown | None = None,
    ) -> None:
        self._source = source
        self._ending = Shutdown() if ending is None else ending
        self._bytes_max = bytes_max
        self._catch_ups = Limiter("event streams that read old changes", catch_ups_max)
        self._batches: deque[tuple[ChangeBatch, int]] = deque()
        self._dropped = 0
        self._bytes = 0
        self._came = asyncio.Event()
        self._starting = asyncio.Lock()
        self._started = False
        self._floor = 0
        self.latest = 0

    async def start(self) -> None:
        """Start the source, also after its end. Raises KafkaUnavailableError."""
        async with self._starting:
            if not self._started or self._source.fault() is not None:
                self._begin(await self._source.start(self.publish))
                self._started = True

    def _begin(self, since: int) -> None:
        """Keep what comes after a seq; older streams are cut off: they may lack changes."""
        self._dropped += len(self._batches) + 1
        self._batches.clear()
        self._bytes = 0
        self._floor = self.latest = since

    def publish(self, batch: ChangeBatch) -> None:
        if batch.resolved <= self.latest:
            return
        size = sum(len(event.data) + _OVERHEAD_BYTES for event in batch.changes) + _OVERHEAD_BYTES
        self._batches.append((batch, size))
        self._bytes += size
        self.latest = batch.resolved
        while self._bytes > self._bytes_max and len(self._batches) > 1:
            old, size = self._batches.popleft()
            self._dropped += 1
            self._bytes -= size
            self._floor = old.resolved
        self._came.set()
        self._came = asyncio.Event()

    async def batches(self, since: int, pause_s: float) -> AsyncGenerator[ChangeBatch | None, None]:
        """Yield batches that hold everything after seq `since`; None after a pause without any.
        Raises ProblemError: slow-reader, overloaded (too many read old changes), snapshot-gone,
        log-unavailable, not-ready (the source or the facade has ended, or a change cannot be read).
        """
        position = since
        while position < self._floor:  # again, if that has moved while the reader was closed
            async with aclosing(self._old(position, pause_s)) as old:
                async for batch in old:
                    yield None if batch is None else _changes_after(batch, position)
                    position = position if batch is None else batch.resolved
        # The number of the first batch, kept or to come, that goes beyond a seq from the floor on.
        # A stream counts on from there, so that thousands of them do not each search what is kept
        # whenever a batch comes.
        number = self._dropped
        number += bisect_right(self._batches, position, key=lambda kept: kept[0].resolved)
        while True:
            self._must_go_on()
            if number < self._dropped:
                detail = (
                    "The stream fell too far behind; connect again with the header Last-Event-ID."
                )
                raise ProblemError("slow-reader", detail)
            if number < self._dropped + len(self._batches):
                following = self._batches[number - self._dropped][0]
                number += 1
                if following.resolved > position:  # else the stream begins in the future
                    yield _changes_after(following, position)
                    position = following.resolved
            elif not await self._comes(pause_s):
                if (fault := self._source.fault()) is not None:
                    raise _feed_ended(fault)
                yield None

    def admit(self, since: int) -> None:
        """Refuse a stream that could not begin. Raises ProblemError: overloaded."""
        if since < self._floor:
            with self._catch_ups.enter():
                return

    async def _comes(self, pause_s: float) -> bool:
        try:
            async with self._ending.timeout(pause_s):
                await self._came.wait()
        except TimeoutError:
            return False
        return True

    async def _old(self, since: int, pause_s: float) -> AsyncGenerator[ChangeBatch | None, None]:
        with self._catch_ups.enter(), _failures_as_problems():
            async with aclosing(self._source.history(since)) as history:
                batch: ChangeBatch | None = None
                while batch is None or batch.resolved < self._floor:
                    task = asyncio.ensure_future(anext(history))
                    try:
                        while not await self._done(task, pause_s):
                            self._must_go_on()
                            yield None
                    finally:
                        task.cancel()
                        await asyncio.wait([task])
                    batch = task.result()
                    self._must_go_on()
                    yield batch

    async def _done(self, task: asyncio.Future[ChangeBatch], pause_s: float) -> bool:
        with suppress(TimeoutError):
            async with self._ending.timeout(pause_s):
                await asyncio.wait([task])
        return task.done()

    def _must_go_on(self) -> None:
        """Refuse to go on when the facade ends. Raises ProblemError: not-ready."""
        if self._ending.begun:
            raise _feed_ended("The facade ends")


def _changes_after(batch: ChangeBatch, position: int) -> ChangeBatch:
    if not batch.changes or batch.changes[0].seq > position:
        return batch
    return ChangeBatch(
        batch.resolved, tuple(event for event in batch.changes if event.seq > position)
    )


@contextmanager
def _failures_as_problems() -> Iterator[None]:
    """Raise the failures of a reader of old changes as problems, which streams end with."""
    try:
        yield
    except KafkaUnavailableError as error:
        raise ProblemError(
            "log-unavailable", f"{log_failure_text(error)}.", retry_after_s=_RETRY_AFTER_S
        ) from error
    except RecordError as error:  # its text shows nothing of the record
        raise _feed_ended(f"The changes cannot be followed: {error}") from error


def _feed_ended(fault: str) -> ProblemError:
    detail = f"{fault.rstrip('.')}. Connect again with the header Last-Event-ID."
    return ProblemError("not-ready", detail, retry_after_s=_RETRY_AFTER_S)


_NULL = b"null"


class _Values(msgspec.Struct):
    before: msgspec.Raw
    after: msgspec.Raw


_decode_values = msgspec.json.Decoder(_Values).decode


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """The changes that one stream wants: of a range of keys, by checks of their values.

    ``after``: a check of the value that was written, and of its version; ``before``: of the value
    that was there; None: any.
    """

    keys: ScanRange = ALL_KEYS
    after: Transaction | None = None
    before: Transaction | None = None

    def takes(self, event: ChangeEvent) -> bool:
        if not self.keys.has(event.key):
            return False
        if self.after is None and self.before is None:
            return True
        values = _decode_values(event.data)
        after = _value(values.after)
        seq = 0 if after is None else event.seq
        return _holds(self.after, after, seq) and _holds(self.before, _value(values.before), 0)


def change_filter(keys: ScanRange, where: str | None, was: str | None) -> ChangeFilter:
    """The wish that parameters express. Raises ProblemError: invalid-parameter."""
    for name, text in keys.texts().items():
        if len(text.encode()) > KEY_BYTES_MAX:
            detail = f"{name} has at most {KEY_BYTES_MAX} bytes of UTF-8."
            raise ProblemError("invalid-parameter", detail, parameters=[name])
    return ChangeFilter(keys, _check("where", where), _check("where_before", was))


def _check(name: str, text: str | None) -> Transaction | None:
    """Return a transaction with this check alone. A check of the value before takes no version,
    because a change does not tell that.
    """
    if text is None:
        return None
    versioned = name == "where"
    try:
        check = condition(msgspec.json.decode(text), versioned=versioned)
    except UNREADABLE:
        check = None
    if check is None:
        detail = condition_form(name, versioned=versioned)
        raise ProblemError("invalid-parameter", detail, parameters=[name])
    return check


def _value(raw: msgspec.Raw) -> bytes | None:
    value = bytes(raw)
    return None if value == _NULL else value


def _holds(check: Transaction | None, value: bytes | None, version: int) -> bool:
    return check is None or not failed_checks(check, lambda _: (value, version))
