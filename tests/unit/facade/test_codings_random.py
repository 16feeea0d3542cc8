"""Compressed answers: the coding is chosen before the tag, the length and `Vary` are.

Every address that can be read is asked with generated fields Accept-Encoding, by GET and HEAD, with
and without conditions. A model of RFC 9110, section 12.5.3, says which coding is sent.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.about import About
from streamydb.testing.in_process import HttpAnswer, InProcess
from streamydb.testing.memory import MemoryDatabase
from tests.support.seeds import seeds

BIG = json.dumps(["all the same"] * 500).encode()
STREAMING = {"/v1/changes"}
CHANGING = {"/metrics", "/v1/stats", "/health/ready", "/v1/pipelines"}
"""Two answers to the same question differ in more than their coding."""

PLACES = {"{key}": ["big", "small", "none"], "{id}": ["t1", "none"], "{slug}": ["aborted", "none"],
          "{name}": ["no.stream"]}  # fmt: skip
FILES = ["/", "/console/console.css", "/schema/openapi.json", "/nothing"]


class Wanted(NamedTuple):
    """A field Accept-Encoding in two lines or one, and its members with their weights."""

    lines: tuple[str, ...]
    weights: dict[str, float]


MEMBERS = st.tuples(
    st.sampled_from(["gzip", "GZip", "x-gzip", "identity", "*", "br", "deflate"]),
    st.sampled_from(["", ";q=1", ";q=0", " ; q=0.5", ";q=0.000", ";\tQ=0.001", ";q=0.9"]),
)  # fmt: skip


@st.composite
def fields(draw: st.DrawFn) -> Wanted:
    """Each coding once; empty members; blanks; one line or two."""
    members = draw(st.lists(MEMBERS, max_size=4, unique_by=lambda each: each[0].lower()[-4:]))
    texts = [name + weight for name, weight in members]
    texts.insert(draw(st.integers(0, len(texts))), "")
    cut = draw(st.integers(0, len(texts)))
    parts = [texts[:cut], texts[cut:]] if draw(st.booleans()) else [texts]
    weights = {
        name.lower().removeprefix("x-"): float(weight.lower().partition("q=")[2] or 1)
        for name, weight in members
    }
    return Wanted(tuple(" , ".join(part) for part in parts), weights)


def expected(wanted: Wanted, size: int, least: int) -> str:
    """The coding of a body: the best that is accepted; the plain one if none is."""
    weights = wanted.weights
    compressed = weights.get("gzip", weights.get("*", 0))
    plain = weights.get("identity", weights.get("*", 0.0001))
    return "gzip" if size >= least and compressed and compressed >= plain else ""


def addresses() -> list[str]:
    """All addresses that the OpenAPI document says can be read, and some that it does not."""
    document = json.loads(asyncio.run(schema()).body)
    paths = [path for path, item in document["paths"].items() if "get" in item]
    named = [
        path.replace(place, each)
        for path in paths
        for place, names in PLACES.items() if place in path
        for each in names
    ]  # fmt: skip
    return [*FILES, *named, *(path for path in paths if "{" not in path)]


async def schema() -> HttpAnswer:
    """The OpenAPI document."""
    async with InProcess(facade(MemoryDatabase())) as client:
        return await client.request("GET", "/schema/openapi.json")


def facade(database: MemoryDatabase, **limits: Any) -> Any:
    """A facade of a database in memory."""
    limited = FacadeSettings(**limits)
    return create_app(database.model, database.log, database.changes, limited, about=About())


ADDRESSES = [path for path in addresses() if path not in STREAMING]


def test_all_kinds_of_addresses_are_asked() -> None:
    assert {"/v1/kv/big", "/v1/kv", "/v1/limits", "/", "/schema/openapi.json"} <= set(ADDRESSES)
    assert len(ADDRESSES) > 20


async def written(client: InProcess) -> None:
    """Put what is read."""
    await client.request("PUT", "/v1/kv/big", BIG, {"idempotency-key": "t1"})
    await client.request("PUT", "/v1/kv/small", b"1")


def body_of(answer: HttpAnswer) -> bytes:
    """The body without its coding."""
    coded = answer.headers.get("content-encoding") == "gzip"
    return gzip.decompress(answer.body) if coded else answer.body


def comparable(answer: HttpAnswer, path: str) -> dict[str, str]:
    """The headers that the same question must get again."""
    left_out = {"content-length"} if path in CHANGING else set()
    return {name: value for name, value in answer.headers.items() if name not in left_out}


@pytest.mark.randomized
@settings(max_examples=seeds(6), phases=[Phase.generate], deadline=None)
@given(
    least=st.sampled_from([1, 100, 65_536]),
    asked=st.lists(fields(), min_size=3, max_size=3),
    data=st.data(),
)
def test_a_coding_changes_tag_and_length_and_is_told(
    least: int, asked: list[Wanted], data: st.DataObject
) -> None:
    async def scenario() -> None:
        async with InProcess(facade(MemoryDatabase(), compressed_bytes_min=least)) as client:
            await written(client)
            for path in ADDRESSES:
                plain = await client.request("GET", path)
                bodies: dict[str, bytes] = {}
                for wanted in asked:
                    await ask(client, path, plain, wanted, least, bodies)
                tags = data.draw(st.permutations(list(bodies)))[:2]
                wanted = data.draw(st.sampled_from(asked))
                await ask_again(client, path, wanted, tags, plain, least)

    asyncio.run(scenario())


async def ask(
    client: InProcess,
    path: str,
    plain: HttpAnswer,
    wanted: Wanted,
    least: int,
    bodies: dict[str, bytes],
) -> None:
    """Ask for one representation, by GET and HEAD."""
    lines = [("Accept-Encoding", line) for line in wanted.lines]
    answer = await client.request("GET", path, repeated=lines)
    head = await client.request("HEAD", path, repeated=lines)
    coding = expected(wanted, len(body_of(answer)), least)
    assert answer.status == head.status == plain.status
    assert answer.headers.get("content-encoding", "") == coding, (path, wanted)
    assert answer.headers["vary"].split(", ").count("Accept-Encoding") == 1
    assert answer.headers["vary"] == plain.headers["vary"]
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert (comparable(head, path), head.body) == (comparable(answer, path), b"")
    if path not in CHANGING:
        assert body_of(answer) == plain.body
    tag = answer.headers.get("etag")
    assert (tag is None) == ("etag" not in plain.headers)
    if tag is not None:
        assert tag.endswith('-gzip"') is bool(coding)
        assert bodies.setdefault(tag, answer.body) == answer.body


async def ask_again(
    client: InProcess, path: str, wanted: Wanted, tags: list[str], plain: HttpAnswer, least: int
) -> None:
    """Ask with the tags that are known: 304 tells one of them if the client takes that coding."""
    if not tags:
        return
    lines = [("Accept-Encoding", line) for line in wanted.lines]
    best = await client.request("GET", path, repeated=lines)
    for name in ("If-None-Match", "If-Match"):
        conditional = [*lines, (name, ", ".join(tags))]
        answer = await client.request("GET", path, repeated=conditional)
        head = await client.request("HEAD", path, repeated=conditional)
        assert (head.status, head.headers) == (answer.status, answer.headers)
        assert answer.headers["vary"] == plain.headers["vary"]
        takes = acceptable(wanted, len(plain.body), least)
        fits = any(takes[tag.endswith('-gzip"')] for tag in tags)
        if name == "If-None-Match" and fits:
            assert (answer.status, answer.body) == (304, b"")
            assert answer.headers["etag"] in tags
            assert "content-length" not in answer.headers
            assert "content-encoding" not in answer.headers
        elif name == "If-Match" and not fits:
            assert (answer.status, answer.problem) == (412, "precondition-failed")
        else:
            assert (answer.status, body_of(answer)) == (200, plain.body)
            coded = answer.headers["etag"].endswith('-gzip"')
            assert coded is ("content-encoding" in answer.headers)
            assert best.headers["etag"] not in tags or answer.headers == best.headers
            assert name == "If-None-Match" or answer.headers["etag"] in tags


def acceptable(wanted: Wanted, size: int, least: int) -> tuple[bool, bool]:
    """Whether the plain and the compressed representation can be sent to a client."""
    if size < least:
        return True, False
    weights = wanted.weights
    compressed = bool(weights.get("gzip", weights.get("*", 0)))
    plain = bool(weights.get("identity", weights.get("*", 0.0001)))
    return plain or not compressed, compressed


@pytest.mark.parametrize("suffix", ["", "-gzip"])
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_write_takes_the_tags_of_all_codings_of_a_version(suffix: str, method: str) -> None:
    async def scenario() -> list[int]:
        async with InProcess(facade(MemoryDatabase())) as client:
            await written(client)
            sent = [{"If-None-Match": f'"1{suffix}"'}, {"If-Match": f'"2{suffix}"'},
                    {"If-Match": f'W/"1{suffix}"'}, {"If-Match": f'"1{suffix}"'}]  # fmt: skip
            answers = [await client.request(method, "/v1/kv/big", b"1", each) for each in sent]
            return [answer.status for answer in answers]

    assert asyncio.run(scenario()) == [412, 412, 412, 200]


def test_an_event_stream_has_one_representation() -> None:
    async def scenario() -> dict[str, str]:
        async with InProcess(facade(MemoryDatabase(), compressed_bytes_min=1)) as client:
            stream = await client.stream("/v1/changes?since=0", {"accept-encoding": "gzip"})
            return stream.headers

    headers = asyncio.run(scenario())
    assert "content-encoding" not in headers
    assert "Accept-Encoding" not in headers.get("vary", "")
