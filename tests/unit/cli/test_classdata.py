"""Class-data archives: where they lie, who uses them, what happens when Java writes none."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from streamydb.cli import class_data as made_by_command
from streamydb.cli.class_data import LATER, ClassDataError, main, make
from streamydb.cli.up import archive_later
from streamydb.local.class_data import archive, java_options
from streamydb.local.java import Java, find_java
from streamydb.settings import Settings

USED = {".jsa": "SharedArchiveFile", ".aot": "AOTCache"}
MADE = {".jsa": "ArchiveClassesAtExit", ".aot": "AOTCacheOutput"}


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("STREAMYDB_CACHE", str(tmp_path / "cache"))
    jar = tmp_path / "one.jar"
    jar.write_bytes(b"one")
    return [jar]


def test_an_archive_is_used_once_it_is_there(jars: list[Path]) -> None:
    assert java_options("broker", jars, {}) == []
    file = archive("broker", jars)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"classes")
    assert java_options("broker", jars, {})[0] == f"-XX:{USED[file.suffix]}={file}"
    assert java_options("pipeline", jars, {}) == []


def test_it_belongs_to_its_jars_and_its_java(
    jars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = archive("broker", jars)
    jars[0].write_bytes(b"other")
    second = archive("broker", jars)
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f'#!/bin/sh\nexec {find_java().path} "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert len({first, second, archive("broker", jars)}) == 3


@pytest.mark.parametrize(("version", "kind"), [(17, ".jsa"), (21, ".jsa"), (25, ".aot")])
def test_which_kind_of_archive_a_java_has(
    jars: list[Path], monkeypatch: pytest.MonkeyPatch, version: int, kind: str
) -> None:
    java = Java(find_java().path, version)
    monkeypatch.setattr("streamydb.local.class_data.find_java", lambda: java)
    file = archive("broker", jars)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"classes")
    assert file.suffix == kind
    assert java_options("broker", jars, {})[0] == f"-XX:{USED[kind]}={file}"
    options = java_options("broker", jars, {"STREAMYDB_CLASS_DATA_TRAINING": "/somewhere"})
    assert options[0] == f"-XX:{MADE[kind]}=/somewhere/broker{kind}"


@pytest.mark.parametrize(("version", "in_place"), [(17, True), (25, True), (26, False)])
def test_an_archive_is_mapped_in_place_by_a_java_that_is_known_to_do_so(
    jars: list[Path], monkeypatch: pytest.MonkeyPatch, version: int, *, in_place: bool
) -> None:
    java = Java(find_java().path, version)
    monkeypatch.setattr("streamydb.local.class_data.find_java", lambda: java)
    file = archive("broker", jars)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"classes")
    assert ("-XX:ArchiveRelocationMode=0" in java_options("broker", jars, {})) is in_place


def test_while_it_is_made_the_machines_write_it(jars: list[Path]) -> None:
    options = java_options("pipeline", jars, {"STREAMYDB_CLASS_DATA_TRAINING": "/somewhere"})
    kind = archive("pipeline", jars).suffix
    assert options[0] == f"-XX:{MADE[kind]}=/somewhere/pipeline{kind}"


@pytest.fixture
def resolved(jars: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr("streamydb.cli.class_data.resolve", lambda _: jars)
    return jars


def test_all_or_nothing_and_only_once(
    resolved: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Path] = []

    def train(scratch: Path) -> None:
        runs.append(scratch)
        for name in ("pipeline", "broker"):
            (scratch / f"{name}{archive(name, resolved).suffix}").write_text(name)

    monkeypatch.setattr("streamydb.cli.class_data._train", train)
    made = make()
    assert [file.read_text() for file in made] == ["pipeline", "broker"]
    assert make() == made == [archive(n, resolved) for n in ("pipeline", "broker")]
    assert len(runs) == 1
    assert not runs[0].exists()


def test_a_java_that_writes_none_is_told(
    resolved: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("streamydb.cli.class_data._train", lambda _: None)
    with pytest.raises(ClassDataError, match=r"wrote no archive pipeline\.(jsa|aot)"):
        make()
    assert main() == 1
    assert "everything works without it" in capsys.readouterr().err
    assert java_options("pipeline", resolved, {}) == []


def test_a_java_goes_without_an_archive_that_does_not_fit(jars: list[Path]) -> None:
    """What a JDK does with a damaged archive: it runs, and says nothing."""
    file = archive("broker", jars)
    file.parent.mkdir(parents=True)
    file.write_bytes(os.urandom(100_000))
    java = str(find_java().path)
    options = java_options("broker", jars, {})
    done = subprocess.run(
        [java, *options, "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cds" not in (done.stdout + done.stderr).lower()


def test_what_somebody_left_who_was_killed_goes(
    resolved: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = archive("broker", resolved).parent
    (folder / ".training-left").mkdir(parents=True)
    monkeypatch.setattr("streamydb.cli.class_data._train", lambda _: None)
    with pytest.raises(ClassDataError):
        make()
    assert [*folder.iterdir()] == []


@pytest.fixture
def begun(jars: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What `up` begins on a machine with all jars, outside of any test."""
    commands: list[list[str]] = []

    def process(_name: str, command: list[str], _log: Path) -> Any:
        commands.append(command)
        return SimpleNamespace(release=lambda: None)

    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("streamydb.local.launcher.LocalProcess", process)
    monkeypatch.setattr("streamydb.local.class_data.cached", lambda _: jars)
    return commands


def target(*, wished: bool = True) -> Any:
    return SimpleNamespace(settings=Settings(class_data=wished))


def test_a_first_up_leaves_a_process_that_makes_the_archives(
    begun: list[list[str]], jars: list[Path]
) -> None:
    assert archive_later(target(), small=False)
    assert [command[1:] for command in begun] == [["-m", made_by_command.__name__, LATER]]
    for name in ("broker", "pipeline"):
        file = archive(name, jars)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"classes")
    assert not archive_later(target(), small=False)
    assert len(begun) == 1


@pytest.mark.parametrize("why", ["small", "unwished", "ci", "training", "no jars"])
def test_no_process_is_left_where_nobody_wants_it(
    begun: list[list[str]], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "ci":
        monkeypatch.setenv("CI", "true")
    if why == "training":
        monkeypatch.setenv("STREAMYDB_CLASS_DATA_TRAINING", "/somewhere")
    if why == "no jars":
        monkeypatch.setattr("streamydb.local.class_data.cached", lambda _: None)
    assert not archive_later(target(wished=why != "unwished"), small=why == "small")
    assert begun == []


@pytest.mark.parametrize("free", [1 << 30, 1 << 40])
def test_later_waits_gives_way_and_needs_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], free: int
) -> None:
    calls: list[Any] = []
    module = made_by_command
    monkeypatch.setenv("STREAMYDB_SHARDS", "7")
    monkeypatch.setattr(os, "nice", calls.append)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    monkeypatch.setattr(
        time, "sleep", lambda s: calls.append((s, signal.getsignal(signal.SIGTERM)))
    )
    memory = SimpleNamespace(available=free)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)

    def made() -> list[Path]:
        calls.append("STREAMYDB_SHARDS" in os.environ)
        return []

    monkeypatch.setattr(module, "make", made)
    short = free < module._MEMORY_BYTES
    assert main([LATER]) == short
    (nice, (waited_s, handler), *rest) = calls
    assert (nice, waited_s, rest) == (19, 20, [] if short else [False])
    assert handler is not signal.SIG_DFL, "SIGTERM would leave the small database"
    assert ("MB of memory are free" in capsys.readouterr().err) is short
