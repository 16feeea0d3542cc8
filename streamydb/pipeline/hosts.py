"""Spark hosts of the pure stages: the code that Python workers run.

Each function takes and gives Arrow batches; each class is what Spark asks for. No decision is made
here.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from streamydb.backup.start import Starter
from streamydb.frames.messages import Grant, plan_of
from streamydb.frames.plans import Life
from streamydb.frames.protocol import Message
from streamydb.frames.readers import (
    TO_EXECUTOR,
    TO_GATHERER,
    TO_SHARD,
    TO_SINGLE_SHARD,
    ToExecutor,
    ToGatherer,
)
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.locking.core import SingleShard
from streamydb.key_processor.process_cache import ProcessCache
from streamydb.key_processor.state import ShardOutput
from streamydb.local.id_files import FileIdTables
from streamydb.local.own_process import trim_when_idle
from streamydb.local.shard_files import LmdbValues, shard_folder
from streamydb.parser.core import Routed, parse_feedback, parse_transactions
from streamydb.pipeline.arrow_batches import (
    arrow_records,
    block_rows,
    blocks_for,
    ragged,
    runs,
    tokens,
)
from streamydb.pipeline.realtime.pace import keep_pace
from streamydb.pipeline.realtime.wire import send_written
from streamydb.pipeline.spool import (
    NO_SPOOL,
    BlockExchange,
    Spool,
    SpoolError,
    TaskBlocks,
    task_number,
)
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records.rulings import NO_RULINGS, Rulings
from streamydb.sorter.state import LogEnd
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.gathering.core import Gatherer
from streamydb.txn_processor.outputs import (
    Output,
    OutputRecords,
    OutputRows,
    formatted,
    open_output,
    output_block,
    output_parts,
)

_BLOCK: Final = (
    StructField("token", IntegerType()), StructField("dest", IntegerType()),
    StructField("seq", LongType()), StructField("block", BinaryType()),
)  # fmt: skip

# Objects, not texts: for a text Spark's JVM would load its whole parser of SQL.
BLOCK_SCHEMA: Final = StructType([*_BLOCK])
GRANT_SCHEMA: Final = StructType(
    [*_BLOCK, StructField("ignored", LongType()), StructField("resolves", StringType())]
)
OUTPUT_SCHEMA: Final = StructType([*_BLOCK, StructField("cpu_us", LongType())])
RECORD_SCHEMA: Final = StructType([
    StructField("topic", StringType()), StructField("key", BinaryType()),
    StructField("value", BinaryType()), StructField("partition", IntegerType()),
])  # fmt: skip

_PART_BYTES: Final = 8 << 20

_CACHE: Final = ProcessCache()
"""Spark runs the tasks of several shards in this process, one after the other."""

_END: Final = -1
"""The destination in the last row of a shard whose task goes on with what it has emitted.

