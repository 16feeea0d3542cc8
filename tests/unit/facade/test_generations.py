"""What a database of an earlier generation gave out is refused, wherever it comes in again.

The places are found in the OpenAPI document: all parameters, headers and fields of bodies that hold
a seq, a version or a place. A token of the lost history is brought to each of them. The new history
has a transaction with the same seq, and another value with the same version, so that nothing but
the generation can tell the two apart.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import pytest

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.about import About
from streamydb.facade.cursors import ListCursor, decode_cursor, encode_cursor
from streamydb.facade.openapi import ANYWHERE
from streamydb.facade.stream_pages import StreamPosition
from streamydb.records.generation import FIRST, GENERATION, generation_of
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from tests.support.history import HistoryDatabase

HEADER: Final = "Streamydb-Generation"
OLD, NEW = generation_of("old"), generation_of("new")
STREAM: Final = "/v1/streams/{name}"
SEQS: Final = {"min_version", "since", "after", "at", "version", "version_le"}
"""Names of parameters and fields that hold a seq."""
PLACES: Final = {"cursor", "Last-Event-ID", "If-Match", "If-None-Match"}
"""Names of parameters and headers that hold a text of the facade's."""
NO_SEQ: Final = {
    "Deadline-Ms", "Idempotency-Key", "Prefer", "consistency", "end", "for", "id", "key", "limit",
    "name", "prefix", "record", "slug", "start", "ttl_ms", "wait", "where", "where_before",
    "after_ms",
}  # fmt: skip
"""Those that hold none. A record's place is found with its id only; times are no seqs."""
BODIES: Final[dict[str, list[dict[str, Any]]]] = {
    "/v1/read": [{"keys": ["a"], "min_version": 2}, {"keys": ["a"], "at": 2}],
    "/v1/query": [{"sql": "select 1", "min_version": 2}, {"sql": "select 1", "at": 2}],
    "/v1/sql": [
        {"statements": [{"sql": "select 1"}], "min_version": 2},
        {"statements": [{"sql": "select 1"}], "at": 2},
    ],
    "/v1/transactions": [
        {"checks": [{"key": "a", "version": 2}], "updates": [{"op": "delete", "key": "a"}]},
        {"checks": [{"range": {"prefix": "a"}, "version_le": 2}],
         "updates": [{"op": "delete", "key": "a"}]},
    ],
}  # fmt: skip


def database(generation: str, values: list[int]) -> MemoryDatabase:
    """A database in which the key a has had these values."""
    made = HistoryDatabase()
    made.model.generation = generation
    for n, value in enumerate(values):
        updates = [{"op": "put", "key": key, "value": value} for key in ("a", "b")]
        made.log.records.append(json.dumps({"id": f"t{n}", "updates": updates}).encode())
    made.run()
    return made


def facade(made: MemoryDatabase) -> Any:
    """A facade of it."""
    return create_app(made.model, made.log, made.changes, FacadeSettings(), about=About())


def document() -> Any:
    """The OpenAPI document."""

    async def ask() -> bytes:
        async with InProcess(facade(MemoryDatabase())) as client:
            return (await client.request("GET", "/schema/openapi.json")).body

    return json.loads(asyncio.run(ask()))


