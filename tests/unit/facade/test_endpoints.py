"""The table of endpoints: everything about a row follows from it, and nothing beside it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.endpoint import Endpoint
from streamydb.facade.endpoints import ENDPOINTS
from streamydb.facade.problems import ProblemError
from streamydb.facade.queries import ListQuery, QueryForm, StreamQuery
from streamydb.facade.request_target import METHODS
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from tests.support.history import HistoryDatabase
from tests.support.tokens import NOBODY, bearer, connect

ROWS = [pytest.param(row, id=f"{row.method} {row.path}") for row in ENDPOINTS]
PATHS: dict[str, set[str]] = defaultdict(set)
for row in ENDPOINTS:
    PATHS[row.path].add(row.method)
    if row.method == "GET" and not row.endless:
        PATHS[row.path].add("HEAD")
NAMES = {"slug": "invalid-key", "name": "index.html"}
WRONG = {int: ["x", "1.0", "+1", "01", "1e3", "-1", "", "null"], float: ["x", "1.", "-1", "null"]}


def target_of(row: Endpoint, path: str = "") -> str:
    """A target of a row."""
    return re.sub(r"{(\w+)}", lambda name: NAMES.get(name[1], "a"), path or row.path)


def fields_of(row: Endpoint) -> dict[str, Any]:
    """The names and types of a row's parameters."""
    if row.query is None:
        return {}
    return {field.encode_name: field.type for field in msgspec.structs.fields(row.query)}


def in_process(database: MemoryDatabase, **limits: Any) -> InProcess:
    settings = FacadeSettings(read_timeout_s=0.02, **limits)
    return InProcess(create_app(database.model, database.log, database.changes, settings))


def is_refused(answer: HttpAnswer, slug: str) -> bool:
    """Whether an answer is a problem of a type."""
    kind = answer.headers.get("content-type")
    return kind == "application/problem+json" and answer.problem == slug


@scenario
async def test_a_path_has_the_methods_of_its_rows_and_names_them() -> None:
    async with in_process(HistoryDatabase()) as client:
        for path, methods in PATHS.items():
            target = target_of(ENDPOINTS[0], path)
            allow = ", ".join(sorted({*methods, "OPTIONS"}))
            told = await client.request("OPTIONS", target)
            assert (told.status, told.headers["allow"], told.body) == (204, allow, b""), path
            for method in {*METHODS, "PATCH", "TRACE"} - {*methods, "OPTIONS"}:
                answer = await client.request(method, target, b"1")
                assert (answer.status, answer.headers["allow"]) == (405, allow), (method, path)
            for method in methods:
                if not target.startswith("/v1/changes"):
                    answer = await client.request(method, target, b"1")
                    assert answer.status not in {405, 500}, (method, path)


@scenario
async def test_metrics_name_rows_by_their_paths() -> None:
    async with in_process(HistoryDatabase()) as client:
        for row in ENDPOINTS:
            await client.request("OPTIONS", target_of(row))
        await client.request("OPTIONS", "/none/secret")
        text = (await client.request("GET", "/metrics")).body.decode()
    routes = set(re.findall(r'requests_total{method="OPTIONS",route="([^"]*)"', text))
    assert routes == {*PATHS, "unmatched"}


@pytest.mark.parametrize("row", ROWS)
@scenario
async def test_a_row_knows_its_parameters_and_no_others(row: Endpoint) -> None:
    if row.query is None:
        return
    known = fields_of(row)
    names = ", ".join(sorted(known)) or "none"
    path_name = "".join(re.findall(r"{(\w+)}", row.path)) or "other"
    async with in_process(HistoryDatabase()) as client:
        twice = [f"{name}=1&{name}=1" for name in known]
        for query in ["other=1", f"{path_name}=a", "=1", "&other&", *twice]:
            answer = await client.request(row.method, f"{target_of(row)}?{query}", b"1")
            assert is_refused(answer, "invalid-parameter"), query
            assert answer.json()["detail"].endswith(f"Known here: {names}."), query
        for name, kind in known.items():
            for plain, texts in WRONG.items():
                if re.search(rf"\b{plain.__name__}\b", str(kind)) is None:
                    continue
                for text in texts:
                    target = f"{target_of(row)}?{name}={quote(text)}"
                    answer = await client.request(row.method, target, b"1")
                    assert is_refused(answer, "invalid-parameter"), target
                    assert answer.json()["parameters"] == [name], target


