"""Restore, fork, resize and rebuild touch nothing that is in use; a backup is of this database."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from streamydb import kafka
from streamydb.backup import BackupError, BackupFolder, BackupManifest, StateFolder
from streamydb.backup import restore as restoring
from streamydb.cli import backup_options
from streamydb.cli.common import Failure
from streamydb.cli.options import DatabaseOptions
from streamydb.cli.target import Target, find_target
from streamydb.kafka import TopicDescription, TopicNames
from streamydb.kafka.presence import PresentPipeline
from streamydb.local.file_lock import lock_at_once
from streamydb.local.folder import DatabaseRecord, PipelineStatus
from tests.unit.backup.test_backup import state_at

explain, rebuild, restore, status = (  # of the package, the names are those of the commands
    import_module(f"streamydb.cli.{name}") for name in ("explain", "rebuild", "restore", "status")
)
NAMES = TopicNames("bank")
MANIFEST = BackupManifest(
    format=1, database="bank", log="log", shards=1, grouping="planner", partitions=1,
    id_window=100, digest_interval=100, seq=9, ts_ms=90, ends={0: 9, 1: 9},
    states=[],
)  # fmt: skip


def topic(name: str, *ends: int, stamps: str = "LogAppendTime") -> TopicDescription:
    settings = {"message.timestamp.type": stamps}
    return TopicDescription(name, len(ends), 1, settings, (0,) * len(ends), ends)


def target(home: Path) -> Target:
    return find_target(DatabaseOptions("bank", home, "127.0.0.1:1"))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to a cluster, in order."""
    found: list[str] = []

    def noting(what: str) -> Callable[..., None]:
        return lambda *_, **given: found.append(what + " closed" * given.get("loading", False))

    monkeypatch.setattr(restore, "copies_of", lambda _: kafka.Copies(1, 1, 1))
    for module, names in ((kafka, ("create", "grow")), (restoring, ("open_log", "close_log"))):
        for name in names:
            monkeypatch.setattr(module, name, noting(name))
    return found


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the topics where some are there."""

    def made(*there: TopicDescription) -> None:
        monkeypatch.setattr(kafka, "describe", lambda *_: {each.name: each for each in there})
        restore._make_topics(target(tmp_path), MANIFEST)

    return made


@pytest.mark.parametrize(
    "there",
    [
        [topic(NAMES.transactions, 5, 5), topic(NAMES.results, 0, 3)],
        [topic(NAMES.transactions, 5, 5), topic(NAMES.results, 0), topic(NAMES.changes, 1)],
        [topic(NAMES.transactions, 5)],
        [topic(NAMES.transactions, 5, stamps="CreateTime"), topic(NAMES.results, 1)],
    ],
    ids=["results", "changes", "fewer-partitions", "loading"],
)
def test_a_database_that_was_used_is_refused_before_anything_is_changed(
    there: list[TopicDescription], make: Callable[..., None], done: list[str]
) -> None:
    """It may run, with a checkpoint elsewhere; with other times and partitions it would go on."""
    with pytest.raises(Failure, match=r"bank at 127.0.0.1:1 already, .*Nothing was changed"):
        make(*there)
    assert done == []


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ([], ["create closed", "grow", "close_log"]),
        ([topic(NAMES.transactions, 0)], ["create", "grow", "close_log"]),
        (
            [topic(NAMES.transactions, 5, 5, stamps="CreateTime")],
            ["create closed", "grow", "close_log"],
        ),
        ([topic(NAMES.transactions, 9, 9), topic(NAMES.results, 0)], ["create", "grow"]),
    ],
    ids=["new", "empty", "interrupted", "done-already"],
)
def test_the_log_stays_closed_to_pipelines_until_it_is_restored(
    there: list[TopicDescription], wanted: list[str], make: Callable[..., None], done: list[str]
) -> None:
    make(*there)
    assert done == wanted


def test_two_at_once_do_not_write_into_one_log(tmp_path: Path) -> None:
    """Each would find its records at other offsets, and the name could not be used any more."""
    new = target(tmp_path)
    with (
        lock_at_once(new.files.folder / "restore.lock", BackupError("free")),
        pytest.raises(BackupError, match="another `restore` or `fork` writes to bank"),
    ):
        restore.fill(new, MANIFEST, None, None, [])


def resharded(home: Path) -> Any:
    return restore._reshard(target(home), 2, None)


def test_shards_are_not_changed_while_a_standby_leads_or_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lose its feedback, and go on with the old number."""
    place = target(tmp_path).files
    place.write_record(DatabaseRecord(database="bank", shards=1, partitions=1))
    file = place.status_file_of("two")
    file.parent.mkdir(parents=True)
    file.write_bytes(msgspec.json.encode(PipelineStatus(state="running", pid=os.getpid())))
    with pytest.raises(Failure, match=rf"the pipeline two runs \(process {os.getpid()}\): stop"):
        resharded(tmp_path)
    file.write_bytes(msgspec.json.encode(PipelineStatus(state="stopped")))
    other = PresentPipeline(
        name="three", pipeline="id", role="leading", epoch=1, resolved=1, ready=True, age_s=1.0
    )
    monkeypatch.setattr(status, "pipelines_elsewhere", lambda _: [other])
    with pytest.raises(Failure, match=r"executed elsewhere, by pipeline three, .*half a minute"):
        resharded(tmp_path)


def test_a_backup_of_a_database_that_was_made_elsewhere_has_its_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {NAMES.feedback: topic(NAMES.feedback, 0, 0, 0)}
    monkeypatch.setattr(kafka, "describe", lambda *_: found)
    assert backup_options._shards(target(tmp_path)) == 3
    target(tmp_path).files.write_record(DatabaseRecord(database="bank", shards=2, partitions=1))
    assert backup_options._shards(target(tmp_path)) == 2


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database's log has the id `mine`."""
    found = SimpleNamespace(log="mine")
    monkeypatch.setattr(backup_options, "subject_of", lambda _: found)
    monkeypatch.setattr(kafka, "log_id", lambda *_: "mine")


@pytest.mark.usefixtures("subject")
def test_values_of_another_database_are_not_told_as_those_that_a_transaction_met(
    tmp_path: Path,
) -> None:
    backup = BackupFolder(tmp_path / "backup")
    backup.write_manifest(MANIFEST)
    with pytest.raises(BackupError, match="is the backup of another log of bank"):
        explain._history(target(tmp_path), backup.folder)
    backup.write_manifest(msgspec.structs.replace(MANIFEST, log="mine"))
    history = explain._history(target(tmp_path), backup.folder)
    assert history is not None
    assert history.ends == MANIFEST.ends


@pytest.mark.usefixtures("subject")
def test_a_checkpoint_is_not_set_aside_for_a_state_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {NAMES.transactions: topic(NAMES.transactions, 9)}
    monkeypatch.setattr(kafka, "describe", lambda *_: there)
    state, checkpoint = StateFolder(tmp_path / "state"), tmp_path / "checkpoint"
    state.write(state_at(4, {0: 4}, log="mine"))
    checkpoint.mkdir()
    part = next(state.folder.glob("*.part"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(BackupError, match="is damaged"):
        rebuild._put_aside(target(tmp_path), checkpoint, state.folder)
    assert checkpoint.exists()
