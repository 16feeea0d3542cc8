"""Strong reads show what anybody knew: with repetitions, control records, crashes, two facades."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from streamydb.facade import FacadeSettings, kafka
from streamydb.facade.kafka import KafkaLog
from streamydb.facade.reads import Reader
from streamydb.kafka.names import TopicNames
from streamydb.records import Result, encode_result
from streamydb.records.result import Source
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario
from streamydb.testing.memory_model import MemoryResolved
from tests.support.memory_kafka import MemoryKafka

NAMES = TopicNames("bank")
SETTINGS = Settings(database="bank", bootstrap="memory:9092")


class World:
    """A log, and a pipeline that answers it batch by batch, with markers for read models.

    Attributes:
        answered: the largest seq that has a result.
        known: the largest seq that anybody has read.
    """

    def __init__(self, dice: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dice = dice
        self.kafka = MemoryKafka(dice)
        self.kafka.install(monkeypatch)
        self.logged = len(self.kafka.create(NAMES.transactions, dice.randint(1, 3)))
        self.parts = self.kafka.create(NAMES.results, dice.randint(1, 3))
        self.changed = self.kafka.create(NAMES.changes, dice.randint(1, 3))
        self.log: list[Source] = []
        self.answered = self.known = 0
        self._batch: list[int] = []
        self._left: list[tuple[str, int]] = []

    def append(self) -> None:
        """Append transactions to the log."""
        for _ in range(self.dice.randint(1, 4)):
            number = self.dice.randrange(self.logged)
            offset = self.kafka.append(NAMES.transactions, number, b"{}")
            self.log.append(Source(number, offset))

    def step(self) -> None:
        """Write some of a batch, in any order, or begin one; after a crash, the same one anew."""
        if self._batch and self.dice.random() < 0.1:
            self._begin()
        elif self._left:
            for _ in range(self.dice.randint(1, len(self._left))):
                self._write(*self._left.pop())
        elif (decided := self._batch[-1] if self._batch else 0) < len(self.log):
            self._batch = [*range(decided + 1, self.dice.randint(decided + 1, len(self.log)) + 1)]
            self._begin()

    def _begin(self) -> None:
        marks = [("mark", number) for number in range(len(self.changed))]
        self._left = [*(("answer", seq) for seq in self._batch), *marks]
        self.dice.shuffle(self._left)

    def _write(self, kind: str, what: int) -> None:
        """Write the result of a seq, or the marker of a partition of the changes."""
        if kind == "mark":
            self.kafka.append(NAMES.changes, what, str(self._batch[-1]).encode())
        else:
            self._answer(what)

    def end_transaction(self) -> None:
        """Leave a control record of a stranger's Kafka transaction somewhere."""
        topic = self.dice.choice([NAMES.results, NAMES.changes, NAMES.transactions])
        self.dice.choice(self.kafka.topics[topic]).high += 1

    def finish(self) -> None:
        """Answer and show everything."""
        while self._left or not self._batch or self._batch[-1] < len(self.log):
            self.step()

    def _answer(self, seq: int) -> None:
        name = f"t{seq}"
        result = Result(
            id=name, seq=seq, ts_ms=1_000 + seq, status="committed", reads={}, failed=[],
            code=None, source=self.log[seq - 1],
        )  # fmt: skip
        number = seq % len(self.parts)
        self.kafka.append(NAMES.results, number, encode_result(result), name.encode())
        self.answered = max(self.answered, seq)


class Model:
    """A read model: it reads the markers at its own pace."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._read = dict.fromkeys(range(len(world.changed)), 0)
        self.task = asyncio.create_task(self._follow())

    def latest(self) -> MemoryResolved:
        """The seq that all partitions have resolved, and what it covers."""
        marks = [
            max((int(r.content or b"0") for r in part.records if r.at < self._read[n]), default=0)
            for n, part in enumerate(self.world.changed)
        ]
        offsets = dict.fromkeys(range(self.world.logged), 0)
        for source in self.world.log[: min(marks)]:
            offsets[source.partition] = max(offsets[source.partition], source.offset + 1)
        return MemoryResolved(min(marks), 1_000 + min(marks), offsets)

    def positions(self) -> dict[int, int]:
        """As a read model tells them."""
        return dict(self._read)

    def oldest(self) -> int:
        """All snapshots are kept."""
        return 0

    def snapshot(self, at: int | None = None) -> int:
        """What a read shows: the seq."""
        assert at is None
        return self.latest().seq

    async def _follow(self) -> None:
        dice = self.world.dice
        while True:
            number = dice.choice([*self._read])
            left = self.world.changed[number].high - self._read[number]
            self._read[number] += dice.randint(0, left)
            await asyncio.sleep(dice.choice([0, 0, 0.001]))


class Facade:
    """A facade: its log, its reader and its read model."""

    def __init__(self, world: World) -> None:
        settings = FacadeSettings(poll_s=0.001, read_timeout_s=60)
        model: Any = Model(world)
        self.model: Model = model
        self.log = KafkaLog(SETTINGS, settings)
        self.reader = Reader(model, self.log, settings)

    async def start(self, *, early: bool) -> None:
        """Start; ``early``: as the application does, before the first read comes."""
        await self.log.start()
        if early:
            self.reader.begin()

    async def stop(self) -> None:
        """End."""
        await self.reader.stop()
        await self.log.stop()
        self.model.task.cancel()


async def started(world: World) -> Facade:
    """A facade that has started."""
    facade = Facade(world)
    await facade.start(early=world.dice.random() < 0.5)
    return facade


async def read(world: World, facade: Facade) -> None:
    """Read, and hold what is shown against what anybody was answered or has read before."""
    known = max(world.answered, world.known)
    shown: Any = await facade.reader.snapshot()
    assert shown >= known
    world.known = max(world.known, shown)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(40))
@scenario
async def test_a_strong_read_shows_all_that_anybody_knew_before(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(f"published {seed}")
    monkeypatch.setattr(kafka, "_PRELOAD", dice.choice([0, 2, 10_000]))
    world = World(dice, monkeypatch)
    for _ in range(dice.randint(0, 30)):
        dice.choice([world.append, world.step, world.step, world.end_transaction])()
    facades = [await started(world) for _ in range(2)]
    reads: list[asyncio.Task[None]] = []
    for _ in range(60):
        chance = dice.random()
        if chance < 0.2:
            world.append()
        elif chance < 0.6:
            world.step()
        elif chance < 0.65:
            world.end_transaction()
        elif chance < 0.7:  # reads under way end with it
            world.append()
            world.finish()
            await asyncio.gather(*reads)
            await facades.pop(0).stop()
            facades.append(await started(world))
        else:
            reads.append(asyncio.create_task(read(world, dice.choice(facades))))
        if dice.random() < 0.3:
            await asyncio.sleep(dice.choice([0, 0.002]))
    await asyncio.sleep(0.005)
    world.append()
    world.finish()
    async with asyncio.timeout(60):
        await asyncio.gather(*reads)
    for facade in facades:
        await facade.stop()


@scenario
async def test_a_strong_read_does_not_wait_for_what_nobody_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(random.Random("idle"), monkeypatch)
    facade = Facade(world)
    await facade.start(early=True)
    await facade.reader.begin()
    assert facade.reader.passed()
    world.append()
    async with asyncio.timeout(30):
        await read(world, facade)
    await facade.stop()
