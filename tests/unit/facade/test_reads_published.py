"""Strong reads show what anybody knew: with repetitions, control records, crashes, two facades."""

from __future__ import annotations

import asyncio
import random
import uuid
import zlib
from pathlib import Path

import pytest

from streamydb.facade import FacadeSettings, kafka
from streamydb.facade.kafka import KafkaLog
from streamydb.facade.reads import Reader
from streamydb.kafka import follower
from streamydb.kafka.names import TopicNames
from streamydb.read_model import Follower, ReadModel
from streamydb.records import Resolved, Result, encode_resolved, encode_result
from streamydb.records.result import Source
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario
from tests.support.memory_kafka import MemoryKafka
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import change
from tests.support.seeds import seeds

NAMES = TopicNames("bank")
SETTINGS = Settings(database="bank", bootstrap="memory:9092")
KEYS = 4


def key_of(seq: int) -> str:
    """The key that a transaction writes."""
    return f"key {seq % KEYS}"


class World:
    """A log, and a pipeline that answers it batch by batch: results, changes, resolved records.

    Attributes:
        answered: the largest seq that has a result.
        known: the largest seq that anybody has read.
    """

    def __init__(self, dice: random.Random, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.dice = dice
        self.folder = folder
        self.kafka = MemoryKafka(dice)
        self.kafka.install(monkeypatch)
        self.logged = len(self.kafka.create(NAMES.transactions, dice.randint(1, 3)))
        self.answering = len(self.kafka.create(NAMES.results, dice.randint(1, 3)))
        self.changed = self.kafka.create(NAMES.changes, dice.randint(1, 3))
        self.log: list[Source] = []
        self.answered = self.known = 0
        self._batch: list[int] = []
        self._left: list[tuple[str, int]] = []

    def feed(self) -> MemorySource:
        """The changes as a read model's source: some of the records that are there,
        at each call.
        """
        topic = MemoryTopic(self.changed)
        return MemorySource(topic, lambda _, left: self.dice.randint(0, left))

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
            for _ in range(self.dice.randint(1, -(-len(self._left) // 4))):
                self._write(*self._left.pop())
        elif (decided := self._batch[-1] if self._batch else 0) < len(self.log):
            self._batch = [*range(decided + 1, self.dice.randint(decided + 1, len(self.log)) + 1)]
            self._begin()

    def _begin(self) -> None:
        """Changes in their order and results; then resolved records, in every partition."""
        changes = [("change", seq) for seq in self._batch]
        outputs = [*changes, *(("answer", seq) for seq in self._batch)]
        marks = [("mark", number) for number in range(len(self.changed))]
        self.dice.shuffle(outputs)
        self.dice.shuffle(marks)
        ordered = iter(changes)
        outputs = [next(ordered) if kind == "change" else (kind, seq) for kind, seq in outputs]
        self._left = [*outputs, *marks][::-1]

    def _write(self, kind: str, what: int) -> None:
        """Write the result or the change of a seq, or a resolved record of a partition."""
        if kind == "mark":
            self.kafka.append(NAMES.changes, what, self._resolved(self._batch[-1]))
        elif kind == "change":
            key = key_of(what).encode()
            number = zlib.crc32(key) % len(self.changed)
            self.kafka.append(NAMES.changes, number, change(what, str(what), 1_000 + what), key)
        else:
            self.answer(what)

    def _resolved(self, seq: int) -> bytes:
        offsets = {str(number): 0 for number in range(self.logged)}
        for source in self.log[:seq]:
            offsets[str(source.partition)] = source.offset + 1
        return encode_resolved(Resolved(seq, 1_000 + seq, offsets))

    def end_transaction(self) -> None:
        """Leave a control record of a stranger's Kafka transaction somewhere."""
        topic = self.dice.choice([NAMES.results, NAMES.changes, NAMES.transactions])
        self.dice.choice(self.kafka.topics[topic]).high += 1

    async def grow(self, facades: list[Facade]) -> None:
        """Add a partition to the results, which is used when those facades know it."""
        grown = self.kafka.create(NAMES.results, self.answering + 1)
        async with asyncio.timeout(30):
            while any(  # noqa: ASYNC110 - nothing tells it
                facade.reads_results_in() < len(grown) for facade in facades
            ):
                await asyncio.sleep(0.001)
        self.answering = len(grown)

    def change_all(self) -> None:
        """Execute all that is in the log, and write the changes only."""
        self._batch = [*range(1, len(self.log) + 1)]
        for seq in self._batch:
            self._write("change", seq)

    def answer_all(self) -> None:
        """Write all results."""
        for seq in range(1, len(self.log) + 1):
            self.answer(seq)

    def resolve_all(self) -> None:
        """Write resolved records up to the last seq of the batch."""
        for number in range(len(self.changed)):
            self._write("mark", number)

    def finish(self) -> None:
        """Answer and show everything."""
        while self._left or not self._batch or self._batch[-1] < len(self.log):
            self.step()

    def answer(self, seq: int) -> None:
        """Write the result of a seq."""
        name = f"t{seq}"
        result = Result(
            id=name, seq=seq, ts_ms=1_000 + seq, status="committed", reads={}, failed=[],
            code=None, source=self.log[seq - 1],
        )  # fmt: skip
        number = seq % self.answering
        self.kafka.append(NAMES.results, number, encode_result(result), name.encode())
        self.answered = max(self.answered, seq)


class Facade:
    """A facade: its log, its reader, and its read model, which follows at its own pace."""

    def __init__(self, world: World) -> None:
        settings = FacadeSettings(poll_s=0.001, read_timeout_s=60)
        self._dice = world.dice
        self._pauses = world.dice.choice([[0, 0, 0.001], [0.005, 0.05]])
        self._model = ReadModel.open(world.folder / uuid.uuid4().hex, "bank", write=True)
        self._follower = Follower(self._model, SETTINGS, source=world.feed())
        self._following = asyncio.create_task(self._follow())
        self.follows = asyncio.Event()
        self.follows.set()
        self._log = KafkaLog(SETTINGS, settings)
        self.reader = Reader(self._model, self._log, settings)

    async def start(self, *, early: bool) -> None:
        """Start; ``early``: as the application does, before the first read comes."""
        await self._log.start()
        if early:
            self.reader.begin()

    def reads_results_in(self) -> int:
        """The number of partitions of the results that it reads."""
        return len(self._log._results.partitions())

    async def stop(self) -> None:
        """End."""
        await self.reader.stop()
        await self._log.stop()
        self._following.cancel()
        self._model.close()

    async def _follow(self) -> None:
        while await self.follows.wait():
            self._follower.step(0)
            await asyncio.sleep(self._dice.choice(self._pauses))


def some_steps(world: World, most: int) -> None:
    """Let a few things happen that nobody here looks at."""
    for _ in range(world.dice.randint(0, most)):
        world.dice.choice([world.append, world.step, world.step, world.end_transaction])()


async def started(world: World) -> Facade:
    """A facade that has started."""
    facade = Facade(world)
    await facade.start(early=world.dice.random() < 0.5)
    return facade


async def read(world: World, facade: Facade) -> None:
    """Read, and hold what is shown against what anybody was answered or has read before."""
    known = max(world.answered, world.known)
    with await facade.reader.snapshot() as shown:
        assert shown.seq >= known
        world.known = max(world.known, shown.seq)
        found = {entry.key: entry.version for entry in shown.scan()}
        assert found == {key_of(seq): seq for seq in range(1, shown.seq + 1)}


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(15, 5)))
@scenario
async def test_a_strong_read_shows_all_that_anybody_knew_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(f"published {seed}")
    monkeypatch.setattr(kafka, "_PRELOAD", dice.choice([0, 2, 10_000]))
    monkeypatch.setattr(follower, "_GROWTH_S", 0)
    world = World(dice, monkeypatch, tmp_path)
    some_steps(world, 30)
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
            some_steps(world, 6)
            facades.append(await started(world))
            reads.append(asyncio.create_task(read(world, facades[-1])))
        elif chance < 0.72:
            await world.grow(facades)
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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = World(random.Random("idle"), monkeypatch, tmp_path)
    facade = Facade(world)
    await facade.start(early=True)
    await facade.reader.begin()
    assert facade.reader.passed()
    world.append()
    async with asyncio.timeout(30):
        await read(world, facade)
    await facade.stop()


@scenario
async def test_a_strong_read_does_not_wait_for_changes_of_which_nobody_was_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = World(random.Random("changes"), monkeypatch, tmp_path)
    facade = Facade(world)
    await facade.start(early=True)
    await facade.reader.begin()
    facade.follows.clear()
    world.append()
    world.change_all()
    async with asyncio.timeout(30):
        await read(world, facade)
    await facade.stop()


@scenario
async def test_a_strong_read_shows_what_a_read_elsewhere_has_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = World(random.Random("elsewhere"), monkeypatch, tmp_path)
    first, second = Facade(world), Facade(world)
    for facade in (first, second):
        await facade.start(early=True)
        await facade.reader.begin()
    second.follows.clear()
    world.append()
    world.change_all()
    world.answer_all()
    world.resolve_all()
    async with asyncio.timeout(30):
        await read(world, first)
        assert world.known == len(world.log)
        later = asyncio.create_task(read(world, second))
        await asyncio.sleep(0.1)
        assert not later.done()
        second.follows.set()
        await later
    for facade in (first, second):
        await facade.stop()


@scenario
async def test_a_strong_read_shows_what_was_answered_before_the_facade_began(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kafka, "_PRELOAD", 0)
    world = World(random.Random("answered"), monkeypatch, tmp_path)
    world.append()
    world.answer_all()
    facade = Facade(world)
    await facade.start(early=False)
    async with asyncio.timeout(30):
        waits = asyncio.create_task(read(world, facade))
        await asyncio.sleep(0.1)
        assert not waits.done()
        world.change_all()
        world.resolve_all()
        await waits
    await facade.stop()
