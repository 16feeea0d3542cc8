"""A database in memory behind the facade's ports, for tests: the serial oracle executes it.

    database = MemoryDatabase()
    app = create_app(database.model, database.log, database.changes)

Each stage can be stopped, to see what clients see then: `executing` (no verdicts), `resolving` (the
read model stays behind), and the attributes of `MemoryLog`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from streamydb.errors import StreamyError
from streamydb.facade.feed import change_event
from streamydb.facade.feed_ports import ChangeBatch, ChangeEvent, PageBounds, StreamRow, StreamSpan
from streamydb.facade.ports import (
    AppendUnknownError,
    LogPosition,
    LogUnavailableError,
    Missing,
    NextRecord,
)
from streamydb.facade.results import REFUSED_COPIES, ResultIndex, position_of
from streamydb.facade.stream_pages import fresh
from streamydb.limits import ID_WINDOW_DEFAULT
from streamydb.procedures.modules import MemoryModules, Modules
from streamydb.records import Change, Result, decode_change, decode_result
from streamydb.verify.oracle.core import Oracle, OutputRecord

__all__ = [
    "MemoryChanges",
    "MemoryDatabase",
    "MemoryEntry",
    "MemoryLog",
    "MemoryModel",
    "MemoryResolved",
    "MemorySnapshot",
    "MemoryStreams",
]


class MemoryEntry(NamedTuple):
    """A key's value at a version; None: deleted."""

    key: str
    value: bytes
    version: int
    ts_ms: int


class MemoryResolved(NamedTuple):
    """The position of a read model."""

    seq: int
    ts_ms: int
    offsets: Mapping[int, int]


