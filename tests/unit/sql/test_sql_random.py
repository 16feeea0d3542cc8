"""Random queries over random states, answered as plain Python answers them, wherever they run."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamydb.sql.pool
from streamydb import sql
from streamydb.backup.snapshots.rows import SnapshotRow
from streamydb.read_model import ReadModel
from streamydb.records import canonical
from streamydb.sql import dataset
from streamydb.sql.keyspace import within
from streamydb.sql.pool import QueryPool
from streamydb.sql.worker import Job, QueryOutcome, StoredRow, run
from tests.support.generators import TEXTS
from tests.support.memory_topic import MemoryTopic
from tests.support.read_model import follow, resolve, write
from tests.support.seeds import seeds
from tests.unit.backup.test_snapshots import make
from tests.unit.sql.test_sql import job, rows_of

pytest.importorskip("duckdb")

PIECES = ["a", "b/", "/", '"', "\\", "'", "%", "_", " and ", "(key", ")", "\n", "é", "\U0010ffff"]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def key_of(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 5)))


def state(rng: random.Random, most: int = 80) -> list[StoredRow]:
    """Rows in the order of their keys, of versions from 1 on."""
    keys = sorted({key_of(rng) for _ in range(rng.randrange(most))}, key=str.encode)
    versions = rng.sample(range(1, 1 + len(keys)), len(keys))
    return [
        StoredRow(key, canonical({"kind": rng.choice("xyz"), "n": rng.randrange(9)}), version,
                  10 * version)
        for key, version in zip(keys, versions, strict=True)
    ]  # fmt: skip


Condition = Callable[[StoredRow], bool]


class Asked:
    """A random condition: its SQL, the values of its parameters, and what it says of a row."""

    def __init__(self, rng: random.Random) -> None:
        self.params: list[Any] = []
        self._rng = rng
        self.text, self.holds = self._condition(rng.randrange(3))

    def _value(self, value: Any) -> str:
        """A value as a parameter or as a literal."""
        if self._rng.random() < 0.5:
            self.params.append(value)
            return f"${len(self.params)}"
        if isinstance(value, int):
            return str(value)
        return "'" + str(value).replace("'", "''") + "'"

    def _condition(self, depth: int) -> tuple[str, Condition]:
        rng = self._rng
        if depth:
            one, left = self._condition(depth - 1)
            other, right = self._condition(depth - 1)
            if rng.random() < 0.6:
                return f"({one} and {other})", lambda row: left(row) and right(row)
            return f"({one} or not {other})", lambda row: left(row) or not right(row)
        name = rng.choice(list(OPERATORS))
        compare = OPERATORS[name]
        kind = rng.randrange(5)
        if kind < 2:
            key = key_of(rng)
            bound = key.encode()
            text = f"key {name} {self._value(key)}"
            return f"({text})", lambda row: compare(row.key.encode(), bound)
        if kind == 2:
            number = rng.randrange(90)
            text = f"(version {name} {self._value(number)})"
            return text, lambda row: compare(row.version, number)
        if kind == 3:
            number = rng.randrange(9)
            text = f"((value->>'n')::int {name} {self._value(number)})"
            return text, lambda row: compare(json.loads(row.value)["n"], number)
        head = key_of(rng)
        text = f"starts_with(key, {self._value(head)})"
        return text, lambda row: row.key.startswith(head)


def questions(rng: random.Random, rows: list[StoredRow]) -> Iterator[tuple[str, list[Any], Any]]:
    """Queries with their parameters, and the rows of their answers."""
    asked = Asked(rng)
    found = [row for row in rows if asked.holds(row)]
    where = f"from kv where {asked.text}"
    shown = [[r.key, json.loads(r.value), r.version, r.ts_ms] for r in found]
    yield f"select key, value, version, epoch_ms(ts) {where} order by key", asked.params, shown
    kinds = sorted({json.loads(row.value)["kind"] for row in found})
    grouped = [
        [kind, len(own), sum(json.loads(r.value)["n"] for r in own), max(r.version for r in own)]
        for kind in kinds
        if (own := [r for r in found if json.loads(r.value)["kind"] == kind])
    ]
    what = "value->>'kind' as kind, count(*), sum((value->>'n')::int)::int, max(version)"
    yield f"select {what} {where} group by 1 order by 1", asked.params, grouped
    first = [[row.key] for row in reversed(found)][:3]
    yield f"select key {where} order by key desc limit 3", asked.params, first
    pairs = sum(
        json.loads(a.value)["n"] == json.loads(b.value)["n"] and a.key.encode() < b.key.encode()
        for a in found
        for b in rows
    )
    joined = "from kv a join kv b on a.value->>'n' = b.value->>'n' and a.key < b.key"
    text = asked.text.replace("(key ", "(a.key ").replace("version", "a.version")
    if asked.text.count("(key ") == text.count("(a.key ") and "'" not in text and "\\" not in text:
        text = text.replace("starts_with(key,", "starts_with(a.key,")
        yield f"select count(*) {joined} where {text}", asked.params, [[pairs]]


@pytest.mark.parametrize("seed", range(seeds(12, 5)))
def test_answers_are_those_of_python(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"sql {seed}")
    monkeypatch.setattr(dataset, "_PAGE_ROWS", rng.choice([1, 3, 4_096]))
    rows = state(rng)
    prefixes = within("", rng.choice([[""], [rng.choice(PIECES) for _ in range(3)], ["a", "b/"]]))
    seen = [row for row in rows if row.key.startswith(tuple(prefixes))]
    for _ in range(5):
        for text, params, answer in questions(rng, seen):
            outcome = run(job(text, params=params, rows=rows, prefixes=prefixes))
            assert json.loads(rows_of(outcome)) == answer, (text, params)
            assert json.loads(bytes(outcome.body))["seq"] == 20


@pytest.mark.parametrize("seed", range(4))
def test_every_way_to_a_state_gives_the_same_answers(seed: int, tmp_path: Path) -> None:
    """A stored read model, through a worker and in one's own process, and a Parquet snapshot."""
    rng = random.Random(f"places {seed}")
    rows = state(rng)
    topic = MemoryTopic(2)
    for row in sorted(rows, key=lambda row: row.version):
        write(topic, row.version % 2, row.version, row.key, row.value.decode())
    resolve(topic, len(rows))
    made = [SnapshotRow(row.key.encode(), *row[1:4], b"t") for row in rows]
    make(tmp_path / "s", made, rng.choice([1, 3]), seq=len(rows))
    with ReadModel.open(tmp_path / "m", "bank", write=True) as model:
        follow(model, topic, retention_seqs=1e9).close()
        at = rng.choice([None, len(rows)])
        for text, params, answer in questions(rng, rows):
            stored = job(text, params=params, folder=str(tmp_path / "m"), at=at, rows=[])
            assert json.loads(rows_of(run(stored))) == answer
            with (
                sql.open_read_model(tmp_path / "m", "bank", at) as one,
                sql.open_snapshot(tmp_path / "s") as other,
            ):
                found = one.query(text, params)
                assert [list(row) for row in found] == answer
                assert other.query(text, params) == found
                assert found.seq == one.seq == len(rows)
                assert len(found) == len(answer)
                dicts = [tuple(each.values()) for each in found.dicts()]
                assert dicts == list(found.rows)
        early = rng.randrange(1, len(rows) + 1) if rows else 0
        text = "select key from kv order by version"
        past = [[r.key] for r in sorted(rows, key=lambda r: r.version) if r.version <= early]
        outcome = run(job(text, folder=str(tmp_path / "m"), at=early or None, rows=[]))
        assert json.loads(rows_of(outcome)) == past


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
CELLS = st.one_of(
    NESTED.map(lambda v: ("?::json", json.dumps(v), v)),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4).map(lambda v: ("?::int[]", v, v)),
    st.lists(TEXTS, max_size=4).map(lambda v: ("?::varchar[]", v, v)),
    st.integers(-(2**63), 2**63 - 1).map(lambda v: ("?::bigint", v, v)),
    st.decimals(-999, 999, places=3).map(lambda v: ("?::decimal(9,3)", str(v), float(v))),
    st.dates().map(lambda v: ("?::date", v.isoformat(), v.isoformat())),
    st.uuids().map(lambda v: ("?::uuid", str(v), str(v))),
)


