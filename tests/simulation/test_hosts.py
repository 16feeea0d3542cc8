"""The code that Spark's workers run, without Spark: rows, Arrow batches, state in parts."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import Row

from simulator import cluster as sim
from simulator import run
from simulator.caches import FolderCaches
from simulator.procedures import MODULES
from streamydb.errors import InvariantViolation
from streamydb.frames.plans import Life
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.names import TopicNames
from streamydb.key_processor import values
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.local import shard_files
from streamydb.local.shard_files import LmdbValues, shard_folder
from streamydb.pipeline import arrow_batches, hosts, spool
from streamydb.pipeline.arrow_batches import spark_hash, tokens
from streamydb.pipeline.spool import BlockExchange, Spool, SpoolError, SpoolWriter, TaskBlocks
from streamydb.pipeline.stateful import Stateful
from streamydb.planner import conflicts
from streamydb.txn_processor import outputs as o
from streamydb.verify.oracle.order import LogRecord
from tests.support.seeds import seeds, thinned

SEEDS = seeds(40, 4)
RECORDS = 100
PARTITIONS = 2
"""Of the changes."""

_EXCHANGED = 0.5
"""How often the tasks of all shards run at the same time, instead of one stage after another."""

_CUT_OFF = 0.3
"""How likely it is that a shard fails in the middle, and its task is tried again.

What reads from a function that has failed sees an end.
"""

_WRITTEN_TWICE = 0.1
"""How likely it is that a task which is tried again has written before."""

_FULL, _LOST = 0.01, 0.03
"""How likely it is that the disk is full when a block is written, and that all files are lost."""

_INPUT = pa.schema([
    ("feedback", pa.bool_()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("append_ms", pa.int64()), ("value", pa.binary()),
])  # fmt: skip
_BLOCKS = pa.schema([
    ("token", pa.int32()), ("dest", pa.int32()), ("seq", pa.int64()), ("block", pa.binary()),
])  # fmt: skip
_Rows = list[dict[str, Any]]


class _WouldWaitError(Exception):
    """A task needs what another has not given yet."""


class State(MemoryBlobs):
    """A MapState of Spark, and the blobs that a shard finds in it."""

    blobs: dict[Any, Any]

    def getMapState(self, *_: object) -> State:  # noqa: N802 - Spark's name, as those below
        return self

    def getValue(self, key: Any) -> Any:  # noqa: N802
        return self.blobs.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        self.blobs[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802
        self.blobs.pop(key, None)

    def containsKey(self, key: Any) -> bool:  # noqa: N802
        return key in self.blobs

    def get(self, name: str) -> bytes | None:
        return hosts.SparkBlobs(self).get(name)


class ShardFiles(FolderCaches):
    """A shard's local files, where the host puts them."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._now, self._older = folder, root / f"older-{folder.name}"
        self._now.mkdir(parents=True)

    def close(self) -> None:
        LmdbValues.close(self._now)


