"""Conditions of requests are judged as RFC 9110 says: lists by its grammar, against a model.

The model knows the members of a list, since it makes the field's text of them. It follows sections
8.8.3.2 (comparison), 13.1 (the fields) and 13.2 (when, and in which order, they are evaluated).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from streamydb.facade import FacadeSettings, create_app
from streamydb.testing.in_process import HttpAnswer, InProcess
from streamydb.testing.memory import MemoryDatabase
from tests.support.seeds import seeds

KEY, ABSENT = "/v1/kv/a", "/v1/kv/none"
FIELDS = ("If-Match", "If-None-Match")
PAGE = "/"
"""A file of the console: it has a tag, too."""


class Field(NamedTuple):
    """A condition: the tags in it (None: `*`), and the header's lines that say so."""

    tags: tuple[str, ...] | None
    lines: tuple[str, ...]


def lines_of(draw: st.DrawFn, tags: list[str]) -> tuple[str, ...]:
    """A list of tags by the grammar: blanks, empty members, several lines."""
    members = list(tags)
    for _ in range(draw(st.integers(0, 2))):
        members.insert(draw(st.integers(0, len(members))), "")
    blanks = st.text(" \t", max_size=2)
    spaced = [draw(blanks) + member + draw(blanks) for member in members]
    cut = draw(st.integers(0, len(spaced)))
    parts = [spaced[:cut], spaced[cut:]] if draw(st.booleans()) else [spaced]
    return tuple(",".join(part) for part in parts)


OPAQUE = st.one_of(
    st.integers(0, 12).map(str), st.integers(0, 12).map("{}-gzip".format),
    st.sampled_from(["1,2", ",", "", "01", "+1", "1 ".strip(), "*", "W/", "é", "\xff", "\\",
                     "9223372036854775807", "9223372036854775808", "1" * 30]),
    st.text(st.sampled_from([chr(n) for n in (0x21, *range(0x23, 0x7F), *range(0x80, 0x100))]),
            max_size=3),
)  # fmt: skip
TAGS = st.builds(lambda weak, text: ("W/" if weak else "") + f'"{text}"', st.booleans(), OPAQUE)


@st.composite
def fields(draw: st.DrawFn, own: str = "") -> Field | None:
    """A condition, or none."""
    kind = draw(st.sampled_from(["none", "star", "list", "list", "list"]))
    if kind == "none":
        return None
    if kind == "star":
        return Field(None, (draw(st.sampled_from(["*", " *", "*\t"])),))
    some = TAGS if not own else st.one_of(TAGS, st.sampled_from([own, f"W/{own}"]))
    tags = draw(st.lists(some, max_size=4))
    return Field(tuple(tags), lines_of(draw, tags))


def matches(field: Field, tag: str | None, *, strong: bool) -> bool:
    """Section 8.8.3.2, for what there is; None: nothing."""
    if tag is None:
        return False
    if field.tags is None:
        return True
    return tag in field.tags or (not strong and f"W/{tag}" in field.tags)


def matches_any(field: Field, tag: str | None, method: str, *, strong: bool) -> bool:
    """A read is of the plain value, which is small; a write is of a version in all its codings."""
    own = [tag]
    if tag is not None and method in {"PUT", "DELETE"}:
        own.append(f'{tag[:-1]}-gzip"')
    return any(matches(field, each, strong=strong) for each in own)


def expected(method: str, tag: str | None, conditions: tuple[Field | None, Field | None]) -> int:
    """The status that section 13 wants: 0 if the request is to be served."""
    reading = method in {"GET", "HEAD"}
    if reading and tag is None:
        return 404  # section 13.2.1: without the conditions it would be no success
    matching, excluded = conditions
    if matching is not None and not matches_any(matching, tag, method, strong=True):
        return 412
    if excluded is not None and matches_any(excluded, tag, method, strong=False):
        return 304 if reading else 412
    return 0


def sent(conditions: tuple[Field | None, Field | None]) -> list[tuple[str, str]]:
    """The lines of all conditions."""
    return [
        (name, line)
        for name, field in zip(FIELDS, conditions, strict=True) if field is not None
        for line in field.lines
    ]  # fmt: skip


