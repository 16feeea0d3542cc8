"""`streamydb whatif` of a backup, which needs no Kafka; arguments of it and of `fork`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.procedures.folder import file_name

GOLDEN = Path(__file__).parents[2] / "golden" / "0.2.0"
RULE = '{"name": "small", "prefix": "", "type": "number", "max": 0}'


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    folder = tmp_path / "modules"
    folder.mkdir()
    for digest, text in json.loads((GOLDEN / "modules.json").read_bytes()).items():
        for name in ("sim", "other"):
            (folder / file_name(name, digest)).write_text(text)
    backup = str(GOLDEN / "backup")
    return ["whatif", "--backup", backup, "--home", str(tmp_path), "--procedures", str(folder)]


def test_a_constraint_on_a_backup(asked: list[str], tmp_path: Path) -> None:
    out = tmp_path / "all.parquet"
    done = CliRunner().invoke(app, [*asked, "--constraint", RULE, "--output", str(out), "--json"])
    assert done.exit_code == 3, done.stderr
    report = json.loads(done.stdout)
    assert report["same"] is False
    assert report["from_seq"] == 1
    first = report["kinds"]["verdict"]["first"]
    assert json.loads(first["after"])["code"] == "constraint-violated"
    rows = pq.read_table(out).to_pylist()
    assert len(rows) == sum(kind["count"] for kind in report["kinds"].values())
    assert next(row for row in rows if row["kind"] == "verdict") == first
    near = json.loads(
        CliRunner()
        .invoke(app, [*asked, "--constraint", RULE, "--json", "--from-seq", str(report["to_seq"])])
        .stdout
    )
    assert 0 < near["started_at"] < near["from_seq"] == near["to_seq"] == report["to_seq"]
    shown = CliRunner().invoke(app, [*asked, "--constraint", RULE])
    assert f"the first is seq {first['seq']}" in shown.stdout
    assert "transactions differ (seq 1 to" in shown.stdout


def test_nothing_differs(asked: list[str], tmp_path: Path) -> None:
    file = tmp_path / "unused.py"
    file.write_text("def f(db):\n    return 1\n")
    done = CliRunner().invoke(app, [*asked, "--module", f"unused={file}"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("No difference in ")
    assert "No call of unused was executed" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "what if what?"),
        (["--module", "shop.py"], 2, "give it as NAME=FILE"),
        (["--module", "shop=none.py"], 2, "none.py cannot be read"),
        (["--constraint", "{"], 2, "is no declaration"),
        (["--constraint", "5"], 2, "is no declaration"),
        (["--constraint", RULE, "--output", "."], 1, "is a folder"),
        (["--constraint", RULE, "--from-seq", "9", "--to-seq", "8"], 2, "is before"),
        (["--constraint", RULE, "--to-seq", "99999"], 1, "ends at seq"),
        (["--drop-constraint", "none"], 1, "there is no constraint"),
    ],
)
def test_questions_that_make_no_sense(
    asked: list[str], arguments: list[str], code: int, message: str
) -> None:
    done = CliRunner().invoke(app, [*asked, *arguments])
    assert done.exit_code == code, done.stderr
    assert message in done.stderr


def test_a_fork_has_a_name_of_its_own(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["fork", "bank", "--home", str(tmp_path)])
    assert (done.exit_code, "is the database itself" in done.stderr) == (2, True)