class Hosted(sim.Cluster):
    """A cluster whose stages are Spark's."""

    local: ClassVar[Path]
    least: ClassVar[int]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        config, names = self.config, TopicNames(self.config.database)
        for number, node in enumerate(self.nodes):
            folder = shard_folder(self.local, config.database, config.incarnation, number)
            node.caches = ShardFiles(self.local, folder)
        self._numbers = {
            names.results: o.RESULTS,
            names.changes: o.CHANGES,
            names.streams: o.STREAMS,
            names.deadletters: o.DEAD_LETTERS,
            names.digests: o.DIGESTS,
            names.transactions: o.FOLLOW_UPS,
            names.feedback_of(config.name): o.FEEDBACK,
        }

    def close(self) -> None:
        """Let go of the files."""
        for node in self.nodes:
            node.caches.close()  # type: ignore[attr-defined]

    def start_anew(self) -> None:
        super().start_anew()
        hosts._CACHE.forget()  # the release before may have planned otherwise

    @property
    def spool(self) -> Spool:
        """Of this start of the query."""
        return Spool(self.local / "spool" / self.life.name, self.least)

    def _run(self, batch: Any, copies: Any, *, calm: bool) -> None:
        """Run the stages; a file that is gone ends the batch, and a full disk does not."""
        appended = SpoolWriter._appended

        def may_be_full(writer: SpoolWriter, part: bytes) -> int:
            if self.random.random() < _FULL:
                raise OSError(errno.ENOSPC, "no space left on device")
            return appended(writer, part)

        number = mock.patch.object(spool, "_batch", return_value=batch.number)
        with number, mock.patch.object(SpoolWriter, "_appended", may_be_full):
            try:
                self._stages(batch, copies, calm=calm)
            except SpoolError as error:
                assert not calm
                raise OSError(str(error)) from error

    def _maybe_crash(self, *, calm: bool) -> None:
        if not calm and self.random.random() < _LOST:
            shutil.rmtree(self.local / "spool", ignore_errors=True)
        super()._maybe_crash(calm=calm)

    def _stages(self, batch: Any, copies: Any, *, calm: bool) -> None:
        shards = range(self.config.shards)
        inputs = self._shuffled(self._parsed(batch))
        made: list[_Rows] = [[] for _ in shards]
        at_once = self.random.random() < _EXCHANGED and len(shards) > 1 and not self.single
        for number in self.random.sample(shards, len(shards)):
            with self._release():
                step = Stateful(self._step(at_once=at_once))
                made[number] = self._stateful(step, copies[number][0], number, inputs[number])
            self._maybe_crash(calm=calm)
        grants = [row for rows in made for row in rows]
        self._resolving = max([self._resolving, *(-row["seq"] for row in grants)])
        if at_once:
            for rows in self._exchanged(made):
                self._sink(rows, batch.number)
                self._maybe_crash(calm=calm)
            return
        tasks = [(0, grants)] if self._executes() else self._tasks(self._shuffled(grants))
        for number, granted in tasks:
            for rows in self._outputs(number, granted, copies[number][1]):
                self._sink(rows, batch.number)
                self._maybe_crash(calm=calm)
        self._maybe_crash(calm=calm)

    def _step(self, *, at_once: bool) -> hosts.ShardStep:
        return hosts.ShardStep(self._stage(), str(self.local), self.life, at_once=at_once)

    def _executes(self) -> bool:
        """Return True if the task of the only shard executes, too."""
        return self.config.shards == 1 and not self.single

    def _stage(self) -> hosts.StageSettings:
        return hosts.StageSettings(self.config, PARTITIONS, MODULES, self.rulings, self.spool)

    def _parsed(self, batch: Any) -> Iterator[dict[str, Any]]:
        """The blocks of all tasks that read; with one shard, there is one task.

        Spark makes no micro-batch in which no task reads.
        """
        fed = [
            [self._input(s, LogRecord(at, 0, self.feedback[s][at]), fed=True)
             for at in range(start, end)]
            for s, (start, end) in batch.feedback.items()
        ]  # fmt: skip
        tasks = [
            [self._input(q, record, fed=False) for record in piece]
            for q, (start, end) in batch.log.items()
            for piece in self._pieces(self.log.partitions[q][start:end])
        ] + fed
        if self.config.shards == 1:
            tasks = [[row for rows in tasks for row in rows]]
        for rows in tasks or [[]]:
            parser = hosts.Parser(self._stage())
            for made in parser(self._batches(rows, _INPUT)):
                yield from made.to_pylist()

    def _input(self, partition: int, record: LogRecord, *, fed: bool) -> dict[str, Any]:
        return {
            "feedback": fed,
            "partition": partition,
            "offset": record.offset,
            "append_ms": record.append_ms,
            "value": record.value,
        }

    def _batches(self, rows: _Rows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Rows as Spark hands them over: a few at a time."""
        cuts = sorted(self.random.choices(range(len(rows) + 1), k=self.random.choice([0, 0, 3])))
        for start, end in pairwise([0, *cuts, len(rows)]):
            yield pa.RecordBatch.from_pylist(rows[start:end], schema=schema)

    def _shuffled(self, rows: Iterable[dict[str, Any]]) -> list[_Rows]:
        """Rows on the partition that Spark's hash of their token names, in any order."""
        found: list[_Rows] = [[] for _ in range(self.config.shards)]
        for row in rows:
            found[spark_hash(row["token"]) % self.config.shards].append(row)
        for part in found:
            self.random.shuffle(part)
        return found

    def _stateful(self, processor: Any, state: State, number: int, rows: _Rows) -> _Rows:
        if not rows:
            return []
        processor.init(state)
        key = (tokens(self.config.shards)[number],)
        emitted = processor.handleInputRows(key, iter([Row(**row) for row in rows]), None)
        found = [row.asDict() for row in emitted]
        processor.close()
        return found

    def _outputs(self, number: int, granted: _Rows, gathered: State) -> Iterator[_Rows]:
        """The records of one executing partition, a batch at a time."""
        if self.single:
            rows = self._stateful(
                Stateful(hosts.GatherStep(self._stage())), gathered, number, granted
            )
            made: Iterable[pa.RecordBatch] = self._batches(rows, _BLOCKS)
        else:
            blocks = [{name: row[name] for name in _BLOCKS.names} for row in granted]
            local = str(self.local) if self._executes() else None
            executor = hosts.Executor(self._stage(), local)
            if local is not None and self.random.random() < _CUT_OFF:
                some = blocks[: self.random.randrange(len(blocks))]
                with pytest.raises(SpoolError, match="is cut off"):
                    [*executor(self._batches(some, _BLOCKS))]
            made = executor(self._batches(blocks, _BLOCKS))
        if self.single or self.config.shards > 1:
            made = hosts.Explode(self._stage())(made)
        for batch in made:
            yield batch.to_pylist()

    def _exchanged(self, made: list[_Rows]) -> Iterator[_Rows]:
        """The records of all tasks, if each is that of its shard and they run at the same time.

        A task that would wait for another is broken off instead, and is tried again later. Some of
        what it has written by then stays written. Before, some tasks get a part of their input.
        """
        found: list[_Rows] = []
        tasks = self.random.sample(range(len(made)), len(made))
        for number in tasks:
            if self.random.random() < _CUT_OFF:
                some = made[number][: self.random.randrange(len(made[number]))]
                with pytest.raises(SpoolError, match="is cut off"):
                    self._give_and_take(number, some, [])
        for _ in range(4 * len(tasks) ** 2):
            if not tasks:
                break
            number, records = tasks.pop(0), list[_Rows]()
            try:
                self._give_and_take(number, made[number], records)
            except _WouldWaitError:
                tasks.append(number)
                if self.random.random() > _WRITTEN_TWICE:
                    continue
            found += records
        assert not tasks, "tasks that wait for each other"
        self.random.shuffle(found)
        yield from found

    def _give_and_take(self, number: int, granted: _Rows, found: list[_Rows]) -> None:
        """Add the records of one of these tasks, until it fails."""
        blocks = [{name: row[name] for name in _BLOCKS.names} for row in granted]
        executor = hosts.ExchangingExecutor(self._stage())
        with mock.patch.object(hosts, "task_number", return_value=number):
            batches = executor(self._batches(blocks, _BLOCKS))
            found.extend(batch.to_pylist() for batch in batches)

    def _sink(self, rows: _Rows, batch: int) -> None:
        for row in rows:
            topic, value = self._numbers[row["topic"]], row["value"]
            if topic == o.FEEDBACK:
                self.feedback[row["partition"]].append(value)
                continue
            if topic == o.FOLLOW_UPS:
                self.log.append(value, row["partition"])
            self.written.append(sim.WrittenRecord(topic, row["key"], value, batch))


@pytest.fixture
def hosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Any]]:
    """Runs a seed on the hosts, with small parts and small runs, and as if a disk were slow."""
    made: list[Hosted] = []
    dice = random.Random()

    class Here(Hosted):
        def __init__(self, *args: Any, **options: Any) -> None:
            self.local = tmp_path / str(len(made))  # type: ignore[misc]
            self.least = dice.choice([0, 300, 1 << 16])  # type: ignore[misc]
            made.append(self)
            super().__init__(*args, **options)

    def seeded(seed: int) -> Any:
        dice.seed(f"hosts {seed}")
        parts = mock.patch.object(hosts, "_PART_BYTES", dice.choice([50, 1_000, 8 << 20]))
        runs = mock.patch.object(arrow_batches, "_RUN_BYTES", dice.choice([1, 500, 3 << 20]))
        few = mock.patch.object(values, "_LOADED_KEYS_MIN", dice.choice([1, 32]))
        slow = mock.patch.object(shard_files, "_SLOW_S", dice.choice([-1.0, 1e-5]))
        whole = mock.patch.object(hosts, "_FORMATTED_WHERE_EXECUTED", dice.choice([0, 3, 4_000]))
        many = mock.patch.object(
            conflicts, "LEAST_WEIGHT", dice.choice([1, conflicts.LEAST_WEIGHT])
        )
        recent = mock.patch.object(shard_files, "_RECENT_PAGES_MAX", dice.choice([0, 32_768]))
        share = mock.patch.object(shard_files, "_WHOLE_SHARE", 1 << 60)
        with parts, runs, few, slow, whole, many, recent, share:
            return run.run_seed(seed, RECORDS, large=0.0)

    def would_wait(_: BlockExchange) -> None:
        raise _WouldWaitError

    monkeypatch.setattr(BlockExchange, "_require_query", would_wait)
    monkeypatch.setattr(run, "Cluster", Here)
    monkeypatch.setattr(sim, "MemoryBlobs", State)
    yield seeded
    for cluster in made:
        cluster.close()


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_the_hosts_write_what_the_oracle_says(seed: int, hosted: Callable[[int], Any]) -> None:
    outcome = hosted(seed)
    assert not outcome.problems, (outcome.config, outcome.problems)
    assert outcome.transactions > RECORDS // 2


