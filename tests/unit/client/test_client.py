"""The client's reads and writes, through both drivers and both transports."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from streamydb import errors
from streamydb.client import (
    AbortedError,
    BoundViolatedError,
    CheckFailedError,
    ClientError,
    ClosedError,
    Committed,
    Entry,
    IdReusedError,
    InvalidJsonError,
    InvalidKeyError,
    InvalidParameterError,
    InvalidTransactionError,
    LogUnavailableError,
    NotAListError,
    NotANumberError,
    NotConnectedError,
    NumberOverflowError,
    Options,
    OutcomeUnknownError,
    Prepared,
    Range,
    RangeEntry,
    ReadModelBehindError,
    RequestError,
    SnapshotGoneError,
    TooLargeError,
    TransactionUnknownError,
    ValueTooLargeError,
)
from streamydb.client.session import Session, new_id
from streamydb.facade import FacadeSettings
from streamydb.facade.payloads import time_of_id
from streamydb.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from streamydb.testing.clients import MemoryHost

STRANGE = ["a//b", "/", "//", "a/", "é", "%2F", "..", "../..", ".", " ", "\u0000", "\n", "\r\nX: y",
           "a?b=c", "a#b", "+", "日本", "\U0001f600", "K" * KEY_BYTES_MAX]  # fmt: skip
NOW = Options(timeout_s=0)
Connect = Callable[..., Any]


@pytest.fixture
def limits() -> FacadeSettings:
    return FacadeSettings(
        read_keys_max=3, page_entries_max=2, answer_bytes_max=1_000, read_timeout_s=0.05
    )


def test_a_value_is_read_as_it_was_written(client: Any) -> None:
    written = client.put("a", {"b": [1.0, None, "é"], "n": 2**63 - 1})
    assert isinstance(written, Committed)
    assert (written.seq, written.repeated, written.reads) == (1, False, {})
    assert client.get("a") == {"b": [1, None, "é"], "n": 2**63 - 1}
    assert client.entry("a") == Entry("a", client.get("a"), 1, written.ts_ms, None)
    assert client.get("absent") is None
    assert client.get("absent", 7) == 7
    assert not client.entry("absent").exists
    assert client.delete("a").seq == 2
    assert client.get("a") is None


def test_an_entry_tells_the_end_of_its_key(client: Any) -> None:
    written = client.put("a", 1, ttl_ms=60_000)
    entry = Entry("a", 1, 1, written.ts_ms, written.ts_ms + 60_000)
    client.put("b", 2)
    assert client.entry("a") == client.entry("a", at=1) == entry
    assert client.read(["a", "b"]).entries["a"] == entry
    assert [each.expires_ms for each in client.scan()] == [entry.expires_ms, None]
    assert client.run(lambda view: view.get("a")) == 1


def test_a_function_gives_keys_an_end(client: Any) -> None:
    client.put("b", 1, ttl_ms=60_000)

    def function(view: Any) -> None:
        view.put("a", 1)
        view.put("a", 2, ttl_ms=30_000)
        view.put("b", view.get("b") + 1)
        view.put("c", 1, ttl_ms=5)
        view.delete("c")
        view.put("c", 3)

    client.run(function)
    ends = {each.key: (each.value, each.expires_ms) for each in client.scan()}
    assert ends == {"a": (2, client.entry("a").ts_ms + 30_000), "b": (2, None), "c": (3, None)}


@pytest.mark.parametrize("key", STRANGE)
def test_strange_keys(client: Any, key: str) -> None:
    client.put(key, key)
    assert client.get(key) == key
    assert [entry.key for entry in client.scan(key)] == [key]
    assert client.run(lambda view: view.get(key)) == key


@pytest.mark.parametrize("key", ["", "k" * (KEY_BYTES_MAX + 1), "\ud800", 5])
def test_what_is_no_key(client: Any, key: Any) -> None:
    with pytest.raises(InvalidKeyError):
        client.get(key)
    with pytest.raises((InvalidKeyError, InvalidJsonError)):
        client.put(key, 1)
    assert client.session.seq == 0


@pytest.mark.parametrize("value", [float("nan"), "\ud800", {1: 2}, {1, 2}, 2**63])
def test_what_is_no_value(client: Any, value: Any) -> None:
    with pytest.raises(InvalidJsonError):
        client.put("k", value)


def test_values_that_cannot_be_stored(client: Any, host: MemoryHost) -> None:
    with pytest.raises(InvalidTransactionError) as refused:
        client.put("k", None)
    assert refused.value.code == errors.NULL_VALUE
    with pytest.raises(TooLargeError) as large:
        client.put("k", "v" * VALUE_BYTES_MAX)
    assert large.value.code == errors.VALUE_TOO_LARGE
    assert host.database.log.records == []


def test_a_read_shows_one_snapshot_however_many_requests_it_takes(client: Any) -> None:
    for number in range(10):
        client.put(f"k{number}", number)
    client.put("large", "v" * 900)
    keys = [f"k{number}" for number in range(10)] + ["large", "absent", "k0"]
    found = client.read(keys)
    assert dict(found) == {**{f"k{n}": n for n in range(10)}, "large": "v" * 900, "absent": None}
    assert found.seq == 11
    assert found.entries["k3"].version == 4
    assert client.read(["k0"], at=1).seq == 1
    assert client.read(["k1"], at=1)["k1"] is None
    assert dict(client.read([])) == {}


def test_reads_before_the_first_transaction(connect: Connect) -> None:
    client = connect(options=Options(read_keys=1))
    assert dict(client.read(["a", "b", "c"])) == {"a": None, "b": None, "c": None}
    assert list(client.scan()) == []
    assert client.read(["a"], at=0).seq == 0


def test_scans_give_all_pages_of_one_snapshot(connect: Connect) -> None:
    client = connect(options=Options(page_entries=2))
    for key in ["b/2", "a", "b/1", "b/3", "b/é", "c"]:
        client.put(key, key)
    scan = client.scan("b/")
    first = next(scan)
    client.put("b/25", "later")
    assert [first.key, *(entry.key for entry in scan)] == ["b/1", "b/2", "b/3", "b/é"]
    assert [e.key for e in client.scan(start="b/2", end="b/é")] == ["b/2", "b/25", "b/3"]
    assert [e.key for e in client.scan(limit=3)] == ["a", "b/1", "b/2"]
    assert list(client.scan(limit=0)) == []
    with pytest.raises(InvalidParameterError):
        list(client.scan("k" * (KEY_BYTES_MAX + 1)))


def test_a_fluent_transaction(client: Any) -> None:
    client.put("stock", 5)
    made = (
        client.atomic()
        .check(client.entry("stock"))
        .check("order/1", exists=False)
        .check("stock", eq=5, ge=1, le=9, gt=4, lt=6, ne=None)
        .add("stock", -2, min=0, max=10)
        .put("order/1", "open")
        .delete("nothing")
        .append("log", None)
        .max("high", 3)
        .min("low", 3)
        .next_id("ids")
        .read("stock", "log", "high", "low")
        .commit()
    )
    assert made.reads == {"stock": 3, "log": [None], "high": 3, "low": 3, "ids": 1}
    assert client.get("order/1") == "open"


def test_a_transaction_over_ranges(client: Any) -> None:
    orders, some = Range(prefix="order/"), Range(start="order/1", end="order/3")
    client.put("order/1", {"n": 1})
    make = client.atomic().put("order/2", 2).check(orders, count_le=1, count_ge=1, version_le=1)
    made = make.check(orders, count=1, exists=True).read("order/2", orders, some).commit()
    entries = [RangeEntry("order/1", {"n": 1}, 1), RangeEntry("order/2", 2, 2)]
    assert made.ranges == {orders: entries, some: entries}
    assert made.reads == {"order/2": 2}
    with pytest.raises(CheckFailedError) as aborted:
        client.atomic().check(orders, count_le=1).put("order/3", 3).commit()
    (failed,) = aborted.value.failed
    assert (failed.check, failed.key, failed.version, failed.count) == ("range", "order/", 2, 2)
    again = client.transaction(reads=["order/1", some, {"range": {"prefix": "x"}}])
    assert again.ranges == {some: entries, Range(prefix="x"): []}
    for wrong in (Range(), Range(prefix="a", end="b"), Range(start="a")):
        with pytest.raises(InvalidTransactionError):
            client.atomic().read(wrong).commit()


def test_failed_checks_are_carried(client: Any) -> None:
    client.put("a", 1)
    with pytest.raises(CheckFailedError) as aborted:
        client.transaction(
            asserts={"a": 2}, checks=[{"key": "b", "exists": True}], updates=[], txn_id="t"
        )
    error = aborted.value
    assert (error.code, error.id, error.seq) == (errors.CHECK_FAILED, "t", 2)
    assert [(f.check, f.key, f.value, f.version) for f in error.failed] == [
        ("assert", "a", 1, 1), ("check", "b", None, 0),
    ]  # fmt: skip
    assert "'a'" in str(error)


@pytest.mark.parametrize(
    ("update", "kind"),
    [
        ({"op": "add", "key": "n", "by": 1, "max": 1}, BoundViolatedError),
        ({"op": "add", "key": "s", "by": 1}, NotANumberError),
        ({"op": "append", "key": "n", "value": 1}, NotAListError),
        ({"op": "add", "key": "n", "by": 2**63 - 1}, NumberOverflowError),
        ({"op": "append", "key": "l", "value": "v" * 200_000}, ValueTooLargeError),
    ],
)
def test_every_abort_has_its_class(client: Any, update: Any, kind: type[AbortedError]) -> None:
    client.atomic().put("n", 1).put("s", "text").put("l", ["v" * 100_000]).commit()
    with pytest.raises(kind) as aborted:
        client.transaction(updates=[update])
    assert type(aborted.value) is kind
    assert aborted.value.failed[0].key == update["key"]
    assert isinstance(aborted.value, ClientError)


def test_sending_again_executes_once(client: Any, host: MemoryHost) -> None:
    adding = client.atomic().add("n", 1).read("n")
    first = adding.commit()
    again = adding.commit()
    assert (again.seq, again.reads, again.repeated) == (first.seq, {"n": 1}, True)
    assert client.get("n") == 1
    assert len(host.database.log.records) == 2
    with pytest.raises(IdReusedError):
        adding.add("m", 1).commit()


def test_a_lost_answer_is_made_good_by_sending_again(client: Any, host: MemoryHost) -> None:
    host.faults.lost = 3
    made = client.atomic().add("n", 1).commit()
    assert (made.seq, made.repeated) == (1, True)
    assert client.get("n") == 1
    assert host.faults.sent["Send"] == 4
    assert len(set(host.database.log.records)) == 1


def test_a_refused_connection_is_tried_again_and_then_told(
    connect: Connect, host: MemoryHost
) -> None:
    host.faults.refused = 2
    assert connect().put("a", 1).seq == 1
    host.faults.refused = 1
    with pytest.raises(NotConnectedError):
        connect(options=NOW).put("a", 2)
    host.faults.refused = 1_000
    with pytest.raises(NotConnectedError):
        connect(options=Options(timeout_s=5)).get("a")
    assert 5 < 1_000 - host.faults.refused < 100
    assert sum(host.faults.pauses[-20:]) <= 5.5
    host.faults.refused = 0
    assert len(host.database.log.records) == 1


@pytest.mark.fault(25, "no answer in time", "the verdict can be asked for")
def test_an_unknown_outcome_has_a_verdict_later(connect: Connect, host: MemoryHost) -> None:
    client = connect(options=NOW)
    host.database.executing = False
    with pytest.raises(OutcomeUnknownError) as unknown:
        client.put("a", 1)
    with pytest.raises(OutcomeUnknownError):
        unknown.value.ask()
    host.resume()
    made = unknown.value.ask()
    assert (made.id, made.seq) == (unknown.value.id, 1)
    assert unknown.value.send_again().repeated
    assert client.verdict(unknown.value.id).seq == 1
    assert client.get("a") == 1


def test_an_unknown_outcome_may_be_an_abort(connect: Connect, host: MemoryHost) -> None:
    client = connect(options=NOW)
    host.database.executing = False
    with pytest.raises(OutcomeUnknownError) as unknown:
        client.atomic().check("a", exists=True).put("b", 1).commit()
    host.resume()
    with pytest.raises(CheckFailedError) as aborted:
        unknown.value.ask()
    assert aborted.value.id == unknown.value.id


def test_a_verdict_that_comes_within_the_time_is_waited_for(
    connect: Connect, host: MemoryHost
) -> None:
    host.database.executing = False

    def execute_later() -> None:
        host.portal.loop.call_later(0.1, execute)

    def execute() -> None:
        if host.database.log.records:
            host.database.execute()
        else:
            execute_later()

    host.do(execute_later)
    client = connect(options=Options(timeout_s=15))
    assert client.put("a", 1).seq == 1
    assert len(host.database.log.records) == 1


def test_nothing_is_said_to_have_failed_once_it_may_be_in_the_log(
    connect: Connect, host: MemoryHost
) -> None:
    def refuse_from_now_on() -> float:
        host.database.log.refusing = True
        return 0.5

    def for_seconds(timeout_s: int) -> Any:
        options = Options(timeout_s=timeout_s)
        return connect(session=Session(options, host.faults.clock, refuse_from_now_on))

    host.database.executing = False
    host.faults.lost = 1
    with pytest.raises(OutcomeUnknownError) as unknown:
        for_seconds(1).put("a", 1)
    host.resume()
    assert unknown.value.ask().seq == 1
    host.database.log.refusing = False
    host.faults.lost = 1
    assert for_seconds(20).put("a", 2).seq == 2  # nothing can be sent, and the verdict is found
    assert len(host.database.log.records) == 2
    with pytest.raises(LogUnavailableError):
        connect(options=NOW).put("b", 1)
    host.database.log.refusing = False
    assert connect().read(["a", "b"])["b"] is None


def test_an_append_nobody_knows_of_is_sent_again(connect: Connect, host: MemoryHost) -> None:
    def know_from_now_on() -> float:
        host.database.log.unknowing = False
        return 0.0

    host.database.log.unknowing = True
    made = connect(session=Session(random=know_from_now_on)).put("a", 1)
    assert (made.seq, made.repeated) == (1, True)
    host.database.log.unknowing = True
    with pytest.raises(OutcomeUnknownError) as unknown:
        connect(options=NOW).put("a", 2)
    assert unknown.value.ask().seq == 3


def test_what_was_never_sent_has_no_verdict(connect: Connect, host: MemoryHost) -> None:
    with pytest.raises(TransactionUnknownError) as unknown:
        connect(options=NOW).verdict(new_id())
    assert isinstance(unknown.value, RequestError)
    assert host.database.log.searches == 1


@pytest.mark.parametrize("txn_id", ["..", ".", "a/b", "é ?#%", "x" * 128])
def test_strange_ids(client: Any, txn_id: str) -> None:
    client.transaction(updates=[{"op": "put", "key": "k", "value": 1}], txn_id=txn_id)
    assert client.verdict(txn_id).id == txn_id


def test_ids_hold_the_time() -> None:
    first, second = new_id(), new_id()
    assert uuid.UUID(first).version == 7
    assert first != second
    assert (time_of_id(first) or 0) <= (time_of_id(second) or 0)
    assert abs((time_of_id(first) or 0) - 1000 * time.time()) < 60_000


def test_a_session_sees_its_own_writes_and_never_goes_back(
    connect: Connect, host: MemoryHost
) -> None:
    client = connect(options=Options(consistency="session", timeout_s=0))
    assert client.get("a") is None
    client.put("a", 1)
    assert client.session.seq == 1
    host.database.resolving = False
    client.put("a", 2)
    with pytest.raises(ReadModelBehindError):
        client.get("a")
    assert client.get("a", consistency="snapshot") == 1
    other = connect(options=Options(consistency="session", timeout_s=0))
    assert other.get("a") == 1
    assert other.session.seq == 1
    other.session.saw(2)
    with pytest.raises(ReadModelBehindError):
        other.get("a")
    host.resume()
    assert client.get("a") == 2
    assert other.get("a") == 2


def test_a_strong_read_waits_for_what_others_wrote(connect: Connect, host: MemoryHost) -> None:
    host.database.resolving = False
    connect().put("a", 1)
    other = connect(options=NOW)
    with pytest.raises(ReadModelBehindError):
        other.get("a")
    host.do(lambda: host.portal.loop.call_later(0.01, host.database.resolve))
    assert connect().get("a") == 1


def test_old_snapshots_and_their_end(client: Any, host: MemoryHost) -> None:
    client.put("a", 1)
    client.put("a", 2)
    assert client.get("a", at=1) == 1
    host.database.model.gone = 2
    with pytest.raises(SnapshotGoneError) as gone:
        client.get("a", at=1)
    assert gone.value.members["oldest"] == 2


def test_parameters_that_make_no_sense(client: Any) -> None:
    with pytest.raises(InvalidParameterError):
        client.get("a", consistency="eventual")
    with pytest.raises(InvalidParameterError):
        client.get("a", at=1, consistency="strong")
    for seq in (-1, True, 1.5, "1", 2**63):
        with pytest.raises(InvalidParameterError):
            client.get("a", at=seq)
        with pytest.raises(InvalidParameterError):
            client.watch(since=seq)
        with pytest.raises(InvalidParameterError):
            client.stream("a.b", after=seq)
    for text in ("\ud800", 5):
        with pytest.raises(InvalidParameterError):
            client.verdict(text)
        with pytest.raises(InvalidParameterError):
            client.stream(text)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda txn: txn.put("a", 1).put("b", 1, ttl_ms=0), r"updates\[1\] .*'b'.*'ttl_ms': 0"),
        (lambda txn: txn.put("a", 1).check("b"), r"checks\[0\] .*'b'"),
        (lambda txn: txn.put("a", 1).check(Range(prefix="c"), eq=1), r"checks\[0\] .*'eq': 1"),
        (lambda txn: txn.read("a", Range()), r"reads\[1\] .*range"),
    ],
)
def test_what_does_not_fit_in_a_transaction_is_named(client: Any, build: Any, told: str) -> None:
    with pytest.raises(InvalidTransactionError, match=told):
        build(client.atomic()).commit()


def test_a_closed_client_says_so(client: Any) -> None:
    with client:
        client.put("a", 1)
    with pytest.raises(ClosedError):
        client.get("a")


def test_prepared_bytes_can_be_sent_by_another_client(connect: Connect) -> None:
    txn = Prepared("t", b'{"id":"t","updates":[{"by":1,"key":"n","op":"add"}]}')
    assert not connect().send(txn).repeated
    assert connect().send(txn).repeated
    assert connect().get("n") == 1