@settings(max_examples=40)
@given(st.lists(CELLS, min_size=1, max_size=4), st.integers(0, 3))
def test_values_of_every_type_come_as_the_json_that_they_are(
    cells: list[tuple[str, Any, Any]], count: int
) -> None:
    columns = ", ".join(text for text, _, _ in cells)
    text = " ".join(["select", columns, f"from range({count})"])
    answer = rows_of(run(job(text, params=[value for _, value, _ in cells], rows=[])))
    assert json.loads(answer) == [[shown for *_, shown in cells]] * count


@settings(max_examples=40)
@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 40), st.integers(40, 900))
def test_an_answer_is_whole_or_too_large(
    rows: int, width: int, rows_max: int, bytes_max: int
) -> None:
    text, params = "select repeat('x', $1) as x from range($2)", [width, rows]
    outcome = run(job(text, params=params, rows=[], rows_max=rows_max, bytes_max=bytes_max))
    size = len('{"seq":20,"columns":[{"name":"x","type":"VARCHAR"}]}') + rows * (width + 5)
    if rows <= rows_max and (size <= bytes_max or not rows):
        assert json.loads(rows_of(outcome)) == [["x" * width]] * rows
    else:
        assert outcome.kind == "large"


@contextmanager
def dying(rng: random.Random, patch: pytest.MonkeyPatch, sql: set[str]) -> Iterator[None]:
    """Processes that are given one of some queries are killed, before it or in the middle of it."""
    exchange = streamydb.sql.pool._exchange

    async def killed(process: Any, data: bytes, bytes_max: int) -> bytes | None:
        if not any(each.encode() in data for each in sql):
            return await exchange(process, data, bytes_max)
        if rng.random() < 0.5:
            os.kill(process.pid, signal.SIGKILL)
            return await exchange(process, data, bytes_max)
        answer = asyncio.create_task(exchange(process, data, bytes_max))
        await asyncio.sleep(0)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        return await answer

    with patch.context() as inner:
        inner.setattr(streamydb.sql.pool, "_exchange", killed)
        yield


