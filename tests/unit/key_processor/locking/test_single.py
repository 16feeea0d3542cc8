"""`grouping=single` against the serial oracle: late, repeated and reordered feedback, replays."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest

from simulator.workload import Workload
from streamydb.errors import InvariantViolation
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.readers import TO_GATHERER, TO_SINGLE_SHARD
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.locking.core import SingleShard
from streamydb.key_processor.locking.locks import LockTable
from streamydb.key_processor.locking.state import SingleMeta
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.key_processor.state import load
from streamydb.key_processor.values import ShardValues
from streamydb.limits import VALUE_BYTES_MAX
from streamydb.parser.core import parse_feedback, parse_transactions
from streamydb.records.rulings import NO_RULINGS, Rulings, UnruledFaults
from streamydb.txn_processor import interpreter
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.gathering.core import Gatherer
from streamydb.txn_processor.gathering.gathered import GatherState
from streamydb.verify.oracle.core import Oracle
from tests.support.seeds import seeds

TOPICS = {o.RESULTS: "results", o.CHANGES: "changes", o.DEAD_LETTERS: "deadletters"}
Record = tuple[str, bytes | None, bytes | None]


@dataclass
class Single:
    """A database of pure classes, batch by batch. ``inbox``: feedback that was not read yet."""

    shards: int
    window: int = 50
    shape: PlanShape = field(default_factory=PlanShape)
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    replays: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    rulings: Rulings = NO_RULINGS

    def __post_init__(self) -> None:
        self.config = ShardConfig("bank", "inc", self.shards, 1, self.window, "single")
        self.life = Life("a", self.shape)
        self.oracle = Oracle("bank", self.window, self.rulings)
        self.blobs = [MemoryBlobs() for _ in range(self.shards)]
        self.values = [MemoryValues() for _ in range(self.shards)]
        self.tables = [MemoryIdTables() for _ in range(self.shards)]
        self.gathers = [MemoryBlobs() for _ in range(self.shards)]
        self.inbox: list[bytes] = []
        self.offset = 0
        self.expected: list[Record] = []
        self.written: list[Record] = []
        self.resolved: list[tuple[int, dict[str, int], int]] = []
        self.changed: dict[bytes | None, list[int]] = {}

    def batch(self, values: list[bytes | None]) -> None:
        """One micro-batch: ``values`` appended, some feedback read, perhaps executed twice."""
        rng = self.rng
        feedback = [block for block in self.inbox if rng.random() >= self.late]
        self.inbox = [block for block in self.inbox if block not in feedback]
        rng.shuffle(feedback)
        again = [block for block in feedback if rng.random() < self.doubled]
        first = self.offset
        self.offset += len(values)
        for i, value in enumerate(values, first):
            outputs = self.oracle.apply(value, 0, i, 1000 + i // 3)
            self.expected += [(x.topic, x.key, x.value) for x in outputs]
        states = [MemoryBlobs(b.blobs) for b in (*self.blobs, *self.gathers)]
        records = self.attempt(states, values, first, feedback)
        if rng.random() < self.replays:
            if rng.random() < 0.3:
                self.values = [MemoryValues() for _ in range(self.shards)]
                self.tables = [MemoryIdTables() for _ in range(self.shards)]
            states = [MemoryBlobs(b.blobs) for b in (*self.blobs, *self.gathers)]
            rng.shuffle(feedback)
            repeated = self.attempt(states, values, first, feedback)
            assert flat(repeated) == flat(records)
        self.blobs, self.gathers = states[: self.shards], states[self.shards :]
        self.inbox += again
        self.write(records)

    def attempt(
        self, states: list[MemoryBlobs], values: list[bytes | None], first: int, fed: list[bytes]
    ) -> list[o.OutputRecords]:
        inputs: list[list[bytes]] = [[] for _ in range(self.shards)]
        for routed in parse_feedback(fed, self.config):
            inputs[routed.shard].append(routed.block)
        if values:
            n = len(values)
            offsets = np.arange(first, first + n)
            columns = np.zeros(n, np.int32), offsets, 1000 + offsets // 3
            for routed in parse_transactions(*columns, values, self.shards, whole=True):
                inputs[routed.shard].append(routed.block)
        granted: list[list[bytes]] = [[] for _ in range(self.shards)]
        for q in range(self.shards):
            shard = SingleShard(
                self.config, q, states[q], self.values[q], self.tables[q], self.life
            )
            for emitted in shard.step(TO_SINGLE_SHARD.each(inputs[q])):
                granted[emitted.proc].append(emitted.message.block())
        found: list[o.OutputRecords] = []
        for q, blocks in enumerate(granted):
            if blocks:
                self.rng.shuffle(blocks)
                gathered = states[self.shards + q]
                gatherer = Gatherer(self.config, q, gathered, 2, rulings=self.rulings)
                found += gatherer.step(TO_GATHERER.each(blocks))
        return found

    def write(self, records: list[o.OutputRecords]) -> None:
        for batch in records:
            if batch.topic == o.FEEDBACK:
                self.inbox += batch.values.tolist()
                continue
            for key, value in zip(batch.keys.tolist(), batch.values.tolist(), strict=True):
                if value.startswith(b'{"resolved"'):
                    found = json.loads(value)
                    done = len({r for r in self.written if r[0] == "results"})
                    self.resolved.append((found["resolved"], found["offsets"], done))
                    continue
                self.written.append((TOPICS[batch.topic], key or None, value or None))
                if batch.topic == o.CHANGES and value:
                    self.changed.setdefault(key, []).append(json.loads(value)["source"]["seq"])

    def settle(self) -> None:
        """Batches without input until nothing more happens; then everything must be right."""
        for _ in range(2000):
            if not self.inbox:
                break
            self.batch([])
        assert not self.inbox
        assert Counter(self.written) == Counter(self.expected)
        self.check_rest()

    def check_rest(self) -> None:
        found = {}
        for blobs, store in zip(self.blobs, self.values, strict=True):
            meta = load(SingleMeta, blobs.blobs["meta"])
            assert (meta.seq, meta.resolved) == (self.oracle.next_seq - 1,) * 2
            assert not meta.locks
            assert not meta.unresolved
            assert not meta.repeats
            shard = ShardValues(meta.values, blobs, store)
            table = shard.everything()
            for i, key in enumerate(table.key.tolist()):
                value = b"%d" % table.number[i] if table.tag[i] == 1 else table.text[i]
                found[key.decode()] = (value, int(table.version[i]))
            if len(table):
                assert shard.read(table.key).version.tolist() == table.version.tolist()
        assert found == self.oracle.state
        for blobs in self.gathers:
            if "gather" in blobs.blobs:
                state = msgspec.msgpack.decode(blobs.blobs["gather"], type=GatherState)
                assert not state.waiting
                assert set(blobs.blobs) == {"gather"}
        for seqs in self.changed.values():
            assert seqs == sorted(seqs)
        for seq, offsets, results in self.resolved:
            assert results >= seq
            assert int(offsets["0"]) == seq
        assert max(seq for seq, _, _ in self.resolved) == self.oracle.next_seq - 1


def flat(records: list[o.OutputRecords]) -> list[tuple[int, list[bytes], list[bytes], int]]:
    return sorted((r.topic, r.keys.tolist(), r.values.tolist(), r.partition) for r in records)


def txn(name: str, **parts: object) -> bytes:
    return json.dumps({"id": name, **parts}).encode()


def add(key: str, by: int) -> dict[str, object]:
    return {"op": "add", "key": key, "by": by}


@pytest.mark.parametrize("seed", range(seeds(40, 10)))
def test_any_history_is_the_oracles(seed: int) -> None:
    rng = random.Random(seed)
    keys = [f"k{i}" for i in range(rng.choice([1, 3, 8, 40]))] + ["é/\n"]
    work = Workload(rng, keys, rng.choice([0.0, 0.2, 0.6]), 0.05, rng.choice([0.0, 0.5]))
    db = Single(
        rng.randint(1, 4),
        rng.choice([2, 20, 1000]),
        PlanShape(rng.choice([7, 10_000])),
        rng,
        replays=rng.choice([0.0, 0.3]),
        late=rng.choice([0.0, 0.5]),
        doubled=rng.choice([0, 0.3]),
    )
    for _ in range(12):
        db.batch([work.record() for _ in range(rng.choice([0, 1, 5, 20]))])
    db.settle()


def test_blind_writers_whose_feedback_comes_back_in_the_other_order() -> None:
    """The seed's first anomaly: two writers of two keys on two shards, results crossing."""
    for seed in range(20):
        db = Single(2, rng=random.Random(seed), late=0.7, doubled=0.3)
        for i in range(6):
            puts = [{"op": "put", "key": key, "value": i} for key in ("a", "b", "c", "d")]
            db.batch([txn(f"w{i}", updates=puts), txn(f"r{i}", reads=["a", "b", "c", "d"])])
        db.settle()
        reads = [json.loads(v or b"")["reads"] for t, _, v in db.written if t == "results"]
        assert all(len(set(found.values())) == 1 for found in reads if found)


