"""Scopes: which keys a token may name, in each field, and which verdicts it is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamydb.procedures.modules import compile_module
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from tests.support.tokens import ADMIN, NARROW, NOBODY, READER, WRITER, bearer, connect

TELLER = b"""
from streamydb.procedures import Abort, procedure


def told(db, said):
    return _values(db, said)


def refused(db, said):
    raise Abort(str(_values(db, said)))


def _values(db, said):
    keys = [*said.get("keys", []), *said.get("reads", [])]
    pairs = [list(db.scan(each["prefix"])) for each in said.get("ranges", [])]
    return [db.get(key) for key in keys] + pairs
"""
ACCOUNTS = {"range": {"prefix": "acct/"}}
SOME = {"range": {"start": "acct/1", "end": "acct/3"}}
BEYOND = {"range": {"start": "acct/1", "end": "b"}}
RANGED: list[tuple[str, Any, int]] = [
    (READER, {"reads": [ACCOUNTS, SOME]}, 200),
    (READER, {"reads": [{"range": {"prefix": "acct"}}]}, 403),
    (READER, {"reads": [BEYOND]}, 403),
    (READER, {"checks": [{**SOME, "count_ge": 0}]}, 200),
    (READER, {"checks": [{**BEYOND, "count_ge": 0}]}, 403),
    (WRITER, {"reads": [ACCOUNTS]}, 403),
    (WRITER, {"checks": [{**ACCOUNTS, "version_le": 0}]}, 200),
    (WRITER, {"checks": [{**BEYOND, "version_le": 0}]}, 403),
]


@scenario
async def test_scopes_are_prefixes_of_keys() -> None:
    async with connect(MemoryDatabase()) as client:
        await client.request("PUT", "/v1/kv/acct/1", b"7", bearer(ADMIN))
        await client.request("PUT", "/v1/kv/other", b"8", bearer(ADMIN))
        cases = [
            (READER, "GET", "/v1/kv/acct/1", b"", 200),
            (READER, "GET", "/v1/kv/other", b"", 403),
            (READER, "GET", "/v1/kv/acct", b"", 403),
            (READER, "PUT", "/v1/kv/acct/1", b"1", 403),
            (READER, "DELETE", "/v1/kv/acct/1", b"", 403),
            (READER, "GET", "/v1/kv?prefix=acct/", b"", 200),
            (READER, "GET", "/v1/kv?prefix=acct", b"", 403),
            (READER, "GET", "/v1/kv", b"", 403),
            (READER, "GET", "/v1/kv?start=acct/", b"", 403),
            (READER, "POST", "/v1/read", b'{"keys": ["acct/1"]}', 200),
            (READER, "POST", "/v1/read", b'{"keys": ["acct/1", "other"]}', 403),
            (READER, "GET", "/v1/changes?prefix=b", b"", 403),
            (READER, "GET", "/v1/changes", b"", 403),
            (WRITER, "GET", "/v1/kv/acct/1", b"", 403),
            (WRITER, "PUT", "/v1/kv/acct/2", b"1", 200),
            (WRITER, "PUT", "/v1/kv/other", b"1", 403),
            (WRITER, "POST", "/v1/transactions", b'{"reads": ["acct/1"]}', 403),
            (WRITER, "POST", "/v1/transactions", b'{"asserts": {"acct/1": 7}}', 403),
            (WRITER, "POST", "/v1/transactions",
             b'{"checks": [{"key": "acct/1", "exists": true}]}', 200),
            (WRITER, "POST", "/v1/transactions", b'{"checks": [{"key": "acct/1", "gt": 1}]}', 403),
            (WRITER, "POST", "/v1/transactions",
             b'{"updates": [{"op": "next_id", "key": "acct/n"}]}', 403),
            (READER, "POST", "/v1/transactions", b'{"reads": ["acct/1"]}', 200),
            (READER, "POST", "/v1/transactions",
             b'{"updates": [{"op": "delete", "key": "acct/1"}]}', 403),
            *(
                (token, "POST", "/v1/transactions", json.dumps(body).encode(), status)
                for token, body, status in RANGED
            ),
        ]  # fmt: skip
        for token, method, target, body, status in cases:
            answer = await client.request(method, target, body, bearer(token))
            assert answer.status == status, (method, target, body)
            if status == 403:
                assert answer.problem == "forbidden"
        unchanged = await client.request("GET", "/v1/kv/acct/1", headers=bearer(ADMIN))
        assert unchanged.body == b"7"


@scenario
async def test_a_forged_cursor_grants_nothing() -> None:
    async with connect(MemoryDatabase()) as client:
        for key in "ab":
            await client.request("PUT", f"/v1/kv/{key}", b"1", bearer(ADMIN))
        page = await client.request("GET", "/v1/kv?limit=1", headers=bearer(ADMIN))
        target = f"/v1/kv?cursor={page.json()['cursor']}"
        assert (await client.request("GET", target, headers=bearer(ADMIN))).status == 200
        assert (await client.request("GET", target, headers=bearer(READER))).status == 403


@scenario
async def test_verdicts_show_only_what_may_be_read() -> None:
    async with connect(MemoryDatabase()) as client:
        body = b'{"id": "r", "updates": [{"op": "put", "key": "x", "value": 5}], "reads": ["x"]}'
        await client.request("POST", "/v1/transactions", body, bearer(ADMIN))
        answer = await client.request("GET", "/v1/transactions/r", headers=bearer(READER))
        assert (answer.status, answer.problem) == (403, "forbidden")
        await client.request("PUT", "/v1/kv/acct/s", b'"secret"', bearer(ADMIN))
        failing = b'{"id": "f", "updates": [{"op": "add", "key": "acct/s", "by": 1}]}'
        answer = await client.request("POST", "/v1/transactions", failing, bearer(WRITER))
        assert answer.json()["failed"][0]["value"] is None
        assert answer.json()["failed"][0]["truncated"] is True
        shown = await client.request("GET", "/v1/transactions/f", headers=bearer(READER))
        assert shown.json()["failed"][0]["value"] == "secret"
        for name, part in (
            ("rr", {"reads": [{"range": {"prefix": "acct"}}]}),
            ("fr", {"checks": [{"range": {"prefix": "x"}, "count": 9}, {**ACCOUNTS, "count": 9}]}),
            ("fa", {"checks": [{**ACCOUNTS, "count": 9}]}),
        ):
            body = json.dumps({"id": name, **part}).encode()
            await client.request("POST", "/v1/transactions", body, bearer(ADMIN))
        for name in ("rr", "fr"):
            answer = await client.request("GET", f"/v1/transactions/{name}", headers=bearer(READER))
            assert (answer.status, answer.problem) == (403, "forbidden")
        answer = await client.request("GET", "/v1/transactions/fa", headers=bearer(READER))
        assert [entry.get("count") for entry in answer.json()["failed"]] == [1]


@scenario
async def test_a_verdict_is_told_only_to_who_may_know_all_that_the_transaction_names() -> None:
    database = MemoryDatabase()
    database.modules.put(TELLER)
    hidden: list[dict[str, Any]] = [
        {"reads": ["x"]}, {"keys": ["x"]}, {"ranges": [{"prefix": "acct"}]},
    ]  # fmt: skip
    shown: list[dict[str, Any]] = [
        {"reads": ["acct/1"]}, {"keys": ["acct/1"]}, {"ranges": [{"prefix": "acct/"}]},
    ]  # fmt: skip
    body: dict[str, Any]
    async with connect(database) as client:
        for body in (
            {"deploy": compile_module("teller", TELLER).record},
            {"updates": [{"op": "put", "key": key, "value": "seen"} for key in ("x", "acct/1")]},
        ):
            await client.request(
                "POST", "/v1/transactions", json.dumps(body).encode(), bearer(ADMIN)
            )
        for number, (named, name) in enumerate(
            (named, name) for named in [*hidden, *shown] for name in ("told", "refused")
        ):
            call = {"procedure": f"teller.{name}", "args": {"said": named}, **named}
            body = {"id": f"c{number}", "call": call}
            sent = await client.request(
                "POST", "/v1/transactions", json.dumps(body).encode(), bearer(ADMIN)
            )
            assert {"returned", "reason"} & sent.json().keys()
            for target in (f"/v1/transactions/c{number}", f"/v1/explanations/c{number}"):
                whole = await client.request("GET", target, headers=bearer(ADMIN))
                assert (whole.json().get("verdict") or whole.json()) == sent.json()
                seen = await client.request("GET", target, headers=bearer(READER))
                if named in hidden:
                    assert (seen.status, seen.problem) == (403, "forbidden"), (target, call)
                else:
                    assert (seen.json().get("verdict") or seen.json()) == sent.json()
        await is_told_by_the_log(database, client)


async def is_told_by_the_log(database: MemoryDatabase, client: InProcess) -> None:
    """What was sent here needs no look at the log; of others' transactions only it has the keys."""
    own = b'{"id": "own", "checks": [{"key": "acct/1", "exists": true}]}'
    await client.request("POST", "/v1/transactions", own, bearer(WRITER))
    database.log.controls |= {2 + 6, len(database.log.records) - 1}  # as if not kept any more
    gone = await client.request("GET", "/v1/transactions/c6", headers=bearer(READER))
    assert (gone.status, gone.problem) == (403, "forbidden")
    database.log.refusing = True
    answer = await client.request("GET", "/v1/transactions/c7", headers=bearer(READER))
    assert answer.problem == "log-unavailable"
    answer = await client.request("GET", "/v1/transactions/c7", headers=bearer(ADMIN))
    assert "reason" in answer.json()
    answer = await client.request("GET", "/v1/transactions/own", headers=bearer(WRITER))
    assert answer.json()["status"] == "committed"


