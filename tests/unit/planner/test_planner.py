"""Plans against a naive union-find: what conflicts stays together, what does not is spread."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.workload import Workload
from streamydb import records as r
from streamydb.frames import program as p
from streamydb.frames.hashing import hash_ragged
from streamydb.frames.interning import intern
from streamydb.frames.record_rows import CompiledRecords, RecordKeys, RecordRanges, TimedRecords
from streamydb.frames.table import ChildRows, Ragged, starts_of
from streamydb.parser.compile import compile_records
from streamydb.parser.core import parse_transactions
from streamydb.planner import conflicts
from streamydb.planner.conflicts import (
    LEAST_WEIGHT,
    _components,
    earlier_with_same_id,
    plan_transactions,
)
from streamydb.planner.plan import Plan
from streamydb.planner.ranges import links_of
from tests.support.opened import opened, timed, to_plan


@dataclass(frozen=True)
class Txn:
    """What a plan depends on: an id (None when the record is refused), keys, True if written, the
    keys in its ranges: those from one number up to another; and if Python executes it.
    """

    id: int | None
    keys: tuple[tuple[int, bool], ...]
    ranges: tuple[tuple[int, int], ...] = ()
    python: bool = False

    def kind(self) -> int:
        """As the record's column has it."""
        return p.REJECTED if self.id is None else p.GENERIC if self.python else p.SIMPLE

    def weight(self) -> int:
        """As it counts for a partition."""
        return (100 if self.kind() == p.GENERIC else 1) + len(self.keys)


@st.composite
def plans(draw: st.DrawFn) -> list[Txn]:
    ids = st.one_of(st.none(), st.integers(0, 30), st.integers(0, 2**63))
    keys = st.dictionaries(st.integers(0, draw(st.integers(0, 40))), st.booleans(), max_size=4)
    ranges = st.lists(st.tuples(st.integers(0, 41), st.integers(0, 41)), max_size=2).map(tuple)
    some = st.one_of(st.just(()), ranges) if draw(st.booleans()) else st.just(())
    made = st.builds(
        lambda name, touched, *others: Txn(name, tuple(touched.items()), *others),
        ids,
        keys,
        some,
        st.booleans(),
    )
    return draw(st.lists(made, max_size=30))


def table_of(txns: Sequence[Txn]) -> TimedRecords:
    """The columns that the planner reads."""
    touched = [(b"key/%04d" % key, write) for txn in txns for key, write in txn.keys]
    texts = Ragged.of([key for key, _ in touched])
    write = np.array([write for _, write in touched], np.uint8)
    counts = np.array([len(txn.keys) for txn in txns], np.int64)
    kinds = [txn.kind() for txn in txns]
    ids = np.array([txn.id or 0 for txn in txns], np.uint64)
    keys = ChildRows(counts, RecordKeys(write, hash_ragged(texts), texts))
    ranges = None
    bounds = [[b"key/%04d" % bound for bound in each] for txn in txns for each in txn.ranges]
    if bounds:
        starts, ends = (Ragged.of(list(column)) for column in zip(*bounds, strict=True))
        rows = RecordRanges(np.zeros(len(bounds), np.uint8), starts, ends)
        ranges = ChildRows(np.array([len(txn.ranges) for txn in txns], np.int64), rows)
    return to_plan(np.array(kinds, np.uint8), ids, keys, ranges)


def earlier_of(table: TimedRecords) -> npt.NDArray[np.int64]:
    return earlier_with_same_id(table.id0, table.kind != p.REJECTED)


def planned(table: TimedRecords, procs: int, least: int = 1) -> Plan:
    with mock.patch.object(conflicts, "LEAST_WEIGHT", least):
        return plan_transactions(table, earlier_of(table), procs)


def naive_groups(txns: Sequence[Txn]) -> list[int]:
    """Each transaction's group, numbered in order of first member: merged sets, nothing clever."""
    written = {key for txn in txns for key, write in txn.keys if write}
    parent = list(range(len(txns)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    seen: dict[object, int] = {}
    for i, txn in enumerate(txns):
        shared: list[object] = [("key", key) for key, _ in txn.keys if key in written]
        shared += [("key", key) for a, b in txn.ranges for key in written if a <= key < b]
        for thing in shared + ([] if txn.id is None else [("id", txn.id)]):
            a, b = root(seen.setdefault(thing, i)), root(i)
            parent[max(a, b)] = min(a, b)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(i), len(numbers)) for i in range(len(txns))]


