"""What is stored is damaged: a start names the file. What is gone is in `test_kills.py`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from streamydb.testing.database import Database
from tests.support.bank import transfers
from tests.support.faulty import fails

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def cut(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def damaged(db: Database, folder: str) -> None:
    """Truncate every file of a folder of the checkpoint; the start names one. Then undo it."""
    checkpoint = db.place.checkpoint
    kept = checkpoint.with_name("kept")
    shutil.copytree(checkpoint, kept)
    files = [file for file in (checkpoint / "query" / folder).glob("[0-9]*") if file.is_file()]
    for file in files:
        cut(file)
    said = fails(db)
    assert any(str(file) in said for file in files), said
    assert "`streamydb rebuild`" in said
    assert "rebuilds from the log" in said
    shutil.rmtree(checkpoint)
    kept.rename(checkpoint)


@pytest.mark.fault(
    19, "all files of a shard's state truncated",
    "a file and the command are named; undone: equal to the serial replay",
)  # fmt: skip
@pytest.mark.long
def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    with Database(tmp_path, options=["--gear=micro-batch"]) as db:
        for seed in range(5):  # what has executed one batch begins anew when its state is damaged
            db.load(transfers(30, seed=seed))
            assert db.assert_serial().ok
        db.kill_pipeline()
        damaged(db, "state/0/0")
        db.start_pipeline()
        assert db.assert_serial().ok
