"""Writing files whole."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
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


def test_of_a_full_disk_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left") as raised:
        write_whole(tmp_path / "file", b"new")
    assert raised.value.filename == str(tmp_path / "file")


def test_the_disk_has_the_content_before_the_name_is_taken_and_writers_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    synced: list[tuple[str, bool]] = []

    def sync(handle: int) -> None:
        if os.fstat(handle).st_ino == tmp_path.stat().st_ino:
            synced.append(("names", path.read_bytes() == b"mine"))
            return
        synced.append((f"{os.fstat(handle).st_size} bytes", path.exists()))
        write_whole(path, b"other", synced=False)

    monkeypatch.setattr(os, "fsync", sync)
    write_whole(path, b"mine")
    assert synced == [("4 bytes", False), ("names", True)]
    assert path.read_bytes() == b"mine"
    assert [*tmp_path.iterdir()] == [path]


def test_the_disk_has_the_names_of_folders_that_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    inner = tmp_path / "outer" / "inner"
    write_whole(inner / "file", b"data")
    outer_first = [folder.stat().st_ino for folder in (tmp_path, inner.parent, inner)]
    assert [inode for inode in synced if inode in outer_first] == outer_first


def test_drafts_of_killed_writers_are_removed_an_hour_later(tmp_path: Path) -> None:
    killed = """
import os, pathlib, signal, sys
from streamydb.local.file_lock import write_whole
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
write_whole(pathlib.Path(sys.argv[1]), b"half")
"""
    for name in ("old", "young"):
        done = subprocess.run([sys.executable, "-c", killed, tmp_path / name], check=False)
        assert done.returncode == -signal.SIGKILL
    (old,) = tmp_path.glob("old.*")
    (young,) = tmp_path.glob("young.*")
    os.utime(old, times=(0, old.stat().st_mtime - 3_601))
    other = tmp_path / "of-somebody.draft"
    other.touch()
    os.utime(other, times=(0, 0))
    write_whole(tmp_path / "file", b"data")
    assert {*tmp_path.iterdir()} == {young, other, tmp_path / "file"}
