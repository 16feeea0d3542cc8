"""The Spark hosts without Spark: Arrow batches in, Arrow batches out."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamydb.frames.encoding import unpack
from streamydb.frames.plans import Life
from streamydb.frames.readers import TO_SHARD
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.local.shard_files import shard_folder
from streamydb.parser.core import parse_transactions
from streamydb.pipeline import arrow_batches, hosts, spool
from streamydb.pipeline.arrow_batches import block_rows, tokens
from streamydb.pipeline.hosts import StageSettings
from streamydb.pipeline.realtime import wire
from streamydb.pipeline.spool import BlockExchange, Spool, SpoolError
from streamydb.planner import conflicts
from streamydb.records.rulings import Fault, UnruledFaults
from streamydb.txn_processor import core, outputs
from streamydb.txn_processor.core import execute_in_parts
from streamydb.txn_processor.outcome import ExecutionOutcome
from tests.support.opened import opened
from tests.support.seeds import seeds

CONFIG = ShardConfig("bank", "inc", 2, 1, 100)
END = block_rows([(hosts._END, 0, b"")], 2)


@pytest.fixture(autouse=True)
def all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small plans use all partitions."""
    monkeypatch.setattr(conflicts, "LEAST_WEIGHT", 1)


def transactions(count: int, size: int = 5, seed: int = 0) -> list[bytes]:
    rng = random.Random(count + 1000 * seed)
    made = []
    for i in range(count):
        update = {"op": "put", "key": f"k{rng.randrange(50)}", "value": "v" * size}
        made.append(json.dumps({"id": f"t{seed}-{i}", "updates": [update]}).encode())
    return made


def batches(
    values: list[bytes | None], rows: int, *, feedback: bool = False
) -> list[pa.RecordBatch]:
    found = []
    for start in range(0, len(values), rows):
        part = values[start : start + rows]
        offsets = range(start, start + len(part))
        columns = [
            pa.array([feedback] * len(part)),
            pa.array([0] * len(part), pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([9] * len(part), pa.int64()),
            pa.array(part, pa.binary()),
        ]
        names = ["feedback", "partition", "offset", "append_ms", "value"]
        found.append(pa.RecordBatch.from_arrays(columns, names))
    return found


def offsets_by_shard(output: Iterator[pa.RecordBatch]) -> dict[int, list[int]]:
    routes = tokens(2)
    found: dict[int, list[int]] = {0: [], 1: []}
    for batch in output:
        columns = batch.column(0).to_pylist(), batch.column(3).to_pylist()
        for token, block in zip(*columns, strict=True):
            for table in opened([block]):
                found[routes.index(token)] += table.offset.tolist()
    return found


def test_hashes_are_the_same_whether_they_travel_or_not() -> None:
    places = np.zeros(40, np.int32), np.arange(40), np.full(40, 9)
    tables = []
    for hashes in (False, True):
        routed = list(parse_transactions(*places, transactions(40), 2, hashes=hashes))
        assert ("keys.hash" in unpack(routed[1].block)[1]) is hashes
        (table,) = opened([routed[1].block])
        tables.append({name: each.tobytes() for name, each in table.flatten().items()})
    assert tables[0] == tables[1]
    assert any(tables[0]["keys.hash"])


@pytest.mark.parametrize("rows", [1, 7, 500])
def test_small_batches_are_parsed_in_runs(rows: int) -> None:
    output = list(
        hosts.Parser(StageSettings(CONFIG))(iter(batches([*transactions(40), None, b"x"], rows)))
    )
    assert len(output) == 1
    assert offsets_by_shard(iter(output)) == {0: list(range(42)), 1: list(range(42))}


def test_runs_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_batches, "_RUN_BYTES", 1000)
    output = list(hosts.Parser(StageSettings(CONFIG))(iter(batches([*transactions(60, 200)], 13))))
    assert len(output) > 15
    assert offsets_by_shard(iter(output)) == {0: list(range(60)), 1: list(range(60))}


@pytest.mark.parametrize("foreign", [0, 1])
def test_each_shard_gets_a_block_though_it_be_empty(foreign: int) -> None:
    """So each says what it emits, and a task can tell nothing from what is missing."""
    given = iter(batches([b"foreign"] * foreign, 5, feedback=True))
    (ticks,) = hosts.Parser(StageSettings(CONFIG))(given)
    found = [tuple(row.values())[1:] for row in ticks.to_pylist()]
    assert found == [(0, 0, b""), (1, 0, b"")]
    rows = [SimpleNamespace(**row) for row in ticks.to_pylist()]
    for number in range(2):
        assert [*arrow_batches.blocks_for(number, rows[number : number + 1])] == []
        shard = KeyTransactionProcessor(
            CONFIG, number, MemoryBlobs(), MemoryValues(), MemoryIdTables(), Life("test")
        )
        assert shard.step([]) == []
    whole = ShardConfig("bank", "inc", 1, 2, 100, "single")
    assert [*hosts.Parser(StageSettings(whole))(iter([]))] == []


