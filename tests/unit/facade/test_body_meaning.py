"""Headers that say that a body is something else than JSON in UTF-8, at every endpoint with one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.facade import create_app
from streamydb.sql.pool import QueryPool
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from tests.support.queries import in_this_process
from tests.support.seeds import seeds

BODIES: dict[tuple[str, str], bytes] = {
    ("put", "/v1/kv/{key}"): b"1",
    ("post", "/v1/transactions"): b'{"updates": [{"op": "put", "key": "a", "value": 1}]}',
    ("post", "/v1/read"): b'{"keys": ["a"]}',
    ("post", "/v1/query"): b'{"sql": "select 1"}',
    ("post", "/v1/sql"): b'{"statements": [{"sql": "select 1"}]}',
}
"""A right body for every endpoint that takes one."""

NOT_UNDERSTOOD = [
    ("Content-Range", "bytes 0-0/9", 400), ("Content-Range", "", 400),
    ("Content-Range", "lines 1-2/3", 400),
    ("Content-Encoding", "gzip", 415), ("Content-Encoding", "identity, br", 415),
    ("Content-Encoding", "GZIP", 415), ("Content-Encoding", '"', 415),
    ("Content-Transfer-Encoding", "base64", 415),
    ("Content-Type", "application/json; charset=utf-16", 415),
    ("Content-Type", 'text/plain; charset="UTF-16LE"', 415),
    ("Content-Type", "application/json; charset=utf-8; charset=latin1", 415),
    ("Content-Type", "multipart/form-data; boundary=x", 415),
    ("Content-Type", "multipart/byteranges; boundary=x", 415),
    ("Content-Type", "application/xml", 415), ("Content-Type", "application/cbor", 415),
    ("Content-Type", "json", 415), ("Content-Type", "application/json, text/plain", 415),
    ("Content-Type", "application/json; charset", 415),
    ("Expect", "a-miracle", 417), ("Expect", "100-continue, x", 417),
    ("Expect", "100-continue=1", 417),
]  # fmt: skip
UNDERSTOOD = [
    ("Content-Encoding", "identity"), ("Content-Encoding", ""), ("Content-Encoding", " Identity,"),
    ("Content-Transfer-Encoding", "Binary"), ("Expect", "100-Continue"),
    ("Content-Type", ""), ("Content-Type", "Application/JSON"),
    ("Content-Type", 'application/json ; Charset="utf-8"; q=1'),
    ("Content-Type", "application/json;charset=utf-8; charset=UTF-8;"),
    ("Content-Type", "application/ld+json"), ("Content-Type", "text/plain;charset=UTF-8"),
    ("Content-Type", "application/x-www-form-urlencoded"),
    ("Content-Type", "application/octet-stream"),
    ("Content-MD5", "x"), ("Content-Digest", "sha-256=:AA==:"), ("Content-Language", "de"),
    ("Content-Location", "/elsewhere"),
]  # fmt: skip
OF_STATUS = {
    400: "invalid-parameter", 415: "unsupported-media-type", 417: "expectation-failed",
}  # fmt: skip


async def answered(
    database: MemoryDatabase,
    method: str,
    path: str,
    headers: dict[str, str],
    repeated: tuple[tuple[str, str], ...] = (),
) -> HttpAnswer:
    body = BODIES[method, path]
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        target = path.replace("{key}", "a")
        return await client.request(method.upper(), target, body, headers, repeated)


@scenario
async def test_every_endpoint_with_a_body_is_tried_and_tells_of_these_problems() -> None:
    database = MemoryDatabase()
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        paths = (await client.request("GET", "/schema")).json()["paths"]
    operations: dict[tuple[str, str], Any] = {
        (method, path): operation
        for path, item in paths.items() for method, operation in item.items()
        if "requestBody" in operation
    }  # fmt: skip
    assert set(operations) == set(BODIES)
    for operation in operations.values():
        assert {"400", "415", "417"} <= set(operation["responses"])


@pytest.mark.parametrize("endpoint", BODIES, ids=" ".join)
@pytest.mark.parametrize(("name", "value", "status"), NOT_UNDERSTOOD)
@scenario
async def test_what_is_not_understood_is_refused(
    endpoint: tuple[str, str], name: str, value: str, status: int
) -> None:
    database = MemoryDatabase()
    answer = await answered(database, *endpoint, {name: value})
    assert (answer.status, answer.problem) == (status, OF_STATUS[status])
    assert answer.json()["parameters"] == [name]
    assert not database.log.records
    if status == 415:
        accepted = "accept-encoding" if name == "Content-Encoding" else "accept"
        assert answer.headers[accepted] in {"identity", "application/json"}


@pytest.mark.parametrize("endpoint", BODIES, ids=" ".join)
@scenario
async def test_what_changes_nothing_is_taken(
    endpoint: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements keep their process, so all are sent to one facade; a query would have its own."""
    monkeypatch.setattr(QueryPool, "run", in_this_process)
    method, path = endpoint
    database = MemoryDatabase()
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        for name, value in UNDERSTOOD:
            answer = await client.request(
                method.upper(), path.replace("{key}", "a"), BODIES[endpoint], {name: value}
            )
            assert answer.status in {200, 501}, (name, value)


