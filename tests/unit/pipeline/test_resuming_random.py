"""A start goes on exactly when the topics hold what its checkpoint has read,
and all that follows.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from streamydb.backup.start import Beginning
from streamydb.errors import ConfigurationError
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.names import TopicNames
from streamydb.parser.last_reads import mark_of
from streamydb.pipeline.preparation import resume
from streamydb.sorter.state import LogEnd
from tests.support.checkpoints import SparkQuery, with_sums, written_to
from tests.support.memory_kafka import CONNECTION, MemoryKafka, Partition, Record
from tests.support.seeds import seeds

NAMES = TopicNames("bank")
_LOST = 0.12
Ends = dict[int, int]


class Started:
    """A pipeline that ran, and topics that may have lost something since."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = dice = random.Random(f"resuming {seed}")
        self.partitions, self.shards = dice.randint(1, 3), dice.choice([1, 1, 2])
        self.config = ShardConfig("bank", "i", self.shards, self.partitions, 100)
        self.begins = [dice.choice([0, 0, 7]) for _ in range(self.partitions)]
        query = SparkQuery(dice, [f"state/0/{shard}" for shard in range(self.shards)])
        query.run(dice.randint(1, 6))
        self.batch = query.start().batch
        self.ends: dict[int, tuple[Ends, Ends]] = {}
        log: Ends = dict(enumerate(self.begins))
        feedback = dict.fromkeys(range(self.shards), dice.choice([0, 0, 4]))
        files = dict(query.files)
        self.first: Ends | None = None
        if dice.random() < 0.8:
            self.first = dict(feedback)
            told = json.dumps({NAMES.feedback: {str(q): at for q, at in feedback.items()}})
            files["sources/1/0"] = b"\0v1\n" + told.encode()
        names = [name.removeprefix("offsets/") for name in query.files]
        for number in sorted(int(name) for name in names if name.isdigit()):
            log, feedback = self._later(log), self._later(feedback)
            self.ends[number] = log, feedback
            read = [{topic: {str(q): at for q, at in ends.items()}} for topic, ends in (
                (NAMES.transactions, log), (NAMES.feedback, feedback),
            )]  # fmt: skip
            text = "\n".join(["v1", "{}", *map(json.dumps, read)])
            files.update(with_sums(f"offsets/{number}", text.encode()))
        self.begun = dice.random() < 0.8
        if self.begun:
            written_to(folder / "query", files)
        alone = not any(self.begins) and dice.random() < 0.5
        start = Beginning(folder / "start", 4, tuple(self.begins))
        self.start = None if alone else start

    def _later(self, ends: Ends) -> Ends:
        return {q: at + self.dice.choice([0, 1, 5]) for q, at in ends.items()}

    def partition(self, number: int, read: int, upto: int) -> Partition:
        """One that holds what the checkpoint needs, or perhaps not; some offsets are no records."""
        dice = self.dice
        low = read + 1 if dice.random() < _LOST else dice.choice([0, read, dice.randint(0, read)])
        high = upto + dice.choice([0, 0, 3])
        if upto and dice.random() < _LOST:
            high = upto - 1
        low, every = min(low, high), dice.choice([0.1, 0.5, 1.0])
        records = [
            Record(number, at, dice.randrange(99), None, dice.choice([None, b"a", b"b%d" % at]))
            for at in range(low, high)
            if dice.random() < every
        ]
        return Partition(records, low, high)

    def topic(self, done: Ends, begun: Ends) -> list[Partition]:
        places = [(done.get(q, 0), begun.get(q, 0)) for q in sorted({*done, *begun})]
        return [self.partition(q, a, max(a, b)) for q, (a, b) in enumerate(places)]


def fits(parts: list[Partition], done: Ends, begun: Ends) -> bool:
    """Whether nothing is gone that was not read, and nothing that was."""
    needed = [(done.get(q, 0), max(done.get(q, 0), begun.get(q, 0))) for q in range(len(parts))]
    pairs = zip(parts, needed, strict=True)
    return all(part.low <= read and part.high >= upto for part, (read, upto) in pairs)


def last_reads(parts: list[Partition], done: Ends) -> dict[int, LogEnd]:
    """The last record before each end; none where it was trimmed."""
    found = {}
    for number, part in enumerate(parts):
        end = done.get(number, 0)
        before = [record for record in part.records if record.at < end]
        if before:
            last = before[-1]
            found[number] = LogEnd(end, last.at, last.append_ms, mark_of(last.content))
        elif end > 0 and part.low == 0:
            found[number] = LogEnd(end, -1, -1, "")
    return found


@pytest.mark.parametrize("seed", range(seeds(150, 37)))
def test_a_start_goes_on_if_nothing_is_lost(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Started(seed, tmp_path)
    every = dict(enumerate(started.begins))
    begins = every if started.start else {}
    log, feedback = started.ends.get(started.batch - 1, (begins, started.first or {}))
    next_log, next_feedback = started.ends.get(started.batch, ({}, {}))
    unknown = started.batch == 0 and started.first is None
    kafka = MemoryKafka(started.dice)
    kafka.install(monkeypatch)
    kafka.topics[NAMES.transactions] = parts = started.topic(log, next_log)
    kafka.topics[NAMES.feedback] = fed = started.topic(feedback, next_feedback)
    if unknown:  # it begins with what there is
        feedback = {q: part.low for q, part in enumerate(fed)}
    goes_on = fits(parts, log, next_log) and fits(fed, feedback, next_feedback)
    if not started.begun:  # it has read nothing but what its state has
        kafka.topics[NAMES.transactions] = parts = started.topic(every, {})
        log, goes_on = begins, started.start is None or fits(parts, begins, {})
    if goes_on:
        found = resume(CONNECTION, started.config, tmp_path, started.start)
        assert found == last_reads(parts, log)
    else:
        with pytest.raises(ConfigurationError, match=r"deleted|was lost"):
            resume(CONNECTION, started.config, tmp_path, started.start)