If the step fails, or its worker is killed, Spark closes what it hands over: for the function that
reads it, this looks like an end. Once (2026-11-30, a pipeline with two gears that had been halted
by SIGSTOP, on a loaded machine) all rows of a step were missing, though Spark had committed its
state, and no error was told. So the last row is required, and each shard has a row to begin with.
"""

_FORMATTED_WHERE_EXECUTED: Final = 4_000
"""What a plan of so many transactions produces is formatted by the tasks that execute it: to divide
that takes longer.
"""


class _Settling:
    """Keeps Python's collector away from what a worker process has loaded for good.

    Spark's worker collects garbage after every task, and goes through every object of numba,
    pandas and Arrow each time: 45 ms a task. Frozen objects are left out. The first tasks of a
    process load more and more, so each of them freezes anew; garbage is collected before.
    """

    tasks_left = 16

    @classmethod
    def begin(cls) -> None:
        """Called at the start of every task."""
        trim_when_idle()
        if cls.tasks_left:
            cls.tasks_left -= 1
            gc.freeze()


@dataclass(frozen=True, slots=True)
class StageSettings:
    """The settings that all stages of one query have.

    Attributes:
        config: of the database.
        changes_partitions: each of them gets all resolved records.
        modules: the code of procedures, on every executor.
        rulings: those with which the query was started.
        spool: of large blocks.
    """

    config: ShardConfig
    changes_partitions: int = 1
    modules: Modules = NO_MODULES
    rulings: Rulings = NO_RULINGS
    spool: Spool = NO_SPOOL

    def executor(self, spread: int) -> TransactionProcessor:
        """Return what executes plans for ``spread`` formatting tasks."""
        return TransactionProcessor(
            self.config, spread, self.changes_partitions, self.modules, self.rulings
        )


class Parser:
    """mapInArrow: Kafka rows to blocks for the shards; an empty block for one that gets none."""

    def __init__(self, stage: StageSettings) -> None:
        self._config, self._rulings, self._spool = stage.config, stage.rulings, stage.spool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parse run by run: Spark's batches are small, because it bounds their records only."""
        _Settling.begin()
        self._spool.forget_earlier()
        shards = self._config.shards
        without = set(range(shards) if self._config.grouping == "planner" else ())
        with self._spool.writer() as writer:
            for batch in runs(batches):
                rows = [(r.shard, 0, writer.put(r.pieces())) for r in self._parse(batch)]
                without.difference_update(shard for shard, _, _ in rows)
                if rows:
                    yield block_rows(rows, shards)
        if without:
            yield block_rows([(shard, 0, b"") for shard in sorted(without)], shards)

    def _parse(self, batch: pa.RecordBatch) -> Iterator[Routed[Message]]:
        fed = batch.column(0).to_numpy(zero_copy_only=False).astype(np.bool_)
        if fed.any():
            rows = batch.filter(pa.array(fed))
            values, offsets = rows.column(4).to_pylist(), rows.column(2).to_pylist()
            yield from parse_feedback(values, self._config, offsets)
        if fed.all():
            return
        log = batch.filter(pa.array(~fed)) if fed.any() else batch
        partitions, offsets, append_ms = (log.column(i).to_numpy() for i in (1, 2, 3))
        values = ragged(log.column(4))
        config = self._config
        yield from parse_transactions(
            partitions,
            offsets,
            append_ms,
            values,
            config.shards,
            whole=config.grouping == "single",
            rulings=self._rulings,
            hashes=self._spool.folder is not None,
        )


