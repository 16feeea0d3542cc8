"""The facade's readers of topics over random topics: repetitions, trimmed parts,
clocks that jump.
"""

from __future__ import annotations

import json
import random
import zlib
from contextlib import aclosing, nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streamydb.facade import FacadeSettings, feed_index, kafka_changes, kafka_search
from streamydb.facade.changes import events
from streamydb.facade.feed import Feed, change_filter
from streamydb.facade.feed_index import FeedIndex
from streamydb.facade.kafka_changes import ChangeReader, KafkaChanges
from streamydb.facade.kafka_search import search_result
from streamydb.facade.ports import LogPosition, NoResult
from streamydb.facade.problems import ProblemError
from streamydb.facade.result_batch import position_of
from streamydb.facade.results import REFUSED_COPIES
from streamydb.kafka.clients import CLOCK_SKEW_MS
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import NextRecord, NextRecords, assign, seek
from streamydb.kafka.strangers import ChangeRecords
from streamydb.read_model.progress import PartitionProgress, TopicProgress
from streamydb.read_model.progress import ResolvedPoint as Progress
from streamydb.records import (
    Change,
    Resolved,
    Result,
    decode_change,
    decode_result,
    encode_resolved,
)
from streamydb.records.ranges import ALL_KEYS
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario
from streamydb.verify.oracle.core import Oracle
from tests.support.memory_kafka import MemoryKafka, Record
from tests.support.seeds import seeds
from tests.support.strange import LATER, STRANGE

NAMES = TopicNames("bank")
SETTINGS = Settings(database="bank", bootstrap="memory:9092")
_HOUR_MS = 3_600_000


class History:
    """Random transactions, and the topics that they lead to; readers go back by a few records.

    Attributes:
        changes: (seq, number, key) of all.
        times: the commit time of each seq.
        results: all of them, in order.
    """

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dice = dice = random.Random(f"facade {seed}")
        self.kafka = MemoryKafka(dice)
        self.kafka.install(monkeypatch)
        self.strays = random.Random(seed)
        monkeypatch.setattr(kafka_changes, "_BACK", self.strays.choice([1, 4, 1_000]))
        self.partitions, self.wild = dice.randint(1, 3), dice.choice([0.0, 0.1, 0.4])
        self.kafka.create(NAMES.transactions)
        for topic in (NAMES.changes, NAMES.results):
            self.kafka.create(topic, self.partitions)
        self.changes: list[tuple[int, int, str]] = []
        self.times = {0: self.kafka.now_ms}
        self.results: list[Result] = []
        self.oracle = Oracle("bank")
        self.resolved = b""
        self.ids = [f"t{number}" for number in range(dice.choice([4, 100]))]
        for _ in range(dice.randint(1, 15)):
            self._plan()

    def _plan(self) -> None:
        """One micro-batch; after a crash, all that it writes is written again.

        It also says what the one before resolved, before, between or behind its own changes.
        """
        count = self.dice.randint(1, 4)
        written: list[tuple[str, bytes | int, bytes | None]] = []
        written += [output for _ in range(count) for output in self._executed()]
        for number in range(self.partitions if self.resolved else 0):
            at = self.strays.randint(0, len(written))
            written.insert(at, (NAMES.changes, number, self.resolved))
        for _ in range(self.dice.choice([1, 1, 1, 2])):
            for topic, key, value in written:
                self._jump()
                number = zlib.crc32(key) % self.partitions if isinstance(key, bytes) else key
                name = key if isinstance(key, bytes) else None
                self.kafka.append(topic, number, value, name)
                if topic == NAMES.changes and self.strays.random() < 0.1:
                    stray = self.strays.choice(STRANGE)
                    self.kafka.append(topic, number, stray, self.strays.choice([None, name]))
        done = self.oracle.next_seq - 1
        self.resolved = encode_resolved(Resolved(done, self.times[done], {"0": 1}))
        for number in range(self.partitions):
            self.kafka.append(NAMES.changes, number, self.resolved)

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


