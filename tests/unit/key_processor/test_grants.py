"""Grants: who gets which values, and which transactions repeat an id."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from streamydb import limits
from streamydb.frames import program as p
from streamydb.frames.grant_rows import GrantedTransactions, SlotRows
from streamydb.frames.hashing import ID_SEED, KEY_SEED, hash_ragged
from streamydb.frames.program import (
    NOT_A_DUPLICATE,
    PLAN_DUPLICATE,
    REUSED,
    TOO_LATE,
    WINDOW_DUPLICATE,
)
from streamydb.frames.record_rows import ReleasedRecords
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.duplicates import RepeatedResults
from streamydb.key_processor.grants import Granter, Grants, in_blocks
from streamydb.key_processor.idwindow import IdWindow, IdWindowState
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.key_processor.sizes import OwnSizes
from streamydb.key_processor.values import ShardValues, ValuesState
from streamydb.parser import builder
from streamydb.parser.core import parse_transactions
from streamydb.planner import conflicts
from streamydb.planner.conflicts import earlier_with_same_id, plan_transactions
from streamydb.planner.core import LastPlan, PlannedRecords, Planner
from streamydb.planner.plan import Plan
from tests.support.opened import opened


def add(*keys: str, by: int = 1, **more: Any) -> dict[str, Any]:
    return {"updates": [{"op": "add", "key": key, "by": by} for key in keys], **more}


class Shards:
    """The shards of a database before a plan, each with its values and ids."""

    def __init__(self, shards: int = 1, window: int = 100) -> None:
        self.shards, self.seq = shards, 0
        self.values = [ShardValues(ValuesState(), MemoryBlobs(), MemoryValues())
                       for _ in range(shards)]  # fmt: skip
        self.ids = [IdWindow(IdWindowState(window), MemoryBlobs(), MemoryIdTables())
                    for _ in range(shards)]  # fmt: skip

    def hold(self, values: dict[str, bytes]) -> None:
        """Store texts, in every shard: only its owner may grant one."""
        keys = Ragged.of([key.encode() for key in values])
        n = len(values)
        tags, numbers, versions = np.full(n, p.OPAQUE, np.uint8), np.zeros(n, int), np.full(n, 3)
        texts = Ragged.of([*values.values()])
        for shard in self.values:
            shard.apply(WrittenValues(tags, numbers, versions, keys, texts))

    def released(self, transactions: list[dict[str, Any]], shard: int, ts: int) -> ReleasedRecords:
        """What the sorter of a shard releases next."""
        n = len(transactions)
        raws = [json.dumps({"id": f"t{i}", **each}).encode() for i, each in enumerate(transactions)]
        routed = parse_transactions(
            np.zeros(n, np.int32), np.arange(n) + 40, np.full(n, ts), raws, self.shards
        )
        (block,) = [each.block for each in routed if each.shard == shard]
        (table,) = opened([block])
        return table.timed(np.full(n, ts)).released(np.arange(self.seq + 1, self.seq + n + 1))

    def granted(
        self, transactions: list[dict[str, Any]], shard: int = 0, ts: int = 1_000
    ) -> Grants:
        """What one shard grants for a plan of these transactions."""
        released = self.released(transactions, shard, ts)
        earlier = earlier_with_same_id(released.id0, released.kind != p.REJECTED)
        plan: Plan = plan_transactions(released, earlier, self.shards)
        planned = PlannedRecords(plan, earlier, len(released))
        granter = Granter(shard, self.shards, self.values[shard], self.ids[shard])
        self.slots = granter.read(released, planned)
        return granter.grant(released, planned, self.slots, None, 1 << 62)

    def end(self, grants: Grants, count: int, shard: int = 0, ts: int = 1_000) -> None:
        """The plan stands."""
        self.ids[shard].remember(grants.used, self.seq + 1, self.seq + count, ts)
        self.seq += count


@pytest.fixture(autouse=True)
def all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small plans use all partitions."""
    monkeypatch.setattr(conflicts, "LEAST_WEIGHT", 1)


