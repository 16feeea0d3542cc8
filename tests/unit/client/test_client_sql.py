"""SQL on tables by the client over REST: `sql` and `sql_transaction`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from streamydb.client import (
    ConflictError,
    ConstraintViolatedError,
    InvalidParameterError,
    Options,
    OutcomeUnknownError,
    QueriesOffError,
    QueryInvalidError,
    SqlResult,
)
from streamydb.client.errors import ConnectionLostError
from streamydb.client.problems import CheckFailedError
from streamydb.client.requests import (
    Freshness,
    Pause,
    Request,
    SqlAnswer,
    SqlStatements,
    StatementAnswer,
)
from streamydb.client.session import Session
from streamydb.client.statements import execute_sql, prepare_statements
from streamydb.facade import FacadeSettings
from streamydb.testing.clients import MemoryHost

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

Connect = Callable[..., Any]


def test_statements_and_transactions(connect: Connect) -> None:
    client = connect()
    made = client.sql("create table t (id int primary key, name text, j json)", tables="shop")
    assert (made.columns, made.rows, made.changed) == ((), (), None)
    first, found = client.sql_transaction(
        [
            ("insert into t values (?, ?, ?), (2, 'b', null)", [1, "a", {"x": [1]}]),
            ("select * from t where id < $most order by id", {"most": 5}),
        ],
        tables="shop",
    )
    assert first.changed == 2
    assert found == SqlResult(
        made.seq + 1, ("id", "name", "j"), ((1, "a", {"x": [1]}), (2, "b", None)),
        ("INTEGER", "VARCHAR", "JSON"), None,
    )  # fmt: skip
    assert found.dicts()[1] == {"id": 2, "name": "b", "j": None}
    assert client.session.seq == found.seq
    gone = client.sql("delete from t where id = 1 returning name", tables="shop")
    assert (gone.rows, gone.changed) == ((("a",),), 1)
    count = "select count(*) from t"
    assert client.sql(count, tables="shop").rows == ((1,),)
    assert client.sql(count, tables="shop", at=found.seq).rows == ((2,),)
    with pytest.raises(QueryInvalidError, match="There is no table t"):
        client.sql(count)
    with pytest.raises(ConstraintViolatedError) as caught:
        client.sql("insert into t values (2, 'c', null)", tables="shop")
    assert caught.value.constraint == "t_pkey"
    assert str(caught.value).endswith("a row with id = 2 already (unique t_pkey of table t)")
    with pytest.raises(InvalidParameterError):
        client.sql_transaction([])
    for no_values in ("text", None, 5):
        with pytest.raises(InvalidParameterError):
            client.sql("select ?", no_values)


def test_a_time_with_a_zone_becomes_utc(connect: Connect) -> None:
    client = connect()
    client.sql("create table t (id int primary key, at timestamp)")
    at = dt.datetime(2026, 1, 1, 10, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    client.sql("insert into t values (1, ?)", [at])
    client.sql("insert into t values (2, $at)", {"at": at.replace(tzinfo=None)})
    assert client.sql("select at from t order by id").rows == (
        ("2026-01-01T08:00:00",), ("2026-01-01T10:00:00",),
    )  # fmt: skip
    assert client.sql("select id from t where at = ?", [at]).rows == ((1,),)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 2**64, "\ud800", object()])
def test_parameters_that_are_no_json_are_refused(connect: Connect, value: Any) -> None:
    client = connect()
    for given in ([value], {"a": [value]}):
        with pytest.raises(InvalidParameterError, match="parameters are JSON"):
            client.sql("select ?", given)
    with pytest.raises(InvalidParameterError, match="parameters are JSON"):
        client.query("select ?", [value])
    with pytest.raises(InvalidParameterError, match="SQL is text"):
        client.sql("select '\ud800'")


def test_a_facade_without_queries_says_so() -> None:
    with (
        MemoryHost(FacadeSettings(queries_max=0)) as host,
        host.connect() as client,
        pytest.raises(QueriesOffError),
    ):
        client.sql("select 1")


class Facade:
    """Answers to statements, one after the other, each after some seconds."""

    def __init__(self, *answers: Any, seconds: float = 0) -> None:
        self.answers = list(answers)
        self.sent: list[SqlStatements] = []
        self.seconds, self.now = seconds, 0.0

    def run(self, *statements: str) -> Any:
        session = Session(Options(backoff_s=0.001), lambda: self.now)
        flow = execute_sql(
            session, "main", prepare_statements(statements), Freshness(consistency="strong")
        )
        try:
            request: Request[Any] = next(flow)
            while True:
                if isinstance(request, Pause):
                    self.now += request.seconds
                    request = flow.send(None)
                    continue
                assert isinstance(request, SqlStatements)
                self.sent.append(request)
                self.now += self.seconds
                answer = self.answers.pop(0)
                failed = isinstance(answer, Exception)
                request = flow.throw(answer) if failed else flow.send(answer)
        except StopIteration as end:
            return end.value


DONE = SqlAnswer(7, [StatementAnswer([], [], 1)])


def conflict(seq: int) -> CheckFailedError:
    return CheckFailedError("collided", members={"code": "check-failed", "seq": seq})


def test_conflicts_are_tried_again_with_other_ids() -> None:
    facade = Facade(conflict(4), conflict(5), DONE)
    [found] = facade.run("update t set n = n + 1")
    assert (found.seq, found.changed) == (7, 1)
    assert len({each.id for each in facade.sent}) == 3
    assert [each.freshness.min_version for each in facade.sent] == [None, 4, 5]
    with pytest.raises(ConflictError, match="in each of 30 attempts"):
        Facade(*(conflict(number) for number in range(1, 31))).run("delete from t")


def test_conflicts_are_tried_again_within_the_time() -> None:
    facade = Facade(*map(conflict, range(1, 31)), seconds=8)
    with pytest.raises(ConflictError, match="in each of 4 attempts") as caught:
        facade.run("delete from t")
    assert (len(facade.sent), caught.value.seq) == (4, 4)


def test_what_may_write_is_sent_once_if_its_answer_is_lost() -> None:
    facade = Facade(ConnectionLostError("gone"))
    with pytest.raises(OutcomeUnknownError) as caught:
        facade.run("select 1", "delete from t")
    assert caught.value.id == facade.sent[0].id
    reading = Facade(ConnectionLostError("gone"), DONE)
    reading.run("select 1", " VALUES (1)")
    assert [each.id for each in reading.sent] == [None, None]


def test_an_answer_that_is_lost_can_be_asked_for(host: MemoryHost) -> None:
    client = host.connect()
    client.sql("create table t (id int primary key)")
    host.faults.lost = 1
    with pytest.raises(OutcomeUnknownError) as caught:
        client.sql("insert into t values (1)")
    made = caught.value.send_again()
    assert made.seq == 2
    assert client.sql("select id from t").rows == ((1,),)
