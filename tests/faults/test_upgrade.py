"""Another release in the middle of a plan, under load: its wheel is built from the git history."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streamydb.testing.database import Database
from tests.support.bank import transfers
from tests.support.faulty import fails, load, progressed
from tests.support.phases import ATTEMPTS_MAX, kill_in, outputs_written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

ROOT = Path(__file__).resolve().parents[2]
BEFORE_FORMAT_2 = "e05cd8d9c722ca49741cb106146331e7bf2c75c9"
"""The last commit whose feedback names only the number of its plan."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The earlier release, installed beside this one."""
    folder = tmp_path_factory.mktemp("earlier")
    source, wheels, target = (folder / name for name in ("source", "wheels", "installed"))
    source.mkdir()
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", BEFORE_FORMAT_2], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("the git history is not there")
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(wheels), str(source)], check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--ignore-installed", "--prefix", str(target), str(wheel)],
        check=True,
    )
    (packages,) = target.glob("lib/python*/site-packages")
    return packages


@pytest.mark.long
@pytest.mark.fault(
    32, "killed after the outputs of a batch under load; the next release goes on, the earlier one "
    "is put back", "goes on; refused with what to do; equal to the serial replay",
)  # fmt: skip
@pytest.mark.parametrize("shards", [1, 2])
def test_an_upgrade_in_the_middle_of_a_plan_and_back(
    shards: int, tmp_path: Path, earlier: Path
) -> None:
    with Database(tmp_path, shards=shards) as db:
        db.kill_pipeline()
        shutil.rmtree(db.place.checkpoint)
        db.release = earlier
        db.start_pipeline()
        assert '"format": 1' in (db.place.checkpoint / "streamydb.json").read_text()
        for seed in range(ATTEMPTS_MAX):
            with load(db, seed):
                progressed(db, 50)
                hit = kill_in(db, outputs_written)
            if hit:
                break
            db.start_pipeline()
        assert hit, "no kill fell between the outputs and the commit"
        db.release = None
        db.start_pipeline(["--plan-limit=50"])
        with load(db, 1000):
            progressed(db, 200)
            kill_in(db, outputs_written)
        db.release = earlier
        assert "format 2" in fails(db)
        shutil.move(db.place.checkpoint, tmp_path / "aside")
        db.start_pipeline()  # as docs/upgrading.md says: from the log
        db.load(transfers(50, seed=7, prefix="after"))
        report = db.assert_serial()
        assert report.results.duplicates > 0
        assert report.transactions > 300
