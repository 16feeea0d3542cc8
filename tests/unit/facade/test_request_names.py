"""The name of a request, which its answer repeats, whatever the answer is."""

from __future__ import annotations

import pytest

from streamydb.facade.app import create_app
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase

NAME = "Streamydb-Request"
REQUESTS = [
    ("GET", "/v1/kv/a", b""), ("HEAD", "/v1/kv/a", b""), ("PUT", "/v1/kv/a", b"1"),
    ("GET", "/v1/kv", b""),
    ("POST", "/v1/read", b'{"keys":["a"]}'), ("POST", "/v1/read", b"{"), ("GET", "/nowhere", b""),
    ("DELETE", "/v1/kv/a", b""), ("PATCH", "/v1/kv/a", b""), ("OPTIONS", "/v1/kv/a", b""),
    ("GET", "/health/live", b""), ("GET", "/v1/transactions/t", b""), ("GET", "/v1/kv?at=x", b""),
    ("POST", "/v1/transactions", b'{"updates":[]}'), ("GET", "/v1/kv/" + "k" * 9_000, b""),
]  # fmt: skip


def app() -> InProcess:
    database = MemoryDatabase()
    return InProcess(create_app(database.model, database.log, database.changes))


@pytest.mark.parametrize(("method", "target", "body"), REQUESTS)
@scenario
async def test_every_answer_has_the_name_of_its_request(
    method: str, target: str, body: bytes
) -> None:
    async with app() as client:
        for name in ("a-1-2", "x" * 128, "\xe9"):
            answer = await client.request(method, target, body, {NAME: name})
            assert answer.headers["streamydb-request"] == name
        for headers in ({}, {NAME: ""}, {NAME: "x" * 129}):
            answer = await client.request(method, target, body, headers)
            assert "streamydb-request" not in answer.headers


@scenario
async def test_a_stream_has_the_name_of_its_request() -> None:
    async with app() as client:
        stream = await client.stream("/v1/changes?since=0", {NAME: "a-1-2"})
        assert stream.headers["streamydb-request"] == "a-1-2"
        stream.leave()