@pytest.mark.no_proof
@pytest.mark.parametrize(
    "what",
    thinned([
        "a part of a blob is lost", "a block takes another way", "a file is forgotten early",
        "a block that was given is lost", "what a task was given twice counts twice",
    ], 4),
)  # fmt: skip
def test_faults_of_the_hosts_are_caught(
    what: str, hosted: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    to = TaskBlocks.to
    if what == "a part of a blob is lost":
        get = hosts.SparkBlobs.get
        monkeypatch.setattr(hosts.SparkBlobs, "get", lambda self, name: (
            None if name.startswith("values/") else get(self, name)
        ))  # fmt: skip
    elif what == "a block that was given is lost":
        monkeypatch.setattr(TaskBlocks, "to", lambda *args: to(*args)[1:])
    elif what == "what a task was given twice counts twice":
        monkeypatch.setattr(TaskBlocks, "to", lambda *args: to(*args) * 2)
    elif what == "a file is forgotten early":
        monkeypatch.setattr(Spool, "forget_earlier", _forget_all)
    else:
        monkeypatch.setattr(hosts, "block_rows", partial(_elsewhere, arrow_batches.block_rows))
    assert any(hosted(seed).problems for seed in range(1, 12))


def _forget_all(files: Spool) -> None:
    shutil.rmtree(str(files.folder), ignore_errors=True)


def _elsewhere(block_rows: Any, rows: list[tuple[int, int, bytes]], count: int) -> Any:
    return block_rows([((dest + 1) % count, seq, block) for dest, seq, block in rows], count)


@pytest.mark.no_proof
def test_a_block_that_came_elsewhere_stops_the_batch(tmp_path: Path) -> None:
    config = ShardConfig("sim", "elsewhere", 2, 1, 100)
    processor = Stateful(hosts.ShardStep(hosts.StageSettings(config), str(tmp_path), Life("first")))
    state: Any = State()
    processor.init(state)
    row = Row(token=tokens(2)[1], dest=1, seq=0, block=b"")
    with pytest.raises(InvariantViolation, match="it came where it was sent"):
        list(processor.handleInputRows((tokens(2)[0],), iter([row]), None))
