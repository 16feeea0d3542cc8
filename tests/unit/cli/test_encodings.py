"""Standard output that cannot show every character: it shows what it can, and fails at nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.cli.common import let_java_read_every_name
from streamydb.cli.phases import bar

PROGRAM = """
import typer
from streamydb.cli import common
from streamydb.cli.phases import Phases, bar

app = typer.Typer(cls=common.Commands)

@app.callback()
def _main() -> None:
    pass

@app.command()
def shows() -> None:
    with Phases().phase("one"):
        pass
    out = common.stdout()
    out.print(common.tick(out, good=True), "Grüße", bar(1, 2, 2))
    typer.echo("Ω: Grüße")
    common.print_json({"ключ": "Grüße \\U0001f600"})
    common.print_raw('{"a": "é"}'.encode())

app()
"""
ENCODINGS = [
    {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii:strict"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"LC_ALL": "C"}, {"PYTHONIOENCODING": "utf-8"},
]  # fmt: skip


@pytest.mark.parametrize("environment", ENCODINGS, ids=str)
def test_every_encoding_shows_what_it_can(environment: dict[str, str], tmp_path: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONIO"))}
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, str(program), "shows"],
        env={**kept, "PYTHONPATH": root, **environment},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    lines = done.stdout.splitlines()
    assert json.loads(lines[-2]) == {"ключ": "Grüße \U0001f600"}
    assert json.loads(lines[-1]) == {"a": "é"}
    utf8 = environment.get("PYTHONIOENCODING", "utf-8" if len(environment) == 1 else "") == "utf-8"
    assert lines[0].startswith("✓ Grüße".encode() if utf8 else b"+ Gr"), lines[0]


def test_a_bar_is_of_characters_that_can_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, shown in (("utf-8", "█░"), ("latin-1", "#."), ("no encoding", "█░")):
        error: Any = SimpleNamespace(encoding=encoding)
        monkeypatch.setattr(sys, "stderr", error)
        assert bar(1, 2, 2) == shown


@pytest.mark.parametrize(
    ("given", "known_as", "handed_on"),
    [
        ("C", "C", "C.UTF-8"), ("xx_XX.UTF-8", "C", "C.UTF-8"), ("C.UTF-8", "C.UTF-8", "C.UTF-8"),
        ("", "C", ""), ("de_DE.UTF-8", "de_DE.UTF-8", "de_DE.UTF-8"),
    ],
)  # fmt: skip
def test_java_is_told_to_read_every_name(
    given: str, known_as: str, handed_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a home with an umlaut, the broker's and Spark's ended at once with a chain of errors."""
    monkeypatch.setenv("LC_ALL", given)
    monkeypatch.setattr("locale.setlocale", lambda _: known_as)
    let_java_read_every_name()
    assert os.environ["LC_ALL"] == handed_on