class SparkBlobs:
    """Named blobs in a MapState, in parts of 8 MiB; the first part begins with their number."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._parts: dict[str, int] = {}

    def get(self, name: str) -> bytes | None:
        first = self._state.getValue((name, 0))
        if first is None:
            self._parts[name] = 0
            return None
        data = bytes(first[0])
        self._parts[name] = parts = int.from_bytes(data[:4], "little")
        if parts == 1:
            return data[4:]
        rest = [bytes(self._state.getValue((name, part))[0]) for part in range(1, parts)]
        return b"".join([data[4:], *rest])

    def put(self, name: str, data: bytes) -> None:
        """Store or replace a blob; one that may be there has been read or written before.

        So no answer of Spark's is waited for to find out how many parts it had.
        """
        parts = max(1, -(-len(data) // _PART_BYTES))
        head = parts.to_bytes(4, "little")
        for part in range(parts):
            piece = data[part * _PART_BYTES : (part + 1) * _PART_BYTES]
            self._state.updateValue((name, part), (head + piece if part == 0 else piece,))
        for part in range(parts, self._parts.get(name, 0)):
            self._state.removeKey((name, part))
        self._parts[name] = parts

    def delete(self, name: str) -> None:
        """Remove a blob; nothing of it is read, as Spark takes long to hand a part over.

        How many parts it has is known if this step has read or written it. If not, the first one
        is removed whether it is there or not, and Spark is asked if there is a next one.
        """
        parts = self._parts.get(name)
        if parts is None:
            self._state.removeKey((name, 0))
            parts = 1
            while self._state.containsKey((name, parts)):
                self._state.removeKey((name, parts))
                parts += 1
        else:
            for part in range(parts):
                self._state.removeKey((name, part))
        self._parts[name] = 0


class ShardStep:
    """The sorter and the key processor of one shard; see `stateful.Stateful`."""

    def __init__(
        self,
        stage: StageSettings,
        local: str,
        life: Life,
        starter: Starter | None = None,
        ends: Mapping[int, LogEnd] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Keep caches under the folder ``local``.

        ``life``: this start of the query. ``starter``: fills the store before the first step.
        ``ends``: what the log held at the start where the state's reading of it had ended.
        ``at_once``: the tasks of all shards run at the same time, so none runs after another in one
        process, and each of them executes, too, by an `ExchangingExecutor`.
        """
        self._at_once = at_once
        # The task of a shard executes, too.
        only = stage.config.shards == 1 and stage.config.grouping == "planner"
        self._executes = at_once or only
        self._ends = ends or {}
        self._config, self._spool = stage.config, stage.spool
        self._starter = starter or Starter(None)
        self._local = local
        self._life = life

    def __call__(self, state: Any, token: str, rows: Iterable[Row]) -> Iterator[Row]:
        _Settling.begin()
        config = self._config
        number = tokens(config.shards).index(token)
        folder = shard_folder(Path(self._local), config.database, config.incarnation, number)
        folder.mkdir(parents=True, exist_ok=True)
        blobs = SparkBlobs(state)
        self._starter.put(blobs, config, number)
        routes, blocks = tokens(config.shards), blocks_for(number, rows, self._spool)
        with closing(FileIdTables(folder)) as tables, self._spool.writer() as writer:
            own = config, number, blobs, LmdbValues(folder), tables, self._life
            for emitted in self._steps(own, blocks):
                yield Row(
                    token=routes[emitted.proc],
                    dest=emitted.proc,
                    seq=emitted.seq,
                    block=writer.put(emitted.message.pieces()),
                    ignored=emitted.ignored,
                    resolves=emitted.resolves or None,
                )
        if self._at_once:
            _CACHE.forget()
        if self._executes:
            yield Row(token=token, dest=_END, seq=0, block=b"", ignored=0, resolves=None)

    def _steps(
        self,
        own: tuple[ShardConfig, int, SparkBlobs, LmdbValues, FileIdTables, Life],
        blocks: Iterable[bytes],
    ) -> list[ShardOutput[ToExecutor]] | list[ShardOutput[ToGatherer]]:
        if self._config.grouping == "single":
            single = SingleShard(*own, cache=_CACHE)
            single.require_log(self._ends)
            return single.step(TO_SINGLE_SHARD.each(blocks))
        shard = KeyTransactionProcessor(*own, cache=_CACHE)
        shard.require_log(self._ends)
        return shard.step(TO_SHARD.each(blocks))


class GatherStep:
    """One executing partition of `grouping=single`; gives blocks of records."""

    def __init__(self, stage: StageSettings) -> None:
        self._stage = stage

    def __call__(self, state: Any, token: str, rows: Iterable[Row]) -> Iterator[Row]:
        _Settling.begin()
        _CACHE.forget()  # all shards have opened their records
        stage = self._stage
        number = tokens(stage.config.shards).index(token)
        gatherer = Gatherer(
            stage.config, number, SparkBlobs(state), stage.changes_partitions, stage.modules,
            stage.rulings,
        )  # fmt: skip
        blocks = blocks_for(number, rows, stage.spool)
        for records in gatherer.step(TO_GATHERER.each(blocks)):
            yield Row(token=token, dest=number, seq=0, block=output_block(records))


