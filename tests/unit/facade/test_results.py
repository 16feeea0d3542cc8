"""Results in columns and one by one: the index that takes batches is as one that takes each."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest
from msgspec import UNSET

from streamydb.facade import result_batch
from streamydb.facade.auth import Caller
from streamydb.facade.ports import LogPosition
from streamydb.facade.result_batch import Commits, batch_of
from streamydb.facade.results import ResultIndex, position_of
from streamydb.facade.writes import verdict_body
from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.records import Result, decode_result, encode_result
from streamydb.verify.oracle.core import Oracle

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
    """All that an index tells."""
    return (
        [index.at(position) for position in positions], [index.of(each) for each in ids],
        index.decided(), index.counts, index.held,
    )  # fmt: skip


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(12))
def test_results_in_batches_are_taken_as_each_of_them_alone(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(f"results {seed}")
    monkeypatch.setattr(result_batch, "_TOGETHER_MAX", rng.choice([1, 3, 2_000]))
    records = results(rng, 80)
    whole = [pair for record in records if (pair := decoded(record))]
    positions = [position_of(result) for result, _ in whole]
    ids = [*ODD_IDS, *(str(result.id) for result, _ in whole)]
    wanted = rng.sample(positions, 10)

    async def scenario() -> None:
        one, other = ResultIndex(1 << 30), ResultIndex(1 << 30)
        waiting = [asyncio.create_task(one.wait(position)) for position in wanted]
        await asyncio.sleep(0)
        commits, steps, at = 0, 0, 0
        add_new, added = one._add_new, Counter[bool]()

        def counted(some: Commits) -> bool:
            new = add_new(some)
            added[new] += 1
            return new

        monkeypatch.setattr(one, "_add_new", counted)
        while at < len(records):
            size = rng.choice([1, 2, 30])
            batch = batch_of(RecordColumns.of(records[at : at + size]))
            commits += sum(len(each.places) for each in batch if isinstance(each, Commits))
            steps += len(list(one.take(batch)))
            for record in records[at : at + size]:
                if pair := decoded(record):
                    other.add(*pair)
            at += size
            assert shown(one, positions, ids) == shown(other, positions, ids)
        assert commits > 10
        assert steps == len(set(wanted)) + added[True], "it pauses after each of them"
        for position, task in zip(wanted, waiting, strict=True):
            assert await task == other.at(position)

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(3))
def test_an_index_of_batches_is_bounded(seed: int) -> None:
    rng = random.Random(f"bounded {seed}")
    index, bound = ResultIndex(20_000), 20_000
    records = [record for record in results(rng, 400) if decoded(record)]
    for at in range(0, len(records), 7):
        batch = batch_of(RecordColumns.of(records[at : at + 7]))
        list(index.take(batch))
        assert index.held <= bound
        assert set(index._by_id.values()) <= index._kept.keys()
        assert index.held == sum(block.size for block in index._blocks)
        assert len(index._kept) == sum(len(block.places) for block in index._blocks)
    assert len(index._kept) > 20


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