@pytest.mark.parametrize("seed", range(seeds(80, 20)))
def test_changes_after_a_seq_come_once_in_order_whatever_the_clocks_say(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(seed, monkeypatch)
    dice = history.dice
    monkeypatch.setattr(kafka_changes, "_AHEAD_BYTES_MAX", dice.choice([500, 1 << 23]))
    since = dice.randrange(history.oracle.next_seq)
    monkeypatch.setattr(kafka_changes, "CLOCK_SKEW_MS", dice.choice([0, CLOCK_SKEW_MS]))
    reader = ChangeReader(SETTINGS, since, dice.choice([None, history.times[since]]))
    batches = [batch for _ in range(300) for batch in reader.poll()]
    found = [(event.seq, event.number, event.key) for b in batches for event in b.changes]
    assert found == [change for change in history.changes if change[0] > since]
    reader.close()


def read(record: Record) -> Change | Resolved | None:
    return ChangeRecords(NAMES.changes).read(0, record.at, record.content)


def followed(history: History) -> dict[int, PartitionProgress]:
    """How far a read model is that has read some of the changes."""
    found = {}
    for number, part in enumerate(history.kafka.topics[NAMES.changes]):
        position = history.dice.choice([0, part.high, history.dice.randint(0, part.high)])
        before = (read(record) for record in part.records if record.at < position)
        seqs = [each.resolved for each in before if isinstance(each, Resolved)]
        found[number] = PartitionProgress(position, Progress(max(seqs, default=0)))
    return found


def newest(history: History, model: dict[int, PartitionProgress] | None) -> int:
    """The largest seq of the changes that a read model has read."""
    seqs = [0]
    for number, part in enumerate(history.kafka.topics[NAMES.changes]):
        before = [read(r) for r in part.records if model and r.at < model[number].position]
        seqs += [each.source.seq for each in before if isinstance(each, Change)]
    return max(seqs)


def last_needed(history: History, number: int, since: int) -> int:
    """The offset from which on a partition has all changes after a seq, and tells so."""
    part = history.kafka.topics[NAMES.changes][number]
    told, most = 0, 0
    for record in reversed(part.records):
        found = read(record)
        if isinstance(found, Resolved) and found.resolved <= since:
            most = max(most, found.resolved)
        first = found.source.seq - 1 if isinstance(found, Change) else most
        first = found.resolved if isinstance(found, Resolved) else first
        told = max(told, record.at if first < most else 0)
    return told


@pytest.mark.parametrize("seed", [*range(seeds(80, 20)), 153, 814])
def test_changes_that_kafka_has_deleted_are_not_skipped(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All after a seq come, or an error does; none does while all are there.

    With seed 153, the first resolved seq that is left lay behind changes of higher seqs. With seed
    814, a read model has read changes that are not resolved when they are deleted.
    """
    history = History(seed, monkeypatch)
    dice = history.dice
    since = dice.randrange(history.oracle.next_seq)
    parts = history.kafka.topics[NAMES.changes]
    model = dice.choice([None, followed(history)])
    met = newest(history, model)
    whole = [last_needed(history, number, since) for number in range(len(parts))]
    bounds = dice.choice([whole, [part.high for part in parts]])
    trims = [dice.randint(0, bound) for bound in bounds]
    later = dice.random() < 0.3
    lost = any(at > most for at, most in zip(trims, whole, strict=True))
    found: list[tuple[int, int, str]] = []

    def go_on() -> None:
        """Kafka deletes changes; others come."""
        for part, at in zip(parts, trims, strict=True):
            part.trim(at)
        history._plan()

    if not later:
        go_on()
    gone = ""
    try:
        ts_ms = dice.choice([None, history.times[since]])
        reader = ChangeReader(SETTINGS, since, ts_ms, model, met)
        for turn in range(300):
            if later and turn == 2:
                go_on()
            for batch in reader.poll():
                found += [(event.seq, event.number, event.key) for event in batch.changes]
        reader.close()
    except ProblemError as error:
        gone = error.problem.slug
    wanted = [change for change in history.changes if change[0] > since]
    if gone:
        assert gone == "snapshot-gone"
        assert lost or later
        assert found == wanted[: len(found)]
    else:
        assert found == wanted


@pytest.mark.parametrize("seed", range(seeds(80, 20)))
def test_changes_after_a_seq_come_once_wherever_an_index_has_them_begin(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is made by another reader, which began behind a read model, while others come."""
    history = History(seed, monkeypatch)
    dice = history.dice
    monkeypatch.setattr(feed_index, "_APART", dice.choice([1, 2, 5]))
    monkeypatch.setattr(feed_index, "_NOTES_MAX", dice.choice([2, 5, 100]))
    monkeypatch.setattr(kafka_changes, "CLOCK_SKEW_MS", dice.choice([0, CLOCK_SKEW_MS]))
    model = followed(history)
    met = newest(history, model)
    index = FeedIndex(model, met)
    since = min(part.resolved.seq for part in model.values())
    parts = history.kafka.topics[NAMES.changes]
    lost = [dice.choice([0, 0, dice.randint(0, part.high)]) for part in parts]
    for part, at in zip(parts, lost, strict=True):
        part.trim(at)
    with suppress(ProblemError):  # what it needs is gone
        following = ChangeReader(SETTINGS, since, history.times[since], model, met, notes=index)
        for _ in range(dice.randint(1, 60)):
            following.poll()
            if dice.random() < 0.1:
                history._plan()
    monkeypatch.setattr(kafka_changes, "CLOCK_SKEW_MS", CLOCK_SKEW_MS)
    history._plan()
    since = dice.randrange(history.oracle.next_seq)
    places = [index.place(number, since) for number in range(len(parts))]
    for number, place in enumerate(places):
        if place is not None:
            records = [read(r) for r in parts[number].records if r.at < place]
            assert all(_seq_of(r) <= since for r in records if r is not None)
            if dice.random() < 0.3:
                parts[number].trim(dice.randint(0, place))  # nothing that is wanted goes
    ts_ms = dice.choice([None, history.times[since]])
    found, gone, begun, moved = [], True, {}, set()

    def begin(consumer: Any, topic: str, starts: dict[int, int]) -> None:
        begun.update(starts)
        assign(consumer, topic, starts)

    def move(consumer: Any, topic: str, number: int, at: int) -> None:
        moved.add(number)
        seek(consumer, topic, number, at)

    monkeypatch.setattr(kafka_changes, "assign", begin)
    monkeypatch.setattr(kafka_changes, "seek", move)
    with suppress(ProblemError):
        reader = ChangeReader(SETTINGS, since, ts_ms, index=index)
        for _ in range(300):
            for batch in reader.poll():
                found += [(event.seq, event.number, event.key) for event in batch.changes]
        gone = False
    known = {n: place for n, place in enumerate(places) if place is not None}
    assert not begun or begun.items() >= known.items()
    assert not moved & known.keys()
    if gone:
        assert None in places
        assert any(lost)
    else:
        assert found == [change for change in history.changes if change[0] > since]


def _seq_of(record: Change | Resolved) -> int:
    return record.source.seq if isinstance(record, Change) else record.resolved


@pytest.mark.parametrize("seed", range(seeds(80, 20)))
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
            assert isinstance(found, NoResult)
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


@pytest.mark.parametrize("seed", range(seeds(120, 30)))
def test_a_search_whose_time_runs_out_tells_since_when_it_has_seen_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(seed, monkeypatch)
    dice, topic = history.dice, history.kafka.topics[NAMES.results]
    stamps = {(n, r.at): r.append_ms for n, part in enumerate(topic) for r in part.records}
    seen = set()
    looked_at, looks = kafka_search._Search._looked_at, iter(range(10_000))
    ends = dice.randint(0, 20)

    def look(search: Any, message: Any) -> Result | None:
        seen.add((message.partition(), message.offset()))
        return looked_at(search, message)

    monkeypatch.setattr(kafka_search._Search, "_looked_at", look)
    monkeypatch.setattr(kafka_search._Search, "_has_time", lambda _: next(looks) < ends)
    monkeypatch.setattr(kafka_search, "_STRETCH", dice.choice([1, 3, 10]))
    begins = dice.choice([None, dice.choice(sorted(stamps.values()))])
    monkeypatch.setattr(kafka_search, "time_of_id", lambda _: begins)
    monkeypatch.setattr(kafka_search, "CLOCK_SKEW_MS", 0)
    found = search_result(SETTINGS, "never", None)
    assert isinstance(found, NoResult)
    if found.complete:
        assert seen == stamps.keys()
    elif found.since_ms is not None and not history.wild:
        assert seen >= {place for place, stamp in stamps.items() if stamp >= found.since_ms}


@pytest.mark.parametrize("seed", range(seeds(40, 13)))
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


def resolved_only(monkeypatch: pytest.MonkeyPatch, count: int) -> MemoryKafka:
    """A database whose changes are one partition of resolved records of the seqs from 1 on."""
    kafka = MemoryKafka(random.Random("resolved"))
    kafka.install(monkeypatch)
    for topic in (NAMES.changes, NAMES.streams):
        kafka.create(topic)
    for seq in range(1, count + 1):
        kafka.append(NAMES.changes, 0, encode_resolved(Resolved(seq, seq, {"0": seq})))
    return kafka


def test_changes_that_are_deleted_before_they_are_read_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = resolved_only(monkeypatch, 500)
    reader = ChangeReader(SETTINGS, 0, None)
    assert reader.poll()[-1].resolved < 200
    kafka.topics[NAMES.changes][0].trim(490)
    with pytest.raises(ProblemError, match="snapshot-gone"):
        reader.poll()


def poll_often(reader: ChangeReader) -> None:
    """Poll until there is an error."""
    for _ in range(100):
        reader.poll()


@pytest.mark.parametrize("failed", [True, False])
def test_changes_that_cannot_be_read_are_an_error(
    monkeypatch: pytest.MonkeyPatch, *, failed: bool
) -> None:
    kafka = resolved_only(monkeypatch, 3)
    reader = ChangeReader(SETTINGS, 0, None)
    monkeypatch.setattr(kafka_changes, "PARTITIONS_CHECK_S", -1)
    told = 0
    while told < 3:
        told = max([told, *(batch.resolved for batch in reader.poll())])
    if failed:
        fault = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        part = kafka.topics[NAMES.changes][0]
        part.records.append(Record(0, part.high, 0, None, None, fault))
        part.high += 1
    else:
        kafka.create(NAMES.changes, 2)
    with pytest.raises(ProblemError, match="log-unavailable"):
        poll_often(reader)
    reader.close()


@scenario
async def test_a_stream_that_begins_before_what_kafka_has_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = resolved_only(monkeypatch, 20)
    kafka.topics[NAMES.changes][0].trim(10)
    shown = Progress(20, 20, {0: 20})
    model: Any = SimpleNamespace(
        latest=lambda: shown,
        progress=lambda: TopicProgress("", {0: PartitionProgress(20, shown)}),
        newest=lambda: shown.seq,
        snapshot=lambda at: nullcontext(SimpleNamespace(ts_ms=at)),
    )
    source = KafkaChanges(SETTINGS, FacadeSettings(), model)
    feed = Feed(source, 1_000_000, 5)
    await feed.start()
    for since, ends in ((2, b"event: error"), (11, b"event: error"), (12, b"id: 20")):
        async with aclosing(events(feed, since, change_filter(ALL_KEYS, None, None), 0)) as got:
            told = b""
            while ends not in told:
                told += await anext(got)
        assert (b"/problems/snapshot-gone" in told) == (since < 12), since
        assert since == 12 or b"id: " not in told
    await source.stop()
    assert source.fault() is None


@scenario
async def test_a_change_of_a_later_release_ends_streams_until_the_read_model_is_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = resolved_only(monkeypatch, 20)
    shown = PartitionProgress(10, Progress(10, 10, {0: 10}))
    model: Any = SimpleNamespace(
        latest=lambda: shown.resolved,
        progress=lambda: TopicProgress("", {0: shown}),
        newest=lambda: shown.resolved.seq,
        snapshot=lambda at: nullcontext(SimpleNamespace(ts_ms=at)),
    )
    kafka.append(NAMES.changes, 0, LATER[0])
    source = KafkaChanges(SETTINGS, FacadeSettings(), model)
    feed = Feed(source, 1_000_000, 5)

    async def told(since: int, wanted: bytes) -> bytes:
        await feed.start()
        found = b""
        async with aclosing(events(feed, since, change_filter(ALL_KEYS, None, None), 0.01)) as got:
            while wanted not in found:
                found += await anext(got)
        return found

    for _ in range(2):
        said = await told(20, b"event: error")
        assert b"/problems/not-ready" in said
        assert b"bank.changes, partition 0, offset 20: This change record has format 2" in said
    kafka.append(NAMES.changes, 0, encode_resolved(Resolved(21, 21, {"0": 21})))
    kafka.topics[NAMES.changes][0].trim(21)
    shown.position, shown.resolved = 21, Progress(20, 20, {0: 20})
    await told(20, b"id: 21")
    assert source.fault() is None
    await source.stop()
