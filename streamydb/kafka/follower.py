"""Follow a topic from given offsets in a thread, for a coroutine."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Any, Final, Generic, TypeVar

import numpy as np
from confluent_kafka import KafkaError, KafkaException

from streamydb.errors import RecordError
from streamydb.kafka.changes import HOPELESS
from streamydb.kafka.clients import FOLLOWING, KafkaAdministrator, administrator, column_reader
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.errors import LogFaultError, ReadFailure
from streamydb.settings import Settings

_HANDED_MAX: Final = 4  # batches that wait until the event loop takes them
_ROOM_S: Final = 0.25
_STEPS_MIN: Final = 4
"""Of a turn: a millisecond of requests. With fewer the event loop turns more than it works."""

_Rows = TypeVar("_Rows")


class LoopTaker(Generic[_Rows]):
    """Takes rows in the event loop, in the order in which a thread hands them over.

    ``take``: called in the event loop, a few batches later at most. If it makes a generator, the
    loop goes through it step by step and does other work between: see `_StepBudget`.

    Attributes:
        positions: up to where records were read and prepared, as the event loop knows it.
        failed: what has ended the taking or the reading; None while they go on.
    """

    def __init__(
        self, starts: Mapping[int, int], take: Callable[[_Rows], Iterator[None] | None]
    ) -> None:
        """Nothing is handed over yet; call it in the event loop."""
        self.positions = dict(starts)
        self.failed: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._handed: deque[_Rows] = deque()
        self._room = threading.Semaphore(_HANDED_MAX)
        self._taking = False
        self._moved = asyncio.Event()

    async def passed(self, ends: Mapping[int, int], obstacle: Callable[[], str | None]) -> None:
        """Wait until the positions have reached the ends; call it in the event loop.

        ``obstacle``: tells why nothing is read, any more or now.
        Raises LogFaultError: there is an obstacle.
        """
        while any(self.positions[number] < end for number, end in ends.items()):
            if (reason := obstacle()) is not None:
                raise LogFaultError(reason)
            await self._moved.wait()

    def reach(self, positions: Mapping[int, int]) -> None:
        """Have the event loop note how far was read; none: those who wait look for obstacles."""
        self._call(self._reach, positions)

    def hand_over(
        self, rows: _Rows, reached: Mapping[int, int], is_stopped: Callable[[], bool]
    ) -> None:
        """Have the event loop take rows; wait while much of what came before is not taken."""
        while not self._room.acquire(timeout=_ROOM_S):
            if is_stopped():
                return
        self._call(self._take_over, rows, reached)

    def _take_over(self, rows: _Rows, reached: Mapping[int, int]) -> None:
        """Note how far was read, and take the rows after those that are under way.

        The event loop calls it.
        """
        self._reach(reached)
        self._handed.append(rows)
        if not self._taking:
            self._take_next()

    def _reach(self, positions: Mapping[int, int]) -> None:
        """Note how far was read and prepared; called in the event loop."""
        self.positions.update(positions)
        self._moved.set()
        self._moved = asyncio.Event()

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody needs it
            self._loop.call_soon_threadsafe(function, *args)

    def _take_next(self) -> None:
        self._taking = bool(self._handed)
        if self._taking:
            self._turn(_StepBudget(), self._handed.popleft(), None)

    def _turn(self, pace: _StepBudget, rows: _Rows, steps: Iterator[None] | None) -> None:
        """Take some steps through the rows."""
        try:
            if steps is None:
                steps = self._take(rows) or iter(())
            count = pace.begin()
            self._loop.call_soon(pace.mark)
            for _ in range(count):
                next(steps)
            pace.end()
            self._loop.call_soon(self._turn, pace, rows, steps)
        except StopIteration:
            self._room.release()
            self._loop.call_soon(self._take_next)
        except Exception as error:  # noqa: BLE001 - the thread tells
            self.failed = error
            self._room.release()


class _StepBudget:
    """Gives steps, with the tasks that they schedule, as much time as other work took.

    So nothing waits for all the steps, and nothing starves them. The tasks that the steps schedule
    run between the mark and the next turn, because all three are in the loop's queue in this order.
    """

    def __init__(self) -> None:
        """Nothing is known, so the first turn has few steps."""
        self._count = _STEPS_MIN
        self._begun = self._marked = self._ended = 0.0

    def begin(self) -> int:
        now = perf_counter()
        if self._ended:
            spent = self._ended - self._begun + now - self._marked
            others = self._marked - self._ended
            self._count = max(_STEPS_MIN, int(others * self._count / max(spent, 1e-9)))
        self._begun = now
        return self._count

    def mark(self) -> None:
        """Note that the tasks which the steps of the turn have scheduled begin to run."""
        self._marked = perf_counter()

    def end(self) -> None:
        self._ended = perf_counter()


_POLL_S: Final = 0.25
_PROBE_S: Final = 1.0
_GROWTH_S: Final = 30.0  # how often the number of partitions is looked at
_BATCH: Final = 20_000
"""Few large batches: the thread gets the interpreter's lock slowly beside a busy event loop."""
_ALL_BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - Confluent's spelling
_NO_RIGHT: Final = "; grant the facade the rights of its role (`streamydb acls`)"
_LOG: Final = logging.getLogger(__name__)


