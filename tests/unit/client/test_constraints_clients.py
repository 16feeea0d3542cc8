"""Constraints as clients see them: locks found by themselves, violations, verify, the facade."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.client import ConstraintRefusedError, ConstraintViolatedError, Range
from streamydb.client.blocking.client import Client
from streamydb.client.verification import verify
from streamydb.facade.app import create_app
from streamydb.facade.auth import Caller as Scoped
from streamydb.facade.auth import Tokens
from streamydb.testing.clients import Kind, MemoryHost
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase

POST = "/v1/transactions"
EMAIL = {"name": "email", "prefix": "user/", "unique": "$.email"}


def declare(client: Client, **rules: Any) -> int:
    return client.transaction(constrain={"declare": rules}).seq


@pytest.mark.parametrize("kind", ["http", "direct"])
def test_locks_are_found_and_a_lost_answer_applies_nothing_twice(kind: Kind) -> None:
    with MemoryHost() as host, host.connect(kind) as client:
        declare(client, **EMAIL)
        host.faults.lost = 1
        updates: list[dict[str, Any]] = [
            {"op": "put", "key": "user/1", "value": {"email": "a"}},
            {"op": "add", "key": "count", "by": 1},
        ]
        first = client.transaction(txn_id="t", updates=updates)
        assert first.id == "t~1"
        again = client.transaction(txn_id="t", updates=updates)
        assert (again.id, again.seq, again.repeated) == ("t~1", first.seq, True)
        assert client.get("count") == 1
        with pytest.raises(ConstraintViolatedError) as raised:
            client.put("user/2", {"email": "a"})
        error = raised.value
        assert (error.constraint, error.key, error.violated) == ("email", "user/2", "unique")
        client.put("user/1", {"email": "b"})
        client.put("user/2", {"email": "a"})


@pytest.mark.parametrize("kind", ["http", "direct"])
def test_counted_ranges_are_named_by_the_client(kind: Kind) -> None:
    with MemoryHost() as host, host.connect(kind) as client:
        client.put("order/eve/1", 1)
        client.put("order/eve/2", 1)
        declare(client, name="few", prefix="order/", keys={"max": 2, "each": "/"})
        first = client.atomic("t").put("order/ann/1", 1).put("order/bob/1", 1).commit()
        assert first.id == "t~1"
        named = Range(prefix="order/ann/")
        put = {"op": "put", "key": "order/ann/2", "value": 1}
        assert client.transaction(txn_id="own", updates=[put], locks=[named]).id == "own"
        with pytest.raises(ConstraintViolatedError) as raised:
            client.put("order/ann/3", 1)
        assert (raised.value.key, raised.value.violated) == ("order/ann/3", "keys at most 2")
        assert verify(client).valid == ["few"]
        client.transaction(constrain={"drop": "few"})
        client.put("order/eve/3", 1)
        declare(client, name="few", prefix="order/", keys={"max": 2, "each": "/"})
        (found,) = verify(client).violations
        assert (found.key, found.violated) == ("order/eve/", "keys at most 2")
        assert found.version == client.entry("order/eve/3").version
        client.delete("order/eve/1")
        with pytest.raises(ConstraintViolatedError):
            client.put("order/eve/1", 1)


def test_refusals_say_why() -> None:
    refused = pytest.raises(ConstraintRefusedError, match="there is no constraint 'x'")
    with MemoryHost() as host, host.connect() as client, refused:
        client.transaction(constrain={"drop": "x"})


def test_verify_leaves_ends_about_where_they_were() -> None:
    with MemoryHost() as host, host.connect() as client:
        client.put("user/1", {"email": "a"}, ttl_ms=3_600_000)
        client.put("user/2", {"email": "b"})
        before = client.entry("user/1")
        declare(client, **EMAIL)
        assert verify(client).indexed == 2
        after = client.entry("user/1")
        assert after.version > before.version
        assert before.expires_ms is not None
        assert after.expires_ms is not None
        assert before.expires_ms <= after.expires_ms <= after.ts_ms + 3_600_000
        assert client.entry("user/2").expires_ms is None


def test_verify_finds_fills_the_index_and_notes_what_is_valid() -> None:
    with MemoryHost() as host, host.connect() as client:
        for number, email in enumerate(["a", "b", "b", None]):
            client.put(f"user/{number}", {"email": email})
        since = declare(client, **EMAIL)
        report = verify(client)
        assert (report.valid, report.indexed) == ([], 2)
        assert [found[:2] for found in report.violations] == [("email", "user/2")]
        declare(client, name="low", prefix="user/", schema={"properties": {"email": {"const": 1}}})
        report = verify(client)
        hidden = [found for found in report.violations if found.constraint == "email"]
        assert [found.violated for found in hidden] == [
            "unique cannot be told: it also violates low"
        ]
        broken = [found for found in report.violations if found.constraint == "low"]
        assert [found.key for found in broken] == ["user/0", "user/1", "user/2", "user/3"]
        assert {found.violated for found in broken} == {"schema const at /email"}
        client.transaction(constrain={"drop": "low"})
        client.put("user/2", {"email": "c"})
        assert verify(client, "email").valid == ["email"]
        kept = client.get("$constraints")["email"]
        assert (kept["since"], kept["valid"] > since) == (since, True)
        with pytest.raises(KeyError):
            verify(client, "low")


def test_verify_makes_many_index_keys_in_one_transaction() -> None:
    with MemoryHost() as host, host.connect() as client:
        for number in range(200):
            client.put(f"user/{number:03}", {"email": number})
        client.put("user/070", {"email": 65})  # of one chunk
        client.put("user/150", {"email": 1})  # of different chunks
        declare(client, **EMAIL)
        before = len(host.database.log.results)
        for broken, key, indexed in ((65, "user/070", 70), (1, "user/150", 79)):
            report = verify(client)
            assert [found.key for found in report.violations] == [key]
            assert (report.indexed, report.valid) == (indexed, [])
            client.put(key, {"email": 1_000 + broken})
        assert verify(client).valid == ["email"]
        assert len(host.database.log.results) - before < 50
        owners = {entry.value: entry.version for entry in client.scan("$unique/email/")}
        assert sorted(owners) == [f"user/{number:03}" for number in range(200)]


def test_verify_makes_fewer_at_once_if_the_values_are_large() -> None:
    with MemoryHost() as host, host.connect() as client:
        for number in range(64):
            client.put(f"user/{number:02}", {"email": number, "text": "x" * 40_000})
        declare(client, **EMAIL)
        before = len(host.database.log.results)
        report = verify(client)
        assert (report.indexed, report.valid) == (64, ["email"])
        assert len(host.database.log.results) - before < 16


def test_verify_sees_who_writes_meanwhile() -> None:
    with MemoryHost() as host, host.connect() as client, host.connect() as other:
        for number in range(20):
            client.put(f"user/{number:02}", {"email": number})
        declare(client, **EMAIL)
        meddling = iter([("user/03", 30), ("user/04", 3), ("user/99", 7)])

        class Client:
            """Another client writes before each transaction of this one."""

            def __getattr__(self, name: str) -> Any:
                if name == "transaction":
                    for key, email in itertools.islice(meddling, 1):
                        other.put(key, {"email": email})
                return getattr(client, name)

        report = verify(cast("Any", Client()))
        assert [(found.key, found.violated) for found in report.violations] == [
            ("user/07", "unique")
        ]
        client.delete("user/99")
        assert verify(client).valid == ["email"]
        emails = [entry.value["email"] for entry in client.scan("user/")]
        assert len(set(emails)) == len(emails) == len(list(client.scan("$unique/email/")))


@scenario
async def test_scopes_and_the_list_over_http() -> None:
    database = MemoryDatabase()
    known = [("admin", [""], [""]), ("app", ["a"], ["a"]), ("writer", [], ["a"])]
    tokens = Tokens(
        (hashlib.sha256(name.encode()).digest(), Scoped(name, reads, writes))
        for name, reads, writes in known
    )
    admin, own, writer = ({"Authorization": f"Bearer {name}"} for name, *_ in known)
    facade = create_app(database.model, database.log, database.changes, None, tokens)
    async with InProcess(facade) as client:
        rules: dict[str, Any] = {"prefix": "a", "max": 1, "unique": "$"}
        declared = json.dumps({"constrain": {"declare": {"name": "c", **rules}}}).encode()
        assert (await client.request("POST", POST, declared, own)).problem == "forbidden"
        await client.request("POST", POST, declared, admin)
        assert (await client.request("GET", "/v1/constraints", b"", own)).problem == "forbidden"
        listed = (await client.request("GET", "/v1/constraints", b"", admin)).json()
        assert listed == {"seq": 1, "constraints": {"c": {**rules, "since": 1}}}
        refused = await client.request("PUT", "/v1/kv/a", b"2", own)
        assert (refused.problem, refused.json()["violated"]) == ("constraint-violated", "max 1")
        done = await client.request("PUT", "/v1/kv/a", b"1", {**writer, "Idempotency-Key": "w"})
        assert (done.status, done.json()["id"]) == (200, "w~1")
        first = (await client.request("GET", "/v1/transactions/w", b"", writer)).json()
        assert (first["code"], first["failed"][0]["key"]) == ("undeclared-key", "$unique/")
        assert "reason" not in first
        few = {"name": "c", "prefix": "a/", "keys": {"max": 1, "each": "/"}}
        declared = json.dumps({"constrain": {"declare": few}}).encode()
        assert (await client.request("POST", POST, declared, admin)).status == 200
        path, named = "/v1/kv/a%2Fx%2F", {**writer, "Idempotency-Key": "v"}
        assert (await client.request("PUT", f"{path}1", b"1", named)).json()["id"] == "v~1"
        first = (await client.request("GET", "/v1/transactions/v", b"", writer)).json()
        assert (first["failed"][0]["key"], first["reason"]) == ("a/x/", "a/x/")
        refused = await client.request("PUT", f"{path}2", b"1", writer)
        assert refused.json()["violated"] == "keys at most 1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["declare"], "declare what"),
        (["drop"], "drop what"),
        (["declare", "{"], "is no declaration"),
        (["declare", "@nothing.json"], "nothing.json cannot be read"),
        (["declare", "[]"], "is no declaration"),
        (["verify"], "there is no facade of bank"),
    ],
)
def test_commands_that_make_no_sense(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["constraints", *arguments, "--home", str(tmp_path)])
    assert done.exit_code in (1, 2)
    assert message in done.stderr
