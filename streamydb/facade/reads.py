"""Decide when a read may be answered: strong, session and snapshot reads of the read model.

A *strong* read is linearizable: it shows every transaction that anybody could know of before the
read came. Who knows of one has its result, or has seen it in a read model. Read models show what is
resolved, and when a seq is resolved, all results up to it are in Kafka. So the read asks how far
the results went after it arrived, and waits until the read model shows the largest seq among them.
It waits neither for records that still lie in the log, which are a micro-batch or two under load,
nor for changes of which nobody has been told.

The results of before the facade began are not all read. So once, at the beginning, the read model
has to pass the end of the log.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from streamydb.client.requests import Consistency
from streamydb.errors import StreamyError
from streamydb.facade.bounds import Limiter
from streamydb.facade.ports import ModelPosition, ModelSnapshot, ServedModel, TransactionLog
from streamydb.facade.problems import ProblemError
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.waiting import WORK_LEFT_S, Shutdown, SingleFlight, await_within, retrieve
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.limits import INTEGER_MAX


class _Gap(NamedTuple):
    """No record lies from `start` on before `stop`; ``closed``: one is known to lie at `stop`."""

    start: int
    stop: int
    closed: bool


class Coverage:
    """Finds out how far a read model has passed the log, by counting records and gaps without any.

    What a read model covers ends after a record. The log may end later: a Kafka transaction leaves
    a control record behind, which nobody executes, and whose offset nothing ever covers. So while
    somebody waits and the read model stands still, the log is asked for the next record after what
    is covered. If there is none before the end, the gap is passed, and is not looked at twice.
    """

    def __init__(self, model: ServedModel, log: TransactionLog) -> None:
        self._model = model
        self._log = log
        self._gaps: dict[int, _Gap] = {}
        self._ends: Mapping[int, int] = {}
        self._looking: asyncio.Task[bool] | None = None

    def note(self, ends: Mapping[int, int]) -> None:
        """Take note of where the log ends now; a gap that went beyond is none any more."""
        self._ends = {n: max(end, self._ends.get(n, 0)) for n, end in ends.items()} or self._ends
        gone = [n for n, gap in self._gaps.items() if gap.stop > ends.get(n, gap.stop)]
        for number in gone:
            del self._gaps[number]

    def behind(self, now: ModelPosition, ends: Mapping[int, int]) -> dict[int, int]:
        """Return, for each partition that is not passed to its end, from where on."""
        passed = {number: self._passed(number, now.offsets.get(number, 0)) for number in ends}
        return {number: at for number, at in passed.items() if at < ends[number]}

    def look(self) -> asyncio.Task[bool] | None:
        """Look for the next records, in a task of its own; None: that would tell nothing new. The
        task's result is whether a gap was found. There is one look at a time.
        """
        if self._looking is None or self._looking.done():
            unknown = self._unknown()
            self._looking = asyncio.create_task(self._look(unknown)) if unknown else None
        return self._looking

    def _unknown(self) -> dict[int, int]:
        """Return the partitions and offsets where it is not known whether a record comes next."""
        try:
            behind = self.behind(self._model.latest(), self._ends)
        except StreamyError:
            return {}
        gaps = self._gaps
        return {n: at for n, at in behind.items() if n not in gaps or gaps[n][1:] != (at, True)}

    async def _look(self, places: Mapping[int, int]) -> bool:
        """Ask the log for the next records; without an answer nothing is known."""
        try:
            found = await self._log.next_records(places)
        except StreamyError:
            return False
        grown = False
        for number, next_record in found.items():
            gap = self._gaps.get(number)
            at = places[number]
            start = gap.start if gap is not None and gap.stop == at else at
            self._gaps[number] = _Gap(start, max(at, next_record.offset), next_record.found)
            grown = grown or next_record.offset > at
        return grown

    def _passed(self, number: int, covered: int) -> int:
        gap = self._gaps.get(number)
        return gap.stop if gap is not None and gap.start <= covered <= gap.stop else covered


Reached: TypeAlias = Callable[[ModelPosition], bool]

_RETRY_AFTER_S: Final = 1

_SOONER: Final = 8
"""Who begins to wait, or has seen the read model move, looks so many times sooner; then each pause
is twice as long as the last one.
"""

_STILL_S: Final = 0.1  # how long a read model stands still before somebody finds out why

_T = TypeVar("_T")
_Mark: TypeAlias = tuple[int, Mapping[int, int]]


class ReadPoint(NamedTuple):
    """The snapshot that a read asks for: strong, unless `at` or `min_version` says otherwise."""

    at: int | None = None
    consistency: Consistency | None = None
    min_version: int | None = None


_STRONG: Final = ReadPoint()


class ReadWaiter:
    """Waits until a read model has reached something; one task looks at it for all who wait.

    ``stuck`` is called while somebody waits and the model stands still; it begins to find out
    whether they wait in vain, and returns a task that tells whether some do; None: they do not.
    """

    def __init__(
        self,
        model: ServedModel,
        poll_s: float,
        stuck: Callable[[], asyncio.Task[bool] | None] = lambda: None,
    ) -> None:
        self._model = model
        self._poll_s = poll_s
        self._stuck = stuck
        self._waiting = 0
        self._moved = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None

    async def until(self, reached: Reached) -> ModelPosition:
        """Wait, without an end; return what has been reached."""
        while not reached(latest := self._model.latest()):
            self._waiting += 1
            try:
                if self._poller is None or self._poller.done():
                    self._poller = asyncio.create_task(self._poll())
                await self._moved.wait()
            finally:
                self._waiting -= 1
        return latest

    async def _poll(self) -> None:
        """Wake those who wait whenever the read model has moved, until nobody waits."""
        seen: _Mark | None = None
        pause_s = self._poll_s / _SOONER
        still_s = 0.0
        while self._waiting:
            await asyncio.sleep(pause_s)
            mark = self._mark()
            still_s += pause_s
            if mark != seen or mark is None:  # at first too: it may have moved before this began
                pause_s = self._poll_s if mark is None else self._poll_s / _SOONER
                seen, still_s = mark, 0.0
                self._wake()
                continue
            pause_s = min(2 * pause_s, self._poll_s)
            if still_s >= _STILL_S and (finding := self._stuck()) is not None:
                finding.add_done_callback(self._found)
                still_s = 0.0

    def _found(self, finding: asyncio.Task[bool]) -> None:
        """Have those who wait look again, if some may have waited in vain."""
        if not finding.cancelled() and finding.exception() is None and finding.result():
            self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _mark(self) -> _Mark | None:
        """Return how far the read model is; None if it does not tell."""
        try:
            latest = self._model.latest()
        except StreamyError:
            return None
        return latest.seq, latest.offsets


class Reader:
    """Opens snapshots that satisfy what a read asks for."""

    def __init__(
        self,
        model: ServedModel,
        log: TransactionLog,
        settings: FacadeSettings,
        ending: Shutdown | None = None,
    ) -> None:
        self._ending = Shutdown() if ending is None else ending
        self._model = model
        self._log = log
        self._ends = SingleFlight(log.ends)
        self._begun: asyncio.Task[int] | None = None
        self.coverage = coverage = Coverage(model, log)
        self._progress = ReadWaiter(model, settings.poll_s, coverage.look)
        self._timeout_s = settings.read_timeout_s
        self.waiters = Limiter("waiting reads", settings.waiters_max)

    async def snapshot(self, point: ReadPoint = _STRONG, wait_s: float = math.inf) -> ModelSnapshot:
        """Return a snapshot; close it.
        Raises ProblemError: invalid-parameter (also for a seq that no transaction has yet),
        snapshot-gone, read-model-behind, overloaded.
        """
        at, consistency, min_version = point
        check_point(point)
        floor = max(at or 0, min_version or 0)
        strong = consistency == "strong" or (consistency is None and not floor)
        if strong or (floor and self._model.latest().seq < floor):
            name = "min_version" if at is None else "at"
            # Wait until the read model has the seq `floor` and, if `strong`, what was answered.
            # `name` is the parameter that `floor` was given by.
            timeout_s = min(wait_s, self._timeout_s)
            in_time = partial(self._ending.timeout, left_s=WORK_LEFT_S)
            with self.waiters.enter():
                try:
                    await await_within(timeout_s, self._reach(floor, name, strong=strong), in_time)
                except TimeoutError:
                    raise _behind(self._model.latest()) from None
        try:
            return self._model.snapshot(at)
        except StreamyError:
            if at is not None and at < self._model.oldest():
                raise _gone(self._model.oldest()) from None
            raise

    async def admit(self, since: int, name: str) -> None:
        """Refuse to go on after a seq that no transaction has yet: that is another database's.
        Raises ProblemError: invalid-parameter.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._must_come(since, name)

    def begin(self) -> asyncio.Task[int]:
        """Begin to wait until the read model has passed the end of the log; that is done once. The
        task's result is a seq that shows all that was answered before. A wait that has failed is
        begun again.
        """
        begun = self._begun
        if begun is None or (begun.done() and not self.passed()):
            self._begun = begun = asyncio.create_task(self._pass_log())
            begun.add_done_callback(retrieve)
        return begun

    def passed(self) -> bool:
        """Return True if the log is passed, so that strong reads do not wait for it."""
        begun = self._begun
        return (
            begun is not None
            and begun.done()
            and not begun.cancelled()
            and (begun.exception() is None)
        )

    async def stop(self) -> None:
        if self._begun is not None:
            self._begun.cancel()
            await asyncio.wait([self._begun])

    async def _reach(self, floor: int, name: str, *, strong: bool) -> None:
        await self._must_come(floor, name)
        least = max(floor, await self._known()) if strong else floor
        await self._progress.until(lambda now: now.seq >= least)

    async def _known(self) -> int:
        return max(await self._log.published(), await asyncio.shield(self.begin()))

    async def _pass_log(self) -> int:
        """Wait until the read model has passed the end of the log; return the seq that it shows."""
        ends = await self._ends.look()
        self.coverage.note(ends)
        behind = self.coverage.behind
        return (await self._progress.until(lambda now: not behind(now, ends))).seq

    async def _must_come(self, floor: int, name: str) -> None:
        """Refuse a seq above all that the records in the log can get; each gets one at most.
        Without an answer of Kafka nothing is known, nor before the first transaction is shown.
        Raises ProblemError: invalid-parameter.
        """
        if floor <= self._log.decided().seq:
            return
        latest = self._model.latest()
        try:
            ends = await self._ends.look()
        except KafkaUnavailableError:
            return
        to_come = sum(max(0, end - latest.offsets.get(n, 0)) for n, end in ends.items())
        if latest.seq > 0 and latest.seq + to_come < floor:
            raise ProblemError(
                "invalid-parameter",
                f"No transaction has seq {floor} yet: reads show seq {latest.seq}, and the log "
                f"has {to_come} records after it.",
                parameters=[name],
                latest=latest.seq,
            )


