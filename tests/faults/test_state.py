"""Checkpoints with damaged, missing and old files: an end that names them, or the same bytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from streamydb.testing import Database
from tests.bank import transfers
from tests.faulty import fails

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200), pytest.mark.long]

Damage = Callable[[Path], Path]


def newest(folder: Path, *suffixes: str) -> Path:
    """The file of the newest batch or version in a folder."""
    files = [p for p in folder.iterdir() if p.name[0].isdigit() and p.name.endswith(suffixes or "")]
    return max(files, key=lambda path: int(path.name.partition(".")[0].partition("_")[0]))


def cut(file: Path) -> Path:
    """Lose the second half of a file."""
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    return file


def flip(file: Path) -> Path:
    """Change a byte in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x40
    file.write_bytes(data)
    return file


def lose(file: Path) -> Path:
    """Delete a file."""
    file.unlink()
    return file


STATE = "state/0/0"
DAMAGES: dict[str, Damage] = {
    "changelog cut": lambda query: cut(newest(query / STATE, ".changelog")),
    "changelog changed": lambda query: flip(newest(query / STATE, ".changelog")),
    "changelog gone": lambda query: lose(newest(query / STATE, ".changelog")),
    "offsets changed": lambda query: flip(newest(query / "offsets")),
    "commits cut": lambda query: cut(newest(query / "commits")),
    "query's metadata cut": lambda query: cut(query / "metadata"),
}


@pytest.mark.fault(
    19, "files of the checkpoint cut, changed and deleted, one at a time",
    "an end that names the file and what to do, or mended by Spark; equal to the serial replay",
)  # fmt: skip
def test_damaged_files_of_a_checkpoint(tmp_path: Path, injected: Callable[..., None]) -> None:
    with Database(tmp_path) as db:
        checkpoint, kept = db.place.checkpoint, tmp_path / "kept"
        for seed, (what, damage) in enumerate(DAMAGES.items()):
            db.load(transfers(100, seed=seed))
            assert db.assert_serial().ok
            db.kill_pipeline()
            shutil.copytree(checkpoint, kept)
            file = damage(checkpoint / "query")
            injected(1)
            said = fails(db)
            assert str(file) in said, f"{what}: {said}"
            assert "rebuild" in said, f"{what}: {said}"
            shutil.rmtree(checkpoint)
            kept.rename(checkpoint)
            db.start_pipeline()
        assert db.assert_serial().ok
        db.kill_pipeline()
        checkpoint.rename(tmp_path / "damaged")
        db.start_pipeline()
        report = db.assert_serial()
        assert report.results.duplicates >= report.transactions


@pytest.mark.fault(
    19, "an old copy of the checkpoint, with the log whole and with what it needs deleted",
    "the same bytes again; stops loudly with the runbook",
)  # fmt: skip
def test_an_old_checkpoint(tmp_path: Path) -> None:
    with Database(tmp_path) as db:
        db.load(transfers(150))
        assert db.assert_serial().ok
        db.kill_pipeline()
        old = tmp_path / "old"
        shutil.copytree(db.place.checkpoint, old)
        db.start_pipeline()
        db.load(transfers(150, seed=2))
        assert db.assert_serial().ok
        db.kill_pipeline()
        shutil.rmtree(db.place.checkpoint)
        shutil.copytree(old, db.place.checkpoint)
        db.start_pipeline()
        assert db.assert_serial().results.duplicates >= 150
        db.kill_pipeline()
        shutil.rmtree(db.place.checkpoint)
        old.rename(db.place.checkpoint)
        admin = AdminClient({"bootstrap.servers": db.broker.bootstrap})
        everything = TopicPartition(f"{db.name}.transactions", 0, -1)
        for future in admin.delete_records([everything]).values():
            future.result(30)
        said = fails(db)
        assert "were deleted before the pipeline had read them" in said
        assert "docs/operations.md" in said