def naive_packing(
    txns: Sequence[Txn], group: Sequence[int], procs: int, least: int = 1
) -> list[int]:
    """Heaviest group first, to the partition with the least so far; one more is used when all have
    at least ``least``.
    """
    weight = Counter[int]()
    for number, txn in zip(group, txns, strict=True):
        weight[number] += txn.weight()
    load, proc = [0], dict[int, int]()
    for number in sorted(weight, key=lambda g: (-weight[g], g)):
        if min(load) >= least and len(load) < procs:
            load.append(0)
        proc[number] = load.index(min(load))
        load[proc[number]] += weight[number]
    return [proc[number] for number in group]


def check(txns: Sequence[Txn], procs: int, least: int) -> None:
    table = table_of(txns)
    plan, group = planned(table, procs, least), naive_groups(txns)
    counts, keys = table.keys
    earlier = earlier_of(table)
    links = np.empty((0, 2), np.int64)
    if plan.ranges is not None:
        links = links_of(plan.ranges, np.repeat(np.arange(len(txns)), counts)[plan.first])
    found, count = _components(
        starts_of(counts), plan.slot, keys.write, len(plan.first), earlier, links
    )
    assert found.tolist() == group
    assert count == plan.groups == len(set(group))
    assert plan.largest == max(Counter(group).values(), default=0)
    assert len(plan.proc) == len(txns)
    assert set(plan.proc.tolist()) <= set(range(procs))
    assert plan.procs() == sorted(set(plan.proc.tolist()))
    assert plan.proc.tolist() == naive_packing(txns, group, procs, least)


@settings(max_examples=60)
@given(plans(), st.integers(2, 9), st.sampled_from([1, 5, 120, 3_000]))
def test_groups_are_those_of_a_naive_union_find(txns: list[Txn], procs: int, least: int) -> None:
    check(txns, procs, least)


@pytest.mark.parametrize("seed", range(8))
def test_large_plans(seed: int) -> None:
    """Few keys make one large group, many keys make many small ones."""
    rng = random.Random(seed)
    n, keys = 3000, rng.choice([50, 2000, 8000])
    txns = [
        Txn(
            None if rng.random() < 0.05 else rng.randrange(rng.choice([n, 10**9])),
            tuple((key, rng.random() < 0.4) for key in rng.sample(range(keys), rng.randint(0, 3))),
        )
        for _ in range(n)
    ]
    check(txns, rng.randint(2, 64), rng.choice([1, 200, LEAST_WEIGHT]))


@pytest.mark.parametrize(
    ("count", "python", "used"),
    [(999, "", 1), (1_000, "", 2), (2_001, "", 3), (8_000, "", 4), (29, "python", 1),
     (30, "python", 2), (200, "python", 4)],
)  # fmt: skip
def test_few_transactions_use_few_partitions(count: int, python: str, used: int) -> None:
    txns = [
        Txn(i, ((2 * i, True), (2 * i + 1, True)), python=bool(python)) for i in range(count + 1)
    ]
    plan = planned(table_of(txns), 4, LEAST_WEIGHT)
    assert plan.procs() == list(range(used))


def test_what_is_left_of_a_plan_with_one_large_group_uses_one_more_partition() -> None:
    """Random transfers are like that: each partition would get a few of the others."""
    large = [Txn(i, ((0, True), (1, True))) for i in range(5_000)]
    plan = planned(table_of([*large, *(Txn(9_000 + i, ((9 + i, True),)) for i in range(99))]), 8)
    assert plan.procs() == list(range(8))
    plan = planned(
        table_of([*large, *(Txn(9_000 + i, ((9 + i, True),)) for i in range(99))]), 8, LEAST_WEIGHT
    )
    assert np.bincount(plan.proc).tolist() == [5_000, 99]


