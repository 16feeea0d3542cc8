"""Folders for temporary files: their own process keeps them, whoever comes later removes them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamydb.local import file_lock
from streamydb.local.file_lock import scratch_folder, sweep

HOLDS = """\
import subprocess, sys, time
from pathlib import Path
from streamydb.local.file_lock import scratch_folder
child = subprocess.Popen(["sleep", sys.argv[2]])
print(scratch_folder(Path(sys.argv[1])), child.pid, flush=True)
time.sleep(600)
"""
ENDS = """\
import sys
from pathlib import Path
from streamydb.local.file_lock import scratch_folder
folder = scratch_folder(Path(sys.argv[1]))
(folder / "spark-1").mkdir()
(folder / "spark-1" / "state.sst").write_bytes(b"values")
"""


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The locks that a test takes; they are let go at its end."""
    locks: list[int] = []
    monkeypatch.setattr(file_lock, "_HELD", locks)
    yield locks
    for lock in locks:
        os.close(lock)


def test_a_folder_is_kept_while_its_process_lives_and_removed_after_it_was_killed(
    tmp_path: Path,
) -> None:
    """Also when a child of that process goes on."""
    own, other = scratch_folder(tmp_path), tmp_path / "something-else"
    other.mkdir()
    command = [sys.executable, "-c", HOLDS, str(tmp_path), "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        named, child = process.stdout.readline().split()
        theirs = Path(named)
        (theirs / "spark-1").mkdir()
        (theirs / "spark-1" / "state.sst").write_bytes(b"values")
        os.utime(theirs, (0, 0))
        sweep(tmp_path)
        assert (theirs / "spark-1" / "state.sst").exists()
        process.kill()
        process.wait(30)
    sweep(tmp_path)
    os.kill(int(child), 9)
    assert sorted(tmp_path.iterdir()) == sorted([own, other])


def test_a_process_that_ends_removes_its_folder(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", ENDS, str(tmp_path)], check=True)
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_swept_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = file_lock._locked

    def after_a_sweep(folder: Path) -> int | None:
        monkeypatch.setattr(file_lock, "_locked", locked)
        handle = locked(folder)
        assert handle is not None
        folder.rmdir()
        return handle

    def while_it_is_swept(folder: Path) -> int | None:
        monkeypatch.setattr(file_lock, "_locked", after_a_sweep)
        other = os.open(folder, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        found = locked(folder)
        folder.rmdir()
        os.close(other)
        return found

    def after_it_was_swept(folder: Path) -> int | None:
        monkeypatch.setattr(file_lock, "_locked", while_it_is_swept)
        folder.rmdir()
        return locked(folder)

    monkeypatch.setattr(file_lock, "_locked", after_it_was_swept)
    made = scratch_folder(tmp_path)
    assert list(tmp_path.iterdir()) == [made]


def test_what_another_user_has_made_is_left_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: list[int]
) -> None:
    folder = scratch_folder(tmp_path)
    os.close(held.pop())
    with monkeypatch.context() as patched:
        patched.setattr(os, "getuid", lambda: -1)
        sweep(tmp_path)
    assert folder.exists()
    sweep(tmp_path)
    assert not folder.exists()


def test_a_folder_for_temporary_files_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(OSError, match="Bad file descriptor"):
        scratch_folder(tmp_path)
    sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_block_has_a_folder_of_its_kind_and_removes_what_killed_ones_left(tmp_path: Path) -> None:
    """One that lives keeps its own, and what is of another kind stays."""
    left, other = tmp_path / "a[1].part-1", tmp_path / "a1.part-1"
    for folder in (left, other):
        folder.mkdir()
        (folder / "file").write_bytes(b"values")
    with file_lock.scratch(tmp_path, "a[1].part-", 0o755) as own:
        (own / "file").write_bytes(b"values")
        with file_lock.scratch(tmp_path, "a[1].part-") as second:
            assert sorted(tmp_path.iterdir()) == sorted([own, second, other])
            assert second.stat().st_mode & 0o777 == 0o700
        own.rename(tmp_path / "made")
    assert sorted(tmp_path.iterdir()) == sorted([other, tmp_path / "made"])
