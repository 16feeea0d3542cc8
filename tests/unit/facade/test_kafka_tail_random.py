"""A topic is followed in a thread, with a taker of any pace, which may fail, and partitions of any
length.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping

import pytest

from streamydb.facade import kafka_tail
from streamydb.facade.ports import LogFaultError
from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.kafka.librdkafka import Taken
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario, until

Place = tuple[int, int]


class Topic:
    """A reader in columns of a topic: some records of some partition at a time."""

    def __init__(self, dice: random.Random, lengths: list[int]) -> None:
        self._dice = dice
        self._lengths = lengths
        self._next: dict[int, int] = {}

    def assign(self, _: str, positions: Mapping[int, int]) -> None:
        self._next = dict(positions)

    def take(self, count_max: int, _: float) -> Taken:
        found: list[OneRecord] = []
        left = [n for n, at in self._next.items() if at < self._lengths[n]]
        for number in self._dice.sample(left, self._dice.randint(0, len(left))):
            at = self._next[number]
            count = min(self._lengths[number] - at, count_max - len(found))
            self._next[number] += (count := self._dice.randint(0, count))
            found += [OneRecord(number, at + n, b"", b"") for n in range(count)]
        return Taken(RecordColumns.of(found), [])

    def close(self) -> None:
        self._lengths = []


class Taker:
    """Takes rows with pauses; fails at the row of a number, if there is one.

    Attributes:
        prepared: the batches, as the thread gave them.
        taken: the rows, as the event loop got them.
        ahead: how many batches the thread was ahead of the loop, at most.
    """

    def __init__(self, dice: random.Random, fails_at: int) -> None:
        self._dice = dice
        self._fails_at = fails_at
        self._begun = 0
        self.prepared: list[list[Place]] = []
        self.taken: list[Place] = []
        self.ahead = 0

    def prepare(self, records: RecordColumns) -> list[Place]:
        places = zip(records.partitions.tolist(), records.offsets.tolist(), strict=True)
        self.prepared.append([*places])
        self.ahead = max(self.ahead, len(self.prepared) - self._begun)
        return self.prepared[-1]

    def take(self, rows: list[Place]) -> Iterator[None] | None:
        self._begun += 1
        if self._dice.random() < 0.3:
            for row in rows:
                self._take_one(row)
            return None
        return self._steps(rows)

    def _steps(self, rows: list[Place]) -> Iterator[None]:
        for row in rows:
            for _ in range(self._dice.choice([0, 1, 1, 5])):
                yield
            self._take_one(row)

    def _take_one(self, row: Place) -> None:
        if len(self.taken) == self._fails_at:
            raise KeyError(row)
        self.taken.append(row)


@pytest.mark.parametrize("seed", range(40))
@scenario
async def test_all_is_taken_once_in_order_or_a_fault_is_told(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    lengths = [dice.randint(1, 40) for _ in range(dice.randint(1, 3))]
    starts = {number: dice.randrange(length) for number, length in enumerate(lengths)}
    expected = sum(lengths) - sum(starts.values())
    fails_at = dice.randrange(expected) if seed % 3 == 0 else -1
    room = dice.randint(1, 4)
    monkeypatch.setattr(kafka_tail, "_HANDED_MAX", room)
    monkeypatch.setattr(kafka_tail, "_BATCH", dice.choice([1, 3, 20]))
    monkeypatch.setattr(kafka_tail, "_POLL_S", 0.01)
    monkeypatch.setattr(
        kafka_tail, "column_reader", lambda *_, **__: Topic(random.Random(seed), lengths)
    )
    taker = Taker(dice, fails_at)
    tail = kafka_tail.TopicFollower(Settings(), "t", starts, taker.prepare, taker.take)
    waiting = [asyncio.create_task(tail.passed({n: end})) for n, end in enumerate(lengths)]
    if fails_at < 0:
        async with asyncio.timeout(30):
            await asyncio.gather(*waiting)
        assert sum(map(len, taker.prepared)) == expected
    await until(lambda: tail.fault is not None or len(taker.taken) == expected)
    await asyncio.to_thread(tail.close)
    for task in waiting:
        task.cancel()
    for ended in await asyncio.gather(*waiting, return_exceptions=True):
        assert ended is None or isinstance(ended, asyncio.CancelledError | LogFaultError)
    in_order = [row for batch in taker.prepared for row in batch]
    assert taker.taken == in_order[: fails_at if fails_at >= 0 else None]
    for number, start in starts.items():
        offsets = [offset for partition, offset in in_order if partition == number]
        assert offsets == [*range(start, start + len(offsets))]
    assert taker.ahead <= room + 2  # one is taken, and one waits for room
    failed = "t cannot be followed (KeyError)" if fails_at >= 0 else None
    assert tail.fault == failed
