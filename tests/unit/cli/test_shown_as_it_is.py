"""Keys, ids, values and paths are shown as they are, at a terminal and in a pipe."""

from __future__ import annotations

import importlib
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.cli.common import plain, stdout
from streamydb.cli.constraints import _list as list_constraints
from streamydb.cli.constraints import _show as show_report
from streamydb.cli.phases import Phases
from streamydb.cli.sql import show
from streamydb.cli.status import Overview, _table
from streamydb.cli.txn import _show
from streamydb.cli.watch import WatchTarget
from streamydb.cli.watch import _show as show_message
from streamydb.client.verification import VerificationReport, Violation
from streamydb.local.folder import PipelineStatus
from streamydb.records import CONSTRAINTS_KEY, canonical, decode_result
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.outputs import OutputRecord
from streamydb_layers.tables import Result as Rows

EMOJI = "user:key:1"
"""Between the colons stands the name of an emoji."""

COMMANDING = "a\x1b[2J\x9b31m\nb"
"""Would clear a terminal, and begin another line."""


class Message:
    """A record of Kafka, as far as it is looked at."""

    def __init__(self, output: OutputRecord) -> None:
        self._output = output

    def key(self) -> bytes | None:
        return self._output.key

    def value(self) -> bytes | None:
        return self._output.value


def outputs(key: str) -> list[OutputRecord]:
    put = {"op": "put", "key": key, "value": f"{key}\x7f"}
    given = {"id": "t", "updates": [put], "reads": [key, {"range": {"prefix": key}}]}
    failing = {"id": "u", "asserts": {key: 1}}
    oracle, found = Oracle("db"), []
    for offset, each in enumerate((given, failing)):
        found += oracle.apply(msgspec.json.encode(each), 0, offset, 7)
    return found


@pytest.mark.parametrize("key", [EMOJI, COMMANDING, "[red]x[/red]", "é"])
def test_what_is_watched(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    for output in outputs(key):
        if output.topic in ("changes", "results"):
            message: Any = Message(output)
            show_message(WatchTarget(output.topic), message, False)
    said = capsys.readouterr().out
    assert f"create     {plain(key)}  " in said
    assert said.count("\n") == 3
    assert not [each for each in said if plain(each) != each and each != "\n"]


@pytest.mark.parametrize("key", [EMOJI, COMMANDING])
def test_a_result(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    for output in outputs(key):
        if output.topic == "results":
            _show(decode_result(output.value or b""), json=False)
    said = capsys.readouterr().out
    assert said.count(plain(key)) >= 3
    assert not [each for each in said if plain(each) != each and each != "\n"]


def test_constraints(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    target: Any = None
    entry = {"prefix": COMMANDING, "schema": {"const": COMMANDING}, "since": 7}
    stored = {CONSTRAINTS_KEY: canonical({"c": entry})}
    monkeypatch.setattr("streamydb.cli.calls.read", lambda *_: stored)
    list_constraints(target, 1.0, json=False)
    broken = Violation("c", COMMANDING, 8, f"schema const at /{COMMANDING}")
    show_report(VerificationReport(9, 1, 0, [broken], []), json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"c  {plain(COMMANDING)}*  ")
    assert lines[1].endswith(f"violates c: schema const at /{plain(COMMANDING)}")
    assert not [each for line in lines for each in line if plain(each) != each]


def test_what_tells_a_terminal_something_is_told_by_its_number() -> None:
    assert plain(COMMANDING) == "a\\x1b[2J\\x9b31m\\x0ab"


@pytest.mark.parametrize("width", [None, "40"])
def test_long_paths_and_values_are_not_cut(
    width: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe they stay on their line, in a narrow terminal they go on in the next."""
    monkeypatch.setenv("COLUMNS", width or "80")
    path = "/a/very/long/path" * 10
    overview = Overview(
        database="bank", bootstrap="b:1", folder=path, running=False, pipeline=PipelineStatus(),
        elsewhere=None, others={}, age_s=None, broker="answers", log_records=None, lag=None,
        http=None, ended={}, log=path, connect=None,
    )  # fmt: skip
    rows = Rows(columns=("id", "text"), rows=((1, "x" * 300), (2, f"{EMOJI}\n{COMMANDING}")))
    if width is None:
        stdout().print(_table(overview))
        show(rows, json=False)
        said = capsys.readouterr().out
        assert said.count(path) == 2
        assert "x" * 300 in said
        assert EMOJI in said
        assert "\x1b" not in said
        return
    narrow = Console(file=StringIO(), width=40, force_terminal=False, emoji=False)
    narrow.print(_table(overview))
    monkeypatch.setattr(importlib.import_module("streamydb.cli.sql"), "stdout", lambda: narrow)
    show(rows, json=False)
    said = narrow.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in said
    assert said.count("x") == 300 + plain(COMMANDING).count("x")


def test_a_phase_at_a_terminal_says_what_it_was_given() -> None:
    phases = Phases()
    phases.console = Console(
        file=StringIO(), force_terminal=True, width=200, emoji=False, highlight=False
    )
    with phases.phase("The life of [/x] :key:") as phase:
        phase.note("[/red] local[*]")
        phase.outcome = "[/y]"
    said = phases.console.file.getvalue()  # type: ignore[attr-defined]
    assert "The life of [/x] :key:: [/y]" in said


def test_procedures_that_are_not_there_are_an_empty_list(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["procedures", "list", "--json", "--home", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, "[]\n")
