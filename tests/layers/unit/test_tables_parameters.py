"""Values of parameters: which are taken, what is said of others, and what is too large."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from streamydb.client.errors import RequestError
from streamydb.testing.clients import MemoryHost
from streamydb_layers.tables import DataRefusedError, Tables, dbapi


class Colour(str, Enum):  # noqa: UP042 - its text is not its value
    """Texts."""

    RED = "red"


class Size(int, Enum):
    """Numbers."""

    BIG = 7


class Weight(float, Enum):
    """Numbers."""

    HEAVY = 2.5


class Word(StrEnum):
    """Texts."""

    YES = "yes"


class Step(IntEnum):
    """Numbers."""

    ONE = 1


class Plain(Enum):
    """Neither."""

    A = "a"


@pytest.fixture
def tables() -> Iterator[Tables]:
    with Tables.in_memory() as made:
        made.sql("create table t (id int primary key, b text, c double)")
        made.sql("create index by_b on t (b)")
        yield made


@pytest.mark.parametrize("member", [Colour.RED, Size.BIG, Weight.HEAVY, Word.YES, Step.ONE])
def test_a_value_of_an_enum_is_its_value(tables: Tables, member: Any) -> None:
    kind = "b" if isinstance(member, str) else "c"
    tables.sql(f"insert into t (id, {kind}) values (1, ?)", [member])
    assert tables.sql(f"select {kind} from t").rows == ((member.value,),)
    assert tables.sql(f"select id from t where {kind} = $it", {"it": member}).rows == ((1,),)
    assert tables.sql("select ?", [[member]]).rows == (([member.value],),)
    assert tables.sql("select id from t where id = ?", [Step.ONE]).rows == ((1,),)


@pytest.mark.parametrize(
    "value", [Plain.A, object(), b"x", float("nan"), "\ud800", {"a": object()}]
)
def test_a_value_that_is_refused_is_named(tables: Tables, value: Any) -> None:
    with pytest.raises(DataRefusedError, match="line 1, column 37: Parameter 2: "):
        tables.sql("insert into t (id, b) values (?    ,?)", [1, value])
    with pytest.raises(DataRefusedError, match="Parameter text: "):
        tables.sql("select $id, $text", {"id": 1, "text": value})
    assert tables.sql("select * from t").rows == ()


def test_the_row_of_a_value_that_is_refused_is_named() -> None:
    with dbapi.connect(Tables.in_memory()) as connection:
        cursor = connection.cursor()
        cursor.execute("create table t (id int primary key, b text)")
        with pytest.raises(dbapi.DataError, match=r"Row 3 of the values: .*Parameter 2: "):
            cursor.executemany("insert into t values (?, ?)", [[1, "a"], [2, "b"], [3, b"c"]])
        with pytest.raises(dbapi.IntegrityError, match="Row 2 of the values: "):
            cursor.executemany("insert into t values (?, ?)", [[4, "a"], [4, "b"]])
        connection.rollback()


LARGE = (
    ("insert into t (id, b) values (1, ?)", "x" * 262_143),
    ("insert into t (id, c) values (1, length(?))", "x" * 900_000),
    ("insert into t (id) select range from range(4000) where length(?) > 0", "x"),
    ("insert into t (id) select range from range(10001) where length(?) > 0", "x"),
    ("insert into t (id, b) values (1, ?)", "x" * 470),
    ("insert into t (id, b) select range, repeat(?, 300) from range(3000)", "x"),
    ("insert into t (id, b) values (1, ?)", "é" * 120),
)  # fmt: skip


@pytest.mark.parametrize(("sql", "value"), LARGE)
@pytest.mark.parametrize("opened", [False, True])
def test_tables_in_memory_have_the_limits_of_a_database(
    sql: str, value: str, *, opened: bool
) -> None:
    def answer(tables: Tables) -> Any:
        tables.sql("create table t (id int primary key, b text, c double)")
        if len(value) < 480:
            tables.sql("create index by_b on t (b)")
        try:
            if not opened:
                return tables.sql(sql, [value]).changed
            with tables.begin() as transaction:
                return transaction.sql(sql, [value]).changed
        except RequestError as error:
            return type(error), error.code, error.detail
        except DataRefusedError as error:
            return str(error)

    with MemoryHost() as host, Tables.in_memory("shop") as alone:
        known = answer(Tables(host.connect(), "shop"))
        assert answer(alone) == known


def test_a_range_of_too_many_keys_is_too_large_in_memory() -> None:
    with Tables.in_memory() as tables:
        tables.sql("create table t (id int primary key)")
        for start in range(0, 10_001, 2_000):
            rows = f"select range + {start} from range(least(2000, 10001 - {start}))"
            tables.sql(f"insert into t {rows}")
        assert tables.sql("select count(*) from t").rows == ((10_001,),)
        with pytest.raises(RequestError, match="range-too-large"):
            tables.sql("insert into t select max(id) + 1 from t")
