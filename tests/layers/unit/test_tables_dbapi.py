"""SQL tables by PEP 249: names, transactions, rows, errors; pandas reads them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from streamydb.testing.clients import MemoryHost
from streamydb_layers.tables import Tables, dbapi


@pytest.fixture
def connection() -> Iterator[dbapi.Connection]:
    made = dbapi.connect(Tables.in_memory())
    made.cursor().execute("create table t (id int primary key, x text, n decimal(6, 2))")
    made.commit()
    yield made
    made.close()


def ids(connection: dbapi.Connection) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    cursor.execute("select id from t order by id")
    return cursor.fetchall()


def test_the_module_and_the_connection_have_the_names_of_pep_249(
    connection: dbapi.Connection,
) -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 1, "qmark")
    names = ("Warning Error InterfaceError DatabaseError DataError OperationalError "
             "IntegrityError InternalError ProgrammingError NotSupportedError")  # fmt: skip
    for name in names.split():
        kind = getattr(dbapi, name)
        assert getattr(connection, name) is kind
        assert issubclass(kind, Exception)
    assert issubclass(dbapi.IntegrityError, dbapi.DatabaseError)
    assert not issubclass(dbapi.InterfaceError, dbapi.DatabaseError)
    assert dbapi.TimestampFromTicks(86_401) == dbapi.Timestamp.fromisoformat("1970-01-02T00:00:01")
    assert dbapi.DateFromTicks(86_401) == dbapi.Date(1970, 1, 2)
    assert dbapi.TimeFromTicks(86_401) == dbapi.Time(0, 0, 1)


def test_rows_and_their_description(connection: dbapi.Connection) -> None:
    assert connection.cursor().execute("insert into t values (1, 'a', 2)").description is None
    cursor = connection.cursor()
    assert cursor.execute("insert into t values (?, 'a', 2)", [0]).rowcount == 1
    cursor.execute("delete from t where id = 0")
    with pytest.raises(dbapi.ProgrammingError, match="no rows"):
        cursor.fetchall()
    cursor.executemany("insert into t (id) values (?)", [[2], [3], [4]])
    assert cursor.rowcount == 3
    cursor.execute("select id, x, n, date '2026-01-01' as d from t order by id")
    assert cursor.rowcount == 4
    assert cursor.description is not None
    assert [column[:2] for column in cursor.description] == [
        ("id", "INTEGER"), ("x", "VARCHAR"), ("n", "DECIMAL(6,2)"), ("d", "DATE"),
    ]  # fmt: skip
    kinds = [dbapi.NUMBER, dbapi.STRING, dbapi.NUMBER, dbapi.DATETIME]
    assert [column[1] == kind for column, kind in zip(cursor.description, kinds, strict=True)]
    assert cursor.description[0][1] != dbapi.STRING
    assert cursor.fetchone() == (1, "a", Decimal("2.00"), dt.date(2026, 1, 1))
    assert [row[0] for row in cursor.fetchmany(2)] == [2, 3]
    assert [row[0] for row in cursor] == [4]
    assert cursor.fetchone() is None


def test_no_values_may_be_none(connection: dbapi.Connection) -> None:
    assert connection.cursor().execute("select 1", None).fetchall() == [(1,)]
    with pytest.raises(dbapi.ProgrammingError, match="no value for parameter 1"):
        connection.cursor().execute("select ?", None)
    with pytest.raises(dbapi.ProgrammingError, match="are a list, or by name a mapping"):
        connection.cursor().execute("select ?", 5)  # type: ignore[arg-type]


def test_a_transaction_ends_with_commit_or_rollback(connection: dbapi.Connection) -> None:
    other = dbapi.connect(connection.tables)
    connection.cursor().execute("insert into t (id) values (1)")
    assert ids(other) == []
    connection.rollback()
    connection.cursor().execute("insert into t (id) values (2)")
    connection.commit()
    assert ids(other) == []  # its transaction has a snapshot
    other.commit()
    assert ids(other) == [(2,)]
    with connection:
        connection.cursor().execute("delete from t")
    with pytest.raises(dbapi.IntegrityError), connection:  # noqa: PT012 - the last
        connection.cursor().execute("insert into t (id) values (3)")
        connection.cursor().execute("insert into t (id) values (3)")
    assert ids(connection) == []


def test_a_conflict_is_an_operational_error(connection: dbapi.Connection) -> None:
    other = dbapi.connect(connection.tables)
    for each in (connection, other):
        assert ids(each) == []
        each.cursor().execute("insert into t (id) values (1)")
    connection.commit()
    with pytest.raises(dbapi.OperationalError):
        other.commit()
    assert ids(other) == [(1,)]


def test_autocommit_and_transactions_in_sql(connection: dbapi.Connection) -> None:
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("insert into t (id) values (1)")
    connection.rollback()
    cursor.execute("begin")
    cursor.execute("insert into t (id) values (2)")
    cursor.execute("rollback")
    assert ids(connection) == [(1,)]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("insert into t (id) values (1)", dbapi.IntegrityError),
        ("insert into t (id) values ('x')", dbapi.DataError),
        ("select * from nope", dbapi.ProgrammingError),
        ("alter table t alter x type int", dbapi.NotSupportedError),
        ("select 1; select 2", dbapi.ProgrammingError),
    ],
)
def test_errors_are_those_of_pep_249(
    connection: dbapi.Connection, sql: str, kind: type[Exception]
) -> None:
    connection.cursor().execute("insert into t (id) values (1)")
    with pytest.raises(dbapi.DatabaseError) as caught:
        connection.cursor().execute(sql)
    assert type(caught.value) is kind
    assert ids(connection) == [(1,)]


def test_what_is_closed_is_not_used(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError):
        cursor.execute("select 1")
    connection.close()
    connection.close()
    for use in (connection.cursor, connection.commit, connection.rollback):
        with pytest.raises(dbapi.InterfaceError):
            use()


def test_behind_a_client() -> None:
    with MemoryHost() as host, host.connect() as client:
        connection = dbapi.connect(client, "shop")
        with connection:
            connection.cursor().execute("create table t (id int primary key)")
            connection.cursor().executemany("insert into t values (?)", [[1], [2]])
        cursor = connection.cursor()
        cursor.execute("delete from t where id > 1")
        Tables(host.connect(), "shop").sql("insert into t values (3)")
        with pytest.raises(dbapi.OperationalError):
            connection.commit()
        assert ids(connection) == [(1,), (2,), (3,)]
        connection.cursor().execute("insert into t select i from range(10, 10020) r(i)")
        with pytest.raises(dbapi.DataError, match="too-large"):
            connection.commit()
        connection.close()


def test_pandas_reads_and_writes(connection: dbapi.Connection) -> None:
    pandas = pytest.importorskip("pandas")
    connection.cursor().executemany("insert into t (id, x) values (?, ?)", [[1, "a"], [2, "b"]])
    with pytest.warns(UserWarning, match="DBAPI2"):
        frame = pandas.read_sql("select id, x from t where id > ?", connection, params=[1])
    assert frame.to_dict("list") == {"id": [2], "x": ["b"]}
