"""Deadlines: what is sent again after the id window is executed once, or refused (FAULTS 38)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from streamydb import errors
from streamydb.client import DeadlinePassedError, Options, OutcomeUnknownError, Session
from streamydb.facade import create_app
from streamydb.facade.ports import NoResult
from streamydb.limits import DEADLINE_AHEAD_MS_MAX
from streamydb.records import (
    Rejection,
    Transaction,
    deadline_span,
    decode,
    decode_result,
    identity,
    with_deadline,
)
from streamydb.spark import payloads
from streamydb.testing.clients import MemoryHost
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from streamydb.verify.oracle.core import Oracle

WINDOW = 3
START = 1_700_000_000_000
NOW = Options(timeout_s=0)
Connect = Callable[..., Any]


class Clock:
    """A time of day that goes on when it is told to."""

    def __init__(self) -> None:
        self.ms = START

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def host(clock: Clock) -> Iterator[MemoryHost]:
    database = MemoryDatabase(id_window=WINDOW)
    database.clock = clock
    with MemoryHost(database=database) as running:
        yield running


def deadline_of(record: bytes | None) -> int:
    """The deadline of a transaction."""
    found = decode(record)
    assert isinstance(found, Transaction)
    return found.deadline


def session(clock: Callable[[], int], options: Options = NOW) -> Session:
    return Session(options, wall_ms=clock)


def unanswered(client: Any, host: MemoryHost) -> OutcomeUnknownError:
    """What a client is told that adds 1 to n, and whose answer is lost."""
    host.faults.lost = 1
    with pytest.raises(OutcomeUnknownError) as unknown:
        client.atomic().add("n", 1).commit()
    return unknown.value


def others(client: Any) -> None:
    """More transactions than the window has."""
    for number in range(2 * WINDOW):
        client.put(f"other/{number}", number)


@pytest.mark.fault(
    38, "a client whose answer was lost sends again after the id window, before its deadline",
    "the first verdict; executed once",
)  # fmt: skip
def test_a_client_sends_again_after_the_window(
    connect: Connect, host: MemoryHost, clock: Clock
) -> None:
    client, other = connect(session=session(clock)), connect(session=session(clock, Options()))
    unknown = unanswered(client, host)
    others(other)
    clock.ms += 30_000
    again = unknown.send_again()
    assert (again.seq, again.repeated) == (1, True)
    assert other.get("n") == 1


@pytest.mark.fault(
    38, "a client whose answer was lost sends again after the id window and its deadline",
    "refused at its place in the log, and the first verdict is found; executed once",
)  # fmt: skip
def test_a_client_sends_again_after_its_deadline(
    connect: Connect, host: MemoryHost, clock: Clock
) -> None:
    client, other = connect(session=session(clock)), connect(session=session(clock, Options()))
    unknown = unanswered(client, host)
    others(other)
    clock.ms += 36_000
    again = unknown.send_again()
    assert (again.seq, again.repeated) == (1, False)
    assert unknown.ask().seq == 1
    assert other.get("n") == 1
    assert host.database.log.results[-1].code == errors.DEADLINE_PASSED


def test_what_cannot_be_found_out_is_said_to_be_unknown(
    connect: Connect, host: MemoryHost, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def search(*_: object) -> NoResult:
        return NoResult(complete=False, since_ms=None)

    client = connect(session=session(clock))
    unknown = unanswered(client, host)
    others(client)
    clock.ms += 36_000
    host.database.log.index = type(host.database.log.index)(1 << 20)  # as after a restart
    monkeypatch.setattr(host.database.log, "search", search)
    with pytest.raises(OutcomeUnknownError):
        unknown.send_again()


def test_a_builder_keeps_its_deadline(connect: Connect, host: MemoryHost, clock: Clock) -> None:
    client = connect(session=session(clock))
    built = client.atomic().add("n", 1)
    built.commit()
    clock.ms += 1_000
    assert built.commit().repeated
    assert len(set(host.database.log.records)) == 1


def test_a_transaction_that_was_sent_once_and_late_was_not_executed(
    connect: Connect, host: MemoryHost, clock: Clock
) -> None:
    client = connect(session=session(clock, Options()))
    client.put("a", 1)
    with pytest.raises(DeadlinePassedError) as passed:
        client.transaction(updates=[{"op": "put", "key": "a", "value": 2}], deadline_ms=START - 1)
    assert passed.value.code == errors.DEADLINE_PASSED
    with pytest.raises(DeadlinePassedError):
        client.atomic("again", deadline_ms=START - 1).put("a", 3).commit()
    assert client.get("a") == 1
    assert all(deadline_of(record) for record in host.database.log.records)


@pytest.mark.parametrize("skew_ms", [-600_000, 7_200_000])
def test_a_wrong_clock_is_corrected_by_what_the_log_says(
    connect: Connect, clock: Clock, skew_ms: int
) -> None:
    wrong = connect(session=session(lambda: clock.ms + skew_ms, Options()))
    assert [wrong.put("a", 1).seq, wrong.put("a", 2).seq] == [2, 3]
    assert wrong.session.behind_ms == -skew_ms


def test_run_sends_deadlines(connect: Connect, host: MemoryHost, clock: Clock) -> None:
    client = connect(session=session(clock, Options()))
    host.faults.lost = 1
    client.put("n", 1)
    client.run(lambda view: view.put("n", 2))
    found = [deadline_of(raw) for raw in host.database.log.records]
    assert found == [START + 65_000] * len(found)


class TestFacade:
    """Requests without the client library."""

    @pytest.mark.fault(
        38, "a request with an Idempotency-Key comes again after the id window",
        "the first verdict until its deadline; with Deadline-Ms refused after it",
    )  # fmt: skip
    @scenario
    async def test_a_request_comes_again(self) -> None:
        database, clock = MemoryDatabase(id_window=WINDOW), Clock()
        database.clock = clock
        body = b'{"updates":[{"op":"add","key":"n","by":1}]}'
        key = {"Idempotency-Key": "mine"}
        limit = {**key, "Deadline-Ms": str(START + 90_000)}
        async with InProcess(create_app(database.model, database.log, database.changes)) as client:
            first = await client.request("POST", "/v1/transactions", body, key)
            assert first.status == 200
            for number in range(2 * WINDOW):
                await client.request("PUT", f"/v1/kv/{number}", b"1")
            clock.ms += 59_000
            again = await client.request("POST", "/v1/transactions", body, key)
            assert (again.json()["seq"], again.json()["duplicate"]["seq"]) == (1, 2 * WINDOW + 2)
            clock.ms += 60_000
            late = await client.request("POST", "/v1/transactions", body, limit)
            assert (late.status, late.json()["code"]) == (409, errors.DEADLINE_PASSED)
            assert late.json()["type"] == "/problems/deadline-passed"
            assert late.headers["location"] == "/v1/transactions/mine"
            asked = await client.request("GET", "/v1/transactions/mine")
            assert (asked.json()["seq"], asked.json()["status"]) == (1, "committed")
            assert (await client.request("GET", "/v1/kv/n")).json() == 1

    @scenario
    async def test_a_deadline_is_given_once(self) -> None:
        database = MemoryDatabase()
        async with InProcess(create_app(database.model, database.log, database.changes)) as client:
            for given in ("0", "x", "1.5", str(2**63)):
                answer = await client.request("PUT", "/v1/kv/a", b"1", {"Deadline-Ms": given})
                assert (answer.status, answer.json()["parameters"]) == (400, ["Deadline-Ms"])
            body = b'{"id":"a","deadline_ms":%d}' % (database.clock() + 9_000)
            both = await client.request("POST", "/v1/transactions", body, {"Deadline-Ms": "7"})
            assert both.status == 400
            assert (await client.request("POST", "/v1/transactions", body)).status == 200
            far = b'{"id":"b","deadline_ms":%d}' % (database.clock() + 2 * DEADLINE_AHEAD_MS_MAX)
            answer = await client.request("POST", "/v1/transactions", far)
            assert (answer.status, answer.json()["code"]) == (422, errors.DEADLINE_TOO_FAR)


@pytest.mark.fault(
    38, "a Spark task is repeated after the id window, and after the deadline of its batch",
    "the rows that were executed are not executed again; those that come late are rejected",
)  # fmt: skip
@pytest.mark.parametrize(("later_ms", "code"), [(500, None), (2_000, errors.DEADLINE_PASSED)])
def test_a_spark_task_is_repeated(later_ms: int, code: str | None) -> None:
    rows = [
        json.dumps(
            {
                "id": f"r{n}",
                "deadline_ms": START + 1_000,
                "updates": [{"op": "add", "key": "n", "by": 1}],
            }
        )
        for n in range(5)
    ]
    batch = pa.record_batch(
        [[f"r{n}" for n in range(5)], rows, pa.nulls(5, pa.string())], ["id", "payload", "key"]
    )
    (made,) = payloads.router("log", None)([batch])
    task = made.column("value").to_pylist()
    oracle, offset = Oracle("db", WINDOW), 0
    codes: list[str | None] = []
    for ts_ms, records in ((START, task[:3]), (START + later_ms, task)):
        codes = []
        for record in records:
            (result, *_) = oracle.apply(record, 0, offset, ts_ms)
            codes.append(decode_result(result.value or b"").code)
            offset += 1
        for _ in range(2 * WINDOW):
            oracle.apply(b'{"id":"o%d"}' % offset, 0, offset, ts_ms)
            offset += 1
    assert codes == [code] * 5
    assert oracle.state["n"][0] == (b"5" if code is None else b"3")


def test_a_batch_fails_loudly_after_its_deadline() -> None:
    batch = pa.record_batch([["a"], ['{"id":"a"}'], pa.nulls(1, pa.string())],
                            ["id", "payload", "key"])  # fmt: skip
    with pytest.raises(payloads.BatchTooLateError, match="submit the rows that have no verdict"):
        list(payloads.router("log", None, 1)([batch]))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id":"a","deadline_ms":12}',
        b'{"id":"a","deadline_ms": 12 } ',
        b'{"deadline_ms":12,"id":"a","asserts":{"deadline_ms":12}}',
        b'{"id":"deadline_ms","checks":[{"key":"k","eq":{"deadline_ms":34}}],"deadline_ms":12}',
        b'{"id":"a","deadline\\u005fms":12,"reads":["\\"deadline_ms\\":5}"]}',
        b'{"id":"a","deadline_ms":34,"deadline_ms":12}',
        b'{"id":"a","reads":["{\\"deadline_ms\\":34}"],"deadline_ms":12,"updates":[]}',
    ],
)
def test_the_digits_of_a_deadline_are_found(raw: bytes) -> None:
    found = decode(raw)
    assert isinstance(found, Transaction)
    start, end = deadline_span(raw)
    assert (raw[start:end], found.deadline) == (b"12", 12)
    assert identity(raw) == raw[:start] + b"00" + raw[end:]


@pytest.mark.parametrize("value", [b"0", b"-1", b"1.0", b"1e3", b'"1"', b"null", b"true", b"[]",
                                   b"9223372036854775808", b"99999999999999999999999"])  # fmt: skip
def test_what_is_no_deadline(value: bytes) -> None:
    found = decode(b'{"id":"a","deadline_ms":%s}' % value)
    assert found == Rejection(errors.INVALID_TRANSACTION, "a")
    assert deadline_of(with_deadline(b'{"id":"a"}', 5)) == 5


def test_a_deadline_at_the_limits() -> None:
    oracle = Oracle("db", 10)

    def code(ts_ms: int, deadline_ms: int) -> str | None:
        raw = b'{"id":"%d/%d","deadline_ms":%d}' % (ts_ms, deadline_ms, deadline_ms)
        (result, *_) = oracle.apply(raw, 0, oracle.next_seq, ts_ms)
        return decode_result(result.value or b"").code

    assert code(START, START) is None
    assert code(START + 1, START) == errors.DEADLINE_PASSED
    assert code(START + 1, START + 1 + DEADLINE_AHEAD_MS_MAX) is None
    assert code(START + 1, START + 2 + DEADLINE_AHEAD_MS_MAX) == errors.DEADLINE_TOO_FAR
