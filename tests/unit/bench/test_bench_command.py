"""Where `streamydb bench` writes its answer is looked at before hours are measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import main
from bench.errors import BenchError
from bench.main import app


@pytest.mark.parametrize("place", ["file/answer.json", "folder"])
def test_an_answer_that_could_not_be_written(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    measured: list[Any] = []
    monkeypatch.setattr(main, "run_sql", lambda *_: measured.append(True))
    done = CliRunner().invoke(app, ["sql", "--output", str(tmp_path / place)])
    assert isinstance(done.exception, BenchError)
    assert place in str(done.exception)
    assert not measured


def test_a_folder_is_made_and_an_answer_is_printed_before_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "new" / "answer.json"

    def measure(*_: Any) -> dict[str, Any]:
        assert list(output.parent.iterdir()) == []
        output.mkdir()  # somebody does meanwhile
        return {"answer": 1}

    monkeypatch.setattr(main, "run_sql", measure)
    done = CliRunner().invoke(app, ["sql", "--output", str(output), "--json"])
    assert isinstance(done.exception, OSError)
    assert done.stdout == '{"answer":1}\n'


@pytest.mark.parametrize("command", ["bank", "latency", "recovery"])
def test_several_shards_have_one_gear(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--shards", "2", "--gear", "both"])
    assert done.exit_code == 2
    assert "--gear both needs one shard" in done.output


@pytest.mark.parametrize("more", [["--rise", "121"], ["--rise", "1", "--beside", "2"]])
def test_a_rise_that_is_no_part_of_the_warm_up_is_refused(more: list[str]) -> None:
    done = CliRunner().invoke(app, ["latency", *more])
    assert done.exit_code == 2
    assert "--rise is a part of --warm-up" in done.output
