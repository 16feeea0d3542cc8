"""The facade's keys and values: reads, conditional writes, lists, many keys, strange keys."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from litestar.testing import TestClient

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.gate import Gate
from streamydb.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase

Client = TestClient[Any]

STRANGE = ["a//b", "/", "//", "a/", "/a", "é", "%2F", "..", "../..", "a/../b", ".", " ", " a b ",
           "\u0000", "\n", "\r\nX: y", "a?b=c", "a#b", "+", "日本", "\U0001f600", "-", "a\\b",
           "K" * KEY_BYTES_MAX, "é" * (KEY_BYTES_MAX // 2)]  # fmt: skip


@pytest.fixture
def database() -> MemoryDatabase:
    return MemoryDatabase()


@pytest.fixture
def client(database: MemoryDatabase) -> Iterator[Client]:
    settings = FacadeSettings(page_entries_max=3, read_keys_max=4, answer_bytes_max=1_000)
    app = create_app(database.model, database.log, database.changes, settings)
    with TestClient[Any](app) as client:
        yield client


def in_process(database: MemoryDatabase, **limits: Any) -> InProcess:
    settings = FacadeSettings(**limits)
    app: Gate = create_app(database.model, database.log, database.changes, settings)
    return InProcess(app)


def slug(answer: Any) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["type"]).removeprefix("/problems/")


def test_a_value_is_given_back_with_its_version(client: Client) -> None:
    put = client.put("/v1/kv/acct/1", content=b'{"b": 1.0, "a": null}')
    assert put.status_code == 200
    assert put.headers["etag"] == '"1"'
    assert put.json()["status"] == "committed"
    got = client.get("/v1/kv/acct/1")
    assert got.status_code == 200
    assert got.content == b'{"a":null,"b":1}'
    assert got.headers["content-type"] == "application/json"
    assert got.headers["etag"] == '"1"'
    assert got.headers["streamydb-snapshot"] == "1"


def test_reads_tell_the_end_of_a_key_and_only_of_one_that_has_an_end(client: Client) -> None:
    put = client.put("/v1/kv/a?ttl_ms=60000", content=b"1").json()
    client.put("/v1/kv/b", content=b"2")
    end = put["ts_ms"] + 60_000
    assert client.get("/v1/kv/a").headers["streamydb-expires"] == str(end)
    assert client.get("/v1/kv/a?at=1").headers["streamydb-expires"] == str(end)
    assert "streamydb-expires" not in client.get("/v1/kv/b").headers
    listed = client.get("/v1/kv").json()["entries"]
    read = client.post("/v1/read", json={"keys": ["a", "b"]}).json()["entries"]
    for one, other in (listed, (read["a"], read["b"])):
        assert one == {
            "key": "a", "value": 1, "version": 1, "ts_ms": put["ts_ms"], "expires_ms": end,
        }  # fmt: skip
        assert other.keys() == {"key", "value", "version", "ts_ms"}
    touched = client.post("/v1/transactions", json={"updates": [{"op": "touch", "key": "a"}]})
    assert touched.json()["status"] == "committed"
    assert "streamydb-expires" not in client.get("/v1/kv/a").headers


def test_head_is_a_get_without_its_body(client: Client) -> None:
    client.put("/v1/kv/a", content=b"12345")
    head = client.head("/v1/kv/a")
    assert (head.status_code, head.headers["etag"], head.content) == (200, '"1"', b"")
    assert head.headers["content-length"] == "5"


def test_an_absent_key_is_not_found(client: Client) -> None:
    answer = client.get("/v1/kv/none")
    assert answer.status_code == 404
    assert slug(answer) == "key-not-found"
    client.put("/v1/kv/none", content=b"1")
    assert client.get("/v1/kv/none").status_code == 200
    assert client.delete("/v1/kv/none").status_code == 200
    assert client.get("/v1/kv/none").status_code == 404
    assert client.delete("/v1/kv/none").json()["status"] == "committed"


def test_if_match_guards_a_write(client: Client) -> None:
    client.put("/v1/kv/a", content=b"1")
    changed = client.put("/v1/kv/a", content=b"2", headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    stale = client.put("/v1/kv/a", content=b"3", headers={"If-Match": '"1"'})
    assert (stale.status_code, slug(stale)) == (412, "precondition-failed")
    assert stale.json()["version"] == 2
    assert client.get("/v1/kv/a").content == b"2"
    assert client.delete("/v1/kv/a", headers={"If-Match": '"1"'}).status_code == 412
    assert client.delete("/v1/kv/a", headers={"If-Match": '"2"'}).status_code == 200
    assert client.put("/v1/kv/a", content=b"3", headers={"If-Match": "*"}).status_code == 412


def test_if_none_match_creates_only(client: Client) -> None:
    first = client.put("/v1/kv/a", content=b"1", headers={"If-None-Match": "*"})
    assert first.status_code == 201
    second = client.put("/v1/kv/a", content=b"2", headers={"If-None-Match": "*"})
    assert (second.status_code, second.json()["version"]) == (412, 1)
    assert client.get("/v1/kv/a").content == b"1"


@pytest.mark.parametrize("tag", ['W/"1"', '"other"', '"0"', '"01"', '"99999999999999999999"'])
def test_tags_that_name_no_version_never_match(
    client: Client, database: MemoryDatabase, tag: str
) -> None:
    client.put("/v1/kv/a", content=b"1")
    assert client.put("/v1/kv/a", content=b"2", headers={"If-Match": tag}).status_code == 412
    assert len(database.log.records) == 1


def test_a_write_may_name_several_versions(client: Client) -> None:
    client.put("/v1/kv/a", content=b"1")
    one = client.put("/v1/kv/a", content=b"2", headers={"If-Match": '"7", "1"'})
    assert one.status_code == 200
    known = {"If-None-Match": f'"9", W/{one.headers["etag"]}'}
    stale = client.put("/v1/kv/a", content=b"3", headers=known)
    assert (stale.status_code, slug(stale)) == (412, "precondition-failed")
    other = client.put("/v1/kv/a", content=b"4", headers={"If-None-Match": '"1", "7"'})
    assert (other.status_code, client.get("/v1/kv/a").content) == (200, b"4")


@pytest.mark.parametrize("headers", [{"If-Match": "1"}, {"If-None-Match": '"1" "2"'}])
def test_conditions_that_a_write_cannot_have(client: Client, headers: dict[str, str]) -> None:
    answer = client.put("/v1/kv/a", content=b"1", headers=headers)
    assert (answer.status_code, slug(answer)) == (400, "invalid-parameter")


def test_a_read_with_the_version_it_has_is_not_modified(client: Client) -> None:
    client.put("/v1/kv/a", content=b"1")
    for tag in ('"1"', 'W/"1"', '"7", "1"', "*"):
        answer = client.get("/v1/kv/a", headers={"If-None-Match": tag})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == '"1"'
    assert client.get("/v1/kv/a", headers={"If-None-Match": '"2"'}).status_code == 200
    assert client.get("/v1/kv/a", headers={"If-Match": '"2"'}).status_code == 412
    assert client.get("/v1/kv/a", headers={"If-Match": '"1"'}).status_code == 200
    assert client.get("/v1/kv/a", headers={"If-Match": 'W/"1"'}).status_code == 412
    assert client.get("/v1/kv/b", headers={"If-Match": "*"}).status_code == 404


def test_at_takes_the_number_of_the_etag(client: Client) -> None:
    for value in (b"1", b"2", b"3"):
        client.put("/v1/kv/a", content=value)
    assert client.get("/v1/kv/a?at=1").content == b"1"
    assert client.get("/v1/kv/a?at=2").headers["etag"] == '"2"'
    client.delete("/v1/kv/a")
    assert client.get("/v1/kv/a?at=3").content == b"3"
    assert client.get("/v1/kv/a?at=4").status_code == 404
    for wrong in ("0", "-1", "x", "1.5", "99999999999999999999"):
        assert client.get(f"/v1/kv/a?at={wrong}").json()["parameters"] == ["at"]


@scenario
async def test_strange_keys_are_kept_as_they_are() -> None:
    database = MemoryDatabase()
    async with in_process(database) as client:
        for number, key in enumerate(STRANGE, 1):
            put = await client.request("PUT", f"/v1/kv/{quote(key, safe='')}", b"%d" % number)
            assert put.status == 200, key
        for number, key in enumerate(STRANGE, 1):
            got = await client.request("GET", f"/v1/kv/{quote(key, safe='')}")
            assert (got.status, got.body) == (200, b"%d" % number), key
        listed = await client.request("GET", "/v1/kv?limit=1000")
        keys = [entry["key"] for entry in listed.json()["entries"]]
    assert keys == sorted(STRANGE, key=str.encode)


@scenario
async def test_a_path_is_taken_as_it_is_sent() -> None:
    database = MemoryDatabase()
    async with in_process(database) as client:
        for raw, key in [("a//b/", "a//b/"), ("a/../b", "a/../b"), ("%2e%2e", ".."), ("+", "+")]:
            await client.request("PUT", f"/v1/kv/{raw}", b"1")
            read = await client.request("POST", "/v1/read", b'{"keys": ["%s"]}' % key.encode())
            assert read.json()["entries"][key]["value"] == 1


@pytest.mark.parametrize(
    "raw", ["", "%", "%zz", "%ff", "%C3", "%ed%a0%80", "K" * 481, "%C3%A9" * 241]
)
@scenario
async def test_what_cannot_be_a_key_is_refused(raw: str) -> None:
    database = MemoryDatabase()
    async with in_process(database) as client:
        for method in ("GET", "PUT", "DELETE"):
            answer = await client.request(method, f"/v1/kv/{raw}", b"1")
            assert (answer.status, answer.problem) == (400, "invalid-key")
    assert not database.log.records


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nul", b"NaN", b"Infinity", b'"\\ud800"', b"\xff", b"1 2", b"1e999",
     b"18446744073709551616", b"[" * 100 + b"]" * 100, b"'a'", b"\xef\xbb\xbf1"],
)  # fmt: skip
def test_what_is_not_a_value_is_refused(
    client: Client, database: MemoryDatabase, body: bytes
) -> None:
    answer = client.put("/v1/kv/a", content=body)
    assert (answer.status_code, slug(answer)) == (400, "invalid-json")
    assert not database.log.records


def test_a_value_has_its_largest_size(client: Client) -> None:
    largest = b'"' + b"v" * (VALUE_BYTES_MAX - 2) + b'"'
    assert client.put("/v1/kv/a", content=largest).status_code == 200
    answer = client.put("/v1/kv/a", content=b'"v' + largest[1:])
    assert (answer.status_code, slug(answer)) == (413, "too-large")


def test_pages_of_a_list_show_one_snapshot(client: Client) -> None:
    for key in "abcdefg":
        client.put(f"/v1/kv/k/{key}", content=b'"old"')
    client.put("/v1/kv/other", content=b"1")
    page = client.get("/v1/kv?prefix=k/&limit=3").json()
    seen = page["entries"]
    client.put("/v1/kv/k/aa", content=b'"new"')
    client.put("/v1/kv/k/e", content=b'"new"')
    client.delete("/v1/kv/k/g")
    while page["cursor"]:
        page = client.get("/v1/kv", params={"cursor": page["cursor"], "limit": 3}).json()
        assert page["seq"] == 8
        seen += page["entries"]
    assert [entry["key"] for entry in seen] == [f"k/{key}" for key in "abcdefg"]
    assert {entry["value"] for entry in seen} == {"old"}
    assert [entry["version"] for entry in seen] == list(range(1, 8))


def test_a_range_is_start_inclusive_and_end_exclusive(client: Client) -> None:
    for key in "abcd":
        client.put(f"/v1/kv/{key}", content=b"1")
    listed = client.get("/v1/kv?start=b&end=d").json()
    assert [entry["key"] for entry in listed["entries"]] == ["b", "c"]
    assert listed["cursor"] is None
    assert client.get("/v1/kv?at=2").json()["seq"] == 2
    assert len(client.get("/v1/kv?limit=100").json()["entries"]) == 3  # the page's own bound


def test_a_page_is_bounded_in_bytes(client: Client) -> None:
    for key in "abc":
        client.put(f"/v1/kv/{key}", content=b'"' + b"v" * 600 + b'"')
    first = client.get("/v1/kv").json()
    assert [entry["key"] for entry in first["entries"]] == ["a"]
    second = client.get("/v1/kv", params={"cursor": first["cursor"]}).json()
    assert [entry["key"] for entry in second["entries"]] == ["b"]


@pytest.mark.parametrize("cursor", ["x", "!!", "bnVsbA", "lQCgwMCg", "WzFd", "é"])
def test_forged_cursors_are_refused(client: Client, cursor: str) -> None:
    answer = client.get("/v1/kv", params={"cursor": cursor})
    assert (answer.status_code, slug(answer)) == (400, "invalid-parameter")


def test_a_cursor_belongs_to_its_list(client: Client) -> None:
    for key in "abcd":
        client.put(f"/v1/kv/{key}", content=b"1")
    cursor = client.get("/v1/kv?limit=1").json()["cursor"]
    for other in ({"prefix": "b"}, {"start": "b"}, {"end": "c"}, {"at": 1}):
        answer = client.get("/v1/kv", params={"cursor": cursor, **other})
        assert (answer.status_code, slug(answer)) == (400, "invalid-parameter")


@pytest.mark.parametrize(
    "given",
    [{"consistency": "strong"}, {"consistency": "snapshot"}, {"at": 2}, {"min_version": 2},
     {"consistency": "session", "min_version": 2}, {"consistency": "strong", "min_version": 1},
     {"at": 2, "consistency": "snapshot", "min_version": 1},
     {"consistency": "strong", "prefix": "", "start": "a", "end": "d", "min_version": 2}],
)  # fmt: skip
def test_a_cursor_goes_on_with_the_parameters_of_its_list(
    client: Client, given: dict[str, Any]
) -> None:
    for key in "ab":
        client.put(f"/v1/kv/{key}", content=b"1")
    first = client.get("/v1/kv", params={"limit": 1, **given}).json()
    client.put("/v1/kv/b", content=b"2")
    client.put("/v1/kv/c", content=b"2")
    answer = client.get("/v1/kv", params={"cursor": first["cursor"], **given})
    assert answer.status_code == 200
    assert answer.json()["seq"] == first["seq"] == 2
    assert [each["value"] for each in answer.json()["entries"]] == [1]


@pytest.mark.parametrize(
    "given",
    [{"consistency": "session"}, {"at": 2, "consistency": "strong"}, {"min_version": 3},
     {"at": 2, "min_version": 3}],
)  # fmt: skip
def test_a_cursor_does_not_go_on_with_what_no_list_can_have(
    client: Client, given: dict[str, Any]
) -> None:
    for key in "abc":
        client.put(f"/v1/kv/{key}", content=b"1")
    cursor = client.get("/v1/kv", params={"limit": 1, "at": 2}).json()["cursor"]
    answer = client.get("/v1/kv", params={"cursor": cursor, **given})
    assert (answer.status_code, slug(answer)) == (400, "invalid-parameter")


def test_bounds_longer_than_any_key_are_refused(client: Client) -> None:
    answer = client.get("/v1/kv", params={"prefix": "p" * 481})
    assert (answer.status_code, slug(answer)) == (400, "invalid-parameter")


def test_a_snapshot_that_is_gone(client: Client, database: MemoryDatabase) -> None:
    for key in "abcd":
        client.put(f"/v1/kv/{key}", content=b"1")
    cursor = client.get("/v1/kv?limit=1&at=2").json()["cursor"]
    database.model.gone = 3
    for target in ("/v1/kv/a?at=2", f"/v1/kv?cursor={cursor}"):
        answer = client.get(target)
        assert (answer.status_code, slug(answer), answer.json()["oldest"]) == (
            410, "snapshot-gone", 3,
        )  # fmt: skip
    assert client.get("/v1/kv/a?at=3").status_code == 200


def test_many_keys_are_read_at_one_snapshot(client: Client) -> None:
    client.put("/v1/kv/a", content=b"1")
    client.put("/v1/kv/b", content=b'{"x": 2}')
    read = client.post("/v1/read", content=b'{"keys": ["b", "none", "a"]}')
    assert read.status_code == 200
    assert read.json()["seq"] == 2
    assert read.json()["entries"]["b"]["value"] == {"x": 2}
    assert read.json()["entries"]["a"]["version"] == 1
    assert read.json()["entries"]["none"] is None
    before = client.post("/v1/read", content=b'{"keys": ["a", "b"], "at": 1}')
    assert before.json()["entries"]["b"] is None


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"[]", 400), (b"{}", 400), (b'{"keys": [1]}', 400), (b'{"keys": [], "more": 1}', 400),
     (b'{"keys": ["a"], "at": 0}', 400), (b'{"keys": [""]}', 400),
     (b'{"keys": ["a"], "consistency": "weak"}', 400), (b'{"keys": ["a","b","c","d","e"]}', 413)],
)  # fmt: skip
def test_reads_that_make_no_sense(client: Client, body: bytes, status: int) -> None:
    answer = client.post("/v1/read", content=body)
    assert answer.status_code == status
    assert slug(answer) in {"invalid-json", "invalid-parameter", "invalid-key", "too-large"}


def test_an_answer_is_bounded(client: Client) -> None:
    for key in "ab":
        client.put(f"/v1/kv/{key}", content=b'"' + b"v" * 600 + b'"')
    answer = client.post("/v1/read", content=b'{"keys": ["a", "b"]}')
    assert (answer.status_code, slug(answer)) == (413, "answer-too-large")
    assert client.post("/v1/read", content=b'{"keys": ["a"]}').status_code == 200


@pytest.mark.parametrize(
    "query", ["unknown=1", "at=1&at=2", "min_verison=3", "prefix=%ff", "prefix=%", "limit=0"]
)
def test_queries_that_make_no_sense(client: Client, query: str) -> None:
    answer = client.get(f"/v1/kv?{query}")
    assert (answer.status_code, slug(answer)) == (400, "invalid-parameter")


def test_null_is_a_text_as_any_other(client: Client) -> None:
    for key in ("NULL", "a", "null", "null/1"):
        client.put(f"/v1/kv/{key}", content=b"1")
    for query, found in [
        ("prefix=null", ["null", "null/1"]), ("prefix=NULL", ["NULL"]), ("prefix=Null", []),
        ("start=null", ["null", "null/1"]), ("end=null", ["NULL", "a"]), ("end=NULL", []),
    ]:  # fmt: skip
        answer = client.get(f"/v1/kv?{query}")
        assert [entry["key"] for entry in answer.json()["entries"]] == found, query


@pytest.mark.parametrize(
    "target",
    ["/v1/kv?cursor=null", "/v1/kv?at=null", "/v1/kv/a?min_version=NULL",
     "/v1/kv/a?consistency=null", "/v1/changes?where=null", "/v1/changes?since=null",
     "/v1/streams/a.b?cursor=null", "/v1/streams/a.b?after=Null", "/v1/transactions/a?record=null"],
)  # fmt: skip
def test_null_stands_for_no_parameter(client: Client, target: str) -> None:
    answer = client.get(target)
    assert (answer.status_code, slug(answer)) == (400, "invalid-parameter")


def test_null_is_no_time_after_which_a_key_ends(client: Client, database: MemoryDatabase) -> None:
    answer = client.put("/v1/kv/a?ttl_ms=null", content=b"1")
    assert (answer.status_code, slug(answer)) == (400, "invalid-parameter")
    assert database.log.records == []


def test_null_is_no_value(client: Client, database: MemoryDatabase) -> None:
    answer = client.put("/v1/kv/k", content=b"null")
    assert (answer.status_code, slug(answer)) == (422, "invalid-transaction")
    assert answer.json()["code"] == "null-value"
    assert database.log.records == []


@pytest.mark.parametrize(
    ("target", "methods"),
    [
        ("/v1/kv/a", {"DELETE", "GET", "HEAD", "PUT"}), ("/v1/kv", {"GET", "HEAD"}),
        ("/v1/transactions", {"POST"}), ("/v1/transactions/x", {"GET", "HEAD"}),
        ("/v1/changes", {"GET"}), ("/v1/stats", {"GET", "HEAD"}), ("/", {"GET", "HEAD"}),
    ],
)  # fmt: skip
@scenario
async def test_options_tells_all_methods(target: str, methods: set[str]) -> None:
    async with in_process(MemoryDatabase()) as client:
        answer = await client.request("OPTIONS", target)
        assert (answer.status, answer.body) == (204, b"")
        assert set(answer.headers["allow"].split(", ")) == methods | {"OPTIONS"}
        refused = await client.request("PATCH", target)
        assert refused.headers["allow"] == answer.headers["allow"]
        for method in methods - ({"GET"} if target == "/v1/changes" else set()):
            assert (await client.request(method, target, b"{}")).status != 405, method


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [("gzip, deflate", True), ("br;q=1.0, gzip;q=0.8", True), ("*", True), ("gzip;q=0", False),
     ("identity", False), ("", False), ("gzip;q=0, *", False), ("*;q=0.5, GZIP ; q=0.0", False),
     ("*;q=0, gzip", True), ("br, *;q=0", False), ("identity;q=0, *;q=0.001", True)],
)  # fmt: skip
@scenario
async def test_large_answers_are_compressed_for_those_who_take_it(
    accepted: str, *, compressed: bool
) -> None:
    headers = {"accept-encoding": accepted}
    value = json.dumps(["all the same"] * 10_000).encode()
    async with in_process(MemoryDatabase()) as client:
        await client.request("PUT", "/v1/kv/a", value)
        await client.request("PUT", "/v1/kv/b", b"1")
        answer = await client.request("GET", "/v1/kv/a", b"", headers)
        assert ("content-encoding" in answer.headers) is compressed
        assert int(answer.headers["content-length"]) == len(answer.body)
        plain = gzip.decompress(answer.body) if compressed else answer.body
        assert json.loads(plain) == json.loads(value)
        assert not compressed or len(answer.body) < len(value) / 10
        assert answer.headers["etag"] == ('"1-gzip"' if compressed else '"1"')
        head = await client.request("HEAD", "/v1/kv/a", b"", headers)
        assert (head.status, head.body, head.headers) == (200, b"", answer.headers)
        small = await client.request("GET", "/v1/kv/b", b"", headers)
        assert (small.body, "content-encoding" in small.headers) == (b"1", False)


@scenario
async def test_event_streams_are_not_compressed() -> None:
    async with in_process(MemoryDatabase(), compressed_bytes_min=1) as client:
        stream = await client.stream("/v1/changes?since=0", {"accept-encoding": "gzip"})
        await client.request("PUT", "/v1/kv/a", b"1")
        await stream.until(b"event: change")
        assert "content-encoding" not in stream.headers