@given(plans(), st.integers(1, 9))
def test_whoever_shares_a_written_key_or_an_id_shares_the_partition(
    txns: list[Txn], procs: int
) -> None:
    proc = planned(table_of(txns), procs).proc.tolist()
    assert len(proc) == len(txns)
    written = {key for txn in txns for key, write in txn.keys if write}
    for i, left in enumerate(txns):
        for j, right in enumerate(txns[:i]):
            shared = {key for key, _ in left.keys} & {key for key, _ in right.keys} & written
            if shared or (left.id is not None and left.id == right.id):
                assert proc[i] == proc[j]


def test_readers_of_a_key_that_nobody_writes_are_spread() -> None:
    readers = [Txn(i, ((0, False),)) for i in range(40)]
    plan = planned(table_of(readers), 4)
    assert plan.groups == 40
    assert np.bincount(plan.proc).tolist() == [10] * 4
    plan = planned(table_of([*readers, Txn(99, ((0, True),))]), 4)
    assert (plan.groups, plan.largest, plan.procs()) == (1, 41, [0])


def test_refused_records_conflict_with_nobody() -> None:
    plan = planned(table_of([Txn(None, ())] * 30), 3)
    assert (plan.groups, plan.largest) == (30, 1)
    assert np.bincount(plan.proc).tolist() == [10] * 3


def test_no_transactions_and_one_partition() -> None:
    plan = planned(table_of([]), 4)
    assert (len(plan.proc), plan.groups, plan.largest, plan.procs()) == (0, 0, 0, [])
    plan = planned(table_of([Txn(1, ((1, True),)), Txn(2, ())]), 1)
    assert (plan.proc.tolist(), plan.procs()) == ([0, 0], [0])


@given(st.lists(st.integers(0, 12), min_size=1, max_size=80), st.integers(2, 9))
def test_loads_differ_by_one_group_at_most(sizes: list[int], procs: int) -> None:
    """Singletons of any weight: within 4/3 of the best, as Graham (1969) proves."""
    numbers = iter(range(10_000))
    txns = [
        Txn(i, tuple((next(numbers), True) for _ in range(size))) for i, size in enumerate(sizes)
    ]
    plan = planned(table_of(txns), procs)
    load = np.bincount(plan.proc, weights=np.array(sizes) + 1, minlength=procs)
    heaviest = max(sizes) + 1
    assert load.max() - load.min() <= heaviest
    best = max(heaviest, (sum(sizes) + len(sizes)) / procs)
    assert load.max() <= best + heaviest * (procs - 1) / procs
    if len(sizes) > 20 * procs:
        assert load.max() <= 4 / 3 * best


def test_many_singletons_are_balanced() -> None:
    rng = random.Random(5)
    txns = [Txn(i, tuple((4 * i + j, True) for j in range(rng.randint(0, 4)))) for i in range(5000)]
    plan = planned(table_of(txns), 7)
    load = np.bincount(plan.proc, weights=[1 + len(txn.keys) for txn in txns], minlength=7)
    assert load.max() <= load.min() + 1


@given(st.lists(st.binary(max_size=3), max_size=60), st.sampled_from([0, 1, 2**40 + 1, 2**64 - 1]))
def test_interning_is_numbering_in_a_dict(keys: list[bytes], mask: int) -> None:
    """With ``mask`` most hashes meet, so that only the bytes tell keys apart."""
    texts = Ragged.of(keys)
    slot, first = intern(hash_ragged(texts) & np.uint64(mask), texts)
    numbers: dict[bytes, int] = {}
    assert slot.tolist() == [numbers.setdefault(key, len(numbers)) for key in keys]
    assert first.tolist() == [keys.index(key) for key in numbers]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 25])
def test_interning_compares_every_byte(length: int) -> None:
    key = bytes(range(1, length + 1))
    for at in range(length):
        texts = Ragged.of([key, key[:at] + b"\0" + key[at + 1 :], key])
        slot, first = intern(np.zeros(3, np.uint64), texts)
        assert (slot.tolist(), first.tolist()) == ([0, 1, 0], [0, 1])


