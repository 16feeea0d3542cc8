"""Results in columns and one by one: the index that takes batches is as one that takes each."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

from streamydb.facade import result_batch
from streamydb.facade.auth import Caller
from streamydb.facade.ports import LogPosition
from streamydb.facade.result_batch import (
    CommitColumns,
    Commits,
    batch_of,
    count_in,
    ends_in,
    position_of,
)
from streamydb.facade.results import ResultIndex
from streamydb.facade.writes import verdict_body
from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.records import Result, decode_result, encode_result
from streamydb.verify.oracle.core import Oracle
from tests.support.seeds import seeds

ODD_IDS = ['"', "é", "a\\b", " ", "x" * 128, "t1", "t2"]


def results(rng: random.Random, count: int) -> list[OneRecord]:
    """Results of random transactions, some ids again, some records again, some that are none."""
    oracle, found = Oracle("db"), list[OneRecord]()
    for offset in range(count):
        name = rng.choice([f"n{offset}"] * 8 + ODD_IDS)
        parts: dict[str, Any] = {"id": name}
        if rng.random() < 0.4:
            parts["reads"] = rng.sample(["a", "é", 'b"'], rng.randint(0, 2))
        if rng.random() < 0.4:
            value = rng.choice([1, "x", [1.5], {"id": "}}"}, '"offset":1}}'])
            parts["updates"] = [{"op": "put", "key": rng.choice(["a", "é"]), "value": value}]
        if rng.random() < 0.1:
            parts["asserts"] = {"a": "never"}
        if rng.random() < 0.05:
            parts["unknown"] = 1
        raw = json.dumps(parts).encode()
        partition = rng.choice([0] * 6 + [1, 70_000])
        outputs = oracle.apply(raw, partition, offset + rng.choice([0] * 9 + [1 << 50]), 5 + offset)
        for output in outputs:
            if output.topic == "results":
                found.append(OneRecord(0, len(found), output.key, output.value))
    for _ in range(rng.randint(0, 6)):
        at = rng.randrange(len(found))
        again = rng.choice(found[:at] or found)
        found.insert(at, again)
    spoilt = rng.choice(found)
    found.insert(rng.randrange(len(found)), OneRecord(0, 0, spoilt.key(), b"{"))
    found.insert(rng.randrange(len(found)), OneRecord(0, 0, spoilt.key(), None))
    found.insert(rng.randrange(len(found)), OneRecord(0, 0, b"another", spoilt.value()))
    return found


def decoded(record: OneRecord) -> tuple[Result, bytes] | None:
    value = record.value()
    if value is None or value == b"{":
        return None
    return decode_result(value), value


def shown(index: ResultIndex, positions: list[LogPosition], ids: list[str]) -> Any:
    """All that an index tells; of an id, whichever of its records tells it."""
    return (
        [index.at(position) for position in positions],
        [(found := index.of(each)) and msgspec.structs.replace(found, duplicate=UNSET)
         for each in ids],
        index.decided(), index.counts,
    )  # fmt: skip


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_results_in_batches_are_taken_as_each_of_them_alone(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(f"results {seed}")
    fewest = rng.choice([1, 3, 8, 2_000])
    monkeypatch.setattr(result_batch, "_COLUMNS_MIN", fewest)
    records = results(rng, 80)
    whole = [pair for record in records if (pair := decoded(record))]
    positions = [position_of(result) for result, _ in whole]
    ids = [*ODD_IDS, *(str(result.id) for result, _ in whole)]
    wanted = rng.sample(positions, 10)

    async def scenario() -> None:
        one, other = ResultIndex(1 << 30), ResultIndex(1 << 30)
        waiting = [asyncio.create_task(one.wait(position)) for position in wanted]
        await asyncio.sleep(0)
        together, at = Counter[type](), 0
        reached: dict[int, int] = {}
        while at < len(records):
            size = rng.choice([1, 2, 30])
            batch = batch_of(RecordColumns.of(records[at : at + size]))
            for each in batch:
                together[type(each)] += count_in([each])
            for ends in ends_in(batch):
                reached |= {n: max(end, reached.get(n, 0)) for n, end in ends.items()}
            left = len(one._waiting)
            for _ in one.take(batch):
                assert left - 1 <= len(one._waiting) <= left, "it pauses after each of them"
                left = len(one._waiting)
            for record in records[at : at + size]:
                if pair := decoded(record):
                    other.add(*pair)
            at += size
            assert shown(one, positions, ids) == shown(other, positions, ids)
            assert reached == other.decided().offsets
        assert together[Commits] + together[CommitColumns] > 10
        assert together[CommitColumns] or fewest > 3
        for position, task in zip(wanted, waiting, strict=True):
            assert await task == other.at(position)

    asyncio.run(scenario())


@pytest.mark.parametrize("fewest", [2, 2_000])
@pytest.mark.parametrize("seed", range(3))
def test_an_index_of_batches_is_bounded(
    monkeypatch: pytest.MonkeyPatch, seed: int, fewest: int
) -> None:
    monkeypatch.setattr(result_batch, "_COLUMNS_MIN", fewest)
    rng = random.Random(f"bounded {seed}")
    index, bound = ResultIndex(20_000), 20_000
    records = [record for record in results(rng, 400) if decoded(record)]
    for at in range(0, len(records), 7):
        batch = batch_of(RecordColumns.of(records[at : at + 7]))
        list(index.take(batch))
        assert index.held <= bound
        assert set(index._by_id.values()) <= index._kept.keys()
        assert index.held == sum(block.size for block in index._blocks)
        columns = [block for block in index._blocks if isinstance(block, CommitColumns)]
        assert columns == list(index._columns)
        assert len(index._kept) == sum(
            len(block.places) for block in index._blocks if not isinstance(block, CommitColumns)
        )
    assert len(index._kept) + sum(map(len, index._columns)) > 20


def record(seq: int, txn_id: str, offset: int, code: str | None = None) -> OneRecord:
    """The result of a transaction without reads; plain if there is no code."""
    source = f'"source":{{"partition":0,"offset":{offset}}}}}'
    status = "committed" if code is None else "rejected"
    value = (
        f'{{"id":"{txn_id}","seq":{seq},"ts_ms":5,"status":"{status}","reads":{{}},"failed":[],'
        f'"code":{json.dumps(code)},{source}'
    )
    return OneRecord(0, seq, txn_id.encode(), value.encode())


def taken(*batches: list[OneRecord]) -> ResultIndex:
    """What has taken in batches of results."""
    index = ResultIndex(1 << 20)
    for records in batches:
        list(index.take(batch_of(RecordColumns.of(records))))
    return index


class TestColumns:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(result_batch, "_COLUMNS_MIN", 3)

    @pytest.fixture
    def many(self) -> list[OneRecord]:
        """Commits that stay in columns."""
        return [record(seq, f"t{seq}", seq) for seq in range(10, 15)]

    @pytest.mark.parametrize(
        ("seq", "code", "told"),
        [(9, "id-reused", 12), (9, "no-such-procedure", 9), (99, "no-such-procedure", 12)],
    )
    @pytest.mark.parametrize("first", [True, False])
    def test_an_id_has_the_first_verdict_that_is_no_refusal(
        self, many: list[OneRecord], seq: int, code: str, told: int, *, first: bool
    ) -> None:
        single = [record(seq, "t12", 90, code)]
        found = taken(*([single, many] if first else [many, single])).of("t12")
        assert found is not None
        assert found.seq == told

    @pytest.mark.parametrize("again", [slice(2, 4), slice(0, 5), slice(1, 5)])
    def test_what_comes_again_is_not_counted_again(
        self, many: list[OneRecord], again: slice
    ) -> None:
        for batches in ([many, many[again]], [many[again], many]):
            index = taken(*batches)
            assert index.counts == {("committed", ""): 5}
            assert [index.at(LogPosition(0, n)) is not None for n in range(9, 16)] == [
                False, True, True, True, True, True, False,
            ]  # fmt: skip

    def test_what_fills_a_gap_is_taken_at_once(self, many: list[OneRecord]) -> None:
        """Results of one partition of the log come from several of the results."""
        index = taken(many[::2], [])
        others = [record(seq, f"u{seq}", seq) for seq in (9, 11, 13)]
        assert len(list(index.take(batch_of(RecordColumns.of(others))))) == 1
        assert index.counts == {("committed", ""): 6}
        assert len(index._columns) == 2

    def test_ids_with_one_hash_are_told_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each is there twice, and its first verdict is told."""
        monkeypatch.setattr(result_batch, "hash_bytes", lambda *_: 7)  # `hash_of` is of it
        monkeypatch.setattr(
            result_batch, "hash_ragged", lambda texts, _: np.full(len(texts), 7, np.uint64)
        )
        index = taken([record(seq, f"t{seq % 40}", seq) for seq in range(40, 120)])
        assert len(index._columns) == 1
        told = [(found := index.of(f"t{n}")) and found.seq for n in range(41)]
        assert told == [*range(40, 80), None]

    def test_two_of_one_record_are_no_columns(self, many: list[OneRecord]) -> None:
        batch = batch_of(RecordColumns.of([*many, many[0]]))
        assert [type(each) for each in batch] == [Commits, Commits]
        assert count_in(batch) == 6


