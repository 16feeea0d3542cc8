"""The memory that a database takes, by part."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streamydb.cli.status import memory_rows
from streamydb.local import memory, processes
from streamydb.local.broker.embedded import BrokerRecord, write_record
from streamydb.local.folder import FACADE, PIPELINE, READ_MODEL
from streamydb.local.launcher import birth_of
from streamydb.local.memory import BROKER, JVM, WORKERS, PartMemory, memory_bytes, memory_of
from streamydb.testing.database import wait_for

MB = 1_000_000
SHARED_MB = 60

PARENT = f"""
import mmap, os, sys, time
shared = mmap.mmap(-1, {SHARED_MB * MB})
shared.write(b"x" * {SHARED_MB * MB})
if os.fork() == 0:
    sum(shared[::4096])
print("ready", flush=True)
time.sleep(600)
"""
"""A process with one below it, which share pages."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    found = tmp_path / "databases" / "bank"
    yield found
    for name in (PIPELINE, FACADE):
        processes.stop(found, name, grace_s=1.0)


def test_nothing_runs(tmp_path: Path) -> None:
    assert memory_of(tmp_path, tmp_path / "databases" / "bank") == []


def test_each_part_has_a_row_and_a_shared_page_counts_once(tmp_path: Path, folder: Path) -> None:
    processes.start(folder, PIPELINE, [sys.executable, "-c", PARENT])
    processes.start(folder, FACADE, ["sleep", "600"])
    processes.start(folder, READ_MODEL, ["true"])
    wait_for(lambda: processes.find(folder, READ_MODEL) is None, "the read model's end")
    log = processes.log_path(folder, PIPELINE)
    wait_for(lambda: log.read_text().count("ready") == 2, "both of the pipeline")
    own = psutil.Process()
    record = BrokerRecord(own.pid, own.create_time(), "127.0.0.1:9", "log", birth_of(own.pid)[1])
    write_record(tmp_path, record)
    found = {part.part: part for part in memory_of(tmp_path, folder)}
    assert {name: part.processes for name, part in found.items()} == {
        BROKER: 1, PIPELINE: 1, WORKERS: 1, FACADE: 1,
    }  # fmt: skip
    assert found[FACADE].mb < 10 < found[BROKER].mb
    both_mb = found[PIPELINE].mb + found[WORKERS].mb
    assert found[BROKER].files_mb > 1  # unchanged pages of libraries
    if sys.platform == "linux":
        assert SHARED_MB < both_mb < 2 * SHARED_MB


def test_a_jvm_and_what_is_below_it_are_parts_of_their_own(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    class Below:
        def __init__(self, name: str) -> None:
            self._name = name

        def name(self) -> str:
            if not self._name:
                raise psutil.NoSuchProcess(1)
            return self._name

    below = [Below(name) for name in ("java", "python", "", "python3.11")]
    record = processes.start(folder, PIPELINE, ["sleep", "600"])
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: below)
    monkeypatch.setattr(memory, "_taken", lambda _: memory._ProcessMemory(5 * MB, MB))
    assert memory_of(folder, folder) == [
        PartMemory(PIPELINE, 1, 5.0, 1.0), PartMemory(JVM, 1, 5.0, 1.0),
        PartMemory(WORKERS, 2, 10.0, 2.0),
    ]  # fmt: skip
    assert record.name == PIPELINE


def test_a_process_that_cannot_be_asked_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def refused(path: Path, *_given: object) -> str:
        raise PermissionError(path)

    processes.start(folder, PIPELINE, ["sleep", "600"])
    monkeypatch.setattr(Path, "read_text", refused)
    assert memory_of(folder, folder) == []


def test_the_rows_add_up() -> None:
    assert list(memory_rows([])) == []
    parts = [PartMemory(BROKER, 1, 1234.4, 0.0), PartMemory(WORKERS, 3, 10.4, 4.0)]
    assert list(memory_rows(parts)) == [
        ("memory, broker", "1,234 MB"),
        ("memory, Python workers", "10 MB, 4 of files, 3 processes"),
        ("memory, all", "1,245 MB, 4 of files"),
    ]


@pytest.mark.parametrize(
    ("told", "files", "limit_mb"),
    [
        ("0::/", {}, None),
        ("0::/", {"memory.max": "max"}, None),
        ("0::/", {"memory.max": "2000000"}, 2),
        ("0::/a/b", {"memory.max": "max", "a/memory.max": "3000000", "a/b/memory.max": "max"}, 3),
        ("0::/a/b", {"memory.max": "4000000"}, 4),  # a container that sees its own group alone
        ("3:cpu:/a\n4:memory:/a:b", {"memory/a:b/memory.limit_in_bytes": "5000000"}, 5),
        ("4:memory:/a", {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
    ],
)
def test_the_memory_is_what_the_groups_leave_of_the_machines(
    tmp_path: Path, told: str, files: dict[str, str], limit_mb: int | None
) -> None:
    (tmp_path / "cgroup").write_text(told)
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = memory_bytes(tmp_path, tmp_path / "groups")
    assert found == (psutil.virtual_memory().total if limit_mb is None else limit_mb * MB)


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path, tmp_path) == psutil.virtual_memory().total
