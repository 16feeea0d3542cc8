"""The facade's readers of topics over random topics: repetitions, trimmed parts, clocks that jump.
"""

from __future__ import annotations

import json
import random
import zlib

import pytest

from streamydb.facade import kafka_changes, kafka_search
from streamydb.facade.kafka_changes import ChangeReader
from streamydb.facade.kafka_next import NextRecords
from streamydb.facade.kafka_search import search_result
from streamydb.facade.ports import LogPosition, Missing, NextRecord
from streamydb.facade.results import REFUSED_COPIES, position_of
from streamydb.kafka.names import TopicNames
from streamydb.records import (
    Change,
    Resolved,
    Result,
    decode_change,
    decode_result,
    encode_resolved,
)
from streamydb.settings import Settings
from streamydb.verify.oracle.core import Oracle
from tests.support.memory_kafka import MemoryKafka

NAMES = TopicNames("bank")
SETTINGS = Settings(database="bank", bootstrap="memory:9092")
_HOUR_MS = 3_600_000


class History:
    """Random transactions, and the topics that they lead to.

    Attributes:
        changes: (seq, number, key) of all.
        times: the commit time of each seq.
        results: all of them, in order.
    """

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dice = dice = random.Random(f"facade {seed}")
        self.kafka = MemoryKafka(dice)
        self.kafka.install(monkeypatch)
        self.partitions, self.wild = dice.randint(1, 3), dice.choice([0.0, 0.1, 0.4])
        self.kafka.create(NAMES.transactions)
        for topic in (NAMES.changes, NAMES.results):
            self.kafka.create(topic, self.partitions)
        self.changes: list[tuple[int, int, str]] = []
        self.times = {0: self.kafka.now_ms}
        self.results: list[Result] = []
        self.oracle = Oracle("bank")
        self.ids = [f"t{number}" for number in range(dice.choice([4, 100]))]
        for _ in range(dice.randint(1, 15)):
            self._plan()

    def _plan(self) -> None:
        """One micro-batch; after a crash, all that it writes is written again."""
        written = [output for _ in range(self.dice.randint(1, 4)) for output in self._executed()]
        for _ in range(self.dice.choice([1, 1, 1, 2])):
            for topic, key, value in written:
                self._jump()
                self.kafka.append(topic, zlib.crc32(key) % self.partitions, value, key)
        done = self.oracle.next_seq - 1
        resolved = encode_resolved(Resolved(done, self.times[done], {"0": 1}))
        for number in range(self.partitions):
            self.kafka.append(NAMES.changes, number, resolved)

    def _executed(self) -> list[tuple[str, bytes, bytes | None]]:
        keys = self.dice.sample("abcdef", self.dice.randint(1, 3))
        updates = [{"op": "put", "key": key, "value": self.dice.randrange(99)} for key in keys]
        raw = json.dumps({"id": self.dice.choice(self.ids), "updates": updates}).encode()
        self._jump()
        offset = self.kafka.append(NAMES.transactions, 0, raw)
        seq = self.oracle.next_seq
        self.times[seq] = max(self.times[seq - 1], self.kafka.now_ms)
        found = []
        for output in self.oracle.apply(raw, 0, offset, self.times[seq]):
            topic = NAMES.changes if output.topic == "changes" else NAMES.results
            found.append((topic, output.key or b"", output.value))
            if output.topic == "results":
                self.results.append(decode_result(output.value or b""))
            else:
                change = decode_change(output.value or b"")
                assert isinstance(change, Change)
                place = change.source.seq, change.transaction.total_order
                self.changes.append((*place, (output.key or b"").decode()))
        return found

    def _jump(self) -> None:
        self.kafka.now_ms += self.dice.choice([0, 1, 500])
        if self.dice.random() < self.wild:
            self.kafka.now_ms += self.dice.choice([-_HOUR_MS, _HOUR_MS])


@pytest.mark.parametrize("seed", range(80))
def test_changes_after_a_seq_come_once_in_order_whatever_the_clocks_say(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(seed, monkeypatch)
    monkeypatch.setattr(kafka_changes, "_AHEAD_BYTES_MAX", history.dice.choice([500, 1 << 23]))
    since = history.dice.randrange(history.oracle.next_seq)
    reader = ChangeReader(SETTINGS, since, history.dice.choice([None, history.times[since]]))
    batches = [batch for _ in range(300) for batch in reader.poll()]
    found = [(event.seq, event.number, event.key) for b in batches for event in b.changes]
    assert found == [change for change in history.changes if change[0] > since]
    reader.close()


@pytest.mark.parametrize("seed", range(80))
def test_an_old_result_is_found_or_known_to_be_none(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(seed, monkeypatch)
    monkeypatch.setattr(kafka_search, "_STRETCH", history.dice.choice([1, 3, 50_000]))
    for txn_id in [*history.dice.sample(history.ids, 4), "never"]:
        own = [result for result in history.results if result.id == txn_id]
        executed = [result for result in own if result.code not in REFUSED_COPIES]
        found = search_result(SETTINGS, txn_id, None)
        if not own:
            assert isinstance(found, Missing)
            assert found.complete
        else:
            assert isinstance(found, Result)
            assert found in (executed or own)
    log = history.kafka.topics[NAMES.transactions][0]
    for record in history.dice.sample(log.records, min(4, len(log.records))):
        txn_id, place = json.loads(record.content or b"")["id"], LogPosition(0, record.at)
        found = search_result(SETTINGS, txn_id, place)
        answers = [result for result in history.results if position_of(result) == place]
        assert found in answers


@pytest.mark.parametrize("seed", range(40))
def test_the_next_record_lies_past_what_is_no_record(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"next {seed}")
    kafka = MemoryKafka(dice)
    kafka.install(monkeypatch)
    for part in kafka.create(NAMES.transactions, dice.randint(1, 3)):
        for _ in range(dice.randrange(9)):
            part.high += dice.choice([0, 0, 1, 4])
            number = kafka.topics[NAMES.transactions].index(part)
            kafka.append(NAMES.transactions, number, b"%d" % part.high)
        part.high += dice.choice([0, 1, 3])
    parts = dict(enumerate(kafka.topics[NAMES.transactions]))
    asked = NextRecords(SETTINGS, NAMES.transactions)
    for _ in range(6):
        places = {number: dice.randint(0, part.high) for number, part in parts.items()}
        wanted = {}
        for number, at in places.items():
            later = [record.at for record in parts[number].records if record.at >= at]
            wanted[number] = (
                NextRecord(later[0], True, kafka.now_ms, b"%d" % later[0]) if later
                else NextRecord(parts[number].high, found=False)
            )  # fmt: skip
        assert asked.find(places) == wanted
    asked.close()
