"""What the command line says of itself."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from streamydb import __version__
from streamydb.cli import app
from streamydb.limits import LIMITS


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_its_version_alone_and_with_what_it_stands_on() -> None:
    alone = said("--version")
    assert alone.startswith(f"streamydb {__version__}")
    assert alone.count("\n") == 1
    assert said("version").startswith(alone)
    packages = json.loads(said("version", "--json"))["packages"]
    assert packages["pyspark"] == "4.3.0"
    assert packages["pandas"] < "3"


def test_all_limits_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert json.loads(said("limits", "--json")) == LIMITS
    shown = said("limits")
    assert [name for name in LIMITS if name not in shown] == []