class MemorySnapshot:
    """The state after a seq."""

    def __init__(self, seq: int, entries: dict[str, MemoryEntry]) -> None:
        """Show these entries."""
        self.seq = seq
        self.ts_ms = max((entry.ts_ms for entry in entries.values()), default=0)
        self._entries = entries

    def get(self, key: str) -> MemoryEntry | None:
        """Return a key's entry."""
        return self._entries.get(key)

    def get_many(self, keys: Sequence[str]) -> list[MemoryEntry | None]:
        """Return the entries of several keys."""
        return [self._entries.get(key) for key in keys]

    def scan(
        self,
        *,
        prefix: str = "",
        start: str | None = None,
        end: str | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> list[MemoryEntry]:
        """Return entries in key order."""
        keys = sorted(self._entries, key=str.encode)
        found = [
            self._entries[key]
            for key in keys
            if key.startswith(prefix)
            and (start is None or key.encode() >= start.encode())
            and (end is None or key.encode() < end.encode())
            and (after is None or key.encode() > after.encode())
        ]
        return found[:limit]

    def __enter__(self) -> Self:
        """Return the snapshot itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Nothing is held."""


class MemoryModel:
    """The read model: every state that was ever resolved.

    Attributes:
        gone: states before this seq are not kept.
        broken: it cannot be read.
        looks: how often somebody asked how far it is.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.gone = 0
        self.broken = False
        self.looks = 0
        self._resolved = MemoryResolved(0, 0, {})
        self._history: dict[str, list[tuple[int, bytes | None, int]]] = {}

    def latest(self) -> MemoryResolved:
        """Return how far it is."""
        if self.broken:
            raise StreamyError("the read model is broken")
        self.looks += 1
        return self._resolved

    def oldest(self) -> int:
        """Return the smallest seq that is kept."""
        return self.gone

    def snapshot(self, at: int | None = None) -> MemorySnapshot:
        """Return the state at a seq."""
        seq = self._resolved.seq if at is None else at
        if not self.gone <= seq <= self._resolved.seq:
            raise StreamyError(f"no snapshot at {seq}")
        return MemorySnapshot(seq, {e.key: e for k in self._history if (e := self._at(k, seq))})

    def apply(self, changes: Sequence[tuple[str, Change]], resolved: MemoryResolved) -> None:
        """Take in changes, and show them."""
        for key, change in changes:
            after = None if change.op == "d" else bytes(change.after)
            self._history.setdefault(key, []).append((change.source.seq, after, change.ts_ms))
        self._resolved = resolved

    def _at(self, key: str, seq: int) -> MemoryEntry | None:
        past = [version for version in self._history[key] if version[0] <= seq]
        if not past or past[-1][1] is None:
            return None
        return MemoryEntry(key, past[-1][1], past[-1][0], past[-1][2])


class MemoryLog:
    """The log: one partition.

    Attributes:
        refusing: appends and looks at the end fail.
        unknowing: appends succeed and nobody is told.
        stalled: if set, appends and looks wait until the event is set.
        forgetful: results are found by searching only.
        controls: offsets of records that are none of ours, as Kafka's transactions leave them.
        looks: how often the end was asked for.
        gaps: how often the next record was asked for.
        searches: how often results were searched for.
    """

    def __init__(self, database: MemoryDatabase) -> None:
        """Append to `database`."""
        self._database = database
        self.refusing = self.unknowing = self.forgetful = False
        self.stalled: asyncio.Event | None = None
        self.looks = self.searches = self.gaps = 0
        self.running = False
        self.records: list[bytes] = []
        self.controls: set[int] = set()
        self.headers: list[dict[str, bytes]] = []
        self.results: list[Result] = []
        self.index = ResultIndex(1 << 24)

    async def start(self) -> None:
        """Connect."""
        self.running = True

    async def stop(self) -> None:
        """End."""
        self.running = False

    async def append(
        self,
        txn_id: str,  # noqa: ARG002 - the port
        payload: bytes,
        headers: Mapping[str, bytes] | None = None,
    ) -> LogPosition:
        """Append a record and, unless that is stopped, execute it."""
        await self._pass()
        self.records.append(payload)
        self.headers.append(dict(headers or {}))
        position = LogPosition(0, len(self.records) - 1)
        self._database.run()
        if self.unknowing:
            raise AppendUnknownError("no answer")
        return position

    async def result(self, txn_id: str, position: LogPosition) -> Result:  # noqa: ARG002 - the port
        """Wait for a result."""
        return await self.index.wait(position)

    def recent(self, txn_id: str, position: LogPosition | None) -> Result | None:
        """Return a result that is at hand."""
        if self.forgetful:
            return None
        return self.index.of(txn_id) if position is None else self.index.at(position)

    async def search(self, txn_id: str, position: LogPosition | None) -> Result | Missing:
        """Search all results."""
        self.searches += 1
        refused = None
        for result in self.results:
            if (position_of(result) == position) if position else (result.id == txn_id):
                if position or result.code not in REFUSED_COPIES:
                    return result
                refused = refused or result
        return refused or Missing(complete=True, since_ms=None)

    async def ends(self) -> Mapping[int, int]:
        """Return the end of the log."""
        self.looks += 1
        await self._pass()
        return {0: len(self.records)}

    async def next_records(self, places: Mapping[int, int]) -> Mapping[int, NextRecord]:
        """Return the next record, or the end."""
        self.gaps += 1
        await self._pass()
        end = len(self.records)
        at = min(set(range(places[0], end)) - self.controls, default=end)
        return {0: NextRecord(at, found=at < end)}

    def end_transaction(self) -> None:
        """Append what the end of a Kafka transaction leaves: an offset without a record."""
        self.controls.add(len(self.records))
        self.records.append(b"")

    def time_ms(self) -> int:
        """Return the time."""
        return max(self._database.now_ms, self._database.clock())

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return how many results were seen."""
        return self.index.counts

    def fault(self) -> str | None:
        """Return what is wrong."""
        return "Kafka does not answer" if self.refusing else None

    async def _pass(self) -> None:
        if self.stalled is not None:
            await self.stalled.wait()
        if self.refusing:
            raise LogUnavailableError("the log is down")


class MemoryChanges:
    """The changes, as batches; one for each feed, and all of a database have the same.

    Attributes:
        all: the batches so far.
        peers: all those that have the same batches.
    """

    def __init__(self, other: MemoryChanges | None = None) -> None:
        """Begin without any, or with those of another one."""
        self.all: list[ChangeBatch] = [] if other is None else other.all
        self.peers: list[MemoryChanges] = [] if other is None else other.peers
        self.peers.append(self)
        self._publish: Callable[[ChangeBatch], None] | None = None
        self._came = asyncio.Event()
        shared = None if other is None else other.streams
        self.streams: MemoryStreams = MemoryStreams(shared)

    async def start(self, publish: Callable[[ChangeBatch], None]) -> int:
        """Publish from now on."""
        self._publish = publish
        return self.all[-1].resolved if self.all else 0

    async def stop(self) -> None:
        """Publish no more."""
        self._publish = None

    async def history(self, since: int) -> AsyncGenerator[ChangeBatch, None]:
        """Yield all batches after a seq, old and new."""
        position = since
        while True:
            came = self._came
            for batch in [batch for batch in self.all if batch.resolved > position]:
                position = batch.resolved
                yield batch
            await came.wait()

    def fault(self) -> str | None:
        """Nothing is ever wrong."""
        return None

    def put(self, batch: ChangeBatch) -> None:
        """Add a batch."""
        self.all.append(batch)
        for each in self.peers:
            each.tell(batch)

    def tell(self, batch: ChangeBatch) -> None:
        """Publish a batch that was added."""
        if self._publish is not None:
            self._publish(batch)
        self._came.set()
        self._came = asyncio.Event()


class MemoryStreams:
    """The streams: one partition, the same for all of a database.

    Attributes:
        all: the records so far.
        peers: all those that have the same records.
    """

    def __init__(self, other: MemoryStreams | None = None) -> None:
        """Begin without any, or with those of another one."""
        self.all: list[StreamRow] = [] if other is None else other.all
        self.peers: list[MemoryStreams] = [] if other is None else other.peers
        self.peers.append(self)
        self._publish: Callable[[Sequence[StreamRow]], None] = lambda _: None

    async def start(self, publish: Callable[[Sequence[StreamRow]], None]) -> Mapping[int, int]:
        """Publish from now on."""
        self._publish = publish
        return {0: len(self.all)}

    async def stop(self) -> None:
        """Publish no more."""
        self._publish = lambda _: None

    async def offset_after(self, partition: int, seq: int, ts_ms: int) -> int:  # noqa: ARG002
        """The beginning."""
        return 0

    async def history(
        self, wanted: StreamSpan, bounds: PageBounds
    ) -> tuple[list[StreamRow], int]:
        """Return records that were put before."""
        rows = [row for row in self.all[wanted.begin : wanted.end] if row.key == wanted.stream]
        found = list(fresh(wanted.after, rows))[: bounds.records_max]
        return found, found[-1].offset + 1 if len(found) == bounds.records_max else wanted.end

    def fault(self) -> str | None:
        """Nothing is ever wrong."""
        return None

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record."""
        row = StreamRow(0, len(self.all), key, value)
        self.all.append(row)
        for each in self.peers:
            each.tell(row)

    def tell(self, row: StreamRow) -> None:
        """Publish a record that was added."""
        self._publish([row])


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
        self, *, constraints: bool = True, modules: Modules | None = None,
        id_window: int = ID_WINDOW_DEFAULT,
    ) -> None:
        """Begin empty; ``constraints`` may be declared, code may come from other ``modules``, ids
        are remembered for ``id_window`` seqs.
        """
        self.executing = self.resolving = True
        self.model = MemoryModel()
        self.log = MemoryLog(self)
        self.changes = MemoryChanges()
        self.modules = MemoryModules()
        found = self.modules if modules is None else modules
        self._oracle = Oracle("memory", id_window, modules=found, constraints=constraints)
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
        if self.resolving:
            self.resolve()

    def execute(self) -> None:
        """Execute what has been appended; the results are seen."""
        while self._executed < len(self.log.records):
            offset = self._executed
            self._executed += 1
            if offset in self.log.controls:
                continue
            self.now_ms = max(self.now_ms, self.clock())
            for record in self._oracle.apply(
                self.log.records[offset], 0, offset, self.now_ms
            ):
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
        events: list[ChangeEvent] = [change_event(key.encode(), change) for key, change in changes]
        self.changes.put(ChangeBatch(seq, tuple(events)))

    def _take(self, record: OutputRecord) -> None:
        """Take an output of the oracle."""
        if record.topic == "results" and record.value is not None:
            result = decode_result(record.value)
            self.log.index.add(result, record.value)
            self.log.results.append(result)
        elif record.topic == "streams":
            self.changes.streams.put(record.key or b"", record.value or b"")
        elif record.topic == "transactions" and record.value is not None:
            self.log.records.append(record.value)
        elif record.topic == "changes" and record.value is not None:
            change = decode_change(record.value)
            if isinstance(change, Change):
                self._unresolved.append(((record.key or b"").decode(), change))