DOCUMENT = document()


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of all operations."""
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def target(path: str) -> str:
    """An address of a path: of what there is."""
    names = {"{key}": "a", "{id}": "t0", "{name}": "m.s", "{slug}": "aborted"}
    for place, name in names.items():
        path = path.replace(place, name)
    return path


class Tokens:
    """What the facade of an earlier generation has given out: of the seq 2, in all forms."""

    def __init__(self, generation: str) -> None:
        """Nothing yet."""
        self.generation = generation
        self.tag = self.cursor = self.event = ""

    async def take(self) -> None:
        """Ask the facade for them."""
        async with InProcess(facade(database(self.generation, [1, 2]))) as client:
            answer = await client.request("GET", "/v1/kv/a")
            self.tag = answer.headers["etag"]
            told = answer.headers[HEADER.lower()]
            self.cursor = (await client.request("GET", "/v1/kv?limit=1")).json()["cursor"]
            stream = await client.stream("/v1/changes?since=0")
            data = await stream.until(b"id: 2")
            self.event = data.decode().split("id: 2")[1].split("\n")[0]
            self.event = f"2{self.event}"
            assert told == (self.generation or "0")

    def text(self, name: str, path: str) -> str:
        """The token for a parameter or header of a path."""
        tags = {"If-Match": self.tag, "If-None-Match": self.tag}
        cursor = self.cursor
        if path == STREAM:
            cursor = encode_cursor(StreamPosition("m.s", 2, 0, 1), self.generation)
        return {**tags, "cursor": cursor, "Last-Event-ID": self.event}.get(name, "2")


def tokens_of(generation: str) -> Tokens:
    """The tokens of a generation."""
    made = Tokens(generation)
    asyncio.run(made.take())
    return made


Case = tuple[str, str, str]


def cases() -> list[Case]:
    """Method, path and name of every parameter and header that takes a token."""
    return [
        (method, path, each["name"])
        for method, path, operation in operations()
        for each in operation.get("parameters", ())
        if each["name"] in SEQS | PLACES
    ]


def test_every_parameter_is_known_to_hold_a_seq_or_none() -> None:
    named = {e["name"] for _, _, op in operations() for e in op.get("parameters", ())}
    assert named <= SEQS | PLACES | NO_SEQ, "does it hold a seq? Then it belongs to the places"
    assert len(cases()) > 15


def test_every_body_that_can_hold_a_seq_is_tried() -> None:
    texts = {path: json.dumps(op["requestBody"]) for m, path, op in operations()
             if "requestBody" in op and path != "/v1/kv/{key}"}  # fmt: skip
    assert texts.keys() == BODIES.keys()


async def ask(
    client: InProcess, method: str, path: str, name: str, text: str, headers: dict[str, str]
) -> HttpAnswer:
    """Send a token in one place."""
    if name in {"If-Match", "If-None-Match", "Last-Event-ID"}:
        headers, query = {**headers, name: text}, ""
    else:
        query = f"?{name}={text}"
    if path == "/v1/changes":
        stream = await client.stream(target(path) + query, headers)
        if stream.status == 200:
            return HttpAnswer(stream.status, stream.headers, stream.data)
        while not stream.ended:
            await stream.news()
        return HttpAnswer(stream.status, stream.headers, stream.data)
    return await client.request(method, target(path) + query, b"3", headers)


PAIRS = [(FIRST, NEW), (OLD, NEW), (OLD, FIRST)]


@pytest.mark.parametrize(("earlier", "present"), PAIRS)
@pytest.mark.parametrize(("method", "path", "name"), cases())
@pytest.mark.parametrize("says", [False, True])
def test_a_token_of_the_lost_history_is_refused(
    earlier: str, present: str, method: str, path: str, name: str, *, says: bool
) -> None:
    tokens, made = tokens_of(earlier), database(present, [1, 7])
    headers = {HEADER: earlier or "0"} if says else {}

    async def run() -> HttpAnswer:
        async with InProcess(facade(made)) as client:
            return await ask(client, method, path, name, tokens.text(name, path), headers)

    answer = asyncio.run(run())
    if says:
        assert (answer.status, answer.problem) == (410, "other-generation")
        assert answer.json()["generation"] == (present or "0")
    elif name == "If-Match":
        assert (answer.status, answer.problem) == (412, "precondition-failed")
    elif name == "If-None-Match":
        assert answer.status == 200
        assert method != "GET" or answer.body == b"7"
    elif name in PLACES or (name != "at" and present != FIRST):
        assert (answer.status, answer.problem) == (410, "other-generation")
    else:  # a seq alone is one of the present history, of which `at` asks for a state
        assert answer.status in {200, 404}
    assert (name == "If-None-Match" and method != "GET") or made.model.latest().seq == 2


@pytest.mark.parametrize(("earlier", "present"), PAIRS)
@pytest.mark.parametrize(("path", "body"), [(p, b) for p, all_ in BODIES.items() for b in all_])
def test_a_body_that_says_another_generation_is_refused(
    earlier: str, present: str, path: str, body: dict[str, Any]
) -> None:
    made = database(present, [1, 7])

    async def run() -> list[HttpAnswer]:
        async with InProcess(facade(made)) as client:
            sent = json.dumps(body).encode()
            said = await client.request("POST", path, sent, {HEADER: earlier or "0"})
            kept = len(made.log.records)
            return [said, await client.request("POST", path, sent)] if kept == 2 else [said]

    answer, bare = asyncio.run(run())
    assert (answer.status, answer.problem) == (410, "other-generation")
    if "min_version" in body and present != FIRST:
        assert (bare.status, bare.problem) == (410, "other-generation")
    else:
        assert bare.status in {200, 501}


@pytest.mark.parametrize("present", [FIRST, NEW])
@pytest.mark.parametrize(("method", "path", "name"), cases())
def test_a_token_of_the_present_history_is_taken(
    present: str, method: str, path: str, name: str
) -> None:
    tokens, made = tokens_of(present), database(present, [1, 2])

    async def run() -> HttpAnswer:
        async with InProcess(facade(made)) as client:
            headers = {HEADER: present or "0"}
            return await ask(client, method, path, name, tokens.text(name, path), headers)

    status = asyncio.run(run()).status
    wanted = {"GET": 304}.get(method, 412) if name == "If-None-Match" else 200
    assert status == (404 if (path, name) == (STREAM, "after") else wanted)


@scenario
async def test_the_first_generation_is_left_out_of_tags_and_cursors() -> None:
    async with InProcess(facade(database(FIRST, [1, 2]))) as client:
        got = await client.request("GET", "/v1/kv/a")
        assert (got.headers["etag"], got.headers[HEADER.lower()]) == ('"2"', "0")
        page = (await client.request("GET", "/v1/kv?limit=1")).json()
        assert decode_cursor(page["cursor"], ListCursor, "a list").at == 2
        assert "." not in page["cursor"]


@scenario
async def test_every_answer_tells_another_generation() -> None:
    async with InProcess(facade(database(NEW, [1, 2]))) as client:
        asked: list[Callable[[], Coroutine[Any, Any, HttpAnswer]]] = [
            lambda: client.request("GET", "/v1/kv/a"), lambda: client.request("GET", "/v1/kv/none"),
            lambda: client.request("PUT", "/v1/kv/a", b"4"), lambda: client.request("HEAD", "/"),
            lambda: client.request("POST", "/v1/read", b"{"),
        ]  # fmt: skip
        for each in asked:
            assert (await each()).headers[HEADER.lower()] == NEW
        put = await client.request("PUT", "/v1/kv/a", b"5", {"If-Match": f'"3@{NEW}"'})
        assert (put.status, put.headers["etag"]) == (200, f'"4@{NEW}"')


@pytest.mark.parametrize("lines", [[""], ["0", "0"], [NEW, "0"], ["a b"], ["é"], ["a" * 99]])
@scenario
async def test_a_header_that_says_no_generation_is_refused(lines: list[str]) -> None:
    async with InProcess(facade(database(NEW, [1]))) as client:
        repeated = [(HEADER, line) for line in lines]
        answer = await client.request("GET", "/v1/kv/a", repeated=repeated)
        assert (answer.status, answer.problem) == (400, "invalid-parameter")


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"host": "other.example"}, "misdirected"),
        ({"origin": "https://other.example"}, "cross-origin"),
    ],
)
@scenario
async def test_who_must_not_ask_hears_nothing_of_generations(
    headers: dict[str, str], problem: str
) -> None:
    made = database(NEW, [1])
    app = create_app(
        made.model, made.log, made.changes, FacadeSettings(allowed_hosts=("127.0.0.1",))
    )
    async with InProcess(app) as client:
        for said in (OLD, "no generation"):
            sent = {HEADER: said, **headers}
            answer = await client.request("PUT", "/v1/kv/a", b"1", sent)
            assert answer.problem == problem
        answer = await client.request("PUT", "/v1/kv/a?min_version=1", b"1", headers)
        assert answer.problem == problem
        assert len(made.log.records) == 1


def test_generations_fit_where_they_are_said() -> None:
    assert all(GENERATION.fullmatch(generation_of(f"topic {n}")) for n in range(100))
    assert len({generation_of(f"topic {n}") for n in range(1000)}) == 1000
    assert "other-generation" in ANYWHERE
