"""The planner: conflict groups against a naive search, balance, and that all shards plan alike."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from streamydb.columns import Ragged, Table
from streamydb.hashing import hash_ragged
from streamydb.pipeline.blocks import open_block, open_records
from streamydb.pipeline.stages import parse_transactions
from streamydb.sorter.planner import earlier_with_same_id, intern, plan_transactions
from streamydb.txn_processor import program as p
from streamydb.txn_processor.compile import compile_records


def records(rng: random.Random, count: int, keys: int) -> list[bytes]:
    made = []
    for i in range(count):
        touched = rng.sample(range(keys), min(keys, rng.choice([1, 2, 3])))
        updates = [{"op": "add", "key": f"k{k}", "by": 1} for k in touched[: rng.randrange(3)]]
        reads = [f"k{k}" for k in touched if rng.random() < 0.7]
        name = f"t{rng.randrange(i + 1) if rng.random() < 0.1 else i}"
        made.append(json.dumps({"id": name, "updates": updates, "reads": reads}).encode())
    made.insert(len(made) // 2, b"rejected")
    return made


def table(values: list[bytes]) -> Table:
    n = len(values)
    return compile_records(np.zeros(n, np.int32), np.arange(n), np.arange(n), values)


def earlier(released: Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    cols = released.cols
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = earlier_with_same_id(
        cols["id0"], cols["id1"], cols["kind"] != p.REJECTED
    )
    return found


def conflicts(values: list[bytes]) -> list[tuple[int, int]]:
    """Pairs that must run on one partition, found by looking at every pair."""
    parsed = [json.loads(v) if v.startswith(b"{") else {} for v in values]
    writes = [{u["key"] for u in t.get("updates", [])} for t in parsed]
    touched = [w | set(t.get("reads", [])) for w, t in zip(writes, parsed, strict=True)]
    written = set().union(*writes)
    return [
        (i, j)
        for i in range(len(values))
        for j in range(i)
        if touched[i] & touched[j] & written
        or (parsed[i] and parsed[i].get("id") == parsed[j].get("id"))
    ]


@pytest.mark.parametrize("seed", range(25))
def test_who_shares_a_written_key_or_an_id_runs_on_one_partition(seed: int) -> None:
    rng = random.Random(seed)
    values = records(rng, 120, rng.choice([5, 60, 400]))
    released = table(values)
    procs = rng.choice([2, 3, 8])
    plan = plan_transactions(released, earlier(released), procs)
    assert len(plan.proc) == len(values)
    assert 0 <= plan.proc.min() <= plan.proc.max() < procs
    for i, j in conflicts(values):
        assert plan.proc[i] == plan.proc[j], (values[i], values[j])
    assert plan.procs() == sorted(set(plan.proc.tolist()))


@pytest.mark.parametrize("seed", range(8))
def test_groups_are_the_connected_components(seed: int) -> None:
    rng = random.Random(seed)
    values = records(rng, 100, 150)
    released = table(values)
    plan = plan_transactions(released, earlier(released), 4)
    group = list(range(len(values)))
    for i, j in conflicts(values):
        old, new = group[i], group[j]
        group = [new if g == old else g for g in group]
    assert plan.groups == len(set(group))
    assert plan.largest == max(group.count(g) for g in set(group))


def test_every_shard_plans_alike() -> None:
    rng = random.Random(3)
    values = records(rng, 200, 40)
    columns = np.zeros(len(values), np.int32), np.arange(len(values)), np.arange(len(values))
    plans = []
    for routed in parse_transactions(*columns, values, 3):
        released = open_records(open_block(routed.block)[1])
        plans.append(plan_transactions(released, earlier(released), 3).proc.tolist())
    assert len(plans) == 3
    assert plans[0] == plans[1] == plans[2]


def test_independent_transactions_are_spread_evenly() -> None:
    adds = [[{"op": "add", "key": f"k{i}", "by": 1}] for i in range(1000)]
    values = [json.dumps({"id": f"t{i}", "updates": u}).encode() for i, u in enumerate(adds)]
    released = table(values)
    plan = plan_transactions(released, earlier(released), 4)
    assert np.bincount(plan.proc).tolist() == [250] * 4
    assert plan.groups == 1000


def test_interning_numbers_keys_by_first_occurrence() -> None:
    rng = random.Random(1)
    keys = [b"key/%d" % rng.randrange(3000) for _ in range(20_000)]
    texts = Ragged.of(keys)
    slot, first = intern(hash_ragged(texts), texts)
    known: dict[bytes, int] = {}
    assert slot.tolist() == [known.setdefault(key, len(known)) for key in keys]
    assert [keys[i] for i in first] == list(known)


def test_keys_whose_hashes_collide_stay_apart() -> None:
    texts = Ragged.of([b"a", b"b", b"a", b"c", b"b"])
    slot, first = intern(np.zeros(5, np.uint64), texts)
    assert slot.tolist() == [0, 1, 0, 2, 1]
    assert first.tolist() == [0, 1, 3]
