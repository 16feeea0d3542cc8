"""Stored procedures on a real broker and a real Spark: deployed, called, redeployed, replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.errors import ModuleMissing
from streamydb.local.module_folder import FolderModules, file_name
from streamydb.pipeline.run import explain
from streamydb.testing.database import Database, wait_for
from tests.support.programs import (
    deploy_bank,
    outcome,
    publish_bank,
    transfer,
    versions_are_deployed_and_called,
)  # fmt: skip

pytestmark = pytest.mark.timeout(400)


@pytest.mark.long
@pytest.mark.parametrize("grouping", ["planner", "single"])
def test_versions_are_deployed_called_and_replayed(tmp_path: Path, grouping: str) -> None:
    options = [] if grouping == "planner" else ["--grouping", "single"]
    with Database(tmp_path, options=options) as database:
        deployed = versions_are_deployed_and_called(database)
        first = publish_bank(database, 1)
        assert (deployed["hash"], deployed["seq"]) == (first.hash, 2)
        report = database.assert_serial()
        assert (report.transactions, report.faults) == (8, 0)

        lost = database.place.procedures / file_name("bank", first.hash)
        kept = lost.rename(tmp_path / "kept.py")
        with pytest.raises(ModuleMissing, match=first.hash):
            database.assert_serial()
        kept.rename(lost)

        third = deploy_bank(database, 7, folder=tmp_path / "elsewhere")
        database.load([{"id": "late", **transfer(1)}])
        wait_for(lambda: database.status().state == "failed", "the query to stop")
        error = database.status().error or ""
        assert third.hash in error
        assert file_name("bank", third.hash) in error
        assert "Traceback" not in error
        publish_bank(database, 7)
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