def test_a_partition_gets_the_values_that_its_transactions_touch_from_their_owners() -> None:
    db = Shards(3)
    names = [f"k{i}" for i in range(24)]
    db.hold({name: b'"%s"' % name.encode() for name in names})
    transactions = [add(names[2 * i], names[2 * i + 1]) for i in range(12)]
    seen: dict[int, list[str]] = {}
    homes = []
    for shard in range(3):
        grants = db.granted(transactions, shard)
        for proc, txns, slots, _ in grants.parts:
            keys = [key.decode() for key in slots.key.tolist()]
            assert slots.text.tolist() == [b'"%s"' % key.encode() for key in keys]
            assert set(slots.version.tolist()) <= {3}
            seen.setdefault(proc, []).extend(keys)
            homes += [(proc, seq) for seq in txns.seq.tolist()]
    assert sorted(key for keys in seen.values() for key in keys) == sorted(names)
    assert sorted(seq for _, seq in homes) == list(range(1, 13))
    for proc, seq in homes:
        assert {names[2 * seq - 2], names[2 * seq - 1]} <= set(seen[proc])


def test_what_is_only_read_goes_to_every_partition_that_reads_it() -> None:
    db = Shards(3)
    db.hold({"read": b'"by all"'})
    transactions = [{**add(f"k{i}"), "reads": ["read"]} for i in range(9)]
    grants = [grant for shard in range(3) for grant in db.granted(transactions, shard).parts]
    getting = [proc for proc, _, slots, _ in grants if b"read" in slots.key.tolist()]
    assert sorted(getting) == sorted({proc for proc, *_ in grants}) == [0, 1, 2]


def kinds(grants: Grants) -> list[tuple[int, int]]:
    """(kind of duplicate, of which seq) of each transaction of the only partition."""
    ((_, txns, _, _),) = grants.parts
    pairs = zip(txns.duplicate.tolist(), txns.original.tolist(), strict=True)
    return list(pairs)


def test_copies_within_a_plan_are_those_of_the_first() -> None:
    db = Shards()
    grants = db.granted([
        add("k", id="a"), add("k", id="b"), add("k", id="a"), add("k", id="a", by=2),
        add("k", id="a"),
    ])  # fmt: skip
    fresh = (NOT_A_DUPLICATE, 0)
    assert kinds(grants) == [fresh, fresh, (PLAN_DUPLICATE, 1), (REUSED, 1), (PLAN_DUPLICATE, 1)]
    assert grants.used.seq.tolist() == [1, 2]


def test_all_shards_plan_alike_when_two_ids_share_the_half_of_a_hash_that_all_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hashed(values: Ragged, seed: int = KEY_SEED) -> Any:
        found = hash_ragged(values, seed)
        return np.full_like(found, 1) if seed == ID_SEED else found

    monkeypatch.setattr(builder, "hash_ragged", hashed)
    db = Shards(3)
    transactions = [add("k", id="a"), add("l", id="b"), add("k", id="a")]
    granted = [db.granted(transactions, shard).parts for shard in range(3)]
    assert len({proc for parts in granted for proc, *_ in parts}) == 1
    assert [sum(len(txns) for _, txns, *_ in parts) for parts in granted] == [0, 3, 0]
    fresh = (NOT_A_DUPLICATE, 0)
    assert kinds(db.granted(transactions, 1)) == [fresh, fresh, (PLAN_DUPLICATE, 1)]


