"""SQL tables where the distribution streamydb-layers, or what it needs, is not installed."""

from __future__ import annotations

import importlib.util
import json
from importlib.machinery import ModuleSpec

import pytest
from typer.testing import CliRunner

pytest.importorskip("duckdb")

from streamydb.cli import app
from streamydb.facade import create_app
from streamydb.sql import tables
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase

PACKAGES = [("streamydb_layers", "streamydb-layers"), ("sqlglot", "sqlglot")]
INSTALL = "pip install './layers[sql]'"


def without(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a module be missing, whatever this machine has."""

    def find_spec(name: str) -> ModuleSpec | None:
        if name == module:
            return None
        return importlib.util.find_spec(name) or ModuleSpec(name, None)

    monkeypatch.setattr(tables, "find_spec", find_spec)


@pytest.mark.parametrize(("module", "package"), PACKAGES)
def test_the_command_names_the_package_to_install(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(module, monkeypatch)
    done = CliRunner().invoke(app, ["sql", "--url", "http://127.0.0.1:1", "select 1"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"SQL tables need the package {package}: {INSTALL}" in done.stderr.replace("\n", " ")
    shown = CliRunner().invoke(app, ["sql", "--help"])
    assert shown.exit_code == 0, "its help needs nothing"


@pytest.mark.parametrize(("module", "package"), PACKAGES)
@scenario
async def test_the_facade_names_the_package_to_install(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(module, monkeypatch)
    database = MemoryDatabase()
    body = json.dumps({"statements": [{"sql": "select 1"}]}).encode()
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        answer = await client.request("POST", "/v1/sql", body, {})
        query = await client.request("POST", "/v1/query", b'{"sql": "select 1 as one"}', {})
    assert (answer.status, answer.problem) == (501, "queries-off")
    assert f"This facade has no {package}; install it there: {INSTALL}" in answer.json()["detail"]
    assert query.json()["rows"] == [[1]], "queries of snapshots need no layers"


def test_a_pool_is_told_that_a_package_is_missing() -> None:
    from streamydb.sql.pool import _environment

    with pytest.raises(OSError, match="the package absent_package is not installed"):
        _environment("absent_package.tables.process")
