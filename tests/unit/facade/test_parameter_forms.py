"""Numbers in queries have the form that they have in bodies; answers name their charset once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from streamydb.facade import console, create_app
from streamydb.facade.headers import read_media_type
from streamydb.limits import DEADLINE_AHEAD_MS_MAX
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase

FORMS = ["1e3", "1.0", "1E0", "+1", "01", " 1", "1 ", "1_0", "0x1", "\u0661", "1.", "", "-0x1"]
NO_NUMBERS = ["nan", "inf", "Infinity", "1_0", "+1", " 1", "01", ".5", "1.", "", "0x1", "\u0661"]


def connect() -> InProcess:
    database = MemoryDatabase()
    return InProcess(create_app(database.model, database.log, database.changes))


def kinds(schema: Any) -> set[str]:
    """The JSON types of a parameter."""
    named = schema.get("type", [])
    found = {named} if isinstance(named, str) else set(named)
    return found.union(*(kinds(each) for each in schema.get("oneOf", schema.get("anyOf", []))))


async def numbers(client: InProcess) -> list[tuple[str, str, str, str]]:
    """Method, path, name and type of every query parameter that is a number."""
    paths = (await client.request("GET", "/schema")).json()["paths"]
    return [
        (method.upper(), path, parameter["name"], kind)
        for path, item in paths.items()
        for method, operation in item.items()
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query"
        for kind in kinds(parameter["schema"]) & {"integer", "number"}
    ]


@scenario
async def test_a_number_in_a_query_is_written_as_in_json() -> None:
    async with connect() as client:
        found = await numbers(client)
        names = {name for *_, name, _ in found}
        assert names >= {"at", "limit", "min_version", "since", "ttl_ms", "wait"}
        for method, path, name, kind in found:
            target = path.replace("{key}", "a").replace("{name}", "a.b")
            for text in FORMS if kind == "integer" else NO_NUMBERS:
                asked = f"{target}?{name}={quote(text)}"
                answer = await client.request(method, asked, b"1")
                assert (answer.status, answer.problem) == (400, "invalid-parameter"), asked
                assert answer.json()["parameters"] == [name], asked


@pytest.mark.parametrize("text", FORMS)
@scenario
async def test_a_body_refuses_the_same_forms(text: str) -> None:
    bodies = {
        "/v1/read": '{"keys": ["a"], "%s": %s}',
        "/v1/query": '{"sql": "select 1", "%s": %s}',
        "/v1/sql": '{"statements": [{"sql": "select 1"}], "%s": %s}',
    }
    async with connect() as client:
        for path, body in bodies.items():
            for name in ("at", "min_version"):
                if text.strip() == "1":  # spaces around a token of JSON are none of it
                    continue
                sent = (body % (name, text)).encode()
                assert (await client.request("POST", path, sent)).status == 400, sent


@scenario
async def test_no_answer_names_a_parameter_of_its_type_twice() -> None:
    folder = Path(console.__file__).parent / "static"
    files = [f"/console/{each.relative_to(folder)}" for each in folder.rglob("*") if each.is_file()]
    async with connect() as client:
        paths = (await client.request("GET", "/schema")).json()["paths"]
        plain = [path for path, item in paths.items() if "get" in item and "{" not in path]
        plain.remove("/v1/changes")
        streamed = await client.stream("/v1/changes")
        types = {"/v1/changes": streamed.headers["content-type"]}
        for target in ["/", "/schema", "/v1/kv/none", *plain, *files]:
            types[target] = (await client.request("GET", target)).headers["content-type"]
    for target, shown in types.items():
        media = read_media_type(shown)
        assert media is not None, target
        names = [name for name, _ in media.parameters]
        assert len(set(names)) == len(names), (target, shown)
        if media.name.startswith("text/"):
            assert "charset" in names, (target, shown)


@scenario
async def test_a_record_that_was_rejected_in_the_log_is_told_with_its_seq() -> None:
    database = MemoryDatabase()
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        far = database.log.time_ms() + 10 * DEADLINE_AHEAD_MS_MAX
        answer = await client.request("PUT", "/v1/kv/a", b"1", {"Deadline-Ms": str(far)})
        assert (answer.status, answer.problem) == (422, "invalid-transaction")
        shown = answer.json()
        assert (shown["code"], shown["seq"]) == ("deadline-too-far", 1)
        assert len(database.log.records) == 1
        described = (await client.request("GET", "/problems/invalid-transaction")).json()["when"]
        assert "appended" not in described
        never = await client.request("POST", "/v1/transactions", json.dumps({"x": 1}).encode())
        assert (never.problem, "seq" in never.json()) == ("invalid-transaction", False)
