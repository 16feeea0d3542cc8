"""A ruling is written exactly when nobody can have seen a result of the transaction."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.kafka import admin
from streamydb.kafka.changes import KafkaSource, TopicState
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import Span
from streamydb.pipeline import restarts
from streamydb.pipeline.restarts import ExecutedBefore, FaultHandler
from streamydb.records import Resolved, encode_resolved
from streamydb.records.rulings import Fault, TooLate, UnruledFaults
from tests.support.memory_kafka import CONNECTION, MemoryKafka
from tests.support.seeds import seeds
from tests.support.strange import STRANGE

NAMES = TopicNames("bank")


class Rulings:
    """The topic of rulings; another leader's epoch makes ours void."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], str] = {}
        self.fenced = False

    def rule(self, faults: list[Fault], epoch: int) -> None:
        assert epoch == 5
        if not self.fenced:
            self.known.update({(each.partition, each.offset): each.error for each in faults})

    def rulings(self) -> dict[tuple[int, int], str]:
        return self.known

    def refresh(self) -> None:
        """Nothing comes."""


class Written:
    """A log of one partition, where seq n is offset n - 1, and what pipelines wrote of it."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dice = dice = random.Random(f"desk {seed}")
        self.kafka = MemoryKafka(dice)
        self.kafka.install(monkeypatch)
        monkeypatch.setattr(restarts, "_WINDOW_RECORDS", dice.choice([1, 2, 5, 100_000]))
        self.results = self.kafka.create(NAMES.results, dice.randint(1, 3))
        changes = self.kafka.create(NAMES.changes, 2)
        self.kafka.create(NAMES.transactions)
        self.last, self.resolved = 0, 0
        for _ in range(dice.randint(0, 8)):
            self.kafka.now_ms += dice.choice([0, 1_000, 300_000])
            begins = max(0, self.last - dice.choice([0, 0, 0, 4]))  # a batch may be repeated
            grown = dice.randint(0, 5)
            for _ in range(grown):
                self.kafka.append(NAMES.transactions, 0, b"{}")
            self.kafka.now_ms += dice.choice([0, 100])
            self.last += grown
            for seq in range(begins + 1, self.last + 1):
                self._write(seq)
            if dice.random() < 0.5:
                self.resolved = self.last
                for number in range(len(changes)):
                    told = encode_resolved(Resolved(self.resolved, 1, {"0": self.resolved}))
                    self.kafka.append(NAMES.changes, number, told)
        self._old_checkpoint()
        for _ in range(3):
            self.kafka.append(NAMES.transactions, 0, b"{}")
        spans = {number: Span(part.low, part.high) for number, part in enumerate(changes)}
        described = TopicState("id", False, spans)
        monkeypatch.setattr(KafkaSource, "describe", lambda _: described)
        monkeypatch.setattr(admin, "cluster", lambda _: SimpleNamespace(cluster_id="c"))

    def _old_checkpoint(self) -> None:
        """Another pipeline goes on from it, writes some again, and ends."""
        begins = self.dice.randint(0, self.last)
        for seq in range(begins + 1, self.dice.randint(begins, self.last) + 1):
            self._write(seq)

    def _write(self, seq: int) -> None:
        value = b'{"id":"t","seq":%d,"source":{"partition":0,"offset":%d}}' % (seq, seq - 1)
        if seq % 3 == 0:  # it repeats the one before
            value = b'{"id":"t","seq":%d,"source":{"partition":0,"offset":%d},"duplicate":' % (
                seq - 1,
                seq - 2,
            ) + b'{"seq":%d,"ts_ms":1,"partition":0,"offset":%d}}' % (seq, seq - 1)
        self.kafka.append(NAMES.results, seq % len(self.results), value)
        if self.dice.random() < 0.3:
            self.kafka.append(NAMES.results, seq % len(self.results), self.dice.choice(STRANGE))


@pytest.mark.parametrize("seed", range(seeds(120, 30)))
def test_what_somebody_may_have_seen_is_not_ruled_on(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(seed, monkeypatch)
    dice, topic = written.dice, Rulings()
    topic.fenced = dice.random() < 0.1
    given: Any = topic
    none = ExecutedBefore(0, {}, dict.fromkeys(range(len(written.results)), 0))
    deciding = FaultHandler(given, CONNECTION, "bank", none)
    begins = dice.choice([0, written.resolved])
    offsets = dice.sample(range(begins, written.last + 3), dice.choice([1, 1, 2]))
    faults = [Fault(0, offset, "KeyError 'a'") for offset in offsets]
    failed = [f"x.UnruledFaults: {UnruledFaults(faults)}"]
    assert not deciding.may_repeat(["no fault of ours"], 5, leads=True)
    assert deciding.may_repeat(failed, 5, leads=True)
    assert topic.known == {}, "it is repeated first, as it was"
    if any(offset < written.last for offset in offsets) or topic.fenced:
        with pytest.raises(TooLate):
            deciding.may_repeat(failed, 5, leads=True)
        assert topic.known == {}
    else:
        assert deciding.may_repeat(failed, 5, leads=True)
        assert set(topic.known) == {(0, offset) for offset in offsets}


@pytest.mark.parametrize("seed", range(10))
def test_one_that_follows_waits_for_the_ruling_but_not_for_ever(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(seed, monkeypatch)
    topic: Any = Rulings()
    deciding = FaultHandler(topic, CONNECTION, "bank", ExecutedBefore(0, {}, {}))
    faults = [Fault(0, offset, "KeyError 'a'") for offset in range(written.dice.randint(1, 3))]
    failed = [f"x.UnruledFaults: {UnruledFaults(faults)}"]
    for _ in range(restarts._WAITS_MAX):
        assert deciding.may_repeat(failed, 5, leads=False)
    assert topic.known == {}
    if written.dice.random() < 0.5:
        topic.known[0, 0] = "ruled"
        assert deciding.may_repeat(failed, 5, leads=False)
    else:
        with pytest.raises(TooLate):
            deciding.may_repeat(failed, 5, leads=False)