def test_bytes_become_ragged_without_a_copy() -> None:
    array = pa.array([b"ab", b"", b"cde", b"f"], pa.binary()).slice(1, 3)
    found = arrow_batches.ragged(array)
    assert list(found.tolist() if not isinstance(found, list) else found) == [b"", b"cde", b"f"]
    with_null = arrow_batches.ragged(pa.array([b"ab", None], pa.binary()))
    assert with_null == [b"ab", None]
    assert np.shares_memory(
        np.frombuffer(array.buffers()[2], np.uint8),
        found.data,  # type: ignore[union-attr]
    )


def granted(count: int, by: str = "partition", seed: int = 0) -> list[list[pa.RecordBatch]]:
    """What two shards grant of a plan of so many transactions, by executing partition or shard."""
    inputs: list[list[bytes]] = [[], []]
    made: list[bytes | None] = [*transactions(count, seed=seed)]
    for batch in hosts.Parser(StageSettings(CONFIG))(iter(batches(made, 500))):
        for dest, block in zip(
            batch.column(1).to_pylist(), batch.column(3).to_pylist(), strict=True
        ):
            inputs[dest].append(block)
    found: list[list[pa.RecordBatch]] = [[], []]
    for number, blocks in enumerate(inputs):
        stores = MemoryBlobs(), MemoryValues(), MemoryIdTables()
        shard = KeyTransactionProcessor(CONFIG, number, *stores, Life("test"))
        for emitted in shard.step(TO_SHARD.each(blocks)):
            rows = [(emitted.proc, emitted.seq, emitted.message.block())]
            at = emitted.proc if by == "partition" else number
            found[at].append(arrow_batches.block_rows(rows, 2))
        if by == "shard":
            found[number].append(END)
    return found


def rows(records: Iterable[pa.RecordBatch]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in pa.Table.from_batches(records).to_pylist())


@pytest.mark.parametrize("count", [20, 90])
def test_one_task_may_execute_all_partitions(count: int) -> None:
    """It gives the records that a task for each partition gives, and says how long it took."""
    parts = granted(count)
    assert all(parts)
    executor = hosts.Executor(StageSettings(CONFIG, 2))
    apart = [batch for part in parts for batch in executor(iter(part))]
    mixed = [batch for pair in zip_longest(*reversed(parts)) for batch in pair if batch]
    together = list(executor(iter(mixed)))
    explode = hosts.Explode(StageSettings(CONFIG))
    records = rows(explode(iter(together)))
    assert records == rows(explode(iter(apart)))
    assert sum(topic == "bank.results" for topic, *_ in records.elements()) == count
    assert all(batch.schema.names == hosts.OUTPUT_SCHEMA.names for batch in together)
    assert sum(pc.sum(batch.column("cpu_us")).as_py() for batch in together) > 0


class Tasks:
    """The tasks of both shards, at the same time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._numbers = threading.local()
        monkeypatch.setattr(spool, "_batch", lambda: 7)
        monkeypatch.setattr(hosts, "task_number", lambda: self._numbers.now)
        self._executor = hosts.ExchangingExecutor(
            StageSettings(CONFIG, 2, spool=Spool(folder, 100))
        )

    def run(self, number: int, made: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        self._numbers.now = number
        return list(self._executor(iter(made)))

    def run_both(self, made: list[list[pa.RecordBatch]]) -> list[list[pa.RecordBatch]]:
        with ThreadPoolExecutor(2) as threads:
            return [*threads.map(self.run, [0, 1], made)]


@pytest.mark.parametrize("whole", [0, 4_000])
@pytest.mark.parametrize("count", [20, 90])
def test_tasks_of_all_shards_may_execute_at_the_same_time(
    count: int, whole: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They give the records that executing and formatting tasks give, whichever is first."""
    monkeypatch.setattr(hosts, "_FORMATTED_WHERE_EXECUTED", whole)
    monkeypatch.setattr(outputs, "_TASK_ROWS", 1)
    made, tasks = granted(count, by="shard"), Tasks(tmp_path, monkeypatch)
    found = tasks.run_both(made)
    assert rows(chain.from_iterable(found)) == executed(granted(count))
    assert all(found), "both write"
    given = [path.name for path in (tmp_path / "7").iterdir()]
    assert ("outputs-0" in given) is (whole < count)
    again = tasks.run(0, made[0])  # what others have given is still there
    assert rows(again) == rows(found[0])


