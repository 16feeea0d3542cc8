"""A topic is followed in a thread: in order, ahead of who takes it, and fair to other work."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streamydb.facade.result_batch import batch_of
from streamydb.facade.waiting import run_in
from streamydb.kafka import follower
from streamydb.kafka.clients import PARTITION_EOF
from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.kafka.errors import LogFaultError
from streamydb.kafka.librdkafka import ConsumedRecords, ReadFailure
from streamydb.records import Result, encode_result
from streamydb.records.result import Source
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario, until


class Columns:
    """A reader in columns of one partition of results."""

    def __init__(self, count: int) -> None:
        self._left = [OneRecord(0, n, b"%d" % n, result(n)) for n in range(count)]
        self.closed = False

    def assign(self, _: str, positions: Mapping[int, int]) -> None:
        self._left = self._left[positions[0] :]

    def take(self, count_max: int, _: float) -> ConsumedRecords:
        found, self._left = self._left[:count_max], self._left[count_max:]
        return ConsumedRecords(RecordColumns.of(found), [])

    def close(self) -> None:
        self.closed = True


def result(n: int) -> bytes:
    """A commit."""
    return encode_result(
        Result(
            id=f"{n}", seq=n + 1, ts_ms=1, status="committed", reads={}, failed=[], code=None,
            source=Source(0, n),
        )
    )  # fmt: skip


@scenario
async def test_a_tail_hands_over_in_order_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Columns(20)
    monkeypatch.setattr(follower, "column_reader", lambda *_, **__: reader)
    monkeypatch.setattr(follower, "_BATCH", 1)
    taken: list[Any] = []
    tail = follower.TopicFollower(Settings(), "t", {0: 3}, batch_of, taken.extend)
    await until(lambda: sum(len(each.ids) for each in taken) == 17)
    assert [txn_id for each in taken for txn_id in each.ids] == [b"%d" % n for n in range(3, 20)]
    with ThreadPoolExecutor(1) as executor:
        await run_in(executor, tail.close)
    assert reader.closed
    assert tail.fault is None


@scenario
async def test_what_is_passed_has_been_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though what was taken before is still under way."""
    reader = Columns(3)
    monkeypatch.setattr(follower, "column_reader", lambda *_, **__: reader)
    monkeypatch.setattr(follower, "_BATCH", 1)
    prepared: list[int] = []
    taken: list[int] = []
    goes_on = False

    def prepare(records: RecordColumns) -> list[int]:
        prepared.extend(records.offsets.tolist())
        return prepared[-1:]

    def take(rows: list[int]) -> Iterator[None]:
        while not goes_on:
            yield
        taken.extend(rows)

    tail = follower.TopicFollower(Settings(), "t", {0: 0}, prepare, take)
    await tail.passed({0: 3})
    assert (prepared, taken) == ([0, 1, 2], [])
    goes_on = True
    await until(lambda: len(taken) == 3)
    assert taken == prepared
    later = asyncio.create_task(tail.passed({0: 4}))
    await asyncio.sleep(0.01)
    assert not later.done()
    await asyncio.to_thread(tail._taker.hand_over, [3], {0: 4}, tail._stop.is_set)
    await later
    await asyncio.to_thread(tail.close)


@scenario
async def test_a_tail_waits_when_much_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Columns(9)
    monkeypatch.setattr(follower, "column_reader", lambda *_, **__: reader)
    monkeypatch.setattr(follower, "_BATCH", 1)
    monkeypatch.setattr(follower, "_HANDED_MAX", 2)
    prepared: list[int] = []

    def take(_: int) -> Iterator[None]:
        while True:
            yield

    def prepare(records: RecordColumns) -> int:
        prepared.extend(records.offsets.tolist())
        return len(prepared)

    tail = follower.TopicFollower(Settings(), "t", {0: 0}, prepare, take)
    await tail.passed({0: 2})
    await asyncio.sleep(0.05)
    assert prepared == [0, 1, 2]  # the third waits for room
    await asyncio.to_thread(tail.close)


