"""What users of the libraries beneath report, tried here; `tests/reports.md` names the reports."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")
pytest.importorskip("sqlalchemy")

import lmdb
import pandas as pd
from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Integer,
    MetaData,
    Table,
    cast,
    create_engine,
    insert,
    inspect,
    literal,
    select,
)
from sqlalchemy.dialects import registry
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DataError, ProgrammingError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.types import TypeEngine

from streamydb.client import InvalidKeyError
from streamydb.facade import create_app
from streamydb.limits import KEY_BYTES_MAX
from streamydb.records import canonical
from streamydb.spark.payloads import fault_of
from streamydb.sql.answers import UnheldValueError
from streamydb.sql.engine import Sql, connect
from streamydb.testing.clients import MemoryHost
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from streamydb_layers.tables import DataRefusedError, StatementInvalidError, Tables
from streamydb_layers.tables.alchemy import TablesDialect
from tests.support.seeds import seeds

WIDE = "9" * 38
ODD = ("ab(cd)ef", "per % cent", "%percent", "first-name", "a:b", "[z]", "%(name)s")


@pytest.fixture
def tables() -> Iterator[Tables]:
    with Tables.in_memory() as made:
        made.sql("create table t (k int primary key, v int, f double, at timestamp)")
        yield made


@pytest.fixture
def engine() -> Iterator[Engine]:
    for name in ("streamydb", "streamydb.rest"):
        registry.register(name, TablesDialect.__module__, TablesDialect.__name__)
    made = create_engine("streamydb:///reports")
    yield made
    with made.begin() as connection:
        for name in inspect(connection).get_table_names():
            connection.exec_driver_sql(f'drop table "{name}"')
    made.dispose()


def facade(**rows: Any) -> InProcess:
    """A facade over a database with some keys."""
    database = MemoryDatabase()
    updates = [{"op": "put", "key": key, "value": value} for key, value in rows.items()]
    database.log.records.append(json.dumps({"id": "first", "updates": updates}).encode())
    database.run()
    return InProcess(create_app(database.model, database.log, database.changes))


async def ask(client: InProcess, sql: str, *params: Any) -> HttpAnswer:
    body = json.dumps({"sql": sql, "params": params}).encode()
    return await client.request("POST", "/v1/query", body)


# DuckDB


@pytest.mark.parametrize(
    "value",
    [
        "interval '-178956970 years'", "interval '178956970 years'",
        "[interval '178956970 years']", "{'a': interval '178956970 years'}",
    ],
)  # fmt: skip
def test_an_interval_beyond_python_is_refused_with_what_to_do(tables: Tables, value: str) -> None:
    @scenario
    async def over_rest() -> None:
        async with facade() as client:
            answer = await ask(client, f"select {value}")
            assert (answer.status, answer.problem) == (400, "query-invalid")
            assert answer.json()["error"].endswith("cast it to text.")

    over_rest()
    with pytest.raises(DataRefusedError, match="cast it to text"):
        tables.sql(f"select {value}")
    connection = connect()
    with Sql(connection, 0, lambda: None) as sql, pytest.raises(UnheldValueError, match="to text"):
        sql.query(f"select {value}")
    assert tables.sql(f"select cast({value} as text)").rows


@scenario
async def test_a_difference_of_times_is_an_interval() -> None:
    async with facade() as client:
        text = "timestamp '2023-07-22 11:28:07' - timestamp '2023-07-23 11:28:07'"
        answer = await ask(client, f"select {text}, cast({text} as text)")
        assert answer.json()["rows"] == [["-1 day, 0:00:00", "-1 day"]]


@scenario
async def test_a_month_and_nanoseconds_are_exact_as_text() -> None:
    async with facade() as client:
        values = ("interval '1 month'", "timestamp_ns '2024-01-01 00:00:00.123456789'")
        texts = ", ".join(f"{value}, cast({value} as text)" for value in values)
        (row,) = (await ask(client, f"select {texts}")).json()["rows"]
        assert row == [
            "30 days, 0:00:00", "1 month", "2024-01-01T00:00:00.123456",
            "2024-01-01 00:00:00.123456789",
        ]  # fmt: skip


@scenario
async def test_a_sum_beyond_128_bits_is_an_error() -> None:
    async with facade() as client:
        for of in ("sum(v)", "avg(v)"):
            answer = await ask(
                client, f"select {of} from (values (1{'0' * 38}::hugeint), (1{'0' * 38})) t(v)"
            )
            assert "Overflow" in answer.json()["error"], of
        answer = await ask(client, f"select {WIDE}::hugeint, {WIDE}::decimal(38,0)")
        assert f"[[{WIDE},{WIDE}]]".encode() in answer.body


@scenario
async def test_nan_is_one_value_above_all_others() -> None:
    async with facade() as client:
        values = "(values (0.0::double), ('nan'), (-1.0), ('-nan'), ('inf')) t(x)"
        first = f"from {values} qualify row_number() over (order by x) <= 2 order by x"
        assert (await ask(client, f"select x {first}")).json()["rows"] == [[-1.0], [0.0]]
        equal = await ask(client, f"select count(*), max(x) from {values} where x = 'nan'::double")
        assert equal.json()["rows"] == [[2, "nan"]]


@pytest.mark.parametrize("number", ["nan", "-nan", "inf", "-inf"])
def test_no_column_has_a_number_that_is_not_finite(tables: Tables, number: str) -> None:
    with pytest.raises(DataRefusedError, match="no number that can be stored"):
        tables.sql(f"insert into t (k, f) values (1, '{number}')")
    with pytest.raises(DataRefusedError, match="no number that can be stored"):
        tables.sql("insert into t (k, f) values (1, ?)", [float(number)])
    assert tables.sql("select * from t").rows == ()


def test_names_that_differ_by_case_are_one(tables: Tables) -> None:
    for text in (
        'create table "T" (a int primary key)', 'alter table t add column "V" int',
        'create table u (a int primary key, "A" int)', 'create view "T" as select 1',
    ):  # fmt: skip
        with pytest.raises(StatementInvalidError, match=r"taken|There is a table"):
            tables.sql(text)
    assert tables.sql('select "K", V from T').columns == ("k", "v")


@pytest.mark.parametrize(
    ("clause", "params", "found"),
    [
        ("offset ? limit ?", [1, 2], [2, 3]), ("limit ? offset ?", [2, 1], [2, 3]),
        ("limit ?", [None], [1, 2, 3, 4]), ("limit ? offset ?", [0, 1], []),
    ],
)  # fmt: skip
def test_limit_and_offset_take_their_own_parameter(
    tables: Tables, clause: str, params: list[Any], found: list[int]
) -> None:
    tables.sql("insert into t (k) values (1), (2), (3), (4)")
    rows = tables.sql(f"select k from t order by k {clause}", params).rows
    assert [k for (k,) in rows] == found
    if None not in params:
        back = tables.sql(
            f"delete from t where k in (select k from t order by k {clause}) returning k", params
        )
        assert sorted(k for (k,) in back.rows) == found


def test_a_parameter_before_a_limited_subquery_is_its_own(tables: Tables) -> None:
    tables.sql("insert into t (k, v) values (1, 5)")
    sql = "select ? not in (select v from t limit ?)"
    assert tables.sql(sql, [-675986880, 1]).rows == ((True,),)
    with pytest.raises(StatementInvalidError, match="negative"):
        tables.sql("select k from t limit ?", [-1])


def test_the_offset_of_a_text_is_passed_over_that_of_a_parameter_is_not(tables: Tables) -> None:
    summer = dt.timezone(dt.timedelta(hours=1))
    at = dt.datetime(2024, 10, 27, 1, 30, tzinfo=summer)
    tables.sql("insert into t (k, at) values (1, '2024-10-27 01:30:00+01'), (2, ?)", [at])
    found = tables.sql("select at from t order by k").rows
    assert [str(at) for (at,) in found] == ["2024-10-27 01:30:00", "2024-10-27 00:30:00"]
    with pytest.raises(StatementInvalidError, match="Unknown TimeZone"):
        tables.sql("select timestamp '1992-03-02 20:32:45' at time zone '-0400'")


def test_an_infinite_time_is_no_time_of_a_column(tables: Tables) -> None:
    for text in ("infinity", "-infinity", "20000-01-01", "0044-03-15 (BC)"):
        with pytest.raises(DataRefusedError, match="years 1 to 9999"):
            tables.sql(f"insert into t (k, at) values (1, '{text}')")
    assert tables.sql("select * from t").rows == ()


@settings(max_examples=seeds(25))
@given(st.text("%_\\!a", max_size=6), st.text("%_\\!a", max_size=6))
def test_like_with_escape_finds_the_text_itself(text: str, other: str) -> None:
    pattern = "".join("!" + c if c in "%_!" else c for c in text)
    with Tables.in_memory() as tables:
        sql = "select ? like ? escape '!', ? like ? escape '!'"
        assert tables.sql(sql, [text, pattern, other, pattern]).rows == ((True, text == other),)


# msgspec


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"19933688932870350000", "number-range"), (b"18446744073709551616", "number-range"),
        (b"20000000000000000000", "number-range"), (b"9" * 5000, "number-range"),
        (b"1e400", "number-range"), (b'"\\ud800"', "invalid-json"),
        (b"[" * 3000 + b"]" * 3000, "too-deep"), (b"[" * 200_000, "invalid-json"),
        (b"NaN", "invalid-json"), (b"", "invalid-json"),
    ],
)  # fmt: skip
@scenario
async def test_a_body_that_no_reader_agrees_on_is_refused(body: bytes, code: str) -> None:
    async with facade() as client:
        answer = await client.request("PUT", "/v1/kv/a", body)
        assert (answer.status, answer.problem) == (400, "invalid-json")
        assert answer.json()["code"] in {code, "too-deep"}
        assert (await client.request("GET", "/v1/kv/a")).status == 404


@scenario
async def test_of_two_members_of_a_name_the_last_is_kept() -> None:
    async with facade() as client:
        await client.request("PUT", "/v1/kv/a", b'{"x":1,"y":3,"x":2}')
        assert (await client.request("GET", "/v1/kv/a")).body == b'{"x":2,"y":3}'


# Litestar, uvicorn, httptools, httpx


@scenario
async def test_a_query_parameter_is_given_once_and_a_plus_is_a_space() -> None:
    async with facade(**{"a b": 1, "a+b": 2}) as client:
        twice = await client.request("GET", "/v1/kv?prefix=a&prefix=b")
        assert (twice.status, twice.problem) == (400, "invalid-parameter")
        for sent, key in (("a+b", "a b"), ("a%20b", "a b"), ("a%2Bb", "a+b")):
            answer = await client.request("GET", f"/v1/kv?prefix={sent}")
            assert [entry["key"] for entry in answer.json()["entries"]] == [key], sent


@scenario
async def test_head_tells_what_get_would_send() -> None:
    async with facade(a=1) as client:
        for target in ("/v1/kv/a", "/v1/kv", "/v1/kv/none", "/v1/kv?limit=x"):
            get, head = [await client.request(method, target) for method in ("GET", "HEAD")]
            told = ("content-length", "etag", "content-type")
            assert (head.status, head.body) == (get.status, b""), target
            assert [head.headers.get(n) for n in told] == [get.headers.get(n) for n in told]
        unchanged = await client.request("GET", "/v1/kv/a", headers={"if-none-match": 'W/"1"'})
        assert (unchanged.status, unchanged.body) == (304, b"")
        assert "content-length" not in unchanged.headers


@scenario
async def test_a_trailing_slash_is_part_of_a_key_and_of_no_endpoint() -> None:
    async with facade(**{"a/": 1}) as client:
        assert (await client.request("GET", "/v1/kv/a/")).status == 200
        assert (await client.request("GET", "/v1/kv/a")).problem == "key-not-found"
        assert (await client.request("GET", "/schema/x/")).status == 404


@scenario
async def test_headers_beyond_the_limit_are_named() -> None:
    async with facade(a=1) as client:
        answer = await client.request("GET", "/v1/kv/a", headers={"x-large": "a" * 100_000})
        assert (answer.status, answer.problem) == (431, "headers-too-large")


KEYS = (
    "sub:path", "a://b", "..", ".", "a/../b", "//", "/", "%2F", "a?b#c", "a b", "a+b", "é\0", "👽",
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_no_url(key: str) -> None:
    with MemoryHost() as host, host.connect() as client:
        client.put(key, key)
        client.put(key + "x", 1)
        assert client.get(key) == key
        assert [entry.key for entry in client.scan(key)] == [key, key + "x"]


# SQLAlchemy, pandas


class Base(DeclarativeBase):
    """Mapped classes."""


class Fake(Base):
    """A row that numbers itself."""

    __tablename__ = "fake"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str | None]


def test_an_integer_primary_key_needs_no_sequence(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        made = [Fake(name=str(number)) for number in range(3)]
        session.add_all([*made, Fake(id=50, name="given")])
        session.flush()
        assert [fake.id for fake in made] == [1, 2, 3]
        rows = [{"name": "x"}, {"name": "y"}]
        back = insert(Fake).returning(Fake.id, sort_by_parameter_order=True)
        assert session.scalars(back, rows).all() == [51, 52]


@pytest.mark.parametrize("name", ODD)
def test_a_column_may_have_a_name_that_parameters_have_not(engine: Engine, name: str) -> None:
    table = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column(name, Integer))
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert(), [{name: 5}, {name: 6}])
        inner = select(table.c[name]).subquery()
        chosen = select(table.c[name], inner.c[name]).join_from(
            table, inner, table.c[name] == inner.c[name]
        )
        assert connection.execute(chosen.where(table.c[name].in_([5]))).all() == [(5, 5)]
        assert list(pd.read_sql_table("t", connection).columns) == ["id", name]


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=seeds(20))
@given(JSONS)
def test_json_is_found_by_its_value(value: Any) -> None:
    registry.register("streamydb", TablesDialect.__module__, TablesDialect.__name__)
    text = TablesDialect._json_serializer(value)
    try:
        assert text.encode() == canonical(value)
    except UnicodeEncodeError:
        assert "\\ud" in text
    with Tables.in_memory() as tables:
        tables.sql("create table t (k int primary key, j json)")
        tables.sql("insert into t values (1, ?)", [json.dumps(value)])
        assert tables.sql("select k from t where j = ?", [text]).rows == ((1,),)


def test_json_is_found_by_its_value_in_sqlalchemy(engine: Engine) -> None:
    table = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("j", JSON))
    table.create(engine)
    values: list[Any] = [{"b": [1, None], "a": 1.0}, [{}], "text", 5, 1e300, {"é": {"x": True}}]
    with engine.begin() as connection:
        connection.execute(table.insert(), [{"j": value} for value in values])
        for number, value in enumerate(values, 1):
            same = table.c.j == literal(value, JSON())
            found = connection.scalars(select(table.c.id).where(same)).all()
            assert found == [number], value
        with pytest.raises(DataError):
            connection.execute(table.insert().values(j=2**70))


NUMBERS = [
    kind(7)
    for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
                 np.float16, np.float32, np.float64)
]  # fmt: skip


@pytest.mark.parametrize("number", [*NUMBERS, np.bool_(True)], ids=lambda n: type(n).__name__)
def test_a_number_of_numpy_is_one_of_python(tables: Tables, engine: Engine, number: Any) -> None:
    tables.sql("insert into t (k, v, f) values (?, 7, 1)", [number])
    (found,) = tables.sql("select k, ? from t where k = ?", [number, number]).rows
    assert found == (number.item(), number.item())
    assert type(found[1]) is type(number.item())
    kind: TypeEngine[Any] = BigInteger()
    with engine.begin() as connection:
        assert connection.scalar(select(cast(number, kind))) == int(number)


@pytest.mark.parametrize(
    "value",
    [np.timedelta64(1, "ns"), np.timedelta64(1, "s"), np.datetime64(1, "ns"), np.complex128(1),
     np.longdouble(1), np.bytes_(b"x"), pd.NA],
    ids=repr,
)  # fmt: skip
def test_what_is_no_number_of_python_is_refused(tables: Tables, value: Any) -> None:
    with pytest.raises(DataRefusedError, match="Parameter 1: A parameter cannot be of type"):
        tables.sql("insert into t (k) values (?)", [value])


MISSING = {
    "float": pd.array([1.5, None], dtype="Float64"),
    "whole": pd.array([2**53 + 1, None], dtype="Int64"),
    "arrow": pd.array([2**53 + 1, None], dtype="int64[pyarrow]"),
    "truth": pd.array([True, None], dtype="boolean"),
    "text": pd.array(["x", None], dtype="string"),
    "kind": pd.Categorical(["x", None]),
    "time": pd.to_datetime(["2024-01-01 00:00:00.000001", None]),
    "nan": [1.5, float("nan")],
    "object": pd.Series(["x", pd.NA], dtype=object),
    "day": [dt.date(2024, 1, 1), None],
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_in_a_frame_is_null_and_the_rest_exact(engine: Engine, name: str) -> None:
    frame = pd.DataFrame({"k": [1, 2], "v": MISSING[name]})
    with engine.begin() as connection:
        frame.to_sql("frame", connection, index=False)
        found = connection.exec_driver_sql("select v from frame order by k").all()
        assert found[1] == (None,)
        assert found[0] == (frame["v"][0],)


def test_columns_of_a_frame_that_differ_by_case_are_refused(engine: Engine) -> None:
    with engine.begin() as connection, pytest.raises(ProgrammingError, match="taken"):
        pd.DataFrame({"a": [1], "A": [2]}).to_sql("frame", connection, index=False)


def test_a_decimal_beyond_its_places_is_rounded_and_beyond_its_digits_refused(
    tables: Tables,
) -> None:
    tables.sql("create table d (k int primary key, n decimal(5, 2))")
    tables.sql("insert into d values (1, ?), (2, ?)", [Decimal("0.005"), Decimal("-0.005")])
    rows = tables.sql("select n from d order by k").rows
    assert rows == ((Decimal("0.01"),), (Decimal("-0.01"),))
    with pytest.raises(DataRefusedError):
        tables.sql("update d set n = n * 100000")
    assert tables.sql("select n from d order by k").rows == rows


# Spark, LMDB


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("NaN", "invalid-json"), ("Infinity", "invalid-json"), ("9223372036854775807", None),
        ("9223372036854775808", "number-range"), ("99999999999999999999.99", None),
        ("1.0E10", None), ("null", "null-value"), ('"\\ud800"', "invalid-json"),
    ],
)  # fmt: skip
def test_a_number_of_a_frame_is_a_value_or_has_a_reason(value: str, code: str | None) -> None:
    text = f'{{"id":"a","updates":[{{"op":"put","key":"k","value":{value}}}]}}'
    assert fault_of(text) == code
    assert fault_of(None) is not None


def test_the_longest_key_fits_lmdb_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as environment:
        assert environment.max_key_size() > KEY_BYTES_MAX
    long = "é" * (KEY_BYTES_MAX // 2)
    with MemoryHost() as host, host.connect() as client:
        client.put(long, 1)
        assert client.get(long) == 1
        for key in ("", long + "x"):
            with pytest.raises(InvalidKeyError, match="too long"):
                client.put(key, 1)