class Executor:
    """mapInArrow: grants to records (one shard), or to blocks of records for the formatting tasks.

    A task executes one partition, or all of them one after the other. Beside each block stands the
    processor time that it took, in microseconds.
    """

    def __init__(self, stage: StageSettings, local: str | None = None) -> None:
        """``local``: the folder of the caches, where the real-time gear paces the only shard, whose
        task this is, too.
        """
        self._config, self._spool = stage.config, stage.spool
        self._local = local
        self._processor = stage.executor(stage.config.shards)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Collect the grants of this task, execute them, and give the records out.
        Raises SpoolError: grants of the only shard are missing.
        """
        _Settling.begin()
        _CACHE.forget()  # all shards have planned
        read = self._spool.read
        spreads = self._config.shards
        if spreads == 1:
            blocks = (read(block) for _, block in emitted_by_shard(batches))
        else:
            blocks = (read(block) for batch in batches for block in batch.column(3).to_pylist())
        begun_ns = time.thread_time_ns()
        with self._spool.writer() as writer:
            for item in self._processor.step(TO_EXECUTOR.each(blocks)):
                if spreads == 1:
                    yield arrow_records([formatted(item, self._config.database)], self._config)
                    send_written()  # Spark hands it on to Kafka while more is executed
                else:
                    block = writer.put(output_parts(item))
                    rows = block_rows([(item.spread, 0, block)], spreads)
                    cpu_us = (time.thread_time_ns() - begun_ns) // 1000
                    yield rows.append_column("cpu_us", pa.array([cpu_us], pa.int64()))
                    begun_ns = time.thread_time_ns()
        if self._local is not None:
            config = self._config
            folder = shard_folder(Path(self._local), config.database, config.incarnation, 0)
            keep_pace(folder)


def emitted_by_shard(batches: Iterable[pa.RecordBatch]) -> list[tuple[int, bytes]]:
    """Return the destinations and blocks that the shard of this task has made.
    Raises SpoolError: some are missing.
    """
    emitted: list[tuple[int, bytes]] = []
    for batch in batches:
        dests, blocks = batch.column(1).to_pylist(), batch.column(3).to_pylist()
        emitted += zip(dests, blocks, strict=True)
    if not emitted or emitted.pop()[0] != _END:
        raise SpoolError("what the shard of this task has emitted is cut off")
    return emitted


class ExchangingExecutor:
    """mapInArrow: what a shard grants to records, in the task of the shard itself.

    For shards whose tasks run at the same time. Task n is executing partition n: through the
    `BlockExchange` it gets the grants of the other shards. It formats what it produces; if the plan
    is large, the tasks divide that among them, too.
    """

    def __init__(self, stage: StageSettings) -> None:
        self._config, self._spool = stage.config, stage.spool
        self._small, self._large = stage.executor(1), stage.executor(stage.config.shards)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the other tasks what is theirs, execute what is granted here, and format."""
        _Settling.begin()
        number, exchange, read = task_number(), BlockExchange(self._spool), self._spool.read
        others = [shard for shard in range(self._config.shards) if shard != number]
        own = self._granted(batches)
        exchange.give("grants", number, own)
        # A shard that has nothing for its own partition does not know if that executes anything.
        granted = [own, *(exchange.take("grants", shard) for shard in others)]
        blocks = (read(block) for task_blocks in granted for block in task_blocks.to(number))
        if max(task_blocks.transactions for task_blocks in granted) <= _FORMATTED_WHERE_EXECUTED:
            for item in self._small.step(TO_EXECUTOR.each(blocks)):
                yield self._records(formatted(item, self._config.database))
            return
        own_outputs, task_blocks = self._divided(self._large.step(TO_EXECUTOR.each(blocks)), number)
        exchange.give("outputs", number, task_blocks)  # first, as others have nothing else to do
        for item in own_outputs:
            yield self._records(formatted(item, self._config.database))
        for shard in others:
            for block in exchange.take("outputs", shard).to(number):
                yield self._records(open_output(read(block), self._config.database))

    def _granted(self, batches: Iterable[pa.RecordBatch]) -> TaskBlocks:
        """Return the blocks that the shard of this task has made, or references to them."""
        own = TaskBlocks(emitted_by_shard(batches))
        for _, block in own.blocks:
            plan = plan_of(self._spool.read(block), Grant)
            if plan is not None:
                own.transactions = plan.last - plan.first + 1
                break
        return own

    def _divided(self, items: Iterable[Output], number: int) -> tuple[list[Output], TaskBlocks]:
        """Return the items that this task formats, and those that others do.

        Those that need no formatting stay.
        """
        own_outputs: list[Output] = []
        task_blocks = TaskBlocks([])
        with self._spool.writer() as writer:
            for item in items:
                if isinstance(item, OutputRows) and item.spread != number:
                    task_blocks.blocks.append((item.spread, writer.put(output_parts(item))))
                else:
                    own_outputs.append(item)
        return own_outputs, task_blocks

    def _records(self, records: OutputRecords) -> pa.RecordBatch:
        return arrow_records([records], self._config)


class Explode:
    """mapInArrow: blocks of records to records."""

    def __init__(self, stage: StageSettings) -> None:
        self._config, self._spool = stage.config, stage.spool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack block by block."""
        _Settling.begin()
        for batch in batches:
            for block in batch.column(3).to_pylist():
                records = open_output(self._spool.read(block), self._config.database)
                yield arrow_records([records], self._config)
