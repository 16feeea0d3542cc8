"""The copy for Kafka Connect: each change once, in order, whatever is written again, and wherever
a writer ends.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import pytest
from msgspec import Raw

from streamydb.kafka.connect import Copier
from streamydb.kafka.connect.core import ConnectError
from streamydb.records import Change, ChangeOrigin, ChangeTransaction, encode_change
from streamydb.records.connect import CopyProgress, connect_key, connect_value
from tests.support.memory_copy import FailingError, MemoryCopy
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import resolve, write
from tests.support.seeds import seeds
from tests.support.strange import STRANGE

PARTITIONS = 2
SEEDS = range(seeds(50, 8))


def copied(copy: MemoryCopy) -> dict[int, list[tuple[bytes, bytes | None]]]:
    return {n: [(each.key, each.value) for each in some] for n, some in copy.records.items()}


class Write(NamedTuple):
    """A change of a transaction."""

    seq: int
    number: int
    key: str
    value: str | None

    @property
    def partition(self) -> int:
        return ord(self.key) % PARTITIONS

    def record(self) -> Change:
        """As the pipeline writes it."""
        return Change(
            "d" if self.value is None else "u", Raw(b"0"), Raw((self.value or "null").encode()),
            self.seq, ChangeOrigin("streamydb", "bank", 0, self.seq, self.seq),
            ChangeTransaction(f"id{self.seq}", self.number, self.number),
        )  # fmt: skip

    def copied(self) -> list[tuple[bytes, bytes | None]]:
        """What must become of it."""
        name = connect_key(self.key)
        made = (name, connect_value(self.key, self.record()))
        return [made, (name, None)] if self.value is None else [made]


class History:
    """Changes as pipelines may write them: again after a crash, late by one that hung, and those
    of different keys in any order.
    """

    def __init__(self, rng: random.Random) -> None:
        self.topic = MemoryTopic(PARTITIONS)
        self._rng = rng
        self.plans: list[list[Write]] = []
        self.last = 0
        for _ in range(rng.randint(1, 6)):
            first, self.last = self.last + 1, self.last + rng.randint(1, 4)
            self.plans.append([
                Write(seq, number, key, rng.choice([None, str(seq)]))
                for seq in range(first, self.last + 1)
                for number, key in enumerate(rng.sample("abcd", rng.randint(1, 3)), 1)
            ])  # fmt: skip
        ahead = 0
        for number, plan in enumerate(self.plans):
            if rng.random() < 0.4:
                self._put(plan[: rng.randint(0, len(plan))])
            if number >= ahead:
                ahead = rng.choice([number + 1, number + 1, number + 2])
                for each in self.plans[number:ahead]:
                    self._put(each)
            for each in self.plans[number + 1 : number + 2]:
                self._put(each[: rng.choice([0, 0, 1, 2])])
            self._resolve(plan)
            if rng.random() < 0.3:
                old = rng.choice(self.plans[: number + 1])
                self._put(old[rng.randint(0, len(old)) :])
            if rng.random() < 0.2:
                self._resolve(rng.choice(self.plans[: number + 1]))

    def truth(self, partition: int) -> list[tuple[bytes, bytes | None]]:
        """What must be in a partition of the copy."""
        writes = [each for plan in self.plans for each in plan if each.partition == partition]
        return [record for each in writes for record in each.copied()]

    def _put(self, writes: Sequence[Write]) -> None:
        """Append changes, each key's in order."""
        left = {key: [each for each in writes if each.key == key] for key in "abcd"}
        while any(left.values()):
            each = left[self._rng.choice([key for key, some in left.items() if some])].pop(0)
            name = each.key.encode()
            self.topic.append(each.partition, name, encode_change(each.record()))
            if self._rng.random() < 0.1:
                self.topic.append(each.partition, name, self._rng.choice(STRANGE))
            if each.value is None:
                self.topic.append(each.partition, name, None)

    def _resolve(self, plan: Sequence[Write]) -> None:
        for partition in range(PARTITIONS):
            resolve(self.topic, plan[-1].seq, [partition])
            if self._rng.random() < 0.3:
                self.topic.skip(partition)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", SEEDS)
def test_each_change_is_copied_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    history = History(rng)
    copy = MemoryCopy(PARTITIONS, rng)
    copier = None
    for _ in range(1_500):
        if copier is None or rng.random() < 0.1:  # another process goes on
            source = MemorySource(history.topic, lambda _n, left: min(left, rng.randint(0, 3)))
            copier = Copier("bank", source, copy)
        with suppress(FailingError):
            copier.step(0)
    assert copied(copy) == {n: history.truth(n) for n in range(PARTITIONS)}
    another = Copier("bank", MemorySource(history.topic), copy)
    assert another.step(0) == 0
    assert another.seq == history.last


def test_nothing_is_copied_before_it_is_resolved() -> None:
    topic, copy = MemoryTopic(1), MemoryCopy(1)
    copier = Copier("bank", MemorySource(topic), copy)
    write(topic, 0, 1, "a", "1")
    assert copier.step(0) == 0
    resolve(topic, 1)
    assert copier.step(0) == 1
    assert copy.records[0][-1].progress == CopyProgress("memory", 1, 1)


def test_a_deletion_has_a_tombstone_behind_it() -> None:
    topic, copy = MemoryTopic(1), MemoryCopy(1)
    write(topic, 0, 1, "a", None)
    resolve(topic, 1)
    Copier("bank", MemorySource(topic), copy).step(0)
    change_, tombstone = copy.records[0]
    assert tombstone.value is None
    assert tombstone.key == change_.key
    assert json.loads(change_.value or b"")["payload"]["op"] == "d"


def begun(topic: MemoryTopic) -> MemoryCopy:
    """A copy of a topic with one change."""
    copy = MemoryCopy(len(topic.spans))
    write(topic, 0, 1, "a", "1")
    resolve(topic, 1)
    Copier("bank", MemorySource(topic), copy).step(0)
    return copy


def test_changes_of_a_database_that_was_made_anew_are_refused() -> None:
    copy = begun(MemoryTopic(1))
    with pytest.raises(ConnectError, match="a copy of other changes"):
        Copier("bank", MemorySource(MemoryTopic(1, "other")), copy).step(0)


def test_changes_that_are_gone_are_an_error() -> None:
    topic = MemoryTopic(1)
    copy = begun(topic)
    write(topic, 0, 2, "a", "2")
    topic.expire(0, 3)
    with pytest.raises(ConnectError, match=r"offsets 3 to 3, and the copy goes on at 1"):
        Copier("bank", MemorySource(topic), copy).step(0)


def test_a_topic_with_other_partitions_is_refused() -> None:
    with pytest.raises(ConnectError, match=r"has 1 partitions and bank\.changes has 2"):
        Copier("bank", MemorySource(MemoryTopic(2)), MemoryCopy(1)).step(0)