@pytest.mark.parametrize("endpoint", BODIES, ids=" ".join)
@scenario
async def test_a_field_in_several_lines_is_one_list(endpoint: tuple[str, str]) -> None:
    twice = (("content-encoding", "identity"), ("content-encoding", "gzip"))
    answer = await answered(MemoryDatabase(), *endpoint, {}, twice)
    assert answer.status == 415


CHARSETS = st.sampled_from(["utf-8", "UTF-8", "utf8", "us-ascii", "utf-16", "latin1", "utf-7"])
TYPES = st.sampled_from(
    [("application", "json"), ("application", "x+json"), ("text", "plain"), ("text", "json"),
     ("image", "json"), ("application", "jsonx"), ("multipart", "mixed")]
)  # fmt: skip
PARAMETERS = st.lists(
    st.tuples(st.sampled_from(["charset", "q", "boundary"]), CHARSETS, st.booleans()), max_size=3
)
JSON_NAMES = {"application/json", "application/x+json", "text/plain", "text/json"}


@pytest.mark.randomized
@settings(max_examples=seeds(60), deadline=None)
@given(of=TYPES, parameters=PARAMETERS, spaces=st.text(" \t", max_size=2), upper=st.booleans())
def test_a_content_type_is_taken_as_the_grammar_has_it(
    of: tuple[str, str], parameters: list[tuple[str, str, bool]], spaces: str, *, upper: bool
) -> None:
    name = "/".join(of)
    right = name in JSON_NAMES and all(
        value.lower() in {"utf-8", "utf8", "us-ascii"}
        for each, value, _ in parameters if each == "charset"
    )  # fmt: skip
    shown = name.upper() if upper else name
    for each, value, quoted in parameters:
        word = f'"{value}"' if quoted else value
        shown += f"{spaces};{spaces}{each}={word}"
    answer = asyncio.run(answered(MemoryDatabase(), "put", "/v1/kv/{key}", {"Content-Type": shown}))
    assert (answer.status == 200) is right, shown
    assert right or answer.problem == "unsupported-media-type"


SHAPES = {
    ("post", "/v1/read"): [b"{}", b"[]", b"1", b"null", b'{"keys": "a"}', b'{"keys": [1]}',
                           b'{"keys": ["a"], "at": 1.0}', b'{"keys": ["a"], "at": 1e0}',
                           b'{"keys": ["a"], "at": "1"}', b'{"keys": ["a"], "min_version": true}'],
    ("post", "/v1/query"): [b"{}", b"[]", b'{"sql": 1}', b'{"sql": "x", "at": 1.0}',
                            b'{"sql": "x", "more": 1}', b'{"sql": "x", "consistency": "weak"}'],
    ("post", "/v1/sql"): [b"{}", b"[]", b'{"statements": []}', b'{"statements": [1]}',
                          b'{"statements": [{"sql": 1}]}',
                          b'{"statements": [{"sql": "x"}], "at": 1.5}'],
}  # fmt: skip


@pytest.mark.parametrize("endpoint", SHAPES, ids=" ".join)
@scenario
async def test_json_of_another_shape_is_told_apart_from_what_is_no_json(
    endpoint: tuple[str, str],
) -> None:
    method, path = endpoint
    database = MemoryDatabase()
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        for body in SHAPES[endpoint]:
            json.loads(body)
            answer = await client.request(method.upper(), path, body)
            assert (answer.status, answer.problem) == (400, "invalid-parameter"), body
            for cut in (body[:-1], body + b"x", b"\xff" + body):
                found = await client.request(method.upper(), path, cut)
                assert found.problem == "invalid-json", cut
        named = b'{"keys": ["a", 1], "statements": [{"sql": 1}], "sql": 1}'
        answer = await client.request(method.upper(), path, named)
        assert answer.problem == "invalid-parameter"
