"""docs/tables.md: its examples run, and its names, limits and keys are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

import streamydb
from streamydb.client import Client
from streamydb.facade import create_app
from streamydb.limits import KEY_BYTES_MAX, KEYS_PER_TRANSACTION_MAX
from streamydb.testing.clients import MemoryHost
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from streamydb_layers import tables
from streamydb_layers.tables import Tables, TablesView, keys
from streamydb_layers.tables.definitions import COLUMNS_MAX, INDEXES_MAX
from streamydb_layers.tables.errors import SqlError
from streamydb_layers.tables.types import DECIMAL_DIGITS_MAX
from tests.docs.test_rest import EXAMPLE, same, split

PAGE = (Path(__file__).parents[3] / "docs" / "tables.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryHost() as host:

        def connect(url: str) -> Client:
            assert url == "http://127.0.0.1:8080"
            return host.connect()

        monkeypatch.setattr(streamydb, "connect", connect)
        exec(compile(example, "docs/tables.md", "exec"), {})  # noqa: S102 - our own page
        assert host.database.log.records


def test_the_page_names_what_there_is() -> None:
    assert len(EXAMPLES) == 5
    kinds = {name for name in tables.__all__ if issubclass(getattr(tables, name), SqlError)}
    others = {"OperationalError", "IntegrityError", "OutcomeUnknownError", "CompileError"}
    assert {*re.findall(r"`(\w+Error)`", PAGE)} - others == kinds
    methods = {n for n in dir(Tables) if not n.startswith("_")} - {"close", "controlled"}
    named = {name for name in methods if re.search(rf"[`.]{name}\b", PAGE)}
    assert methods == named
    assert hasattr(TablesView, "sql")


@scenario
async def test_the_examples_over_rest_run() -> None:
    database = MemoryDatabase()
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        found = EXAMPLE.findall(PAGE)
        assert len(found) == 2
        for request, status, answer in found:
            (first,), body = split(request)
            method, target = first.split()
            given = await client.request(method, target, body.encode())
            assert given.status == int(status)
            assert same(split("HTTP\n" + answer)[1], given.body), given.body


def test_limits_and_keys_are_those_of_the_code() -> None:
    assert f"{KEYS_PER_TRANSACTION_MAX:,} keys" in PAGE
    assert f"a key of {KEY_BYTES_MAX} bytes" in PAGE
    assert f"at most {COLUMNS_MAX} columns and {INDEXES_MAX} indexes" in PAGE
    assert f"at most {DECIMAL_DIGITS_MAX} digits" in PAGE
    documented = re.findall(r"^\| `(sql/<name>/\w+)", PAGE, re.MULTILINE)
    assert sorted({*documented}) == sorted(
        {*re.findall(r"^\| `(sql/<name>/\w+)", keys.__doc__ or "", re.MULTILINE)}
    )
    assert len({*documented}) == 6