async def in_thread(function: Callable[..., _T], *args: Any, of: Executor | None = None) -> _T:
    """Run a function that may take long in a thread; if cancelled, however often, wait for its end
    first: the caller closes what it reads. ``of`` has the threads; by default those of the event
    loop, which all reads share. They are few, so what waits for Kafka must not hold them.
    """
    # No task: the end of a loop cancels all tasks, and then one is done while its thread works on.
    work = partial(contextvars.copy_context().run, function, *args)
    ending = asyncio.get_running_loop().run_in_executor(of, work)
    try:
        return await asyncio.shield(ending)
    finally:
        while not ending.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([ending])


def check_seqs(**given: int | None) -> None:
    """Refuse what is no seq in a body. Raises ProblemError: invalid-parameter."""
    names = [n for n, seq in given.items() if seq is not None and not 1 <= seq <= INTEGER_MAX]
    if names:
        detail = f"{' and '.join(names)}: a seq is an integer from 1 on."
        raise ProblemError("invalid-parameter", detail, parameters=names)


def check_point(point: ReadPoint) -> None:
    """Refuse parameters that contradict each other. Raises ProblemError: invalid-parameter."""
    at, consistency, min_version = point
    if at is not None and consistency not in {None, "snapshot"}:
        raise ProblemError("invalid-parameter", "`at` fixes the snapshot: leave out `consistency`.")
    if at is not None and min_version is not None and min_version > at:
        raise ProblemError("invalid-parameter", "`min_version` is above `at`.")
    if consistency == "session" and min_version is None:
        raise ProblemError("invalid-parameter", "consistency=session needs `min_version`.")


def _gone(oldest: int) -> ProblemError:
    return ProblemError("snapshot-gone", f"The oldest snapshot is at seq {oldest}.", oldest=oldest)


def _behind(latest: ModelPosition) -> ProblemError:
    return ProblemError(
        "read-model-behind",
        "The read model has not come so far in the time allowed; ask again, or read the snapshot "
        f"of seq {latest.seq} with consistency=snapshot. /health/ready tells how old it is.",
        retry_after_s=_RETRY_AFTER_S,
        latest=latest.seq,
    )
