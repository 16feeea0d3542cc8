"""SQL over snapshots: scans are narrowed and never wrong, and hostile queries get nowhere."""

from __future__ import annotations

import asyncio
import functools
import operator
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamydb.sql.pool
from streamydb import sql
from streamydb.backup.snapshots import SnapshotError
from streamydb.read_model import ReadModel, SnapshotAhead
from streamydb.sql.keyspace import ScanBounds, range_of, within
from streamydb.sql.pool import QueryPool
from streamydb.sql.worker import Job, QueryOutcome, StoredRow, run
from tests.support.read_model import example, follow, resolve, write
from tests.unit.backup.test_snapshots import make, numbered

pytest.importorskip("duckdb")

KEY = pc.field("key")
ROWS = [StoredRow(f"n/{n:03}", b'{"n":%d}' % n, n + 1, 1000 * n) for n in range(20)]


def job(text: str, **changes: object) -> Job:
    given: dict[str, object] = {
        "sql": text, "params": [], "prefixes": [""], "folder": None, "database": "bank", "at": 20,
        "rows": ROWS, "memory_bytes": 100_000_000, "threads": 2, "cpu_s": 30, "rows_max": 1_000,
        "bytes_max": 100_000,
    }  # fmt: skip
    return Job(**{**given, **changes})  # type: ignore[arg-type]


def rows_of(outcome: QueryOutcome) -> bytes:
    assert outcome.kind == "done", outcome
    return bytes(outcome.body).partition(b'"rows":')[2][:-1]


def test_ranges_are_read_from_filters() -> None:
    assert range_of(None) == ScanBounds("", None)
    assert range_of((KEY >= "a/") & (KEY < "a0")) == ScanBounds("a/", "a0")
    assert range_of(KEY == "x") == ScanBounds("x", "x\0")
    assert range_of((KEY > "x") & (KEY <= "y") & (pc.field("version") > 3)) == ScanBounds(
        "x\0", "y\0"
    )
    assert range_of((KEY == "x") | (KEY == "z")) == ScanBounds("", None)
    assert range_of(pc.field("value") == '(key == "a")') == ScanBounds("", None)
    assert range_of((pc.field("value") == '" and (key == "a")') & (KEY < "b")) == ScanBounds(
        "", "b"
    )


TEXTS = st.text(max_size=4) | st.sampled_from(["a", "b", '"', "\\", " and ", "(key", ")", "\n"])
BOUNDS = st.tuples(st.sampled_from(["eq", "lt", "le", "gt", "ge"]), TEXTS)


@given(st.lists(BOUNDS, min_size=1, max_size=3), TEXTS)
def test_a_range_never_leaves_out_a_key(bounds: list[tuple[str, str]], key: str) -> None:
    import pyarrow as pa

    terms = [getattr(KEY, f"__{name}__")(bound) for name, bound in bounds]
    condition = functools.reduce(operator.and_, terms)
    held = pa.table({"key": pa.array([key], pa.string())}).filter(condition).num_rows == 1
    found = range_of(condition)
    inside = key.encode() >= found.start.encode() and (
        found.end is None or key.encode() < found.end.encode()
    )
    assert inside or not held


def test_prefixes_within_scopes() -> None:
    assert within("", [""]) == [""]
    assert within("a/", [""]) == ["a/"]
    assert within("", ["b", "a/", "a/x", "b"]) == ["a/", "b"]
    assert within("a/x/", ["a/"]) == ["a/x/"]
    assert within("c", ["a/"]) == []
    assert within("", []) == []


def test_a_read_model_is_a_table_at_any_seq(tmp_path: Path) -> None:
    topic = example()
    for n in range(9_000):
        write(topic, n % 2, 6 + n, f"k/{n:05}", str(n))
    resolve(topic, 9_005)
    with ReadModel.open(tmp_path, "bank", write=True) as model:
        follow(model, topic, retention_s=1e9, retention_seqs=1e9).close()
        with sql.open_read_model(tmp_path, "bank", 2) as past:
            assert past.seq == 2
            found = past.query("select key, value, version, epoch_ms(ts) from kv order by key")
            assert found.rows == (("a", 1, 1, 10), ("b", "two", 2, 20))
            assert found.columns[:3] == ("key", "value", "version")
        with sql.open_read_model(tmp_path, "bank") as now:
            text = "select count(*), sum(value::int), max(version) from kv where key like 'k/%'"
            assert now.query(text).rows == ((9_000, sum(range(9_000)), 9_005),)
            join = "select count(*) from kv a join kv b on a.key = b.key and a.version = b.version"
            assert now.query(join).rows == ((9_001,),)
            text = "select key from kv where key >= ? and key < ? order by key desc limit 2"
            assert now.query(text, ["k/00010", "k/00020"]).dicts() == [
                {"key": "k/00019"}, {"key": "k/00018"},
            ]  # fmt: skip
        with pytest.raises(SnapshotAhead):
            sql.open_read_model(tmp_path, "bank", 99_999)