def test_a_task_gives_nothing_of_a_shard_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees an end of its input; what it then gave the other tasks would take for all."""
    monkeypatch.setattr(outputs, "_TASK_ROWS", 1)
    made, tasks = granted(20, by="shard"), Tasks(tmp_path, monkeypatch)
    with monkeypatch.context() as impatient:
        impatient.setattr(
            BlockExchange, "_require_query", lambda _: pytest.fail("it waits for others")
        )
        for end in range(len(made[0])):
            with pytest.raises(SpoolError, match="is cut off"):
                tasks.run(0, made[0][:end])
    assert not [*(tmp_path / "7").glob("grants-*")]
    assert rows(chain.from_iterable(tasks.run_both(made))) == executed(granted(20))


@pytest.mark.parametrize("seed", range(seeds(40, 16)))
def test_a_partition_may_get_nothing_from_its_own_shard(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few keys and ids: whatever lies where, each transaction has its result, and its feedback."""
    count = 1 + seed % 5
    monkeypatch.setattr(hosts, "_FORMATTED_WHERE_EXECUTED", (0, 4_000)[seed % 2])
    found = Tasks(tmp_path, monkeypatch).run_both(granted(count, by="shard", seed=seed))
    assert rows(chain.from_iterable(found)) == executed(granted(count, seed=seed))


def executed(parts: list[list[pa.RecordBatch]]) -> Counter[tuple[object, ...]]:
    """What executing and formatting tasks make of it, one after the other."""
    given = hosts.Executor(StageSettings(CONFIG, 2))(chain.from_iterable(parts))
    return rows(hosts.Explode(StageSettings(CONFIG))(given))


def test_one_task_finds_the_faults_of_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So one start of the query is enough to rule on them."""
    parts, offsets = granted(40), iter((1, 2))

    def failing(*args: Any, **options: Any) -> Iterator[ExecutionOutcome]:
        for outcome in execute_in_parts(*args, **options):
            outcome.unruled.append(Fault(0, next(offsets), "KeyError"))
            yield outcome

    monkeypatch.setattr(core, "execute_in_parts", failing)
    with pytest.raises(UnruledFaults) as stopped:
        list(hosts.Executor(StageSettings(CONFIG, 2))(chain.from_iterable(parts)))
    assert [fault.offset for fault in stopped.value.faults] == [1, 2]


def test_each_batch_is_sent_before_more_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark would leave the end of one in its buffer until it writes the next."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    with os.fdopen(read_end, "rb", 0) as spark, os.fdopen(write_end, "wb") as output:
        monkeypatch.setattr(wire, "_outputs", [output])
        config = ShardConfig("bank", "inc", 1, 1, 100)
        batches = hosts.Executor(StageSettings(config, 1))(iter(one_shard(config)))
        for number, _ in enumerate(batches):
            if number:
                assert spark.read(100) == b"%d" % (number - 1)
            output.write(b"%d" % number)
    assert number > 1


def test_a_task_that_is_paced_waits_when_it_has_sent_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ShardConfig("bank", "inc", 1, 1, 100)
    given: list[pa.RecordBatch] = []
    waits: list[tuple[Path, int]] = []
    monkeypatch.setattr(wire, "_outputs", [])
    monkeypatch.setattr(hosts, "keep_pace", lambda folder: waits.append((folder, len(given))))
    executor = hosts.Executor(StageSettings(config, 1), str(tmp_path))
    for batch in executor(iter(one_shard(config))):
        given.append(batch)  # noqa: PERF402 - it is looked at meanwhile
    assert waits == [(shard_folder(tmp_path, "bank", "inc", 0), len(given))]
    assert len(given) > 1


def test_a_task_executes_nothing_of_what_its_only_shard_has_emitted_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ShardConfig("bank", "inc", 1, 1, 100)
    monkeypatch.setattr(hosts, "keep_pace", lambda _: pytest.fail("it has executed something"))
    grants = one_shard(config)
    for end in range(len(grants)):
        executor = hosts.Executor(StageSettings(config, 1), str(tmp_path))
        with pytest.raises(SpoolError, match="is cut off"):
            list(executor(iter(grants[:end])))


def one_shard(config: ShardConfig) -> list[pa.RecordBatch]:
    """The grants of a plan of a database with one shard."""
    raws = [b'{"id":"a","updates":[{"op":"add","key":"k","by":1}]}']
    columns = np.zeros(1, np.int32), np.arange(1), np.arange(1)
    state = MemoryBlobs(), MemoryValues(), MemoryIdTables()
    shard = KeyTransactionProcessor(config, 0, *state, Life("one"))
    blocks = [routed.block for routed in parse_transactions(*columns, raws, 1)]
    granted = [each.message.block() for each in shard.step(TO_SHARD.each(blocks))]
    return [block_rows([(0, 0, block) for block in granted], 1), END]
