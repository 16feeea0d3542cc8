"""A log may lose its end, and get others there: no start writes on in changes of lost records."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec import Raw

from streamydb.errors import ConfigurationError
from streamydb.kafka import positions
from streamydb.kafka.names import TopicNames
from streamydb.pipeline.preparation import require_same_history
from streamydb.records import EXPIRY_ID
from streamydb.records.change import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    Resolved,
    encode_change,
    encode_resolved,
)
from streamydb.records.expiry import removal_number
from streamydb.records.marker import Marker, encode_marker
from tests.support.memory_kafka import CONNECTION, MemoryKafka
from tests.support.seeds import seeds
from tests.support.strange import STRANGE

NAMES = TopicNames("bank")
SEEDS = seeds(400)


class World:
    """A log, a pipeline that writes changes of it and is killed, and a broker that loses records.

    Attributes:
        told: by partition of the log, the end of what the changes tell of.
        kept: by partition, the end of what the log has not lost.
    """

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dice = random.Random(f"lost history {seed}")
        self.kafka = MemoryKafka(self.dice)
        self.kafka.install(monkeypatch)
        self.log = self.kafka.create(NAMES.transactions, self.dice.randint(1, 3))
        self.changes = self.dice.randint(1, 3)
        self.kafka.create(NAMES.changes, self.changes)
        self.read = [0] * len(self.log)
        self.told = [0] * len(self.log)
        self.kept: dict[int, int] = {}
        self.seq = 0
        if self.dice.random() < 0.3:  # it began with what another database had
            for offset in range(9):
                self.change(0, offset + 50, 1)
            self.resolve(2)

    def append(self, count: int) -> None:
        """Records of the log: transactions, and markers."""
        for _ in range(count):
            self.kafka.now_ms += self.dice.randint(1, 3)
            marker = encode_marker(Marker(self.kafka.now_ms, len(self.log), "s"))
            value = marker if self.dice.random() < 0.2 else b"{}"
            self.kafka.append(NAMES.transactions, self.dice.randrange(len(self.log)), value)

    def execute(self) -> None:
        """Write the changes of what is there, and say that all is written; or be killed before."""
        ready = [each for part, at in zip(self.log, self.read, strict=True)
                 for each in part.records if each.at >= at]  # fmt: skip
        ready.sort(key=lambda each: each.append_ms)
        ready = [each for each in ready if each.content == b"{}"]
        for each in ready[: len(ready) if self.dice.random() < 0.7 else self.dice.randint(0, 5)]:
            self.seq, self.read[each.number] = self.seq + 1, each.at + 1
            if self.dice.random() < 0.7:
                self.change(each.number, each.at, each.append_ms)
        if ready and all(each.at < self.read[each.number] for each in ready):
            self.read = [part.high for part in self.log]
            if self.dice.random() < 0.6:
                self.resolve(ready[-1].append_ms)

    def change(self, number: int, offset: int, ts_ms: int) -> None:
        """What a transaction wrote; at its time others may end, which it has not written."""
        self.told[number] = max(self.told[number], offset + 1)
        told = [(1, offset), (removal_number(b"k"), offset + 99)]
        for order, at in told[: self.dice.choice([1, 1, 2])]:
            origin = ChangeOrigin("streamydb", "bank", number, at, self.seq)
            txn = ChangeTransaction(EXPIRY_ID, order, order)  # a client may take this id, too
            value = encode_change(Change("c", Raw(b"null"), Raw(b"1"), ts_ms, origin, txn))
            self.kafka.append(NAMES.changes, self.dice.randrange(self.changes), value, b"k")
            self.stray()

    def stray(self) -> None:
        """Something else writes to the changes, too."""
        if self.dice.random() < 0.1:
            value, key = self.dice.choice(STRANGE), self.dice.choice([None, b"k"])
            self.kafka.append(NAMES.changes, self.dice.randrange(self.changes), value, key)

    def resolve(self, ts_ms: int) -> None:
        """All is written; it is said in each partition, as a pipeline's shards do."""
        offsets = {str(number): at for number, at in enumerate(self.read)}
        value = encode_resolved(Resolved(self.seq, ts_ms, offsets))
        for number in range(self.changes):
            self.kafka.append(NAMES.changes, number, value)
            self.stray()
        self.told = list(self.read)

    def lose(self) -> None:
        """The end of some partitions is gone, and others come in its place."""
        for number, part in enumerate(self.log):
            if self.dice.random() < 0.5:
                left = self.dice.randint(max(part.low, part.high - 8), part.high)
                part.high = self.kept[number] = left
                part.records = [each for each in part.records if each.at < part.high]
        self.kafka.now_ms += 1
        self.append(self.dice.choice([0, 3, 20]))

    def trim(self) -> None:
        """What was read may be deleted."""
        for part, at in zip(self.log, self.read, strict=True):
            part.trim(self.dice.randint(0, min(at, part.high)))

    def expected(self) -> str:
        """What a start has to say: `lost`, `whole`, or `either` where nothing can be seen."""
        lost = {n: self.told[n] for n, kept in self.kept.items() if kept < self.told[n]}
        if not lost:
            return "whole"
        for number, end in lost.items():
            part = self.log[number]
            there = [each for each in part.records if each.at == end - 1]
            if part.high < end or (there and there[0].content == b"{}"):
                return "lost"
        return "either"


@pytest.mark.randomized
def test_no_start_writes_on_in_changes_of_lost_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = World(seed, monkeypatch)
        monkeypatch.setattr(positions, "_WINDOW_RECORDS", world.dice.choice([1, 3, 2_000]))
        for _ in range(world.dice.randint(1, 4)):
            world.append(world.dice.randint(0, 12))
            world.execute()
        if world.dice.random() < 0.3:
            world.trim()
        if world.dice.random() < 0.7:
            world.lose()
        expected = world.expected()
        refused = None
        try:
            require_same_history(CONNECTION, "bank")
        except ConfigurationError as error:
            refused = str(error)
        assert refused is None or "the log has lost" in refused
        possible = {"lost": [True], "whole": [False], "either": [True, False]}[expected]
        assert (refused is not None) in possible, f"seed {seed}: {expected}, {refused}"
        said[expected] += 1
    assert min(said["lost"], said["whole"]) > SEEDS // 10, said