def test_a_repeated_id_waits_for_the_verdict_of_its_original() -> None:
    """The original waits for a hot key; its copies, one past a window of 3, are answered right."""
    for shards in (1, 3):
        db = Single(shards, window=3)
        db.batch([txn(f"h{i}", updates=[add("hot", 1)], reads=["hot"]) for i in range(4)])
        again = txn("x", updates=[add("hot", 10)], reads=["hot"])
        db.batch([again, again, txn("x", updates=[]), again, again])
        db.settle()
        codes = [json.loads(v or b"")["code"] for t, _, v in db.written if t == "results"]
        assert codes.count("id-reused") == 1
        assert db.oracle.state["hot"][0] == b"24"


def test_nothing_more_is_released_while_too_much_is_in_flight() -> None:
    db = Single(2, shape=PlanShape(in_flight_max=5))
    db.batch([txn(f"t{i}", updates=[add("hot", 1)]) for i in range(23)])
    while db.inbox:
        assert all(len(load(SingleMeta, b.blobs["meta"]).unresolved) <= 5 for b in db.blobs)
        db.batch([])
    db.settle()


def test_nothing_more_is_released_while_the_queues_are_long() -> None:
    db = Single(1, shape=PlanShape(records_max=4, lock_queue_max=6))
    db.batch([txn(f"t{i}", updates=[add("hot", 1)]) for i in range(12)])
    db.batch([])
    assert len(LockTable(load(SingleMeta, db.blobs[0].blobs["meta"]).locks)) <= 6 + 2 * 4
    db.settle()