class TopicFollower(Generic[_Rows]):
    """Reads a topic in a thread of its own until closed.

    Partitions that the topic is given later are read from their beginning, half a minute after they
    came at the latest. While a partition cannot be read (a right was taken away, the topic is
    gone), that is a fault; it goes on when it can be read again.

    ``starts``: where to begin in each partition. ``prepare``: makes of records what `take` gets;
    called in the thread. `passed` waits for it. ``take``: called in the event loop, a few batches
    later at most. If it makes a generator, the loop goes through it step by step and does other
    work between.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        starts: Mapping[int, int],
        prepare: Callable[[RecordColumns], _Rows],
        take: Callable[[_Rows], Iterator[None] | None],
    ) -> None:
        """Begin to read; call it in the event loop."""
        self._topic = topic
        self._prepare = prepare
        self._taker = LoopTaker(starts, take)
        self._stop = threading.Event()
        self._reached = dict(starts)  # up to where the thread has read
        self._counted_s = self._asked_s = monotonic()
        self._unreadable: dict[int, KafkaError] = {}
        self._refusal: str | None = None
        self.fault: str | None = None
        self._connection = settings.client_config()
        self._admin: KafkaAdministrator | None = None
        self._reader = column_reader(self._connection, FOLLOWING, eof=True, on_error=self._note)
        self._reader.assign(topic, starts)
        self._thread = threading.Thread(target=self._run, name=f"tail-{topic}", daemon=True)
        self._thread.start()

    async def passed(self, ends: Mapping[int, int]) -> None:
        """Wait until `prepare` has had all records before the ends; call it in the event loop.
        Raises LogFaultError: nothing is read any more, or not now.
        """
        await self._taker.passed(ends, self.obstacle)

    def obstacle(self) -> str | None:
        """Return why no records come, if that is not only because Kafka does not answer."""
        failed = self._taker.failed
        return self._refusal if failed is None else self._told(failed)

    def failed(self) -> bool:
        """Return True if nothing is read any more, whatever Kafka does."""
        return self._taker.failed is not None

    def partitions(self) -> tuple[int, ...]:
        """The partitions that are read; call it in the event loop."""
        return tuple(self._taker.positions)

    def close(self) -> None:
        """End, and wait for the end; not to be called in the event loop."""
        self._stop.set()
        self._thread.join()
        self._reader.close()

    def _run(self) -> None:
        """Read until closed; a fault that is not Kafka's ends the reading and stays visible."""
        try:
            while not (self.failed() or self._stop.is_set()):
                self._read_some()
        except BaseException as error:  # noqa: BLE001 - the fault tells, whatever ends the thread
            self._taker.failed = error
        if self.failed():
            self.fault = self.obstacle()
            self._taker.reach({})  # nobody waits on for what is not read

    def _read_some(self) -> None:
        """Read what is there, or wait for it, and hand it over."""
        records, failures = self._reader.take(_BATCH, _POLL_S)
        ends = (records.offsets + 1).tolist()
        reached = dict(zip(records.partitions.tolist(), ends, strict=True))
        for failure in failures:
            if failure.is_end:  # records of this batch may lie behind it
                number = failure.partition
                reached[number] = max(reached.get(number, 0), failure.offset)
        self._must_go_on(records, reached)
        self._judge(reached, failures)
        if self.fault is not None:
            self._probe()
        self._reached |= reached
        if len(records):
            self._taker.hand_over(self._prepare(records), reached, self._stop.is_set)
        elif reached:
            self._taker.reach(reached)
        if self._refusal is not None:
            if monotonic() - self._asked_s > _PROBE_S:
                self._asked_s = monotonic()  # the library tells an error once, and an end likewise
                with suppress(KafkaException):
                    self._reader.assign(self._topic, self._reached)
        elif monotonic() - self._counted_s > _GROWTH_S:
            self._read_new()

    def _must_go_on(self, records: RecordColumns, reached: Mapping[int, int]) -> None:
        """Refuse records before the position that was reached: what was read is no more then."""
        before = np.array([self._reached.get(n, 0) for n in range(max(reached, default=-1) + 1)])
        if (records.offsets < before[records.partitions]).any() or any(
            end < before[number] for number, end in reached.items()
        ):
            raise LogFaultError(
                "it was made anew, or has lost its end; start again what reads it, the facade"
            )

    def _judge(self, readable: Collection[int], failures: list[ReadFailure]) -> None:
        """Note which partitions cannot be read; a record or an end shows that one can."""
        lost = {n: error for error, n, _ in failures if error.code() in HOPELESS}
        known = self._unreadable.items()
        still_unreadable = {
            n: error for n, error in known if n not in readable and (n >= 0 or not readable)
        }
        self._unreadable = {**still_unreadable, **lost}
        why = next(iter(self._unreadable.values()), None)
        refusal = None if why is None else self._refused(why)
        if refusal != self._refusal:
            _LOG.warning("%s", refusal or f"{self._topic} can be read again")
            self._refusal = self.fault = refusal
            self._taker.reach({})  # nobody waits on for what is not read

    def _refused(self, error: KafkaError) -> str:
        """The fault that an error is: in the library's own words, which name no address."""
        right = _NO_RIGHT if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED else ""
        return f"{self._topic} cannot be read ({KafkaError(error.code()).str()}){right}"

    def _told(self, failed: BaseException) -> str:
        """The fault that an error is; the text of a `RecordError` shows nothing of the record."""
        is_for_all = isinstance(failed, RecordError | LogFaultError)
        detail = f": {failed}" if is_for_all else f" ({type(failed).__name__})"
        return f"{self._topic} cannot be followed{detail}"

    def _note(self, error: KafkaError) -> None:
        if error.code() == _ALL_BROKERS_DOWN:
            self.fault = "Kafka does not answer"

    def _probe(self) -> None:
        with suppress(KafkaException):
            self._partitions_now()
            self.fault = self._refusal

    def _read_new(self) -> None:
        """Also read the partitions that the topic has been given."""
        self._counted_s = monotonic()
        with suppress(KafkaException):
            if new := self._partitions_now() - self._reached.keys():
                self._reached |= dict.fromkeys(new, 0)
                self._reader.assign(self._topic, self._reached)
                self._taker.reach(dict.fromkeys(new, 0))

    def _partitions_now(self) -> set[int]:
        self._admin = self._admin or administrator(self._connection)
        cluster = self._admin.list_topics(self._topic, timeout=_PROBE_S)
        return set(cluster.topics[self._topic].partitions)