def test_a_range_of_keys_is_all_that_is_read() -> None:
    from streamydb.sql.dataset import KeyValues
    from streamydb.sql.engine import connect
    from streamydb.sql.worker import _Rows

    data = KeyValues(_Rows(job("")))
    connection = connect()
    connection.register("kv", data)
    text = "select count(*) from kv where key >= 'n/003' and key <= 'n/005' and version > 4"
    assert connection.execute(text).fetchall() == [(2,)]
    assert data.rows == 3


def test_types_become_json() -> None:
    text = """select value, list(value) as l, {'v': value, 'd': 1.50::decimal(5,2)} as s,
        map {'a': 'nan'::double} as m, 'ab'::blob as b, date '2026-01-31' as d,
        interval 2 days as i, 170141183460469231731687303715884105727 as h, null as n,
        [[value]] as ll, true as t, uuid '00000000-0000-0000-0000-000000000001' as u,
        map {2: value} as mi, '"text"' as plain,
        map {date '2026-01-31': 1} as md
        from kv where key = 'n/001' group by value"""
    assert rows_of(run(job(text))) == (
        b'[[{"n":1},[{"n":1}],{"v":{"n":1},"d":1.50},{"a":"nan"},"YWI=","2026-01-31",'
        b'"2 days, 0:00:00",170141183460469231731687303715884105727,null,[[{"n":1}]],true,'
        b'"00000000-0000-0000-0000-000000000001",{"2":{"n":1}},"\\"text\\"",{"2026-01-31":1}]]'
    )


def test_json_that_is_none_is_text() -> None:
    text = """select to_json('nan'::double), json_object('a', 'inf'::double), '1e999'::json,
        '[[1]]'::json, [to_json('nan'::double)], json_array(1, null)"""
    expected = b'[["NaN","{\\"a\\":Infinity}","1e999",[[1]],["NaN"],[1,null]]]'
    assert rows_of(run(job(text))) == expected


def test_prefixes_bound_what_is_seen() -> None:
    text = "select count(*) from kv"
    assert rows_of(run(job(text, prefixes=["n/00", "n/015"]))) == b"[[11]]"
    assert rows_of(run(job(text, prefixes=["x"]))) == b"[[0]]"


def test_answers_are_bounded() -> None:
    assert run(job("select * from range(1000)")).kind == "done"
    assert run(job("select * from range(1001)")).kind == "large"
    assert run(job("select repeat('x', 90000)")).kind == "done"
    assert run(job("select repeat('x', 100001)")).kind == "large"
    assert run(job("select * from range(100000000000)")).kind == "large"


