"""A topic is followed in a thread, with a taker of any pace, which may fail, and partitions of any
length.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import KafkaError

from streamydb.kafka import follower
from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.kafka.errors import PARTITION_EOF, LogFaultError, ReadFailure
from streamydb.kafka.librdkafka import ConsumedRecords
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario, until
from tests.support.seeds import seeds

Place = tuple[int, int]


class Topic:
    """A reader in columns of a topic: some records of some partition at a time.

    Records are appended while it reads, perhaps behind an end that it tells in the same batch. With
    ``losses`` the right to read a partition is taken away now and then, for some batches; that is
    told once, and again when reading begins anew.
    """

    def __init__(self, dice: random.Random, lengths: list[int], *, losses: bool) -> None:
        self._dice = dice
        self._lengths = lengths
        self._shown = [dice.randint(0, length) for length in lengths]
        self._losses = 5 if losses else 0
        self._lost: dict[int, int] = {}
        self._told: list[ReadFailure] = []
        self._next: dict[int, int] = {}

    def assign(self, _: str, positions: Mapping[int, int]) -> None:
        self._next = dict(positions)
        self._told = [_refusal(number) for number in self._lost]
        self._told += [_end(n, at) for n, at in positions.items() if n not in self._lost]

    def take(self, count_max: int, _: float) -> ConsumedRecords:
        found: list[OneRecord] = []
        told, self._told = self._told, []
        self._lost = {number: left - 1 for number, left in self._lost.items() if left}
        for _ in range(self._dice.randint(0, 3)):
            number = self._dice.choice([*self._next])
            if number in self._lost:
                continue
            if self._losses and self._dice.random() < 0.1:
                self._losses -= 1
                self._lost[number] = self._dice.randint(1, 4)
                told.append(_refusal(number))
                continue
            at = self._next[number]
            self._shown[number] = max(at, self._shown[number])
            count = min(self._shown[number] - at, count_max - len(found))
            self._next[number] += (count := self._dice.randint(0, count))
            found += [OneRecord(number, at + n, b"", b"") for n in range(count)]
            if self._next[number] == self._shown[number]:
                told.append(_end(number, self._next[number]))
                self._shown[number] = self._dice.randint(at + count, self._lengths[number])
        return ConsumedRecords(RecordColumns.of(found), told)

    def close(self) -> None:
        self._lengths = []


def _end(number: int, at: int) -> ReadFailure:
    return ReadFailure(KafkaError(PARTITION_EOF), number, at)


def _refusal(number: int) -> ReadFailure:
    return ReadFailure(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), number, -1)


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


async def passed(tail: follower.TopicFollower[list[Place]], ends: Mapping[int, int]) -> None:
    """Wait, again and again while a partition cannot be read."""
    while True:
        try:
            return await tail.passed(ends)
        except LogFaultError as error:
            if "followed" in str(error):
                raise
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(seeds(60, 20)))
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
    monkeypatch.setattr(follower, "_HANDED_MAX", room)
    monkeypatch.setattr(follower, "_BATCH", dice.choice([1, 3, 20]))
    monkeypatch.setattr(follower, "_POLL_S", 0.01)
    monkeypatch.setattr(follower, "_PROBE_S", 0)
    monkeypatch.setattr(follower.TopicFollower, "_partitions_now", lambda _: {*starts})
    losses = seed % 2 == 1
    topic = Topic(random.Random(seed), lengths, losses=losses)
    monkeypatch.setattr(follower, "column_reader", lambda *_, **__: topic)
    taker = Taker(dice, fails_at)
    tail = follower.TopicFollower(Settings(), "t", starts, taker.prepare, taker.take)
    waiting = [asyncio.create_task(passed(tail, {n: end})) for n, end in enumerate(lengths)]
    if fails_at < 0:
        async with asyncio.timeout(30):
            await asyncio.gather(*waiting)
        assert sum(map(len, taker.prepared)) == expected
    failed = "t cannot be followed (KeyError)" if fails_at >= 0 else None
    await until(lambda: tail.fault == failed and (fails_at >= 0 or len(taker.taken) == expected))
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
    if failed or not losses:  # else a right may have been taken away once more, before the end
        assert tail.fault == failed