def operations() -> set[tuple[str, str]]:
    """The methods and paths that take conditions, by the OpenAPI document."""
    app = create_app(*ports(MemoryDatabase()), FacadeSettings())
    document = json.loads(asyncio.run(schema_of(app)))
    return {
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if {"If-Match", "If-None-Match"} & {each["name"] for each in operation.get(
            "parameters", ())}
    }  # fmt: skip


async def schema_of(app: Any) -> bytes:
    """The OpenAPI document of a facade."""
    async with InProcess(app) as client:
        return (await client.request("GET", "/schema/openapi.json")).body


def ports(database: MemoryDatabase) -> tuple[Any, Any, Any]:
    """What a facade is made of."""
    return database.model, database.log, database.changes


def test_every_operation_that_takes_conditions_is_tried_below() -> None:
    assert operations() == {(method, "/v1/kv/{key}") for method in ("GET", "PUT", "DELETE")}


REQUESTS = st.tuples(
    st.sampled_from(["GET", "HEAD", "PUT", "PUT", "DELETE"]), st.sampled_from([KEY, KEY, ABSENT]),
    fields(), fields(),
)  # fmt: skip


@pytest.mark.randomized
@settings(max_examples=seeds(40), phases=[Phase.generate], deadline=None)
@given(asked=st.lists(REQUESTS, min_size=1, max_size=12))
def test_lists_of_entity_tags_are_judged_as_the_standard_says(asked: list[Any]) -> None:
    database = MemoryDatabase()
    app = create_app(*ports(database), FacadeSettings())

    async def scenario() -> None:
        tags: dict[str, str | None] = {KEY: None, ABSENT: None}
        async with InProcess(app) as client:
            tags[KEY] = (await client.request("PUT", KEY, b"0")).headers["etag"]
            for method, path, *conditions in asked:
                pair = (conditions[0], conditions[1])
                answer = await client.request(method, path, b"1", repeated=sent(pair))
                wanted = expected(method, tags[path], pair)
                assert answer.status == (wanted or served(method, tags[path], pair)), pair
                if answer.status in {200, 201} and method in {"PUT", "DELETE"}:
                    tags[path] = answer.headers.get("etag")
                elif answer.status in {200, 304}:
                    assert answer.headers["etag"] == tags[path]

    asyncio.run(scenario())


def served(method: str, tag: str | None, pair: tuple[Field | None, Field | None]) -> int:
    """The status of success: 201 where the conditions have ensured that there was nothing."""
    created = method == "PUT" and tag is None and pair[1] is not None
    return 201 if created else 200


@pytest.mark.randomized
@settings(max_examples=seeds(20), phases=[Phase.generate], deadline=None)
@given(data=st.data())
def test_conditions_on_files_are_judged_in_the_same_way(data: st.DataObject) -> None:
    app = create_app(*ports(MemoryDatabase()), FacadeSettings())

    async def scenario() -> None:
        async with InProcess(app) as client:
            tag = (await client.request("GET", PAGE)).headers["etag"]
            for _ in range(5):
                pair = (data.draw(fields(tag)), data.draw(fields(tag)))
                answer = await client.request("GET", PAGE, repeated=sent(pair))
                assert answer.status == (expected("GET", tag, pair) or 200), pair

    asyncio.run(scenario())


BROKEN = [
    "1", '"1" "2"', '"1";"2"', '"1', '1"', 'w/"1"', 'W /"1"', 'W/ "1"', "W/*", '"a b"', '"\x7f"',
    '*, "1"', '"1", *', "**", '"1"x', '"1",x', "W/", '\xa0"1"', '"1"\xa0', '"1",\x0b"2"',
]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("name", FIELDS)
def test_what_is_no_list_of_entity_tags_is_refused(method: str, name: str) -> None:
    database = MemoryDatabase()
    app = create_app(*ports(database), FacadeSettings())

    async def scenario() -> list[HttpAnswer]:
        async with InProcess(app) as client:
            await client.request("PUT", KEY, b"0")
            return [await client.request(method, KEY, b"1", {name: text}) for text in BROKEN]

    answers = asyncio.run(scenario())
    assert [answer.status for answer in answers] == [400] * len(BROKEN)
    assert len(database.log.records) == 1


