"""What users of stores of keys report, tried over REST; `tests/reports.md` names the reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.facade import create_app
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario
from streamydb.testing.memory import MemoryDatabase

EDGES = (
    "\0", "a", "a\0", "a/", "a/b", "a\x7f", "a\U0010ffff", "a\U0010ffff\U0010ffff", "b", "\x7f",
    "\x80", "\u00ff", "\u00ffx", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff",
    "\U0010ffffz", "/", "//", "%", "%2F", "%252F", "a%foo", "a@b:c", "+", " ", "?", "#", "..", "A",
    "\u00e9", "e\u0301",
)  # fmt: skip
"""Keys at the edges of ranges and of addresses."""


class Store:
    """A facade whose time passes with its records."""

    def __init__(self) -> None:
        self.database = MemoryDatabase()
        self.database.tick_by_record(1_000)
        database = self.database
        self.client = InProcess(create_app(database.model, database.log, database.changes))

    async def ask(
        self, method: str, target: str, value: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        body = b"" if value is None else json.dumps(value).encode()
        return await self.client.request(method, target, body, headers)

    async def write(self, *updates: Mapping[str, Any], **more: Any) -> Any:
        answer = await self.ask("POST", "/v1/transactions", {"updates": updates, **more})
        return answer.json()

    async def keys(self, **query: str) -> list[str]:
        text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        answer = await self.ask("GET", f"/v1/kv?{text}")
        assert answer.status == 200, answer
        return [entry["key"] for entry in answer.json()["entries"]]

    async def changes(self, query: str, count: int) -> list[Any]:
        """So many changes from the beginning on, and no more."""
        answer = await self.ask("POST", "/v1/transactions", {"updates": [put("~end", 1)]})
        end = f"id: {answer.json()['seq']}\n".encode()
        stream = await self.client.stream(f"/v1/changes?since=0{query}")
        data = await stream.until(b"event: change", count) if query else await stream.until(end)
        stream.leave()
        lines = [line for line in data.decode().split("\n") if line.startswith("data: ")]
        found = [json.loads(line.removeprefix("data: ")) for line in lines]
        return [each for each in found if each.get("key", "~end") != "~end"]


def put(key: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"op": "put", "key": key, "value": value, **more}


def bytewise(key: str) -> bytes:
    return key.encode()


# Ranges and keys


@scenario
async def test_a_prefix_ends_where_no_key_has_it() -> None:
    store = Store()
    async with store.client:
        await store.write(*(put(key, 1) for key in EDGES))
        ordered = sorted(EDGES, key=bytewise)
        for prefix in ("", *EDGES):
            assert await store.keys(prefix=prefix) == [k for k in ordered if k.startswith(prefix)]
            checked = {"range": {"prefix": prefix}, "count": len(await store.keys(prefix=prefix))}
            verdict = await store.write(checks=[checked])
            if prefix:
                assert verdict["status"] == "committed", (prefix, verdict)


@scenario
async def test_an_empty_end_is_the_first_key_and_not_the_last() -> None:
    store = Store()
    async with store.client:
        await store.write(*(put(key, 1) for key in EDGES))
        for start in ("\0", "a", "\U0010ffff"):
            for end in ("\0", "a", "\U0010ffff"):
                low, high = start.encode(), end.encode()
                inside = [k for k in sorted(EDGES, key=bytewise) if low <= k.encode() < high]
                assert await store.keys(start=start, end=end) == inside
        assert await store.keys(end="") == []
        assert len(await store.keys(start="")) == len(EDGES)


@scenario
async def test_a_key_in_an_address_is_unescaped_once() -> None:
    store = Store()
    async with store.client:
        for number, key in enumerate(EDGES):
            path = f"/v1/kv/{quote(key, safe='')}"
            assert (await store.ask("PUT", path, number)).status == 200, key
        for number, key in enumerate(EDGES):
            assert (await store.ask("GET", f"/v1/kv/{quote(key, safe='')}")).json() == number, key
        assert await store.keys() == sorted(EDGES, key=bytewise)
        for path in ("a%FF", "%C0%AF", "%ED%A0%80"):
            assert (await store.ask("PUT", f"/v1/kv/{path}", 1)).problem == "invalid-key"


@settings(max_examples=15)
@given(st.lists(st.sampled_from(EDGES), unique=True), st.integers(1, 4))
def test_pages_show_one_state_whatever_is_written_between(keys: list[str], limit: int) -> None:
    @scenario
    async def run() -> None:
        store = Store()
        async with store.client:
            await store.write(*(put(key, 0) for key in keys))
            found, cursor = [], None
            while True:
                query = f"limit={limit}" + (f"&cursor={cursor}" if cursor else "")
                page = (await store.ask("GET", f"/v1/kv?{query}")).json()
                found += page["entries"]
                cursor = page["cursor"]
                if cursor is None:
                    break
                await store.write(*({"op": "delete", "key": key} for key in keys[::2]))
                await store.write(*(put(key, 1) for key in EDGES))
            assert [each["key"] for each in found] == sorted(keys, key=bytewise)
            assert {each["value"] for each in found} <= {0}

    run()


@pytest.mark.parametrize("limit", ["0", "-1", "", "+1", "01", "1.0", "1e400"])
@pytest.mark.parametrize("target", ["/v1/kv?", "/v1/streams/a.b?", "/v1/history/a?"])
@scenario
async def test_a_limit_that_is_none_is_refused(limit: str, target: str) -> None:
    store = Store()
    async with store.client:
        await store.write(put("a", 1))
        answer = await store.ask("GET", f"{target}limit={limit}")
        assert answer.problem == "invalid-parameter"


@scenario
async def test_the_mark_of_a_kafka_transaction_at_the_end_holds_nobody_up() -> None:
    store = Store()
    async with store.client:
        await store.write(put("a", 1))
        for _ in range(3):
            store.database.log.end_transaction()
            assert (await store.ask("GET", "/v1/kv/a?consistency=strong")).json() == 1
            assert await store.keys(consistency="strong") == ["a"]
        assert (await store.write(put("a", 2)))["seq"] == 2


# Conditions


@scenario
async def test_a_removed_key_is_as_one_that_never_was() -> None:
    store = Store()
    async with store.client:
        await store.write(put("was", 1))
        await store.ask("DELETE", "/v1/kv/was")
        for key in ("was", "never"):
            for check, holds in (
                ({"version": 0}, True), ({"exists": False}, True), ({"eq": None}, True),
                ({"ne": 1}, True), ({"ne": None}, False), ({"eq": 1}, False), ({"lt": 9}, False),
                ({"ge": 0}, False), ({"version": 1}, False), ({"version": 2}, False),
            ):  # fmt: skip
                verdict = await store.write(checks=[{"key": key, **check}])
                assert (verdict["status"] == "committed") is holds, (key, check)
            for tags in ('"1"', '"2"', '"0"', "*"):
                answer = await store.ask("PUT", f"/v1/kv/{key}", 2, {"If-Match": tags})
                assert answer.problem == "precondition-failed"
            only_new = {"If-None-Match": "*"}
            assert (await store.ask("PUT", f"/v1/kv/{key}", 3, only_new)).status == 201
            assert (await store.ask("PUT", f"/v1/kv/{key}", 4, only_new)).status == 412


@pytest.mark.parametrize("version", [-1, 2**63, 1.5, "1", None, True])
@scenario
async def test_a_version_that_cannot_be_is_refused(version: Any) -> None:
    store = Store()
    async with store.client:
        answer = await store.write(checks=[{"key": "a", "version": version}])
        assert answer["field"] == "checks[0].version"
        assert answer["code"] in {"invalid-transaction", "number-range"}


UPDATES = (
    put("k", 1), {"op": "delete", "key": "k"}, {"op": "touch", "key": "k"},
    {"op": "add", "key": "k", "by": 1}, {"op": "append", "key": "k", "value": 1},
    {"op": "next_id", "key": "k"}, {"op": "max", "key": "k", "value": 1},
    {"op": "min", "key": "k", "value": 1},
)  # fmt: skip


@pytest.mark.parametrize("first", UPDATES, ids=lambda each: each["op"])
@scenario
async def test_a_key_is_updated_once_in_a_transaction(first: Mapping[str, Any]) -> None:
    store = Store()
    async with store.client:
        for second in UPDATES:
            answer = await store.write(first, second)
            assert (answer["code"], answer["field"]) == ("duplicate-update", "updates[1].key")


# Ends of keys


@pytest.mark.parametrize("ttl_ms", [0, -1, 3_155_760_000_001, 2**63, "1", 1.0, None, True])
@scenario
async def test_a_time_to_live_is_a_whole_number_of_ms(ttl_ms: Any) -> None:
    store = Store()
    async with store.client:
        for update in (put("k", 1), {"op": "touch", "key": "k"},
                       {"op": "append", "key": "k", "value": 1}):  # fmt: skip
            answer = await store.write({**update, "ttl_ms": ttl_ms})
            assert answer["code"] in {"invalid-transaction", "number-range"}, update
            assert answer["field"] == "updates[0].ttl_ms"


@scenario
async def test_what_changes_a_value_keeps_its_end_and_what_stores_one_does_not() -> None:
    store = Store()
    async with store.client:
        for key, value, update, kept in (
            ("a", 1, {"op": "add", "by": 1}, True), ("m", 1, {"op": "max", "value": 9}, True),
            ("n", 1, {"op": "min", "value": 0}, True), ("i", 1, {"op": "next_id"}, True),
            ("l", [], {"op": "append", "value": 1}, True), ("t", 1, {"op": "touch"}, False),
            ("p", 1, {"op": "put", "value": 2}, False),
        ):  # fmt: skip
            made = await store.write(put(key, value, ttl_ms=1_000_000))
            await store.write({**update, "key": key})
            shown = (await store.ask("GET", f"/v1/kv/{key}")).headers.get("streamydb-expires")
            assert shown == (str(made["ts_ms"] + 1_000_000) if kept else None), key


@scenario
async def test_a_key_that_was_renewed_outlives_its_first_end() -> None:
    store = Store()
    async with store.client:
        await store.write(put("k", 1, ttl_ms=3))
        await store.write(put("k", 2, ttl_ms=30))
        for _ in range(20):
            await store.write(put("other", 1))
            assert (await store.ask("GET", "/v1/kv/k")).json() == 2
        for _ in range(20):
            await store.write(put("other", 1))
        assert (await store.ask("GET", "/v1/kv/k")).problem == "key-not-found"


@scenario
async def test_a_removal_by_time_tells_what_was_and_that_nobody_did_it() -> None:
    store = Store()
    async with store.client:
        await store.write(put("k", {"v": 1}, ttl_ms=1))
        await store.write(put("k", 2), put("gone", 1))
        await store.write({"op": "delete", "key": "gone"})
        await store.write({"op": "delete", "key": "gone"}, {"op": "delete", "key": "never"})
        await store.write(put("s", 3, ttl_ms=1))
        await store.write(put("other", 1))
        told = [
            (each["key"], each["op"], each["before"], each["after"], each["transaction"]["id"][0])
            for each in await store.changes("", 0) if each["key"] != "other"
        ]  # fmt: skip
        assert [each[:4] for each in told] == [
            ("k", "c", None, {"v": 1}), ("k", "u", {"v": 1}, 2), ("gone", "c", None, 1),
            ("gone", "d", 1, None), ("s", "c", None, 3), ("s", "d", 3, None),
        ]  # fmt: skip
        assert [each[4] == "$" for each in told] == [False] * 5 + [True]


# Ids


@scenario
async def test_an_id_belongs_to_one_request() -> None:
    store = Store()
    async with store.client:
        named = {"Idempotency-Key": "one"}
        first = (await store.ask("PUT", "/v1/kv/a", 1, named)).json()
        again = (await store.ask("PUT", "/v1/kv/a", 1, named)).json()
        assert (again["seq"], again["status"]) == (first["seq"], "committed")
        for method, target, value, more in (
            ("PUT", "/v1/kv/a", 2, {}), ("PUT", "/v1/kv/b", 1, {}),
            ("DELETE", "/v1/kv/a", None, {}), ("PUT", "/v1/kv/a?ttl_ms=5", 1, {}),
            ("PUT", "/v1/kv/a", 1, {"If-Match": "*"}),
            ("PUT", "/v1/kv/a", 1, {"If-None-Match": "*"}),
            ("POST", "/v1/transactions", {"updates": [put("a", 1)]}, {}),
        ):  # fmt: skip
            answer = await store.ask(method, target, value, {**named, **more})
            assert answer.problem == "id-reused", (method, target, value, more)
        assert (await store.ask("GET", "/v1/kv/a")).json() == 1
        asked = (await store.ask("GET", "/v1/transactions/one")).json()
        assert asked["seq"] == first["seq"]


# Following changes


@scenario
async def test_a_filter_of_changes_is_by_prefix_and_not_by_word() -> None:
    store = Store()
    async with store.client:
        await store.write(*(put(key, 1) for key in EDGES))
        for prefix in ("a", "a/", "\u00ff", "\U0010ffff", "%", "/", "\0"):
            wanted = sorted((k for k in EDGES if k.startswith(prefix)), key=bytewise)
            found = await store.changes(f"&prefix={quote(prefix, safe='')}", len(wanted))
            assert sorted((each["key"] for each in found), key=bytewise) == wanted


@scenario
async def test_a_check_on_changes_does_not_tell_what_leaves_it() -> None:
    store = Store()
    async with store.client:
        for value in (5, 50, 5):
            await store.write(put("a", value))
        above, before = (quote(json.dumps({"ge": 10}), safe="") for _ in range(2))
        entered = await store.changes(f"&where={above}", 1)
        left = await store.changes(f"&where_before={before}", 1)
        assert [each["after"] for each in entered] == [50]
        assert [(each["before"], each["after"]) for each in left] == [(50, 5)]


@pytest.mark.parametrize("seq", ["-1", "99999", "1.0", "9223372036854775808", "x", "1,2"])
@scenario
async def test_changes_begin_at_no_seq_that_is_not_yet(seq: str) -> None:
    store = Store()
    async with store.client:
        await store.write(put("a", 1))
        for target, headers in ((f"/v1/changes?since={seq}", {}),
                                ("/v1/changes", {"Last-Event-ID": seq})):  # fmt: skip
            stream = await store.client.stream(target, headers)
            assert stream.status == 400
            assert b"invalid-parameter" in await stream.end()


@scenario
async def test_who_goes_on_after_the_first_change_of_a_transaction_gets_all_of_it() -> None:
    store = Store()
    async with store.client:
        await store.write(put("z", 0))
        await store.write(*(put(key, 1) for key in EDGES))
        stream = await store.client.stream("/v1/changes?since=0")
        data = (await stream.until(b"event: change", 1 + len(EDGES))).decode()
        stream.leave()
        events = [each for each in data.split("\n\n") if "event: change" in each]
        ids = [line for each in events for line in each.split("\n") if line.startswith("id: ")]
        assert ids == ["id: 1", "id: 2"]
        assert events[-1].startswith("id: 2")
        stream = await store.client.stream("/v1/changes?since=7", {"Last-Event-ID": "1"})
        await stream.until(b"event: change", len(EDGES))
        assert b'"key":"z"' not in stream.data