@pytest.mark.parametrize(
    ("token", "lock", "status"),
    [
        (READER, {"range": {"prefix": "acct/"}}, 200),
        (WRITER, {"range": {"start": "acct/1", "end": "acct/2"}}, 200),
        (READER, {"range": {"prefix": "acct"}}, 403),
        (WRITER, {"range": {"start": "acct/1", "end": "b"}}, 403),
        (WRITER, "$unique/email/3/00", 403),
        (NOBODY, {"range": {"prefix": "acct/"}}, 403),
        (ADMIN, {"range": {"start": "a", "end": "z"}}, 200),
        (ADMIN, "$unique/email/3/00", 200),
    ],
)
@scenario
async def test_a_lock_needs_a_scope_for_every_key(token: str, lock: Any, status: int) -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        body = json.dumps({"locks": [lock]}).encode()
        answer = await client.request("POST", "/v1/transactions", body, bearer(token))
        assert answer.status == status
        assert len(database.log.records) == (status == 200)


@scenario
async def test_the_facade_adds_the_locks_of_constraints_that_a_token_may_not_name() -> None:
    async with connect(MemoryDatabase()) as client:
        rules = [{"name": "few", "prefix": "acct/", "keys": {"max": 1}},
                 {"name": "once", "prefix": "acct/", "unique": "$"}]  # fmt: skip
        for rule in rules:
            body = json.dumps({"constrain": {"declare": rule}}).encode()
            await client.request("POST", "/v1/transactions", body, bearer(ADMIN))
        for key, status in (("acct/1/a", 200), ("acct/1/b", 422)):
            headers = {**bearer(NARROW), "Idempotency-Key": key}
            answer = await client.request("PUT", f"/v1/kv/{key}", b"7", headers)
            assert answer.status == status
        target = "/v1/transactions/" + answer.json()["id"].replace("/", "%2F")
        told = await client.request("GET", target, headers=bearer(NARROW))
        assert told.json()["code"] == "constraint-violated"
        assert (await client.request("GET", target, headers=bearer(NOBODY))).problem == "forbidden"
