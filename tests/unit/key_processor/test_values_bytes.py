"""Bytes of the values that transactions and plans touch: bounded, cut, granted in blocks."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from simulator.cluster import Cluster
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from streamydb import limits
from streamydb.frames import program as p
from streamydb.frames.hashing import KEY_SEED, hash_ragged
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.readers import TO_SHARD, ToExecutor
from streamydb.frames.shards import ShardConfig
from streamydb.frames.sizes import Sizes, SizesState, class_of, tells, tells_of
from streamydb.frames.table import Ragged, starts_of
from streamydb.frames.value_rows import ResultRows, WrittenValues
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.idwindow import IdWindowState
from streamydb.key_processor.memory import MemoryBlobs, MemoryValues
from streamydb.key_processor.state import ShardState
from streamydb.key_processor.values import ShardValues, ValuesState
from streamydb.local.id_files import FileIdTables
from streamydb.local.shard_files import LmdbValues
from streamydb.parser.core import parse_feedback, parse_transactions
from streamydb.sorter.state import SorterState
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.format import format_results

KEYS, SIZE = 512, 262_144
MEBIBYTE = 1 << 20


def opaque(keys: Sequence[bytes], size: int) -> WrittenValues:
    """Writes of strings of ``size`` bytes, quotes included."""
    n = len(keys)
    data = np.full(n * size, ord("x"), np.uint8)
    data[::size] = data[size - 1 :: size] = ord('"')
    return WrittenValues(
        np.full(n, p.OPAQUE, np.uint8),
        np.zeros(n, np.int64),
        np.ones(n, np.int64),
        Ragged.of(list(keys)),
        Ragged(data, np.arange(n + 1) * size),
    )


class Database:
    """One shard with large values in LMDB, batch by batch; measures what its steps take."""

    def __init__(self, folder: Path) -> None:
        self.config = ShardConfig("large", "life", 1, 1, 1000)
        self.folder, self.blobs = folder, MemoryBlobs()
        self.keys = [b"k%d" % i for i in range(KEYS)]
        values = ValuesState()
        for keys in (self.keys[:32], self.keys[32:]):  # which are merged, as the later are more
            writes = opaque(keys, SIZE)
            ShardValues(values, self.blobs, LmdbValues(folder)).apply(writes)
        meta = ShardState(
            self.config, SorterState(1), values, IdWindowState(1000), seq=1, shape=PlanShape()
        )
        self.blobs.put("meta", msgspec.msgpack.encode(meta))
        self.offset = 0
        self.feedback: list[bytes | None] = []
        self.results: list[dict[str, Any]] = []
        self.granted: list[list[int]] = []
        self.peak = 0

    def append(self, transactions: list[dict[str, Any]]) -> None:
        """One batch that reads these transactions, and those that its feedback leads to."""
        values = [json.dumps(transaction).encode() for transaction in transactions]
        n, self.offset = len(values), self.offset + len(values)
        offsets = np.arange(self.offset - n, self.offset)
        routed = parse_transactions(np.zeros(n, np.int32), offsets, np.ones(n, np.int64), values, 1)
        self.step([r.block for r in routed])
        while self.feedback:
            fed = [r.block for r in parse_feedback(self.feedback, self.config)]
            self.feedback = []
            self.step(fed)

    def step(self, blocks: list[bytes]) -> None:
        """One micro-batch."""
        tracemalloc.start()
        tables = FileIdTables(self.folder)
        shard = KeyTransactionProcessor(
            self.config, 0, self.blobs, LmdbValues(self.folder), tables, Life("a", PlanShape())
        )
        grants = [emitted.message for emitted in shard.step(TO_SHARD.each(blocks))]
        tables.close()
        self.granted.append([len(each.block()) for each in grants])
        for item in self.outputs(grants):
            if isinstance(item, o.OutputRows) and isinstance(item.table, ResultRows):
                self.results += [json.loads(r) for r in format_results(item.table).tolist()]
            elif isinstance(item, o.ShardMessage):
                self.feedback.append(item.message.block())
        self.peak = max(self.peak, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    def outputs(self, grants: list[ToExecutor]) -> Iterator[o.Output]:
        """What the executing partition makes of grants."""
        return TransactionProcessor(self.config, 1, 1).step(grants)


@pytest.mark.fault(
    37, "a valid transaction checks 128 MiB of values, real LMDB",
    "reason code; the values are not even read",
)  # fmt: skip
def test_a_transaction_that_meets_too_much_gets_its_reason_code(tmp_path: Path) -> None:
    db = Database(tmp_path)
    checks = [{"key": key.decode(), "exists": True} for key in db.keys]
    db.append([{"id": "much", "checks": checks, "updates": [{"op": "delete", "key": "k0"}]}])
    db.append([{"id": "after", "checks": [{"key": "k0", "exists": True}]}])
    shown = [(result["id"], result["status"], result["code"]) for result in db.results]
    assert shown == [("much", "aborted", "values-too-large"), ("after", "committed", None)]
    assert db.peak < 5 * limits.BLOCK_BYTES_MAX, "a few parts, for the digest of a new state"
    assert max(map(sum, db.granted)) < MEBIBYTE


@pytest.mark.fault(
    37, "a plan of valid transactions touches 480 MiB of values, real LMDB",
    "smaller plans, all committed; memory bounded",
)  # fmt: skip
def test_a_plan_that_touches_too_much_is_cut(tmp_path: Path) -> None:
    db = Database(tmp_path)
    rng = random.Random(1)
    transactions = []
    for number in range(30):
        keys = [key.decode() for key in rng.sample(db.keys, 64)]
        checks = [{"key": key, "exists": True} for key in keys]
        updates = [{"op": "add", "key": "n", "by": 1}]
        transactions.append({"id": f"t{number}", "checks": checks, "updates": updates})
    db.append(transactions)
    assert [result["id"] for result in db.results] == [f"t{i}" for i in range(30)]
    assert {result["status"] for result in db.results} == {"committed"}
    plans = [sizes for sizes in db.granted if sum(sizes) > MEBIBYTE]
    assert len(plans) >= 7
    assert max(map(sum, plans)) < limits.PLAN_VALUES_BYTES_MAX + MEBIBYTE
    assert max(map(max, plans)) < limits.BLOCK_BYTES_MAX + SIZE
    assert db.peak < 7 * limits.PLAN_VALUES_BYTES_MAX


def test_large_reads_and_changes_are_formatted_in_blocks(tmp_path: Path) -> None:
    """Each of 40 transactions reads and replaces 256 KiB: no block of outputs has it all."""
    db = Database(tmp_path)
    sizes: list[int] = []

    def outputs(grants: list[ToExecutor]) -> Iterator[o.Output]:
        for item in TransactionProcessor(db.config, 1, 1).step(grants):
            if isinstance(item, o.OutputRows):
                sizes.append(len(o.formatted(item, "db").values.data))
            yield item

    db.outputs = outputs  # type: ignore[method-assign]
    updates = [[{"op": "put", "key": f"k{i}", "value": "new"}] for i in range(40)]
    db.append([{"id": f"t{i}", "updates": each} for i, each in enumerate(updates)])
    db.append([{"id": f"r{i}", "reads": [f"k{i}"]} for i in range(40, 80)])
    assert len(db.results) == 80
    assert sum(sizes) > 20 * MEBIBYTE
    assert max(sizes) < limits.BLOCK_BYTES_MAX + 2 * SIZE


def test_a_large_blob_that_became_small_is_merged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging two blobs that are large together leaves one part, if most of it was replaced."""
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 2_000)
    state, blobs, store = ValuesState(), MemoryBlobs(), MemoryValues()
    for size in (1_500, 700, 400, 400):
        writes = opaque([b"k"], size)
        ShardValues(state, blobs, store).apply(writes)
        found = ShardValues(state, blobs, MemoryValues()).read(Ragged.of([b"k"]))
        assert found.text.tolist() == writes.text.tolist()
    assert len(state.blobs) == 1


