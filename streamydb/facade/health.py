"""Find out what a facade can serve now: reads, reads of the present, writes, the change feed.

A record that lies in the log and has no result waits for the pipeline; one that a read does not
show yet waits for the read model as well. How long the oldest one has waited tells whether a write
or a strong read would be answered in time, wherever pipeline and read model run. An idle log tells
nothing; then the status file does, of a pipeline that runs on this machine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from traceback import format_tb
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from streamydb.errors import StreamyError
from streamydb.facade.ports import ChangeSource, ModelPosition, ReadModel, TransactionLog
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.waiting import SingleFlight
from streamydb.local.folder import PipelineStatus

Kind: TypeAlias = Literal["reads", "strong", "writes", "changes"]

_KEPT_S: Final = 1.0
"""How long a look at the log counts: whoever may ask anonymously must not keep Kafka busy."""
_PATIENCE_S: Final = 0.5
"""How long an answer waits for a look, as probes wait for a second only."""
_SILENT_S: Final = 5.0
"""After which time without an answer Kafka counts as silent."""
_MOMENT_MS: Final = 1_000
_SILENT: Final = "Kafka does not answer"
_LOG: Final = logging.getLogger("streamydb.facade")


class Health(msgspec.Struct, kw_only=True):
    """The answer of `/health/ready`."""

    status: Literal["ready", "degraded"]
    reads: bool
    """Reads of a snapshot (`consistency=snapshot`, `at`)."""
    strong: bool
    """Reads of the present."""
    writes: bool
    changes: bool
    """Event streams."""
    seq: int | None
    """The seq that reads show."""
    ts_ms: int | None
    """Its commit time."""
    age_s: float | None
    """Reads show the state of so many seconds ago, or a newer one; 0: the present one."""
    waiting_s: float | None
    """The oldest record without a result has waited so long; None: Kafka does not answer."""
    why: list[str]
    """The faults."""

    def brief(self) -> Health:
        """Return what is served, without the state and the faults."""
        return msgspec.structs.replace(
            self, seq=None, ts_ms=None, age_s=None, waiting_s=None, why=[]
        )

    def serves(self, kind: Kind) -> bool:
        return bool(getattr(self, kind))


class _LogFindings(NamedTuple):
    """The finding of a look at the log.

    Attributes:
        fault: why the log cannot be used.
        unseen_s: for how long the oldest record waits that reads do not show.
        undecided_s: the same of the oldest record without a result.
        status: what the pipeline says of itself; None: that is not to be seen here.
    """

    fault: str | None
    unseen_s: float
    undecided_s: float
    status: PipelineStatus | None


class HealthMonitor:
    """Looks at the parts of a facade when somebody asks; one look at a time."""

    def __init__(
        self,
        model: ReadModel,
        log: TransactionLog,
        changes: ChangeSource,
        settings: FacadeSettings,
        passed: Callable[[], bool],
        pipeline: Callable[[], PipelineStatus] | None = None,
    ) -> None:
        self._model = model
        self._log = log
        self._ends = SingleFlight(log.ends)
        self._changes = changes
        self._pipeline = pipeline
        self._passed = passed
        self._late_s = settings.verdict_timeout_s / 2
        self._found = _LogFindings(None, 0.0, 0.0, None)
        self._whole_ms: float | None = None
        self._began_s = 0.0
        self._look: asyncio.Task[None] | None = None

    async def report(self) -> Health:
        """Return what can be served now, or could a second ago."""
        await self._refresh()
        latest, findings = self._latest(), self._found
        unread = None if latest else "the read model cannot be read"
        away, stopped, waits = self._log_fault(), self._pipeline_fault(), None
        late = findings.undecided_s > self._late_s
        behind = findings.unseen_s > self._late_s
        if late:
            waits = f"records have waited {findings.undecided_s:.0f} s for the pipeline"
        elif behind:
            waits = f"the read model is {findings.unseen_s:.0f} s behind the pipeline"
        hidden = not latest or latest.seq < self._log.decided().seq or not self._passed()
        feed = self._changes.fault() or self._changes.streams.fault()
        why = [fault for fault in (unread, away, stopped, waits, feed) if fault]
        return Health(
            status="degraded" if why else "ready",
            reads=not unread,
            strong=not (unread or away or (behind and hidden)),
            writes=not (away or stopped or late),
            changes=not feed,
            seq=latest.seq if latest else None,
            ts_ms=latest.ts_ms if latest else None,
            age_s=self._age_s(latest) if latest else None,
            waiting_s=None if away else round(findings.undecided_s, 3),
            why=list(dict.fromkeys(why)),
        )

    async def _refresh(self) -> None:
        """Look, unless that was done just now; wait a little for what the look finds."""
        now_s = time.monotonic()
        if self._look is None or (self._look.done() and now_s - self._began_s > _KEPT_S):
            self._look, self._began_s = asyncio.create_task(self._look_around()), now_s
        await asyncio.wait([self._look], timeout=_PATIENCE_S)

    async def _look_around(self) -> None:
        """Ask the pipeline and the log; what was found before does not outlive a failure."""
        try:
            await self._ask_all()
        except Exception as error:  # noqa: BLE001 - whatever it is: nothing is known then
            name, frames = type(error).__name__, "".join(format_tb(error.__traceback__))
            _LOG.error("a look at the log failed with %s\n%s", name, frames)  # no values
            self._found = self._found._replace(fault=f"the log cannot be looked at ({name})")

    async def _ask_all(self) -> None:
        status = await asyncio.to_thread(self._status)
        latest, decided = self._latest(), self._log.decided()
        shown_ms = latest.ts_ms if latest else 0
        try:
            ends = await self._ends.look()
            if latest:
                shown = {n: latest.offsets.get(n, 0) for n in ends}
                done = {n: max(at, decided.offsets.get(n, 0)) for n, at in shown.items()}
            else:  # what nothing is known of does not wait
                shown = dict(ends)
                done = {n: decided.offsets.get(n, end) for n, end in ends.items()}
            unseen_s = undecided_s = await self._oldest_s(shown, ends, shown_ms)
            if done != shown:
                undecided_s = await self._oldest_s(done, ends, max(shown_ms, decided.ts_ms))
        except StreamyError:
            self._found = self._found._replace(fault=_SILENT, status=status)
            return
        self._found = _LogFindings(None, unseen_s, undecided_s, status)
        self._whole_ms = self._log.time_ms() - 1000 * unseen_s

    def _status(self) -> PipelineStatus | None:
        try:
            status = None if self._pipeline is None else self._pipeline()
        except OSError:
            return None
        return status if status is not None and status.updated_ms is not None else None

    async def _oldest_s(
        self, places: Mapping[int, int], ends: Mapping[int, int], before_ms: int
    ) -> float:
        """Return for how long the oldest record at or after some places has waited; 0: none is.

        It was appended after what was committed at `before_ms`, whatever its broker's clock said.
        """
        waiting = {number: at for number, at in places.items() if at < ends[number]}
        if not waiting:
            return 0.0
        records = (await self._log.next_records(waiting)).values()
        oldest_ms = min((each.ts_ms for each in records if each.found), default=None)
        if oldest_ms is None:
            return 0.0
        return max(0, self._log.time_ms() - max(oldest_ms, before_ms)) / 1000

    def _latest(self) -> ModelPosition | None:
        try:
            return self._model.latest()
        except StreamyError:
            return None

    def _looking(self) -> bool:
        return self._look is not None and not self._look.done()

    def _log_fault(self) -> str | None:
        silent = self._looking() and time.monotonic() - self._began_s > _SILENT_S
        return self._log.fault() or (_SILENT if silent else self._found.fault)

    def _pipeline_fault(self) -> str | None:
        """Return why nothing is executed, if the pipeline's status says so and no result since.

        A result that is newer than the status is of a pipeline elsewhere, which leads now.
        """
        status = self._found.status
        if status is None or status.state == "running":
            return None
        if self._log.decided().ts_ms > (status.updated_ms or 0) + _MOMENT_MS:
            return None
        return f"the pipeline is {status.state}"

    def _age_s(self, latest: ModelPosition) -> float:
        """Return how old the state is at most that reads show.

        Under load a look takes seconds. Until it ends, nobody knows whether reads show all by now.
        They show all of before the last commit that they show, and of before the look before.
        """
        if self._log_fault() is None and not self._looking():
            return round(self._found.unseen_s, 3)
        since_ms = max(latest.ts_ms, self._whole_ms or 0)
        return round(max(0.0, self._log.time_ms() - since_ms) / 1000, 3)