HIDDEN = "no-reader-may-see-this"
HOSTILE = [
    "copy kv to '{path}'", "copy (select 1) to '{path}' (format parquet)",
    "select * from read_text('{secret}')", "select * from read_csv('{secret}')",
    "select * from read_blob('{secret}')", "select * from '{secret}'",
    "select * from read_json_auto('{secret}')", "select * from read_parquet('{secret}')",
    "select * from glob('{folder}/*')", "select * from sniff_csv('{secret}')",
    "select * from read_duckdb('{path}')", "select * from parquet_metadata('{secret}')",
    "attach '{path}' as other", "export database '{folder}/x'", "import database '{folder}'",
    "pragma database_list", "pragma enable_profiling", "set memory_limit = '10GB'",
    "set enable_external_access = true", "reset lock_configuration", "set threads = 64",
    "install httpfs", "load httpfs", "select * from read_csv('http://127.0.0.1:1/x')",
    "select * from read_csv('s3://bucket/x')", "create table t as select 1", "drop view kv",
    "create macro m() as 1", "create secret (type s3)", "call pragma_version()", "checkpoint",
    "insert into kv values ('a', '1', 1, null)", "delete from entries",
    "update entries set key = ''",
    "with x as (insert into entries values (1)) select 1", "select 1; select 2", "", ";", "--",
    "select * from query('copy kv to ''{path}''')", "select * from query_table('{secret}')",
    "prepare p as select 1", "execute p", "begin", "use memory", "vacuum", "explain select 1",
    "select getenv('HOME')", "select * from job", "select * from ROWS_HERE", "\0",
    "select '\ud800'",
    "select * from duckdb_secrets()", "select * from which_secret('s3://x', 's3')",
    "select error('no')", "select 1/",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_queries_are_refused(text: str, tmp_path: Path) -> None:
    ROWS_HERE = ROWS  # noqa: F841, N806 - DuckDB would find it, if it looked at our variables
    secret = tmp_path / "secret.csv"
    secret.write_text(HIDDEN)
    path = tmp_path / "made"
    outcome = run(
        job(text.replace("{path}", str(path)).replace("{secret}", str(secret))
            .replace("{folder}", str(tmp_path)))
    )  # fmt: skip
    assert outcome.kind == "invalid"
    assert outcome.message
    assert HIDDEN not in outcome.message
    assert list(tmp_path.iterdir()) == [secret]


ENDLESS = [
    "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t",
    "select count(*) from range(1000000000) a, range(1000000000) b",
    "select sleep_ms(1000000)",
    "select string_agg(repeat('x', 1000000), '') from range(10000)",
    "select list(range) from range(1000000000)",
]


def test_queries_that_take_too_much_are_ended_and_others_go_on() -> None:
    async def scenario() -> list[QueryOutcome]:
        pool = QueryPool()
        try:
            costly = [pool.run(job(text, rows=[]), 1.5) for text in ENDLESS]
            return [*await asyncio.gather(*costly), await pool.run(job("select 42"), 30)]
        finally:
            await pool.close()

    *ended, last = asyncio.run(scenario())
    assert [outcome.kind for outcome in ended] == ["costly"] * len(ENDLESS)
    assert rows_of(last) == b"[[42]]"


def test_a_process_that_has_ended_while_it_waited_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin, failing = streamydb.sql.pool._start, [False]

    async def start(module: str) -> asyncio.subprocess.Process:
        if failing[0]:
            raise OSError("out of processes")
        return await begin(module)

    monkeypatch.setattr(streamydb.sql.pool, "_start", start)

    async def scenario() -> list[bytes]:
        pool = QueryPool()
        try:
            found = [rows_of(await pool.run(job("select 1"), 30))]
            spare = pool._spare._spare
            assert spare is not None
            waiting = await spare
            waiting.kill()
            await waiting.wait()
            failing[0] = True  # the next one that is to wait does not start
            with pytest.raises(OSError, match="out of processes"):
                await pool.run(job("select 2"), 30)
            failing[0] = False
            found.append(rows_of(await pool.run(job("select 3"), 30)))
            return found
        finally:
            await pool.close()

    assert asyncio.run(scenario()) == [b"[[1]]", b"[[3]]"]


def environment_of(pid: int) -> bytes:
    """What Linux tells of a process's environment."""
    path = Path(f"/proc/{pid}/environ")
    return path.read_bytes() if path.exists() else b""


def test_a_query_runs_in_a_process_without_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMYDB_SERVE_TOKENS", HIDDEN)

    async def scenario() -> QueryOutcome:
        begun: asyncio.Future[asyncio.subprocess.Process] = asyncio.Future()
        exchange = streamydb.sql.pool._exchange

        async def watched(process: asyncio.subprocess.Process, *rest: Any) -> bytes | None:
            if not begun.done():
                begun.set_result(process)
            return await exchange(process, *rest)

        monkeypatch.setattr(streamydb.sql.pool, "_exchange", watched)
        pool = QueryPool()
        try:
            task = asyncio.create_task(pool.run(job("select sleep_ms(60000)"), 60))
            process = await begun
            assert HIDDEN.encode() not in environment_of(process.pid)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert process.returncode is not None
            return await pool.run(job("select 1"), 30)
        finally:
            await pool.close()

    assert asyncio.run(scenario()).kind == "done"


def test_the_worker_reads_the_latest_state_of_a_stored_model(tmp_path: Path) -> None:
    with ReadModel.open(tmp_path, "bank", write=True) as model:
        follow(model, example()).close()
        outcome = run(job("select key from kv", folder=str(tmp_path), at=None, rows=[]))
        assert rows_of(outcome) == b'[["b"]]'
        assert b'"seq":5' in bytes(outcome.body)
        assert run(job("select 1", folder=str(tmp_path), at=99)).kind == "gone"
        gone = run(job("select 1", folder=str(tmp_path), at=0))
        assert gone.kind in {"gone", "done"}


def test_a_snapshot_whose_files_hold_other_rows_is_refused(tmp_path: Path) -> None:
    rows = numbered(100)
    make(tmp_path / "right", rows)
    with sql.open_snapshot(tmp_path / "right") as right:
        assert right.query("select count(*), max(version) from kv").rows == ((100, 100),)
    make(tmp_path / "changed", [rows[0]._replace(value=b'"other"'), *rows[1:]])
    for file in (tmp_path / "changed" / "data").iterdir():
        shutil.copy(file, tmp_path / "right" / "data")
    with pytest.raises(SnapshotError, match="files are damaged"):
        sql.open_snapshot(tmp_path / "right")
    with sql.open_snapshot(tmp_path / "right", verify=False) as taken:
        assert taken.query("select value->>'$' from kv order by key limit 1").rows == (("other",),)


def test_without_the_package_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(sql.SqlMissingError, match=r"pip install .*\[sql\]"):
        sql.open_snapshot("nowhere")
