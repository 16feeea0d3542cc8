"""The facade's transactions: verdicts, ids, timeouts, asking later."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from streamydb.client.session import new_id
from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.payloads import time_of_id
from streamydb.facade.ports import NoResult
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase

TRANSFER = (
    b'{"id": "t1", "reads": ["a", "b"], "updates": ['
    b'{"op": "add", "key": "a", "by": -1, "min": 0}, {"op": "add", "key": "b", "by": 1}]}'
)
ASYNC = {"Prefer": "respond-async"}


def connect(database: MemoryDatabase, **limits: Any) -> InProcess:
    settings = FacadeSettings(**limits)
    return InProcess(create_app(database.model, database.log, database.changes, settings))


@scenario
async def test_a_verdict_has_its_reads_as_a_map() -> None:
    async with connect(MemoryDatabase()) as client:
        await client.request("PUT", "/v1/kv/a", b"5")
        answer = await client.request("POST", "/v1/transactions", TRANSFER)
        assert answer.status == 200
        verdict = answer.json()
        assert (verdict["id"], verdict["status"], verdict["seq"]) == ("t1", "committed", 2)
        assert verdict["reads"] == {"a": 4, "b": 1}
        asked = await client.request("GET", "/v1/transactions/t1")
        assert asked.json() == verdict
        assert answer.headers["content-location"] == "/v1/transactions/t1"


@scenario
async def test_an_aborted_transaction_is_a_verdict_too() -> None:
    async with connect(MemoryDatabase()) as client:
        answer = await client.request("POST", "/v1/transactions", TRANSFER)
        assert answer.status == 200
        assert (answer.json()["status"], answer.json()["code"]) == ("aborted", "bound-violated")
        assert answer.json()["failed"][0]["key"] == "a"
        assert (await client.request("GET", "/v1/kv/b")).status == 404


@scenario
async def test_an_id_is_made_if_none_is_given() -> None:
    async with connect(MemoryDatabase()) as client:
        ids = set()
        for body in (b"{}", b" { } ", b'{"reads": []}'):
            answer = await client.request("POST", "/v1/transactions", body)
            assert answer.json()["status"] == "committed"
            ids.add(answer.json()["id"])
        assert len(ids) == 3
        assert all(time_of_id(txn_id) for txn_id in ids)


def test_ids_hold_their_time() -> None:
    first, second = new_id(), new_id()
    assert first != second
    assert 0 <= (time_of_id(second) or 0) - (time_of_id(first) or 0) < 60_000
    assert time_of_id("t1") is None
    assert time_of_id("3f0c8a52-7c1e-4b7e-9d5a-0a4c5e6f7a8b") is None


@pytest.mark.fault(9, "the same request twice through REST", "applied once, same result and seq")
@pytest.mark.fault(10, "an id again with another payload through REST", "422 id-reused")
@scenario
async def test_a_repeated_request_is_applied_once() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        key = {"Idempotency-Key": '"pay-1"'}
        body = b'{"updates": [{"op": "add", "key": "a", "by": 1}], "reads": ["a"]}'
        spaced = body.replace(b":", b" :  ")
        first = await client.request("POST", "/v1/transactions", body, key)
        second = await client.request("POST", "/v1/transactions", spaced, key)
        assert (first.status, second.status) == (200, 200)
        assert first.json()["seq"] == second.json()["seq"] == 1
        assert second.json()["reads"] == {"a": 1}
        assert (await client.request("GET", "/v1/kv/a")).body == b"1"
        other = await client.request("POST", "/v1/transactions", b'{"reads": ["a"]}', key)
        assert (other.status, other.problem, other.json()["id"]) == (422, "id-reused", "pay-1")
        asked = await client.request("GET", "/v1/transactions/pay-1")
        assert asked.json()["status"] == "committed"


@scenario
async def test_a_repeated_write_gives_the_first_version() -> None:
    async with connect(MemoryDatabase()) as client:
        key = {"Idempotency-Key": "w1", "If-None-Match": "*"}
        first = await client.request("PUT", "/v1/kv/a", b'{"x": 1, "y": 2}', key)
        second = await client.request("PUT", "/v1/kv/a", b'{"y":2.0,"x":1}', key)
        assert (first.status, second.status) == (201, 201)
        assert first.headers["etag"] == second.headers["etag"] == '"1"'
        other = await client.request("PUT", "/v1/kv/a", b"3", key)
        assert (other.status, other.problem) == (422, "id-reused")
        assert (await client.request("DELETE", "/v1/kv/a", headers=key)).status == 422
        assert (await client.request("GET", "/v1/kv/a")).headers["etag"] == '"1"'


@pytest.mark.parametrize("key", ["", "a" * 129, "\x01", "é", '"a\x7f"'])
@scenario
async def test_idempotency_keys_that_cannot_be_ids(key: str) -> None:
    async with connect(MemoryDatabase()) as client:
        for method, target in (("POST", "/v1/transactions"), ("PUT", "/v1/kv/a")):
            answer = await client.request(method, target, b"{}", {"Idempotency-Key": key})
            assert (answer.status, answer.problem) == (400, "invalid-parameter")


@scenario
async def test_an_id_in_the_body_and_another_in_the_header() -> None:
    async with connect(MemoryDatabase()) as client:
        answer = await client.request(
            "POST", "/v1/transactions", TRANSFER, {"Idempotency-Key": "t2"}
        )
        assert (answer.status, answer.problem) == (400, "invalid-parameter")
        same = await client.request("POST", "/v1/transactions", TRANSFER, {"Idempotency-Key": "t1"})
        assert same.status == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [(b"", 400, "invalid-json"), (b"[1", 400, "invalid-json"), (b"[]", 422, "invalid-transaction"),
     (b'{"id": 1}', 422, "invalid-id"), (b'{"id": ""}', 422, "invalid-id"),
     (b'{"x": 1}', 422, "invalid-transaction"), (b'{"reads": [""]}', 400, "invalid-key"),
     (b'{"marker": 1, "partitions": 1, "sequencer": "s"}', 422, "invalid-transaction"),
     (b'{"updates": [{"op": "put", "key": "a", "value": null}]}', 422, "null-value"),
     (b'{"updates": [{"op": "put", "key": "a", "value": 1e400}]}', 400, "number-range"),
     (b'{"updates": [{"op": "put", "key": "a", "value": NaN}]}', 400, "invalid-json"),
     (b'{"reads": ["\\ud800"]}', 400, "invalid-json"),
     (b'{"call": {"procedure": "p", "args": {}, "keys": []}}', 422, "invalid-transaction"),
     (b'{"updates": [{"op": "delete", "key": "a"}, {"op": "delete", "key": "a"}]}', 422,
      "duplicate-update"),
     (json.dumps({"reads": [f"k{n}" for n in range(10_001)]}).encode(), 413, "too-many-keys")],
)  # fmt: skip
@scenario
async def test_what_is_no_transaction_is_not_appended(body: bytes, status: int, code: str) -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        answer = await client.request("POST", "/v1/transactions", body)
        assert answer.status == status
        assert answer.json()["code"] == code
        problems = {"invalid-json", "invalid-key", "invalid-transaction", "too-large"}
        assert answer.problem in problems
    assert database.log.records == []


def put_of(value: str) -> bytes:
    """A transaction that stores a value given as JSON."""
    return b'{"updates": [{"op": "put", "key": "a", "value": %b}]}' % value.encode()


@pytest.mark.parametrize(
    ("body", "field", "given"),
    [
        (b'{"updates": [{"op": "add", "key": "a", "by": "x"}]}', "updates[0].by", '"x"'),
        (b'{"updates": [{"op": "nope", "key": "a"}]}', "updates[0].op", '"nope"'),
        (b'{"reads": ["a"], "checks": [{"key": "b"}]}', "checks[0]", '{"key": "b"}'),
        (b'{"checks": [{"key": "a", "gee": 3}]}', "checks[0]", '{"key": "a", "gee": 3}'),
        (b'{"id": 5}', "id", "5"),
        (b'{"asserts": {"": 1}}', "asserts.", "1"),
        (b'{"reads": ["a", ""]}', "reads[1]", '""'),
        (b'{"call": {"procedure": "m.p", "args": {"key": ""}, "keys": [""]}}', "call.keys[0]",
         '""'),
        (b'{"updates": [{"op": "put", "key": "$a", "value": 1}]}', "updates[0].key", '"$a"'),
        (b'{"updates": [{"op": "delete", "key": "a"}, {"op": "delete", "key": "a"}]}',
         "updates[1].key", '"a"'),
        (put_of("null"), "updates[0].value", "null"),
        (put_of("[1, 99999999999999999999]"), "updates[0].value[1]", "99999999999999999999"),
        (put_of('"' + "x" * 300_000 + '"'), "updates[0].value", '"' + "x" * 99 + "…"),
        (b'{"hush": 1}', None, None),
        (b"[]", None, None),
    ],
)  # fmt: skip
@scenario
async def test_a_refusal_names_the_field_and_what_it_held(
    body: bytes, field: str | None, given: str | None
) -> None:
    async with connect(MemoryDatabase()) as client:
        shown = (await client.request("POST", "/v1/transactions", body)).json()
    assert (shown.get("field"), shown.get("given")) == (field, given), shown
    assert field is None or shown["detail"].startswith(f"{field}: ")


@pytest.mark.parametrize(
    "value",
    ["null", "1e999", "99999999999999999999", "{", "", '"\\ud800"', "[" * 99 + "]" * 99,
     '"' + "x" * 300_000 + '"', "NaN"],
)  # fmt: skip
@scenario
async def test_the_same_fault_has_the_same_code_by_put_and_by_post(value: str) -> None:
    async with connect(MemoryDatabase()) as client:
        put = await client.request("PUT", "/v1/kv/a", value.encode())
        post = await client.request("POST", "/v1/transactions", put_of(value))
        assert (put.status, put.problem, put.json()["code"]) == (
            post.status, post.problem, post.json()["code"],
        )  # fmt: skip


@pytest.mark.parametrize("key", ["", "k" * 500, "$procedures/a"])
@scenario
async def test_a_key_that_cannot_be_has_the_same_code_by_put_and_by_post(key: str) -> None:
    body = json.dumps({"updates": [{"op": "put", "key": key, "value": 1}]}).encode()
    async with connect(MemoryDatabase()) as client:
        put = await client.request("PUT", f"/v1/kv/{key}", b"1")
        post = await client.request("POST", "/v1/transactions", body)
        assert (put.problem, put.json()["code"]) == (post.problem, post.json()["code"])


@pytest.mark.parametrize("name", ["Idempotency-Key", "Deadline-Ms"])
@scenario
async def test_a_repeated_header_is_refused(name: str) -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        for method, target in (("PUT", "/v1/kv/a"), ("POST", "/v1/transactions")):
            answer = await client.request(method, target, b"1", repeated=[(name, "1"), (name, "1")])
            assert (answer.status, answer.problem) == (400, "invalid-parameter")
            assert answer.json()["parameters"] == [name]
    assert database.log.records == []


@scenario
async def test_an_unknown_verdict_is_asked_for_later() -> None:
    database = MemoryDatabase()
    database.executing = False
    async with connect(database, verdict_timeout_s=0.05) as client:
        answer = await client.request("POST", "/v1/transactions", TRANSFER)
        assert (answer.status, answer.problem) == (504, "verdict-unknown")
        assert answer.json()["id"] == "t1"
        assert answer.headers["retry-after"] == "1"
        place = answer.headers["location"]
        assert place == "/v1/transactions/t1?record=0:0"
        for target in (place, "/v1/transactions/t1"):
            asked = await client.request("GET", target)
            assert (asked.status, asked.json()) == (202, {"id": "t1", "status": "unknown"})
        database.log.refusing = True
        asked = await client.request("GET", "/v1/transactions/t1?record=0:5")
        assert asked.status == 202
        database.log.refusing = False
        database.execute()
        for target in (place, "/v1/transactions/t1"):
            asked = await client.request("GET", target)
            assert (asked.status, asked.json()["status"]) == (200, "aborted")


@scenario
async def test_a_client_that_waits_for_some_seconds_is_told_to_ask_later() -> None:
    database = MemoryDatabase()
    database.executing = False
    async with connect(database) as client:
        answer = await client.request("PUT", "/v1/kv/a", b"1", {"Prefer": "wait=0"})
        assert (answer.status, answer.json()["status"]) == (202, "unknown")
        assert answer.headers["preference-applied"] == "wait=0"
        asking = asyncio.create_task(
            client.request("GET", answer.headers["location"], headers={"Prefer": "wait=20"})
        )
        await until(lambda: bool(database.log.index._waiting))
        database.execute()
        assert (await asking).json()["status"] == "committed"


@scenario
async def test_respond_async_answers_once_appended() -> None:
    database = MemoryDatabase()
    database.executing = False
    async with connect(database) as client:
        answer = await client.request("POST", "/v1/transactions", TRANSFER, ASYNC)
        assert answer.status == 202
        assert answer.headers["preference-applied"] == "respond-async"
        assert len(database.log.records) == 1
        database.execute()
        asked = await client.request("GET", answer.headers["location"])
        assert asked.json()["status"] == "aborted"


@scenario
async def test_the_location_names_the_record_and_not_only_the_id() -> None:
    async with connect(MemoryDatabase()) as client:
        first = await client.request("POST", "/v1/transactions", b'{"id":"t"}', ASYNC)
        other = await client.request("POST", "/v1/transactions", b'{"id":"t","reads":[]}', ASYNC)
        asked = [await client.request("GET", a.headers["location"]) for a in (first, other)]
        assert [answer.json()["status"] for answer in asked] == ["committed", "rejected"]
        plain = await client.request("GET", "/v1/transactions/t")
        assert plain.json()["status"] == "committed"


@scenario
async def test_an_append_without_an_answer_is_not_called_a_failure() -> None:
    database = MemoryDatabase()
    database.log.unknowing = True
    async with connect(database) as client:
        answer = await client.request("PUT", "/v1/kv/a", b"1", {"Idempotency-Key": "p"})
        assert (answer.status, answer.problem) == (504, "verdict-unknown")
        assert answer.headers["location"] == "/v1/transactions/p"
        asked = await client.request("GET", answer.headers["location"])
        assert (asked.status, asked.json()["status"]) == (200, "committed")


@scenario
async def test_an_append_that_takes_too_long_is_unknown() -> None:
    database = MemoryDatabase()
    database.log.stalled = asyncio.Event()
    async with connect(database, append_timeout_s=0.05) as client:
        answer = await client.request("PUT", "/v1/kv/a", b"1")
        assert (answer.status, answer.problem) == (504, "verdict-unknown")
        assert answer.json()["id"]


@scenario
async def test_nothing_is_appended_while_the_log_is_down() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        database.log.refusing = True
        answer = await client.request("PUT", "/v1/kv/a", b"1")
        assert (answer.status, answer.problem) == (503, "log-unavailable")
        assert answer.headers["retry-after"] == "1"
        assert database.log.records == []
        strong = await client.request("GET", "/v1/kv/a?consistency=strong")
        assert (strong.status, strong.problem) == (503, "log-unavailable")
        assert (await client.request("GET", "/v1/kv/a?consistency=snapshot")).status == 404


@scenario
async def test_old_verdicts_are_searched_for() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        await client.request("POST", "/v1/transactions", TRANSFER)
        database.log.forgetful = True
        answer = await client.request("GET", "/v1/transactions/t1")
        assert (answer.status, answer.json()["id"], database.log.searches) == (200, "t1", 1)


@scenario
async def test_a_search_that_was_not_complete_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = MemoryDatabase()
    found = [NoResult(complete=False, since_ms=None), NoResult(complete=False, since_ms=7_000)]

    async def search(*_: object) -> NoResult:
        return found.pop()

    monkeypatch.setattr(database.log, "search", search)
    async with connect(database) as client:
        answer = await client.request("GET", "/v1/transactions/t1")
        assert (answer.status, answer.problem) == (404, "transaction-unknown")
        assert answer.json()["searched_since_ms"] == 7_000
        assert "?record=partition:offset" in answer.json()["detail"]
        answer = await client.request("GET", "/v1/transactions/t1")
        assert (answer.status, answer.problem) == (404, "transaction-unknown")
        assert "searched_since_ms" not in answer.json()
        assert "may have been executed" in answer.json()["detail"]


@pytest.mark.parametrize(
    "target", ["t9", "t1?record=0:7", "t1?record=0:9", "t1?record=1:0", "t2?record=0:0", "%ff", ""]
)
@scenario
async def test_what_is_not_known_is_called_unknown(target: str) -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        await client.request("POST", "/v1/transactions", TRANSFER)
        for _ in range(8):
            await client.request("POST", "/v1/transactions", b"{}")
        answer = await client.request("GET", f"/v1/transactions/{target}")
        assert (answer.status, answer.problem) == (404, "transaction-unknown")


@pytest.mark.parametrize("record", ["x", "0", "0:", "0:-1", "0:99999999999999999999", "1:1:1"])
@scenario
async def test_places_that_are_none(record: str) -> None:
    async with connect(MemoryDatabase()) as client:
        answer = await client.request("GET", f"/v1/transactions/t1?record={record}")
        assert (answer.status, answer.problem) == (400, "invalid-parameter")


@pytest.mark.parametrize("txn_id", ["a/b", "a b", "é", "%2F", '"', "?x=1", "..", "\U0001f600"])
@scenario
async def test_strange_ids_are_found_and_never_break_a_header(txn_id: str) -> None:
    async with connect(MemoryDatabase()) as client:
        body = json.dumps({"id": txn_id}).encode()
        answer = await client.request("POST", "/v1/transactions", body, ASYNC)
        assert answer.status == 202
        assert answer.headers["location"].isascii()
        assert set(answer.headers["location"]).isdisjoint('\r\n "<>')
        asked = await client.request("GET", answer.headers["location"])
        assert (asked.status, asked.json()["id"]) == (200, txn_id)


@scenario
async def test_two_facades_serve_one_database() -> None:
    database = MemoryDatabase()
    async with connect(database) as one, connect(database) as other:
        answer = await one.request("PUT", "/v1/kv/a", b"1", {"Idempotency-Key": "x"})
        assert (await other.request("GET", "/v1/kv/a")).body == b"1"
        assert (await other.request("GET", "/v1/transactions/x")).json() == answer.json()
        again = await other.request("PUT", "/v1/kv/a", b"1", {"Idempotency-Key": "x"})
        assert again.json()["seq"] == 1


@scenario
async def test_writers_race_and_one_creates() -> None:
    async with connect(MemoryDatabase()) as client:

        async def create(number: int) -> HttpAnswer:
            condition = {"If-None-Match": "*"}
            return await client.request("PUT", "/v1/kv/a", b"%d" % number, condition)

        answers = await asyncio.gather(*map(create, range(10)))
        assert sorted(answer.status for answer in answers) == [201] + [412] * 9