def test_interning_grows_its_table() -> None:
    keys = [b"%d" % (i * i % 4099 if i % 3 else i) for i in range(20_000)]
    texts = Ragged.of(keys)
    for hashes in (hash_ragged(texts), hash_ragged(texts) >> np.uint64(50)):
        slot, first = intern(hashes, texts)
        assert texts.take(first[slot]).tolist() == keys
        assert len(set(texts.take(first).tolist())) == len(first) == len(set(keys))


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40))
def test_the_use_of_an_id_before(ids: list[tuple[int, bool]]) -> None:
    expected, last = [], dict[int, int]()
    for i, (number, valid) in enumerate(ids):
        expected.append(last.get(number, -1) if valid else -1)
        if valid:
            last[number] = i
    hashes = np.array([number for number, _ in ids], np.uint64)
    found = earlier_with_same_id(hashes, np.array([valid for _, valid in ids], np.bool_))
    assert found.tolist() == expected


def compiled(seed: int) -> tuple[list[bytes | None], list[Txn]]:
    """Records of every kind, and what the plain decoder says that they touch."""
    rng = random.Random(seed)
    work = Workload(rng, [f"k{i}" for i in range(60)], 0.1, 0.1, 0.3)
    values = [work.record() for _ in range(150)]
    names, numbers = dict[str, int](), dict[str, int]()
    txns = []
    for value in values:
        item = r.decode(value)
        if not isinstance(item, r.Transaction):
            txns.append(Txn(None, ()))
            continue
        touched = r.keys(item).items()
        pairs = [(numbers.setdefault(key, len(numbers)), bool(write)) for key, write in touched]
        txns.append(Txn(names.setdefault(item.id, len(names)), tuple(pairs)))
    return values, txns


@pytest.mark.parametrize("seed", range(10))
def test_compiled_records_are_planned_as_they_decode(seed: int) -> None:
    values, txns = compiled(seed)
    offsets = np.arange(len(values))
    table = compile_records(np.zeros(len(values), np.int32), offsets, offsets, values)
    kinds = table.kind.tolist()
    txns = [replace(txn, python=k == p.GENERIC) for txn, k in zip(txns, kinds, strict=True)]
    group = naive_groups(txns)
    plan = planned(timed(table), 4)
    assert (plan.groups, plan.largest) == (len(set(group)), max(Counter(group).values()))
    assert plan.proc.tolist() == naive_packing(txns, group, 4)


@pytest.mark.parametrize("seed", range(5))
def test_every_shard_plans_alike(seed: int) -> None:
    """The payload is at home on one shard only; the plan must not depend on it, nor on batches."""
    values, _ = compiled(seed)
    part, off = np.zeros(len(values), np.int32), np.arange(len(values))
    shards = [opened([routed.block])[0] for routed in parse_transactions(part, off, off, values, 3)]
    pieces = [
        compile_records(part[rows], off[rows], off[rows], values[rows])
        for rows in (slice(40), slice(40, None))
    ]
    tables = (*shards, *shards, CompiledRecords.concat(pieces))
    plans = [planned(timed(table), 3) for table in tables]
    assert len(shards) == 3
    for plan in plans[1:]:
        assert plan.proc.tolist() == plans[0].proc.tolist()
        assert plan.slot.tolist() == plans[0].slot.tolist()
        assert plan.first.tolist() == plans[0].first.tolist()


def test_writers_in_a_range_share_the_partition_of_who_names_it() -> None:
    """Other writers, readers of the range alone, and ranges in which nobody writes, do not."""
    writers = [Txn(i, ((i, True),)) for i in range(8)]
    named = [Txn(10, (), ((2, 5),)), Txn(11, (), ((20, 30),)), Txn(12, (), ((5, 2),))]
    plan = planned(table_of([*writers, *named]), 9)
    proc = plan.proc.tolist()
    assert len({proc[i] for i in (2, 3, 4, 8)}) == 1
    assert plan.groups == len(writers) + len(named) - 3
    assert plan.ranges is not None
    assert plan.ranges.covered.tolist() == [2 <= i < 5 for i in range(8)]
    assert planned(table_of(named), 9).groups == len(named)


def test_ranges_that_overlap_are_one_group() -> None:
    writers = [Txn(i, ((i, True),)) for i in range(100)]
    chain = [Txn(1_000 + i, (), ((i, i + 2),)) for i in range(0, 99, 3)]
    chain += [Txn(2_000, (), ((0, 50),)), Txn(2_001, (), ((49, 100),))]
    check([*writers, *chain], 5, 1)
    assert planned(table_of([*writers, *chain]), 5).groups == 1