@scenario
async def test_a_row_is_for_those_whom_its_access_names() -> None:
    async with connect(HistoryDatabase(), read_timeout_s=0.02) as client:
        for row in ENDPOINTS:
            answer = await client.request(row.method, target_of(row), b"1")
            assert is_refused(answer, "unauthorized") == row.access.token, row.path
            if row.access.check is not None:
                answer = await client.request(row.method, target_of(row), b"1", bearer(NOBODY))
                assert is_refused(answer, "forbidden"), row.path


@scenario
async def test_only_rows_that_always_append_are_bounded_as_transactions() -> None:
    database = HistoryDatabase()
    database.executing = False
    async with in_process(database, in_flight_max=1, verdict_timeout_s=60) as client:
        pending = await client.request("PUT", "/v1/kv/a", b"1", {"prefer": "respond-async, wait=0"})
        assert pending.status == 202
        waiting = await client.stream("/v1/kv/b", method="DELETE")
        for row in ENDPOINTS:
            if not row.endless:
                answer = await client.request(row.method, target_of(row), b"1")
                bounded = is_refused(answer, "overloaded")
                assert bounded == (row.appends == "always"), (row.method, row.path)
        waiting.leave()


@scenario
async def test_only_probes_are_answered_for_any_host() -> None:
    async with in_process(HistoryDatabase(), allowed_hosts=("127.0.0.1",)) as client:
        for row in ENDPOINTS:
            answer = await client.request(row.method, target_of(row), b"1", {"host": "10.0.0.1"})
            assert is_refused(answer, "misdirected") == (not row.any_host), row.path


@scenario
async def test_the_document_shows_the_rows() -> None:
    async with in_process(HistoryDatabase()) as client:
        paths = (await client.request("GET", "/schema")).json()["paths"]
    shown = {(method.upper(), path) for path, item in paths.items() for method in item}
    assert shown == {(row.method, row.path) for row in ENDPOINTS if row.answers}
    for row in ENDPOINTS:
        if row.answers:
            operation = paths[row.path][row.method.lower()]
            places = [(p["in"], p["name"]) for p in operation.get("parameters", ())]
            assert places == [
                *(("query", name) for name in fields_of(row)),
                *(("path", name) for name in re.findall(r"{(\w+)}", row.path)),
                *(("header", name) for name in row.headers),
            ]
            assert ("requestBody" in operation) == (row.body is not None)
            assert {str(status) for status in row.answers} <= operation["responses"].keys()


NAMES_AND_TEXTS = st.lists(
    st.tuples(
        st.sampled_from(["prefix", "start", "limit", "at", "wait", "cursor", "é"]),
        st.one_of(st.sampled_from(["1", "a/b", "null", "9" * 20, "0.5"]), st.text(max_size=4)),
    ),
    max_size=3,
)


def outcome(form: QueryForm[Any], query: str) -> Any:
    try:
        return form.read(query.encode())
    except ProblemError as problem:
        return problem.detail, problem.members


@pytest.mark.parametrize("kind", [ListQuery, StreamQuery])
@given(pairs=NAMES_AND_TEXTS)
def test_escapes_change_nothing_in_a_query(
    kind: type[msgspec.Struct], pairs: list[tuple[str, str]]
) -> None:
    form = QueryForm(kind)
    escaped = "&".join(
        f"{''.join(f'%{byte:02x}' for byte in name.encode())}={quote(text, safe='')}"
        for name, text in pairs
    )
    plain = "&".join(f"{name}={text}" for name, text in pairs)
    found = outcome(form, escaped)
    if plain.isascii() and not re.search(r"[%+&=]", "".join(text for _, text in pairs)):
        assert outcome(form, plain) == found
    if not isinstance(found, tuple):
        given = dict(pairs)
        assert {name: str(getattr(found, name)) for name in given} == {
            name: str(float(text)) if name == "wait" else str(int(text))
            if name in {"limit", "at"} else text
            for name, text in given.items()
        }  # fmt: skip