@pytest.mark.parametrize(("others_take", "at_a_turn"), [(0, 4), (12, 4), (15, 5), (24, 8)])
@scenario
async def test_steps_of_a_taker_and_other_work_take_turns_of_the_same_length(
    monkeypatch: pytest.MonkeyPatch, others_take: int, at_a_turn: int
) -> None:
    """By a clock: a step takes one, what it sets going two,
    other work in a turn of the loop some.
    """
    now = [1.0]

    def go_on() -> None:
        now[0] += 2

    monkeypatch.setattr(follower, "column_reader", lambda *_, **__: Columns(0))
    monkeypatch.setattr(follower, "perf_counter", lambda: now[0])
    turns: list[list[int]] = [[]]

    def take(rows: range) -> Iterator[None]:
        for row in rows:
            turns[-1].append(row)
            now[0] += 1
            asyncio.get_running_loop().call_soon(go_on)
            yield

    async def meanwhile() -> None:
        while sum(map(len, turns)) < 41:
            if turns[-1]:
                turns.append([])
                now[0] += others_take
            await asyncio.sleep(0)

    tail = follower.TopicFollower(Settings(), "t", {0: 0}, lambda _: range(0), take)
    hand_over = functools.partial(tail._taker.hand_over, range(41), {}, tail._stop.is_set)
    async with asyncio.timeout(30):
        await asyncio.gather(meanwhile(), asyncio.to_thread(hand_over))
    assert [each for turn in turns for each in turn] == [*range(41)]
    assert {len(turn) for turn in turns[2:-1]} == {at_a_turn}, turns
    await asyncio.to_thread(tail.close)


@scenario
async def test_a_tail_whose_taker_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "column_reader", lambda *_, **__: Columns(1))

    def fail(_: Any) -> None:
        raise KeyError("hush")

    tail = follower.TopicFollower(Settings(), "t", {0: 0}, batch_of, fail)
    await until(lambda: tail.fault is not None)
    assert tail.fault == "t cannot be followed (KeyError)"
    await asyncio.to_thread(tail.close)


class Forbidden(Columns):
    """A reader whose right is taken away, and given back; both are told once."""

    def __init__(self) -> None:
        super().__init__(0)
        self.told: list[ReadFailure] = []
        self.allowed = True
        self.assigned = 0

    def assign(self, topic: str, positions: Mapping[int, int]) -> None:
        super().assign(topic, positions)
        self.assigned += 1
        if self.assigned > 1 and self.allowed:
            self.told.append(ReadFailure(KafkaError(PARTITION_EOF), 0, positions[0]))

    def take(self, count_max: int, wait_s: float) -> ConsumedRecords:
        told, self.told = self.told, []
        return ConsumedRecords(super().take(count_max, wait_s).records, told)


@pytest.mark.parametrize(
    ("code", "number", "why"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, 0, r"authorization failed\); grant the facade"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, -1, r"authorization failed\); grant the facade"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, 0, r"Unknown topic or partition\)$"),
    ],
)
@scenario
async def test_a_tail_that_may_not_read_any_more_says_so_until_it_may(
    monkeypatch: pytest.MonkeyPatch, code: int, number: int, why: str
) -> None:
    reader = Forbidden()
    monkeypatch.setattr(follower, "column_reader", lambda *_, **__: reader)
    monkeypatch.setattr(follower, "_PROBE_S", 0)
    monkeypatch.setattr(follower.TopicFollower, "_partitions_now", lambda _: {0})
    tail = follower.TopicFollower(Settings(), "t", {0: 0}, batch_of, lambda _: None)
    waits = asyncio.create_task(tail.passed({0: 1}))
    await asyncio.sleep(0)
    reader.allowed = False
    reader.told.append(ReadFailure(KafkaError(code), number, -1))
    with pytest.raises(LogFaultError, match=f"t cannot be read .*{why}"):
        async with asyncio.timeout(30):
            await waits
    assert tail.fault == tail.obstacle()
    before = reader.assigned
    await until(lambda: reader.assigned > before + 2)
    assert tail.fault is not None, "Kafka answers, and still it may not read"
    reader.allowed = True
    await until(lambda: tail.fault is None)
    assert tail.obstacle() is None
    await asyncio.to_thread(tail.close)


