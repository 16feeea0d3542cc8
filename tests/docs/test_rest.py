"""docs/rest.md is true: its examples run, and its tables are those of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

from streamydb.facade import create_app
from streamydb.records.problems import PROBLEMS
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase

PAGE = (Path(__file__).parents[2] / "docs" / "rest.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```http\n(.*?)\n\nHTTP/1\.1 (\d+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def split(text: str) -> tuple[list[str], str]:
    """Lines before the first empty line, and what follows it."""
    head, _, body = ("\n" + text).partition("\n\n")
    return head.strip().splitlines(), body.strip()


def same(expected: str, actual: bytes) -> bool:
    """Whether a body is as shown; … stands for a value that differs from run to run."""
    canonical = json.dumps(json.loads(expected.replace('"…"', '"*"').replace("…", '"*"')))
    pattern = re.escape(canonical).replace(re.escape('"*"'), r'("[^"]*"|\d+)')
    return re.fullmatch(pattern, json.dumps(json.loads(actual))) is not None


@scenario
async def test_the_examples_run() -> None:
    """They are one session with an empty database."""
    database = MemoryDatabase()
    examples = EXAMPLE.findall(PAGE)
    assert len(examples) >= 6
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        for request, status, answer in examples:
            (first, *headers), body = split(request)
            method, target = first.split()
            given = dict(line.split(": ", 1) for line in headers)
            found = await client.request(
                method, target, body.encode(), {name.lower(): v for name, v in given.items()}
            )
            assert found.status == int(status), (first, found)
            shown, expected = split(answer)
            for line in shown:
                name, value = line.split(": ", 1)
                assert found.headers[name.lower()] == value, first
            assert same(expected, found.body), (first, found.body)


def test_every_problem_type_is_in_the_table() -> None:
    rows = "\n".join(
        f"| `{p.slug}` | {p.status} | {p.title} | {p.when} |" for p in PROBLEMS.values()
    )
    assert f"|---|---|---|---|\n{rows}\n" in PAGE, f"the table should be:\n{rows}"


@scenario
async def test_every_endpoint_is_in_the_table() -> None:
    database = MemoryDatabase()
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        document = (await client.request("GET", "/schema/openapi.json")).json()
    endpoints = {
        f"`{method.upper()} {path}`"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert len(endpoints) >= 14
    assert {endpoint for endpoint in endpoints if endpoint not in PAGE} == set()