@pytest.mark.parametrize("grouping", ["planner", "single"])
@pytest.mark.parametrize("shards", [1, 2])
def test_the_limit_of_a_transaction_at_n_and_one_more(
    grouping: str, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts with their quotes, integers by their digits; all keys that it names, each once."""
    monkeypatch.setattr(limits, "TRANSACTION_VALUES_BYTES_MAX", 100)
    log = SimulatedLog(random.Random(1), 1)
    config = ShardConfig("sim", f"limit {grouping} {shards}", shards, 1, 1000, grouping)
    cluster = Cluster(config, log, random.Random(1), crashes=0.0)
    puts = {"a": "x" * 58, "b": -12345, "c": "y" * 32, "d": "z" * 33}
    values = [{"op": "put", "key": key, "value": value} for key, value in puts.items()]
    reads = {"fits": ["a", "b", "c", "a"], "over": ["a", "b", "d"]}
    written: list[dict[str, Any]] = [{"id": "w", "updates": values}]
    written += [{"id": name, "reads": keys} for name, keys in reads.items()]
    written += [
        {"id": "blind", "updates": [{"op": "delete", "key": key} for key in "abd"]},
        {"id": "absent", "updates": [{"op": "put", "key": "e", "value": "w" * 200}]},
        {"id": "grown", "asserts": {"e": None}},
    ]
    for transaction in written:
        log.append(json.dumps(transaction).encode())
    while cluster.behind():
        cluster.batch(all_of_it=True)
    judge(cluster, log, SeedOutcome(0))
    found = [json.loads(w.value or b"") for w in cluster.written if w.topic == o.RESULTS]
    codes = {result["id"]: result["code"] for result in found}
    over = dict.fromkeys(("over", "blind", "grown"), "values-too-large")
    assert codes == {"w": None, "fits": None, "absent": None, **over}


def test_values_weigh_the_same_whether_they_were_read_or_measured(tmp_path: Path) -> None:
    """Or a plan that was cut by the one is too large by the other, and nothing goes on."""
    texts = [b"", b'"1"', b'"123456"', b'"12345678"', b"x" * 8, b"x" * 16, b"x" * 5_000]
    n, tags = len(texts), (p.INT, p.OPAQUE, p.EXPIRING)
    for turn, tag in enumerate(tags):
        values = ShardValues(ValuesState(), MemoryBlobs(), LmdbValues(tmp_path / f"{turn}"))
        keys = [b"k%d" % i for i in range(n)]
        held = Ragged.of([b""] * n if tag == p.INT else texts)
        columns = np.full(n, tag, np.uint8), np.full(n, 7), np.ones(n, int)
        values.apply(WrittenValues(*columns, Ragged.of(keys), held))
        wanted = Ragged.of([*keys, b"none"])
        assert values.sizes_of(values.read(wanted)).tolist() == values.sizes(wanted).tolist()


def test_the_table_of_sizes_is_never_below_what_was_told() -> None:
    rng = np.random.default_rng(1)
    keys = [b"key/%d" % i for i in range(5_000)]
    lengths = rng.choice([1, 200, 256, 257, 5_000, 262_144], len(keys))
    texts = Ragged(np.zeros(0, np.uint8), starts_of(lengths))
    none = np.zeros(len(keys), np.int64)
    tags = np.full(len(keys), p.OPAQUE, np.uint8)
    table = WrittenValues(tags, none, none, Ragged.of(keys), texts)
    blobs, state = MemoryBlobs(), SizesState(known=True)
    sizes = Sizes(state, blobs)
    for told in tells_of([table]):
        sizes.hear(told)
        sizes.hear(told)
    sizes.save()
    again = Sizes(msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=SizesState), blobs)
    hashes = hash_ragged(Ragged.of(keys), KEY_SEED)
    found = again.of(hashes)
    assert (found[lengths > 256] >= lengths[lengths > 256]).all()
    assert (found[lengths > 256] < 2 * lengths[lengths > 256]).mean() > 0.9
    assert (again.of(hashes ^ np.uint64(0x5555555500)) == 64).mean() > 0.9
    assert class_of(np.array([0, 256, 257, 512, 513])).tolist() == [0, 0, 1, 1, 2]
    assert not tells(Ragged.empty(), np.empty(0, np.uint8))


def test_what_all_shards_tell_without_execution_fits_in_a_record_batch() -> None:
    """One task may read it, in one record batch (arrow.maxRecordsPerBatch rows of any size)."""
    shape = PlanShape()
    assert shape.turn_bytes_max(1) == limits.PLAN_VALUES_BYTES_MAX
    for shards in range(1, limits.SHARDS_MAX + 1):
        turn = max(shape.turn_bytes_max(shards), limits.BLOCK_BYTES_MAX)
        assert shards * (turn + limits.RESULT_BYTES_MAX) < 1 << 31
    assert PlanShape(values_bytes_max=100).turn_bytes_max(64) == 100
