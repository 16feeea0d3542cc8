"""Confirmations against their definition, over outputs that come early, late, twice and equal."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from streamydb.frames.table import Ragged
from streamydb.pipeline.realtime import confirmations
from streamydb.pipeline.realtime.confirmations import (
    ANNOUNCE_S,
    BUSY_ANNOUNCE_S,
    BUSY_OUTPUTS,
    Announcements,
    Confirmations,
    ResolvedGroups,
    SeenOutputs,
    output_hashes,
)
from streamydb.pipeline.realtime.messages import Executed
from streamydb.pipeline.realtime.output_tables import Hashes, OutputTables
from streamydb.records.names import FOLLOW_UP_MARK
from streamydb.txn_processor.outputs import CHANGES, FOLLOW_UPS
from tests.support.seeds import seeds


def _hashes(*outputs: int) -> Hashes:
    return np.array(outputs, np.uint64)


def _seen(seen: SeenOutputs, topic: int, keys: Sequence[bytes], values: Sequence[bytes]) -> Hashes:
    topics = np.full(len(keys), topic)
    return seen.hashes(topics, Ragged.of(keys), Ragged.of(values))


def _group(seq: int, outputs: list[int], resolved: bytes | None = b"all") -> Executed:
    return Executed(seq, seq, 0, np.array(outputs, np.uint64).tobytes(), resolved)


def _drawn(dice: random.Random) -> tuple[list[list[int]], list[tuple[str, int]]]:
    """Draw the outputs of groups, and when each group is told of and each output is seen."""
    groups = [[dice.randrange(1, 12) for _ in range(dice.choice([0, 0, 1, 3]))] for _ in range(12)]
    events: list[tuple[str, int]] = [("said", i) for i in range(len(groups))]
    seen = [output for outputs in groups for output in outputs]
    for output in dice.sample(seen, len(seen)):
        events.insert(dice.randint(0, len(events)), ("seen", output))
    return groups, events


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(80, 20)))
def test_a_group_is_confirmed_when_all_before_it_and_of_it_were_seen(seed: int) -> None:
    groups, events = _drawn(random.Random(seed))
    said = iter(range(len(groups)))  # the worker's messages come in order
    counted, confirmed = Confirmations(), []
    told: list[int] = []
    come: list[int] = []
    for kind, output in events:
        if kind == "said":
            number = next(said)
            told.append(number)
            confirmed += counted.add(_group(number, groups[number]))
        else:
            come.append(output)
            confirmed += counted.see(_hashes(output))
        assert [group.seq for group in confirmed] == _expected(groups[: len(told)], come)
    assert len(counted) == 0


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(80, 20)))
def test_what_is_announced_is_the_newest_confirmed_group_that_resolves(seed: int) -> None:
    """It is announced as soon as it is confirmed, and once; where a group resolves nothing, what
    was announced before stands.
    """
    dice = random.Random(seed)
    groups, events = _drawn(dice)
    resolves = [dice.random() < 0.5 for _ in groups]
    said = iter(range(len(groups)))
    rule, told, come = ResolvedGroups(), 0, list[int]()
    announced: list[int] = []
    for kind, output in events:
        before = announced[-1:]
        if kind == "said":
            number = next(said)
            told = number + 1
            value = b"%d" % number if resolves[number] else None
            due = rule.add(_group(number, groups[number], value))
        else:
            come.append(output)
            due = rule.see(_hashes(output))
        confirmed = _expected(groups[:told], come)
        newest = [number for number in confirmed if resolves[number]][-1:]
        assert ([] if due is None else [due.seq]) == ([] if newest == before else newest)
        assert due is None or due.resolved == b"%d" % due.seq
        announced += newest if newest != before else []
        assert ([] if rule.last is None else [rule.last.seq]) == confirmed[-1:]


def _expected(groups: list[list[int]], come: list[int]) -> list[int]:
    """The first groups all of whose outputs have come; one that came counts once."""
    left = Counter(come)
    for number, outputs in enumerate(groups):
        left.subtract(outputs)
        if min(left.values(), default=0) < 0:
            return list(range(number))
    return list(range(len(groups)))


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_whatever_others_write_all_groups_are_confirmed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs of others are dropped when they are many; of this gear's none is, however many.

    Up to half of what is kept lies between an output and the worker's message about it.
    """
    kept = 20
    monkeypatch.setattr(confirmations, "_EARLY_MAX", kept)
    dice, counted = random.Random(seed), Confirmations()
    others = iter(range(1_000_000, 2_000_000))
    confirmed: list[int] = []
    for seq in range(100):
        outputs = [10 * seq + number for number in range(dice.choice([0, 1, 1, 3]))]
        early = [output for output in outputs if dice.random() < 0.5]
        between = dice.randint(0, kept // 2 - len(early))
        for output in (*early, *(next(others) for _ in range(between))):
            confirmed += [group.seq for group in counted.see(_hashes(output))]
        confirmed += [group.seq for group in counted.add(_group(seq, outputs))]
        confirmed += [
            group.seq
            for group in counted.see(_hashes(*(each for each in outputs if each not in early)))
        ]
    assert confirmed == list(range(100))


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_tables_count_as_queues_do_however_full_they_are(seed: int) -> None:
    """Outputs count for the oldest group that waits for them; the early ones are forgotten by
    generations.
    """
    dice, early_max = random.Random(seed), 2 * random.Random(seed).choice([3, 40, 3_000])
    tables, queues = OutputTables(early_max), _Queues(early_max // 2)
    kinds = dice.choice([5, 500, 1 << 60])
    expected: list[int] = []
    for group in range(120):
        outputs = [dice.randrange(kinds) for _ in range(dice.choice([0, 3, 200]))]
        assert tables.expect(_hashes(*outputs), group) == queues.expect(outputs, group)
        expected += outputs
        dice.shuffle(expected)
        seen = [expected.pop() for _ in range(dice.randint(0, len(expected)))]
        seen += [dice.randrange(kinds) for _ in range(dice.choice([0, 0, 90]))]
        counts = tables.see(_hashes(*seen), range(group + 1)).tolist()
        assert counts == queues.see(seen, group + 1)


class _Queues:
    """Queues of the groups that wait for each output, and counts of early outputs."""

    def __init__(self, generation_max: int) -> None:
        self.queues: dict[int, list[int]] = {}
        self.early = [Counter[int](), Counter[int]()]  # the older, the newer
        self.added, self.generation_max = 0, generation_max

    def expect(self, outputs: list[int], group: int) -> int:
        return sum(self.waits(output, group) for output in outputs)

    def waits(self, output: int, group: int) -> bool:
        for early in self.early:
            if early[output]:
                early[output] -= 1
                return False
        self.queues.setdefault(output, []).append(group)
        return True

    def see(self, outputs: list[int], groups: int) -> list[int]:
        counts = Counter(group for output in outputs for group in self.counted(output))
        return [counts[group] for group in range(groups)]

    def counted(self, output: int) -> list[int]:
        if self.queues.get(output):
            return [self.queues[output].pop(0)]
        self.early[1][output] += 1
        self.added += 1
        if self.added > self.generation_max:
            self.early, self.added = [self.early[1], Counter()], 0
        return []


def test_transactions_of_clients_are_no_outputs_though_they_are_in_the_log() -> None:
    seen = SeenOutputs()
    flow = FOLLOW_UP_MARK + b'7/1","ops":[]}'
    values = [b'{"id":"a","ops":[]}', flow, b"", b"{", b'{"epoch":1}']
    keys = [b"a", b"$flow/7/1", b"", b"", b""]
    expected = output_hashes(FOLLOW_UPS, Ragged.of([keys[1]]), Ragged.of([flow])).tolist()
    assert _seen(seen, FOLLOW_UPS, keys, values).tolist() == expected
    assert _seen(seen, FOLLOW_UPS, [b"a"], [values[0]]).tolist() == []


def test_an_output_has_one_hash_in_each_process_and_another_in_each_topic() -> None:
    keys, values = Ragged.of([b"k", b"k", b""]), Ragged.of([b"v", b"w", b"v"])
    first = output_hashes(0, keys, values).tolist()
    assert first == output_hashes(0, keys, values).tolist()
    assert len({*first, *output_hashes(1, keys, values).tolist()}) == 6


def _delete(seq: int) -> list[tuple[bytes, bytes]]:
    return [(b"k", b'{"op":"d","seq":%d}' % seq), (b"k", b"")]


def _confirmed_without_its_tombstone() -> bool:
    """Return True if a second delete of a key counts as written before its tombstone has come."""
    seen, counted = SeenOutputs(), Confirmations()
    keys, values = (Ragged.of(list(column)) for column in zip(*_delete(2), strict=True))
    counted.see(_seen(seen, CHANGES, *zip(*_delete(1), strict=True)))  # by the other gear
    counted.add(_group(2, output_hashes(CHANGES, keys, values).tolist()))
    change, tombstone = _delete(2)
    early = counted.see(_seen(seen, CHANGES, [change[0]], [change[1]]))
    late = counted.see(_seen(seen, CHANGES, [tombstone[0]], [tombstone[1]]))
    assert [group.seq for group in early + late] == [2]
    return bool(early)


def test_a_tombstone_of_an_older_delete_does_not_count_for_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not _confirmed_without_its_tombstone()
    monkeypatch.setattr(confirmations, "tombstone_hashes", lambda plain, _change: plain)
    assert _confirmed_without_its_tombstone(), "by the bytes alone it does"


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_a_tombstone_counts_for_the_change_before_it(seed: int) -> None:
    """The gear waits for the tombstone of its own delete, whatever of that key came before.

    Another writer repeats the last changes, other records stand between a change and its tombstone,
    and the driver reads with any cuts.
    """
    dice = random.Random(seed)
    changes = [(dice.choice([b"a", b"b"]), b'{"op":"d","seq":%d}' % seq) for seq in range(1, 9)]
    rows = [row for key, value in changes for row in ((key, value), (key, b""))]
    keys, values = (Ragged.of(list(column)) for column in zip(*rows, strict=True))
    told = output_hashes(CHANGES, keys, values).tolist()
    assert len({*told}) == len(told)
    first = 2 * dice.randrange(8)
    seen = SeenOutputs()
    come: Counter[int] = Counter()
    for piece in _cut(dice, _between(dice, rows + rows[first:])):
        keys_of, values_of = zip(*piece, strict=True)
        come.update(_seen(seen, CHANGES, keys_of, values_of).tolist())
    assert {each: come[each] for each in told} == Counter(told + told[first:])


def _cut(
    dice: random.Random, rows: list[tuple[bytes, bytes]]
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield rows in pieces of any sizes."""
    while rows:
        size = dice.randint(1, 4)
        yield rows[:size]
        rows = rows[size:]


def _between(dice: random.Random, rows: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Put records that are no deletes of theirs between some rows."""
    others = [(b"", b'{"resolved":3}'), (b"a", b'{"op":"u"}')]
    found = []
    for row in rows:
        found += [dice.choice(others)] * (dice.random() < 0.3) + [row]
    return found


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(30, 10)))
def test_the_newest_is_announced_soon_and_little_is_announced(seed: int) -> None:
    dice = random.Random(seed)
    announcements, now_s = Announcements(), 1000.0
    announced: list[tuple[float, bytes, float]] = []
    ask_s, newest, since_s, apart_s = now_s, b"", math.inf, ANNOUNCE_S
    for number in range(1, 400):
        comes_s = now_s + dice.choice([0.0, 0.0004, 0.01, 0.03])
        group, now_s = None, min(comes_s, ask_s)
        if now_s == comes_s:
            outputs = dice.choice([0, 2, BUSY_OUTPUTS - 1, BUSY_OUTPUTS, 500])
            resolved = dice.choice([None, b"%d" % number])
            group = Executed(number, number, 0, bytes(8 * outputs), resolved)
            if group.resolved is not None:
                newest, since_s = group.resolved, min(since_s, now_s)
                apart_s = BUSY_ANNOUNCE_S if outputs >= BUSY_OUTPUTS else ANNOUNCE_S
        told = announcements.due(group, now_s)
        if told is not None:
            announced.append((now_s, told, apart_s))
            assert told == newest, "the newest suffices"
            since_s = math.inf
        assert now_s <= since_s + apart_s + ANNOUNCE_S, "it waits too long"
        ask_s = now_s + min(0.1, announcements.wait_s(now_s))
    for (before_s, _, _), (after_s, _, apart_s) in itertools.pairwise(announced):
        assert after_s >= before_s + apart_s
    assert announcements.rest(now_s) == (newest if since_s < math.inf else None)
    assert announcements.rest(now_s) is None
