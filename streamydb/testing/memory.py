"""A database in memory behind the facade's ports, for tests: the serial oracle executes it.

    database = MemoryDatabase()
    app = create_app(database.model, database.log, database.changes)

Each stage can be stopped, to see what clients see then: `executing` (no verdicts), `resolving` (the
read model stays behind), and the attributes of `MemoryLog`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from streamydb.facade.clocks import Clocks, LogClock
from streamydb.facade.feed import change_event
from streamydb.facade.ports import ChangeBatch, LogPosition, NoResult, ResultsEnd
from streamydb.facade.result_batch import position_of
from streamydb.facade.results import REFUSED_COPIES, ResultIndex
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.kafka.producer import AppendUnknownError
from streamydb.kafka.receiving import NextRecord
from streamydb.limits import ID_WINDOW_DEFAULT
from streamydb.procedures.modules import MemoryModules, Modules
from streamydb.records import Change, Result, decode_change, decode_result
from streamydb.testing.memory_feed import MemoryChanges
from streamydb.testing.memory_model import MemoryModel, MemoryResolved
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.outputs import OutputRecord


class MemoryLog:
    """The log: one partition.

    Attributes:
        refusing: appends and looks at the end fail.
        unknowing: appends succeed and nobody is told.
        stalled: if set, appends and looks wait until the event is set.
        forgetful: results are found by searching only.
        controls: offsets of records that are none of ours, as Kafka's transactions leave them.
        stamps: when the record at an offset was appended (ms).
        asks: how often somebody asked what was published.
        looks: how often the end was asked for.
        gaps: how often the next record was asked for.
        searches: how often results were searched for.
        clock: the clocks as a facade knows them; the database's own is the broker's.
    """

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self.refusing = self.unknowing = self.forgetful = False
        self.stalled: asyncio.Event | None = None
        self.asks = self.looks = self.searches = self.gaps = 0
        self.running = False
        self.records: list[bytes] = []
        self.stamps: dict[int, int] = {}
        self.controls: set[int] = set()
        self.headers: list[dict[str, bytes]] = []
        self.results: list[Result] = []
        self.index = ResultIndex(1 << 24)
        self.clock = LogClock(self._broker_ms)

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False

    async def append(
        self,
        txn_id: str,  # noqa: ARG002 - the port
        payload: bytes,
        headers: Mapping[str, bytes] | None = None,
    ) -> LogPosition:
        """Append a record and, unless that is stopped, execute it."""
        sent_ms = self.clock.local_ms()
        await self._pass()
        self.records.append(payload)
        self.headers.append(dict(headers or {}))
        position = LogPosition(0, len(self.records) - 1)
        stamp_ms = self._database.clock()
        self.stamps[position.offset] = max(self._database.now_ms, stamp_ms)
        self.clock.appended(stamp_ms, sent_ms)
        self._database.run()
        if self.unknowing:
            raise AppendUnknownError("no answer")
        return position

    async def result(self, txn_id: str, position: LogPosition) -> Result:  # noqa: ARG002 - the port
        return await self.index.wait(position)

    def recent(self, txn_id: str, position: LogPosition | None) -> Result | None:
        if self.forgetful:
            return None
        return self.index.of(txn_id) if position is None else self.index.at(position)

    async def search(self, txn_id: str, position: LogPosition | None) -> Result | NoResult:
        self.searches += 1
        refused = None
        for result in self.results:
            if (position_of(result) == position) if position else (result.id == txn_id):
                if position or result.code not in REFUSED_COPIES:
                    return result
                refused = refused or result
        return refused or NoResult(complete=True, since_ms=None)

    async def ends(self) -> Mapping[int, int]:
        self.looks += 1
        await self._pass()
        return {0: len(self.records)}

    async def published(self) -> int:
        self.asks += 1
        await self._pass()
        return self.decided().seq

    async def next_records(self, places: Mapping[int, int]) -> Mapping[int, NextRecord]:
        self.gaps += 1
        await self._pass()
        end = len(self.records)
        at = min(set(range(places[0], end)) - self.controls, default=end)
        stamp = self.stamps.get(at, self._database.now_ms)
        return {0: NextRecord(at, at < end, stamp, self.records[at] if at < end else b"")}

    def end_transaction(self) -> None:
        """Append what the end of a Kafka transaction leaves: an offset without a record."""
        self.controls.add(len(self.records))
        self.records.append(b"")

    def time_ms(self) -> int:
        return self.clock.now_ms()

    def clocks(self) -> Clocks:
        return self.clock.clocks()

    def counts(self) -> Mapping[tuple[str, str], int]:
        return self.index.counts

    def decided(self) -> ResultsEnd:
        return self.index.decided()

    def fault(self) -> str | None:
        return "Kafka does not answer" if self.refusing else None

    def _broker_ms(self) -> int:
        return self._database.clock()

    async def _pass(self) -> None:
        if self.stalled is not None:
            await self.stalled.wait()
        if self.refusing:
            raise KafkaUnavailableError("the log is down")


class MemoryDatabase:
    """A log, what the oracle makes of it, and a read model of that.

    Attributes:
        executing: whether records are executed as they are appended.
        resolving: whether the read model follows.
        modules: where the code of stored procedures is, unless others were given.
        clock: the time of day (ms); commit times follow it, and never go back.
        now_ms: the last commit time.
    """

    def __init__(
        self, *, modules: Modules | None = None, id_window: int = ID_WINDOW_DEFAULT
    ) -> None:
        """Begin empty; code may come from other ``modules``, ids are remembered for ``id_window``
        seqs.
        """
        self.executing = self.resolving = True
        self.model = MemoryModel()
        self.log = MemoryLog(self)
        self.changes = MemoryChanges()
        self.modules = MemoryModules()
        self._oracle = Oracle(
            "memory", id_window, modules=self.modules if modules is None else modules
        )
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        self.now_ms = 0
        self._executed = self._covered = 0
        self._unresolved: list[tuple[str, Change]] = []

    def tick_by_record(self, start_ms: int) -> None:
        """From now on a millisecond passes with each record, and at no other time."""
        self.now_ms = start_ms - 1
        self.clock = lambda: self.now_ms + 1

    def run(self) -> None:
        """Let every stage that is not stopped do its work."""
        if self.executing:
            self.execute()
        if self.resolving and not self.model.broken:
            self.resolve()

    def execute(self) -> None:
        """Execute what has been appended; the results are seen."""
        while self._executed < len(self.log.records):
            offset = self._executed
            self._executed += 1
            if offset in self.log.controls:
                continue
            self.now_ms = max(self.now_ms, self.clock())
            for record in self._oracle.apply(self.log.records[offset], 0, offset, self.now_ms):
                self._take(record)
            self._covered = offset + 1

    def resolve(self) -> None:
        """Let the read model and the feed show what has been executed."""
        seq = self._oracle.next_seq - 1
        if seq == self.model.latest().seq:
            return
        changes, self._unresolved = self._unresolved, []
        resolved = MemoryResolved(seq, self.now_ms, {0: self._covered})
        self.model.apply(changes, resolved)
        events = sorted(change_event(key.encode(), change) for key, change in changes)
        self.changes.put(ChangeBatch(seq, tuple(events)))

    def _take(self, record: OutputRecord) -> None:
        """Take an output of the oracle."""
        if record.topic == "results" and record.value is not None:
            result = decode_result(record.value)
            self.log.index.add(result, record.value)
            self.log.clock.decided(result.ts_ms)
            self.log.results.append(result)
        elif record.topic == "streams":
            self.changes.streams.put(record.key or b"", record.value or b"")
        elif record.topic == "transactions" and record.value is not None:
            self.log.records.append(record.value)
        elif record.topic == "changes" and record.value is not None:
            change = decode_change(record.value)
            if isinstance(change, Change):
                self._unresolved.append(((record.key or b"").decode(), change))