@pytest.mark.parametrize("seed", range(seeds(2, 1)))
def test_a_query_that_dies_or_lasts_harms_no_other(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once through one pool; each has its own answer, or none."""
    rng = random.Random(f"pool {seed}")
    rows = state(rng, 30)
    text, params, answer = next(questions(rng, rows))
    kinds = ["fine", "dies", "lasts", rng.choice(["fine", "large", "wrong"])]
    rng.shuffle(kinds)
    asked: dict[str, tuple[Job, float, str]] = {
        "fine": (job(text, params=params, rows=rows), 60, "done"),
        "dies": (job("select 'killed', sleep_ms(60000)", rows=rows), 60, "costly"),
        "lasts": (job("select sleep_ms(60000)", rows=rows), 0.3, "costly"),
        "large": (job("select repeat('x', 1000000)", rows=rows), 60, "large"),
        "wrong": (job("select nothing", rows=rows), 60, "invalid"),
    }

    async def scenario() -> list[QueryOutcome]:
        pool = QueryPool()
        try:
            with dying(rng, monkeypatch, {"killed"}):
                return await asyncio.gather(*(pool.run(*asked[kind][:2]) for kind in kinds))
        finally:
            await pool.close()

    for kind, outcome in zip(kinds, asyncio.run(scenario()), strict=True):
        assert outcome.kind == asked[kind][2], (kind, outcome)
        if kind == "fine":
            assert json.loads(rows_of(outcome)) == answer