def test_copies_of_earlier_plans_come_with_the_result_of_the_original() -> None:
    db = Shards(window=10)
    first = [add("k", id="a"), add("k", id="b")]
    db.end(db.granted(first), 2)
    db.ids[0].conclude(Verdicts.of([(2, b'{"aborted":1}')]))
    grants = db.granted([*first, add("k", id="a", by=2), add("k", id="c")])
    found = [(WINDOW_DUPLICATE, 1), (WINDOW_DUPLICATE, 2), (REUSED, 1), (NOT_A_DUPLICATE, 0)]
    assert kinds(grants) == found
    (told,) = RepeatedResults(MemoryBlobs(), db.ids[0]).results(grants.repeats)
    plain, kept = [json.loads(value) for value in told.records.value.tolist()]
    assert told.records.key.tolist() == [b"a", b"b"]
    copy = plain.pop("duplicate")
    assert plain == {
        "id": "a", "seq": 1, "ts_ms": 1000, "status": "committed", "reads": {}, "failed": [],
        "code": None, "source": {"partition": 0, "offset": 40},
    }  # fmt: skip
    assert (copy["seq"], kept["aborted"], kept["duplicate"]["seq"]) == (3, 1, 4)
    db.end(grants, 4)
    db.end(db.granted([add("k", id=f"other{i}") for i in range(5)]), 5)
    grants = db.granted([add("k", id="a"), add("k", id="c")])
    assert kinds(grants) == [(NOT_A_DUPLICATE, 0), (WINDOW_DUPLICATE, 6)]


def test_what_comes_after_its_deadline_uses_no_id() -> None:
    db = Shards()
    late = add("k", id="a", deadline_ms=999)
    grants = db.granted([late, late, add("k", id="b", deadline_ms=1_000)])
    assert kinds(grants) == [(TOO_LATE, 0), (TOO_LATE, 0), (NOT_A_DUPLICATE, 0)]
    assert grants.used.dated().deadline.tolist() == [1_000]


def test_a_plan_ends_before_its_values_are_too_many_bytes() -> None:
    db = Shards()
    db.hold({f"k{i}": b"x" * 1_000 for i in range(9)})
    released = db.released([add(f"k{i}") for i in range(9)], 0, 1_000)
    planner, sizes = Planner(1, LastPlan()), OwnSizes(db.values[0])
    plans = [planner.plan(released, sizes, bytes_max) for bytes_max in (9_000, 8_999, 3_000, 1)]
    assert [plan.size for plan in plans] == [9, 8, 3, 1]
    assert [len(plan.plan.proc) for plan in plans] == [9, 8, 3, 1]


def test_one_transaction_may_meet_so_many_bytes_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "VALUE_BYTES_MAX", 1_000)
    names = [f"k{i}" for i in range(9)]
    db = Shards()
    db.hold(dict.fromkeys(names, b"x" * 1_000))
    for most, over in ((9_000, False), (8_999, True)):
        monkeypatch.setattr(limits, "TRANSACTION_VALUES_BYTES_MAX", most)
        ((_, _, slots, _),) = db.granted([add(*names)]).parts
        assert (db.slots.omitted, len(slots.text.data)) == (over, 0 if over else 9_000)
        assert len(slots.key) == 9


def test_a_large_grant_goes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    db = Shards()
    db.hold({f"k{i}": b"x" * 400 for i in range(10)})
    ((_, txns, slots, _),) = db.granted([add(f"k{i}") for i in range(10)]).parts
    assert [(len(a), len(b)) for a, b, _ in in_blocks(txns, slots)] == [(10, 10)]
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 1_000)
    parts = list(in_blocks(txns, slots))
    assert [(len(a), len(b)) for a, b, _ in parts] == [(10, 0), *[(0, 2)] * 5]
    again = SlotRows.concat([part[1] for part in parts])
    assert again.key.tolist() == slots.key.tolist()
    assert again.text.tolist() == slots.text.tolist()


def test_a_grant_of_many_integers_goes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, steps and slots count, too, where no value and no payload has a text."""
    db = Shards()
    grant = [add(*(f"k{i}/{n}" for n in range(4))) for i in range(30)]
    ((_, txns, slots, _),) = db.granted(grant).parts
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 800)
    parts = [(own, values) for own, values, _ in in_blocks(txns, slots)]
    assert max(len(own) for own, _ in parts) <= 800 // (2 * 4 * 8)
    assert max(len(values) for _, values in parts) <= 800 // (8 + len("k0/0"))
    own = GrantedTransactions.concat([part[0] for part in parts])
    values = SlotRows.concat([part[1] for part in parts])
    assert own.seq.tolist() == txns.seq.tolist()
    assert values.key.tolist() == slots.key.tolist()
