"""Lives in random logs: groups are the planner's, checks and writes those of the oracle."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import msgspec
import numpy as np
import pytest

from simulator.procedures import MODULES
from simulator.ranges import Ranges
from streamydb.columns.interning import intern
from streamydb.columns.table import starts_of
from streamydb.facade.life.evidence import PlanMember
from streamydb.facade.life.group import group_of
from streamydb.records import Change, Transaction, decode, decode_change
from streamydb.sorter.declarations import reading_constraints
from streamydb.sorter.planner import _components, earlier_with_same_id
from streamydb.sorter.ranges import links_of, ranges_of
from streamydb.txn_processor.compile import compile_records
from streamydb.verify.oracle.order import released
from streamydb.verify.oracle.steps import holds
from tests.support.lives import Bank
from tests.support.opened import timed
from tests.support.seeds import seeds
from tests.support.states import written

pytestmark = pytest.mark.randomized

SEEDS = seeds(6)


def raws(seed: int, dice: random.Random) -> list[bytes | None]:
    """Some records in a row of a random log, follow-ups left out: they have ids of their own."""
    made = written(seed)
    order = released(made.log.partitions, made.config.partitions)
    start = dice.randint(0, max(0, len(order) - 60))
    found = [record.value for record in order[start : start + 60]]
    return [raw for raw in found if b"$flow/" not in (raw or b"")]


def _ranged(raw: bytes | None, ranges: Ranges) -> bytes | None:
    """A record; a transaction perhaps with ranges."""
    if not isinstance(decode(raw), Transaction):
        return raw
    fields = json.loads(raw or b"")
    ranges.add(fields, 60)
    return json.dumps(fields).encode()


def planned(values: list[bytes | None]) -> list[int]:
    """The planner's group of each record."""
    n = len(values)
    records = compile_records(
        np.zeros(n, np.int32), np.arange(n), np.full(n, 1000, np.int64), values
    )
    table = reading_constraints(timed(records), all_of_them=False)
    counts, keys = table.keys
    slot, first = intern(keys.hash, keys.key)
    valid = np.array([isinstance(decode(raw), Transaction) for raw in values])
    earlier = earlier_with_same_id(table.id0, valid)
    named, links = ranges_of(table, slot, first), np.empty((0, 2), np.int64)
    if named is not None:
        links = links_of(named, np.repeat(np.arange(n), counts)[first])
    group, _ = _components(starts_of(counts), slot, keys.write, len(first), earlier, links)
    found: list[int] = group.tolist()
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_is_the_planners(seed: int) -> None:
    dice = random.Random(f"groups {seed}")
    ranges = Ranges(dice, [f"k{i}" for i in range(9)], 0.2, 0, random.Random("scans"))
    values = [_ranged(raw, ranges) for raw in raws(seed, dice)]
    decoded = [decode(raw) for raw in values]
    members = [
        PlanMember(seq, record if isinstance(record, Transaction) else None)
        for seq, record in enumerate(decoded, start=1)
    ]
    together = defaultdict(list)
    for seq, group in enumerate(planned(values), start=1):
        together[group].append(seq)
    assert any(len(seqs) > 1 for seqs in together.values())
    for seqs in together.values():
        for seq in seqs:
            found = group_of(members, seq)
            assert found.transactions == len(seqs), (seq, seqs)
            assert [m.seq for m in found.members] == [other for other in seqs if other != seq]
            assert found.waited_for == seqs.index(seq)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_lives_are_what_the_oracle_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(f"lives {seed}")
    bank = Bank(monkeypatch, modules=MODULES)
    left = [raw or b"" for raw in raws(seed, dice)]
    while left:
        count = dice.randint(1, 9)
        bank.plan(*map(bank.append, left[:count]), twice=dice.random() < 0.2)
        del left[:count]
    known = [result for result in bank.results if result.duplicate is msgspec.UNSET]
    for result in dice.sample(known, min(12, len(known))):
        life, state = bank.life(result.seq), bank.states[result.seq - 1]
        record = decode(bytes(life.transaction))
        wanted = [
            change for each in bank.outputs[result.seq - 1]
            if each.topic == "changes" and each.value is not None
            and isinstance(change := decode_change(each.value), Change)
        ]  # fmt: skip
        assert [write.after for write in life.writes] == [change.after for change in wanted]
        assert life.plan is not None
        assert life.plan.first <= result.seq <= life.plan.last
        if not isinstance(record, Transaction) or result.status == "rejected":
            assert not any(check.holds for check in life.checks)
            continue
        met = {key: state.get(key, (None, 0)) for key in [m.key for m in life.met]}
        shown = {m.key: (None if bytes(m.value) == b"null" else bytes(m.value), m.version)
                 for m in life.met}  # fmt: skip
        assert shown == met
        truth = [met[key][0] == wanted for key, wanted in record.asserts.items()]
        truth += [holds(check, *met[check.key]) for check in record.checks]
        if result.code != "values-too-large":
            assert [check.holds for check in life.checks] == truth
