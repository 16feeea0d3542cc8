"""Stored procedures on a real broker and a real Spark: deployed, called, redeployed, replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.cli.calls import call
from streamydb.cli.target import Target
from streamydb.errors import ModuleMissing
from streamydb.pipeline.failures import explain
from streamydb.procedures.folder import FolderModules, file_name, publish
from streamydb.procedures.modules import Module
from streamydb.testing import Database, wait_for

pytestmark = pytest.mark.timeout(400)

BANK = """
from streamydb.procedures import Abort, procedure

FEE = %d

@procedure(keys=lambda args: [args["source"], args["target"]])
def transfer(db, source, target, amount):
    if db.get(source, 0) < amount + FEE:
        raise Abort(f"{source} cannot pay {amount}")
    db.add(source, -amount - FEE)
    db.add(target, amount)
    return {"left": db.get(source), "draw": db.random.randint(1, 1000), "now": db.now}
"""


def deploy_file(database: Database, fee: int, folder: Path | None = None) -> Module:
    """Put a version into the pipeline's folder, or into another one."""
    file = database.folder / "bank.py"
    file.write_text(BANK % fee)
    return publish(file, folder or database.place.procedures)


def deploy(database: Database, fee: int, folder: Path | None = None) -> Module:
    """Publish a version and put it into the log."""
    module = deploy_file(database, fee, folder)
    record = {"module": "bank", "hash": module.hash, "procedures": module.procedures}
    assert outcome(database, {"deploy": record}) == ("committed", None, None)
    return module


def outcome(database: Database, transaction: dict[str, Any]) -> tuple[str, str | None, Any]:
    """Status, code and what was returned."""
    target = Target(database.settings, database.place)
    result = call(target, transaction, 120)
    value = None if result.returned is UNSET else json.loads(bytes(result.returned))
    return result.status, result.code, value


def cli(database: Database, *arguments: str) -> str:
    """What a command prints."""
    where = ["--home", str(database.settings.home), "--bootstrap", database.broker.bootstrap]
    done = CliRunner().invoke(app, [*arguments, *where], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def transfer(amount: int) -> dict[str, Any]:
    args = {"source": "a", "target": "b", "amount": amount}
    return {"call": {"procedure": "bank.transfer", "args": args, "keys": ["a", "b"]}}


@pytest.mark.parametrize("grouping", ["planner", pytest.param("single", marks=pytest.mark.long)])
def test_versions_are_deployed_called_and_replayed(tmp_path: Path, grouping: str) -> None:
    options = [] if grouping == "planner" else ["--grouping", "single"]
    with Database(tmp_path, options=options) as database:
        assert outcome(database, transfer(1)) == ("aborted", "unknown-procedure", None)
        file = database.folder / "bank.py"
        file.write_text(BANK % 1)
        deployed = json.loads(cli(database, "procedures", "deploy", str(file), "--json"))
        first = publish(file, database.place.procedures)
        assert (deployed["hash"], deployed["seq"]) == (first.hash, 2)
        outcome(database, {"updates": [{"op": "put", "key": "a", "value": 100}]})
        status, _, returned = outcome(database, transfer(10))
        assert (status, returned["left"]) == ("committed", 89)
        deploy(database, 5)
        listed = json.loads(cli(database, "procedures", "list", "--json"))
        assert {each["hash"]: each["current"] for each in listed}[first.hash] is False
        assert sum(each["current"] for each in listed) == 1
        assert outcome(database, transfer(10))[2]["left"] == 74
        assert outcome(database, transfer(1000))[:2] == ("aborted", "procedure-aborted")
        report = database.assert_serial()
        assert (report.transactions, report.faults) == (8, 0)

        lost = database.place.procedures / file_name("bank", first.hash)
        kept = lost.rename(tmp_path / "kept.py")
        with pytest.raises(ModuleMissing, match=first.hash):
            database.assert_serial()
        kept.rename(lost)

        third = deploy(database, 7, folder=tmp_path / "elsewhere")
        database.load([{"id": "late", **transfer(1)}])
        wait_for(lambda: database.status().state == "failed", "the query to stop")
        error = database.status().error or ""
        assert third.hash in error
        assert file_name("bank", third.hash) in error
        assert "Traceback" not in error
        deploy_file(database, 7)
        database.start_pipeline()
        assert outcome(database, transfer(2))[2]["left"] == 74 - 8 - 9
        database.assert_serial()


def test_a_missing_version_is_named_whatever_wraps_it() -> None:
    modules = FolderModules([Path("somewhere")])
    with pytest.raises(ModuleMissing) as caught:
        modules.find("bank", "sha256:" + "0" * 64)
    text = f"x\npyspark.errors.PythonException: y\nstreamydb.errors.ModuleMissing: {caught.value}\n"
    told = explain([text + "\n=== Streaming Query ==="])
    assert told.startswith("module bank sha256:000")
    assert "put its file as bank." in told