FAILED = [
    {"check": "update", "index": 0, "key": "a", "value": "secret", "version": 1},
    {"check": "constraint", "index": 1, "key": "a", "value": 7, "version": 1, "constraint": "few",
     "violated": "max 5"},
    {"check": "range", "index": 2, "key": "a", "value": None, "version": 1, "count": 9},
    {"check": "lock", "index": 3, "key": "$unique/e/5/00", "value": None, "version": 0},
]  # fmt: skip


def test_those_who_wait_for_a_result_do_not_change_it_for_each_other() -> None:
    value = json.dumps({
        "id": "t", "seq": 1, "ts_ms": 5, "status": "aborted", "reads": {}, "failed": FAILED,
        "code": "undeclared-key", "reason": "$unique/e/5/00",
        "source": {"partition": 0, "offset": 0},
    }).encode()  # fmt: skip
    result = decode_result(value)
    whole = encode_result(result)

    async def scenario() -> None:
        index, place = ResultIndex(1 << 20), LogPosition(0, 0)
        waiting = [asyncio.create_task(index.wait(place)) for _ in range(2)]
        await asyncio.sleep(0)
        assert index.add(result, value)
        one, other = await asyncio.gather(*waiting)
        hidden = decode_result(verdict_body(one, Caller("none")))
        assert [bytes(each.value) for each in hidden.failed] == [b"null"] * 4
        assert (hidden.failed[3].key, hidden.reason) == ("$unique/", UNSET)
        assert verdict_body(other, Caller("all", [""])) == whole

    asyncio.run(scenario())