class Mixed(Forbidden):
    """A reader that tells an end, and in the same batch records that were appended behind it."""

    def __init__(self, count: int, end: int) -> None:
        super().__init__()
        self.records = self._left = [OneRecord(0, n, b"%d" % n, result(n)) for n in range(count)]
        self.told = [ReadFailure(KafkaError(PARTITION_EOF), 0, end)]

    def assign(self, topic: str, positions: Mapping[int, int]) -> None:
        self._left = self.records
        super().assign(topic, positions)


@scenario
async def test_an_end_before_records_of_its_batch_takes_none_of_them_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who waits for them waits no longer, and they are not read again when reading begins anew."""
    reader = Mixed(5, end=3)
    monkeypatch.setattr(follower, "column_reader", lambda *_, **__: reader)
    monkeypatch.setattr(follower, "_PROBE_S", 0)
    monkeypatch.setattr(follower.TopicFollower, "_partitions_now", lambda _: {0})
    taken: list[Any] = []
    tail = follower.TopicFollower(Settings(), "t", {0: 0}, batch_of, taken.extend)
    async with asyncio.timeout(30):
        await tail.passed({0: 5})
    before = reader.assigned
    reader.told.append(ReadFailure(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), 0, -1))
    await until(lambda: reader.assigned > before)
    await until(lambda: tail.fault is None)
    await asyncio.to_thread(tail.close)
    assert [txn_id for each in taken for txn_id in each.ids] == [b"%d" % n for n in range(5)]


class Anew(Columns):
    """A reader that gives offsets again, or an end before them,
    as of a topic that was made anew.
    """

    def __init__(self, again: list[int], end: int | None) -> None:
        super().__init__(3)
        later = [OneRecord(0, n, b"%d" % n, result(n)) for n in again]
        told = [] if end is None else [ReadFailure(KafkaError(PARTITION_EOF), 0, end)]
        self.more = [ConsumedRecords(RecordColumns.of(later), told)]

    def take(self, count_max: int, wait_s: float) -> ConsumedRecords:
        if self._left or not self.more:
            return super().take(count_max, wait_s)
        return self.more.pop()


@pytest.mark.parametrize(("again", "end"), [([0], None), ([2, 3, 4], None), ([], 2), ([3], 3)])
@scenario
async def test_a_topic_that_begins_again_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, again: list[int], end: int | None
) -> None:
    reader = Anew(again, end)
    monkeypatch.setattr(follower, "column_reader", lambda *_, **__: reader)
    tail = follower.TopicFollower(Settings(), "t", {0: 0}, batch_of, lambda _: None)
    await until(lambda: not reader.more)
    if again == [3]:
        await tail.passed({0: 4})
        assert tail.fault is None
    else:
        await until(lambda: "t cannot be followed: it was made anew" in str(tail.fault))
    await asyncio.to_thread(tail.close)


class Failing(Columns):
    """A reader that fails, as one that gets no memory."""

    def take(self, count_max: int, wait_s: float) -> ConsumedRecords:
        del count_max, wait_s
        raise MemoryError


@pytest.mark.parametrize("part", ["take", "_probe", "_read_new"])
@scenario
async def test_a_tail_whose_thread_ends_says_so(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Whatever ends it, and wherever; who waits for records waits no longer."""

    def fail(_: Any) -> None:
        raise MemoryError

    reader = Failing(1) if part == "take" else Columns(0)
    monkeypatch.setattr(follower, "column_reader", lambda *_, **__: reader)
    monkeypatch.setattr(follower, "_GROWTH_S", 0)
    monkeypatch.setattr(follower.TopicFollower, "_read_new", lambda _: None)
    if part != "take":
        monkeypatch.setattr(follower.TopicFollower, part, fail)
    tail = follower.TopicFollower(Settings(), "t", {0: 0}, batch_of, lambda _: None)
    if part == "_probe":
        tail.fault = "Kafka does not answer"
    with pytest.raises(LogFaultError, match=r"t cannot be followed \(MemoryError\)"):
        async with asyncio.timeout(30):
            await tail.passed({0: 1})
    await until(lambda: tail.fault == "t cannot be followed (MemoryError)")
    assert tail.failed()
    await asyncio.to_thread(tail.close)
