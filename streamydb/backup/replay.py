"""Execute a log in this process, with the classes of the pipeline, up to exactly one seq.

It follows like a standby that is told that so much is covered: all is executed and nothing is
written, so what comes out is the state right after that seq. One shard, one partition; blobs and
values lie in a folder, so that a database may exceed the memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from streamydb.backup.manifest import BackupError
from streamydb.backup.pieces import LogSource, Piece, Positions
from streamydb.backup.state import Pieces, State, start_blobs, state_of
from streamydb.frames.digest import StateDigest
from streamydb.frames.messages import Feedback, Grant, Role
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.readers import ToExecutor, ToShard
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryIdTables
from streamydb.key_processor.state import ShardState
from streamydb.key_processor.values import ShardValues
from streamydb.local.file_lock import write_whole
from streamydb.local.shard_files import LmdbValues
from streamydb.parser.compile import compile_records
from streamydb.parser.core import messages_for
from streamydb.parser.last_reads import last_reads
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records.rulings import NO_RULINGS, Rulings
from streamydb.sorter.core import KeyedEventTimeSorter
from streamydb.sorter.state import PartitionState
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor

EVERYTHING: Final = 1 << 60  # as `until`: as far as the log goes
_INCARNATION: Final = "replay"
_LIFE: Final = Life("replay", PlanShape(records_max=100_000))
_meta = msgspec.msgpack.Decoder(ShardState).decode


class StateAfter(NamedTuple):
    """The state right after a transaction: its digest, and when the transaction was committed."""

    digest: str
    ts_ms: int


class FileBlobs:
    """A blob store in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> bytes | None:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        write_whole(self._path(name), data, synced=False)

    def delete(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / name.replace("/", os.extsep)


class LogReplay:
    """One execution of a log.

    Args:
        config: the fixed settings; shards and grouping are taken as 1 and planner.
        folder: an empty folder to work in.
        start: the state to begin with; None: the log's beginning.
        until: the last seq to execute.
        rulings: which records a fault of ours has aborted.

    Attributes:
        digests: those of the whole state at the ends of intervals, by seq.
    """

    def __init__(
        self,
        config: ShardConfig,
        folder: Path,
        start: State | None,
        until: int,
        modules: Modules = NO_MODULES,
        rulings: Rulings = NO_RULINGS,
    ) -> None:
        self._config = msgspec.structs.replace(
            config, incarnation=_INCARNATION, shards=1, grouping="planner", name=""
        )
        self._blobs = FileBlobs(folder / "blobs")
        self._folder = folder / "values"
        self._folder.mkdir(exist_ok=True)
        self._store, self._tables = LmdbValues(self._folder), MemoryIdTables()
        self._modules = modules
        self._rulings = rulings
        self.positions = Positions({} if start is None else start.about.positions)
        self.seq = 0 if start is None else start.about.seq
        self.digests: dict[int, StateAfter] = {}
        self._times: dict[int, int] = {}
        for name, data in () if start is None else start_blobs(start, self._config, 0):
            self._blobs.put(name, data)
        self._inbox: list[ToShard] = [Role(_INCARNATION, leads=False, covered=until, at=0)]

    def feed(self, piece: Piece) -> None:
        self.positions.note(piece)
        rows = len(piece.offsets)
        where = np.full(rows, piece.partition, np.int32), piece.offsets, piece.append_ms
        table = compile_records(*where, piece.values, rulings=self._rulings)
        self._inbox += messages_for(table, 1, last_reads(*where, piece.values))

    def step(self) -> bool:
        """Run a micro-batch over what was fed; return True if another one has something to do."""
        shard = KeyTransactionProcessor(
            self._config, 0, self._blobs, self._store, self._tables, _LIFE
        )
        inbox, self._inbox = self._inbox, []
        before, granted = self.seq, list[ToExecutor]()
        for emitted in shard.step(inbox):
            granted.append(emitted.message)
            # Note when the transactions are committed after which there is a digest.
            if isinstance(emitted.message, Grant):
                seqs, times = emitted.message.txns.seq, emitted.message.txns.ts_ms
                rows = np.flatnonzero(seqs % self._config.digest_interval == 0)
                self._times.update(zip(seqs[rows].tolist(), times[rows].tolist(), strict=True))
            self.seq = max(self.seq, emitted.seq)
        processor = TransactionProcessor(self._config, 1, 1, self._modules, self._rulings)
        for item in processor.step(granted):
            if isinstance(item, o.ShardMessage):
                if isinstance(item.message, Feedback):
                    self._inbox.append(item.message)
            elif isinstance(item, o.OutputRecords) and item.topic == o.DIGESTS:
                for value in item.values.tolist():
                    digest = msgspec.json.decode(value, type=StateDigest)
                    ts_ms = self._times.pop(digest.seq, 0)  # 0: it was executed before this replay
                    self.digests[digest.seq] = StateAfter(digest.state, ts_ms)
        return bool(self._inbox) or self.seq > before

    def close(self) -> None:
        """Let go of the values' file, so that its folder can be removed."""
        LmdbValues.close(self._folder)

    def settle(self) -> None:
        """Execute all that can be executed of what was fed."""
        while self.step():
            pass
        self.positions.forget(self._covered(self._state()))

    def state(self, database: str, log: str) -> State:
        """The state after what was executed, as long as the folder is there; ``log``: its id."""
        meta = self._state()
        if meta.open is not None:
            raise BackupError("a plan is open: settle first")
        values = Pieces(ShardValues(meta.values, self._blobs, self._store).pieces)
        places = self.positions.at(self._covered(meta))
        about: dict[str, Any] = {"database": database, "log": log, "positions": places}
        return state_of(about, meta, self._blobs, values)

    def _state(self) -> ShardState:
        data = self._blobs.get("meta")
        if data is None:
            raise BackupError("nothing was executed")
        return _meta(data)

    def _covered(self, meta: ShardState) -> dict[int, int]:
        return KeyedEventTimeSorter(meta.sorter, self._blobs).covered()


def replay(
    run: LogReplay,
    source: LogSource,
    log_ends: Mapping[int, int],
    until: int,
    progress: Callable[[int], None] = lambda _seq: None,
) -> None:
    """Feed a log to a replay, always the partition that is behind, until it is there.

    ``log_ends``: per partition, where to stop reading. ``until``: the last seq to execute;
    `EVERYTHING`: whatever can be executed.
    Raises BackupError: the log ends before that seq.
    """
    run.settle()
    positions, nothing = run.positions.states, PartitionState()
    streams = {
        partition: iter(source.pieces(partition, positions.get(partition, nothing).position, end))
        for partition, end in log_ends.items()
    }
    while streams and run.seq < until:
        partition = min(streams, key=lambda q: (positions.get(q, nothing).effective, q))
        piece = next(streams[partition], None)
        if piece is None:
            del streams[partition]
            continue
        run.feed(piece)
        run.settle()
        progress(run.seq)
    if run.seq < until != EVERYTHING:
        raise BackupError(f"the log ends at seq {run.seq}, before seq {until}")