def test_feedback_larger_than_a_block_comes_in_chunks_of_any_order() -> None:
    for seed in range(10):
        shape = PlanShape(feedback_bytes_max=300)
        db = Single(2, shape=shape, rng=random.Random(seed), late=0.6, doubled=0.4)
        for i in range(3):
            keys = [f"key{j}" for j in range(30)]
            updates = [{"op": "put", "key": key, "value": "v" * 40} for key in keys]
            db.batch([txn(f"t{i}", updates=updates, reads=keys)])
        db.settle()


def test_values_at_the_limit() -> None:
    db = Single(2)
    big = "v" * (VALUE_BYTES_MAX - 2)
    puts = [{"op": "put", "key": f"k{i}", "value": big} for i in range(5)]
    db.batch([txn(f"p{i}", updates=[put]) for i, put in enumerate(puts)])
    db.batch([txn("r", reads=[f"k{i}" for i in range(5)]), txn("s", asserts={"k0": 1})])
    db.settle()


def test_an_error_of_our_own_aborts_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> interpreter.Verdict:
        raise KeyError("a fault")

    monkeypatch.setattr(interpreter, "execute", fails)
    with pytest.raises(UnruledFaults) as stopped:
        Single(2).batch([txn("a", updates=[add("k", 1)])])
    db = Single(2, rulings=Rulings(stopped.value.faults))
    db.batch([txn("a", updates=[add("k", 1)])])
    while db.inbox:
        db.batch([])
    results = [json.loads(v or b"") for t, _, v in db.written if t == "results"]
    letters = [json.loads(v or b"") for t, _, v in db.written if t == "deadletters"]
    assert [r["code"] for r in results] == ["internal"]
    assert [letter["error"].split()[0] for letter in letters] == ["KeyError"]
    assert load(SingleMeta, db.blobs[0].blobs["meta"]).resolved == 1


def test_feedback_of_a_step_that_was_not_committed_is_ignored() -> None:
    """As of a batch that is repeated, or of the future that a restored checkpoint has lost."""
    ahead, behind = Single(1), Single(1)
    ahead.batch([txn("a", updates=[add("k", 1)])])
    behind.inbox = ahead.inbox
    behind.batch([])
    meta = load(SingleMeta, behind.blobs[0].blobs["meta"])
    assert (meta.ignored, meta.resolved) == (1, 0)


def test_feedback_of_what_was_never_released_stops_everything() -> None:
    ahead, behind = Single(1), Single(1)
    ahead.batch([txn("a", updates=[add("k", 1)])])
    behind.batch([])
    behind.inbox = ahead.inbox
    with pytest.raises(InvariantViolation, match="before it was released"):
        behind.batch([])


@pytest.mark.fault(30, "feedback of another incarnation", "ignored")
def test_foreign_feedback_is_ignored() -> None:
    db = Single(1)
    db.inbox = [b"garbage", b""]
    db.batch([txn("a", updates=[add("k", 1)])])
    db.settle()
