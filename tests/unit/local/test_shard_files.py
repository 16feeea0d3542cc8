"""The caches of shards on a machine: which ones a start removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.local import shard_files
from streamydb.local.shard_files import own_caches, remove_other_incarnations, shard_folder


def folder_of(root: Path, incarnation: str) -> Path:
    folder = shard_folder(root, "bank", incarnation, 0)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "values").write_bytes(b"cached")
    return folder


def test_a_start_keeps_the_caches_of_its_incarnation_and_boot_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(shard_files, "_BOOT_ID", boot)
    root, another = tmp_path / "local", tmp_path / "local" / "another" / "a" / "b"
    another.mkdir(parents=True)
    boot.write_text("1\n")
    earlier = [folder_of(root, "own"), folder_of(root, "older")]
    boot.write_text("2\n")
    present, older = folder_of(root, "own"), folder_of(root, "older")
    assert present not in earlier
    remove_other_incarnations(root, "bank", "own")
    assert [each for each in [*earlier, older] if each.exists()] == []
    assert (present / "values").read_bytes() == b"cached"
    assert list((root / "bank").glob("*/*")) == [present.parent]
    assert another.exists()


def test_there_may_be_nothing_to_remove(tmp_path: Path) -> None:
    remove_other_incarnations(tmp_path, "bank", "own")
    assert list(tmp_path.iterdir()) == []


def test_without_a_boot_id_all_boots_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_files, "_BOOT_ID", tmp_path / "none")
    present = folder_of(tmp_path, "own")
    remove_other_incarnations(tmp_path, "bank", "own")
    assert (present / "values").exists()


def test_the_caches_of_a_pipeline_that_runs_are_left_alone(tmp_path: Path) -> None:
    """Another cluster may have a database of that name, whose pipeline has the same home."""
    others, own = folder_of(tmp_path, "other"), folder_of(tmp_path, "own")
    with own_caches(tmp_path, "bank", "other"):
        assert not own.exists()
        with own_caches(tmp_path, "bank", "own"):
            assert (others / "values").exists()
    with own_caches(tmp_path, "bank", "own"):
        assert not others.exists()
