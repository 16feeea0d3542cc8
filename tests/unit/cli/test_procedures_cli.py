"""`streamydb procedures check` and `txn --call` without a database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.cli.parts import PartError, TransactionOptions, transaction_of


def test_check_shows_procedures_or_every_refusal_with_its_line(tmp_path: Path) -> None:
    good, bad = tmp_path / "bank.py", tmp_path / "evil.py"
    good.write_text("def pay(db, to, amount=1):\n    db.add(to, amount)\n")
    bad.write_text("import os\n\ndef f(db):\n    eval('1')\n")
    shown = CliRunner().invoke(app, ["procedures", "check", str(good)])
    assert shown.exit_code == 0
    assert "bank.pay(to, amount)" in shown.stdout
    machine = CliRunner().invoke(app, ["procedures", "check", "--json", str(good)])
    assert json.loads(machine.stdout)[0]["procedures"] == {"pay": ["to", "amount"]}
    refused = CliRunner().invoke(app, ["procedures", "check", str(good), str(bad)])
    assert refused.exit_code == 3
    machine = CliRunner().invoke(app, ["procedures", "check", "--json", str(good), str(bad)])
    assert machine.exit_code == 3
    passed, fault = json.loads(machine.stdout)
    assert (passed["module"], fault["file"]) == ("bank", str(bad))
    assert [reason.partition(f"{bad}:")[2][:1] for reason in fault["refused"]] == ["1", "4"]
    assert f"{bad}:1: import os" in refused.stderr
    assert f"{bad}:4: eval" in refused.stderr


def test_a_file_of_another_encoding_is_refused_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "bank.py"
    file.write_bytes("def f(db):\n    return 'é'\n".encode("latin-1"))
    refused = CliRunner().invoke(app, ["procedures", "check", str(file)])
    assert refused.exit_code == 3
    assert f"{file}:2: not UTF-8" in refused.stderr


@pytest.mark.parametrize(("module", "name"), [("m" * 65, "f"), ("m", "f" * 65)])
def test_a_name_that_no_log_takes_is_refused(tmp_path: Path, module: str, name: str) -> None:
    file = tmp_path / f"{module}.py"
    file.write_text(f"def {name}(db):\n    pass\n")
    refused = CliRunner().invoke(app, ["procedures", "check", str(file)])
    assert refused.exit_code == 3
    assert "a name has at most 64 characters" in refused.stderr
    short = tmp_path / f"{module[:64]}.py"
    short.write_text(f"def {name[:64]}(db):\n    pass\n")
    assert CliRunner().invoke(app, ["procedures", "check", str(short)]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check"], "name the files"),
        (["deploy"], "name the files"),
        (["list", "bank.py"], "list takes no files"),
        (["check", "nothing.py"], "cannot be read"),
        (["check", "README.md"], "no module"),
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["procedures", *arguments])
    assert done.exit_code in (1, 2)
    assert message in done.stderr


def test_a_call_from_arguments() -> None:
    given = ["to=ann", "amount=5"]
    made = transaction_of(
        TransactionOptions(call="bank.pay", arg=given, key=["ann"], key_read=["limit"])
    )
    args = {"to": "ann", "amount": 5}
    call = {"procedure": "bank.pay", "args": args, "keys": ["ann"], "reads": ["limit"]}
    assert made == {"call": call}
    with pytest.raises(PartError, match="belong to --call"):
        transaction_of(TransactionOptions(arg=["to=ann"]))
    with pytest.raises(PartError, match="NAME=VALUE"):
        transaction_of(TransactionOptions(call="bank.pay", arg=["to"]))
