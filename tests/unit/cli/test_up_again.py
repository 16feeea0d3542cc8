"""`streamydb up` and `down` of a database that another `up` starts, that runs, or was deleted."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from streamydb.cli import app, front, launch
from streamydb.cli.common import Failure, fail
from streamydb.cli.options import DatabaseOptions, FoundingOptions
from streamydb.cli.phases import Phases
from streamydb.cli.target import find_target
from streamydb.cli.up import start_broker, takes_little, up
from streamydb.local import memory, processes
from streamydb.local.broker import embedded
from streamydb.local.broker.config import HEAP_MB_DEFAULT, SMALL_HEAP_MB
from streamydb.local.broker.embedded import BrokerRecord
from streamydb.local.file_lock import file_lock
from streamydb.local.folder import FACADE, READ_MODEL, DatabaseFolder, DatabaseRecord
from streamydb.local.launcher import process_of

NOBODY = "127.0.0.1:1"
up_module: Any = sys.modules[up.__module__]


def test_a_second_start_waits_for_the_first_and_goes_by_what_that_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, waits, said = DatabaseFolder(tmp_path, "bank"), Event(), []

    def say(text: str = "") -> None:
        said.append(text)
        waits.set()

    monkeypatch.setattr(up_module, "say", say)
    with ThreadPoolExecutor(1) as pool:
        with file_lock(place.folder / "run" / "up.lock"):
            second = pool.submit(
                up, DatabaseOptions("bank", tmp_path, NOBODY), FoundingOptions(shards=1)
            )
            assert waits.wait(20)
            place.write_record(DatabaseRecord(database="bank", shards=2, partitions=1))
            assert not second.done()
        assert "bank has shards 2, and 1 was asked for" in str(second.exception(20))
    assert "Another `streamydb up` of database bank is under way: waiting" in said[0]


@pytest.mark.parametrize("command", ["down", "down --all", f"up --bootstrap {NOBODY}"])
def test_what_outlives_its_folder_is_stopped(command: str, tmp_path: Path) -> None:
    folder = DatabaseFolder(tmp_path, "bank").folder
    stray = processes.start(folder, FACADE, ["sleep", "60"])
    try:
        shutil.rmtree(tmp_path / "databases")
        done = CliRunner().invoke(app, [*command.split(), "--home", str(tmp_path)])
        assert process_of(stray.pid, stray.birth) is None
        assert "Stopping the facade, whose folder was deleted" in done.stderr
        assert "Nothing was running" not in done.stderr
    finally:
        stray_runs = process_of(stray.pid, stray.birth)
        if stray_runs is not None:
            stray_runs.kill()


class Running:
    """A database that runs: a pipeline and a facade, and the options that they were given."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = tmp_path
        command = "it --bootstrap a:1,b:2 --master local[2] --procedures p --port 8080".split()
        record = processes.ProcessRecord("it", 1, 0.0, command, "log", 0)
        DatabaseFolder(tmp_path, "bank").note_facade("http://127.0.0.1:8080")
        monkeypatch.setattr(processes, "find", lambda *_: record)
        monkeypatch.setattr(processes, "strays", lambda _: [])
        monkeypatch.setattr(up_module, "_runs", lambda _: True)
        for name in ("_go_on", "_tell_running"):
            monkeypatch.setattr(up_module, name, lambda *_, **__: None)

    def up(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["up", "--home", str(self.home), *words])
        return done.exit_code, done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--master local[1]", "pipeline of bank runs with --master local[2], not local[1]"),
        ("--procedures q", "pipeline of bank runs with --procedures p, not q"),
        ("--bootstrap c:3", "pipeline of bank runs with --bootstrap a:1,b:2, not c:3"),
        ("--small", "pipeline of bank runs without --small"),
        ("--http-port 81", "facade of bank runs at http://127.0.0.1:8080, not on port 81"),
    ],
)
def test_a_database_that_runs_is_not_taken_for_another_one(
    words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = Running(tmp_path, monkeypatch).up("--bootstrap", "a:1", *words.split())
    assert code == 1
    assert told in said
    assert "stop it first (`streamydb down" in said


def test_a_database_that_runs_as_it_is_asked_for_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("--master", "local[2]", "--procedures", "p", "--http-port", "8080")
    for words in ((), given, ("--no-small",)):
        code, said = Running(tmp_path, monkeypatch).up("--bootstrap", "b:2,a:1", *words)
        assert (code, said) == (0, "")


def test_another_port_of_a_broker_that_runs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = BrokerRecord(1, 0.0, "127.0.0.1:9", "log")
    monkeypatch.setattr(embedded, "find_broker", lambda _: running)
    running_there = Running(tmp_path, monkeypatch)
    code, said = running_there.up("--port", "8")
    assert code == 1
    assert "runs on 127.0.0.1:9, not on port 8" in said
    code, said = running_there.up("--port", "8", "--bootstrap", "a:1")
    assert code == 2
    assert "--port is that of the embedded broker, and bank is at a:1" in said


def test_what_reads_begins_while_the_pipeline_starts_and_ends_if_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, seen = DatabaseFolder(tmp_path, "bank"), []

    def reading() -> list[str]:
        return [role for role in (READ_MODEL, FACADE) if processes.find(place.folder, role)]

    def never_ready(*_: object) -> None:
        seen.append(reading())
        fail("the pipeline did not start")

    topics = SimpleNamespace(all=list)
    for module, name, stands_in in (
        (up_module, "create_database", lambda *_: (topics, None)),
        (up_module, "refuse_second", lambda *_: None),
        (up_module, "_fetch_jars", lambda *_: None),
        (up_module, "start_broker", lambda *_, **__: None),
        (launch, "start_pipeline", lambda *_: None),
        (launch, "wait_until_ready", never_ready),
        (front, "_command", lambda *_: ["sleep", "60"]),
    ):
        monkeypatch.setattr(module, name, stands_in)
    with pytest.raises(Failure, match="the pipeline did not start"):
        up(DatabaseOptions("bank", tmp_path, NOBODY), FoundingOptions(shards=1))
    assert seen == [[READ_MODEL, FACADE]]
    assert reading() == []


@pytest.mark.parametrize(
    ("there_gb", "wish", "small"),
    [(2.9, None, True), (3, None, False), (2, False, False), (64, True, True)],
)
def test_a_database_is_as_small_as_is_wished_or_as_the_machine_is(
    there_gb: float, monkeypatch: pytest.MonkeyPatch, *, wish: bool | None, small: bool
) -> None:
    monkeypatch.setattr(memory, "memory_bytes", lambda: there_gb * (1 << 30))
    assert takes_little(wish) is small


def test_a_small_broker_has_a_small_heap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heaps: list[int] = []

    def start(_home: Path, *, heap_mb: int, **_given: object) -> BrokerRecord:
        heaps.append(heap_mb)
        return BrokerRecord(1, 0.0, "127.0.0.1:9", "log")

    monkeypatch.setattr("streamydb.local.broker.start_detached", start)
    target = find_target(DatabaseOptions(home=tmp_path))
    for small in (True, False):
        start_broker(target, None, Phases(), small=small)
    assert heaps == [SMALL_HEAP_MB, HEAP_MB_DEFAULT]