# Writes whose conditions name several versions, while others write


def interleaved(database: MemoryDatabase, acts: list[str]) -> None:
    """Have others write before each of the next appends."""
    append, left = database.log.append, list(acts)

    async def appended(
        txn_id: str, payload: bytes, headers: Mapping[str, bytes] | None = None
    ) -> Any:
        act = left.pop(0) if left else ""
        if act:
            op: dict[str, Any] = {"op": act, "key": "a"} | ({"value": 9} if act == "put" else {})
            other = {"id": f"other-{len(database.log.records)}", "updates": [op]}
            database.log.records.append(json.dumps(other).encode())
        return await append(txn_id, payload, headers)

    database.log.append = appended  # type: ignore[method-assign]


def versions(database: MemoryDatabase) -> list[int]:
    """The version of the key after each seq, from 0 on; by the log's own verdicts."""
    found = [0]
    for result in sorted(database.log.results, key=lambda result: result.seq):
        if result.duplicate:
            continue
        fields = json.loads(database.log.records[result.source.offset])
        wrote = result.status == "committed" and fields["updates"]
        deletes = wrote and fields["updates"][0]["op"] == "delete"
        found.append(0 if deletes else result.seq if wrote else found[-1])
    return found


NUMBERS = st.lists(st.integers(1, 9), max_size=6).map(
    lambda numbers: Field(tuple(f'"{n}"' for n in numbers), (",".join(f'"{n}"' for n in numbers),))
)
STAR = st.just(Field(None, ("*",)))


@pytest.mark.randomized
@settings(max_examples=seeds(80), phases=[Phase.generate], deadline=None)
@given(
    before=st.lists(st.sampled_from(["put", "delete"]), max_size=4),
    pair=st.tuples(st.none() | STAR | NUMBERS, st.none() | STAR | NUMBERS),
    acts=st.lists(st.sampled_from(["", "put", "put", "delete"]), max_size=12),
    method=st.sampled_from(["PUT", "DELETE"]),
)
def test_a_list_on_a_write_is_judged_at_one_instant(
    before: list[str], pair: tuple[Field | None, Field | None], acts: list[str], method: str
) -> None:
    database = MemoryDatabase()
    app = create_app(*ports(database), FacadeSettings())
    key = {"Idempotency-Key": "mine"}

    async def scenario() -> list[HttpAnswer]:
        async with InProcess(app) as client:
            for act in before:
                await client.request(act.upper(), KEY, b"0")
            interleaved(database, acts)
            return [
                await client.request(method, KEY, b"1", key, repeated=sent(pair)) for _ in range(2)
            ]

    one, again = asyncio.run(scenario())
    assert one.status == again.status
    state = versions(database)
    if one.status in {200, 201}:
        seq = one.json()["seq"]
        assert again.json()["seq"] == seq
        met = state[seq - 1]
        assert expected(method, f'"{met}"' if met else None, pair) == 0
        assert one.status == (201 if method == "PUT" and pair[1] and not met else 200)
    elif one.status == 412 and "seq" in one.json():
        met = state[one.json()["seq"] - 1]
        assert one.json()["version"] == met
        assert expected(method, f'"{met}"' if met else None, pair) == 412
    elif one.status == 412:  # nothing was appended: no version can meet them
        tags = [None, *(f'"{n}"' for n in range(1, 30))]
        assert {expected(method, tag, pair) for tag in tags} == {412}
    else:
        assert (one.status, one.problem) == (409, "aborted")
        assert len(acts) >= 8
    mine = [r for r in database.log.results if r.status == "committed" and r.id is not None
            and r.id.startswith("mine") and not r.duplicate]  # fmt: skip
    assert len(mine) == (one.status in {200, 201})
