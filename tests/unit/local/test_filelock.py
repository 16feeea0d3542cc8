"""Writing files whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamydb.local.file_lock import write_whole


def test_a_file_is_written_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "made" / "file"
    for data in (b"one", b"two"):
        write_whole(path, data)
        assert path.read_bytes() == data
    assert [*path.parent.iterdir()] == [path]


def test_a_write_that_fails_leaves_the_old_content_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [path]
    write_whole(path, b"new", synced=False)  # which does not ask the disk
    assert path.read_bytes() == b"new"


def test_the_disk_has_the_content_before_the_name_is_taken_and_writers_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    synced: list[tuple[int, bool]] = []

    def sync(handle: int) -> None:
        synced.append((os.fstat(handle).st_size, path.exists()))
        write_whole(path, b"other", synced=False)

    monkeypatch.setattr(os, "fsync", sync)
    write_whole(path, b"mine")
    assert synced == [(len(b"mine"), False)]
    assert path.read_bytes() == b"mine"
    assert [*tmp_path.iterdir()] == [path]
