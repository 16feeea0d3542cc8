"""Changes that were made anew have none of what was written before: only a rebuild goes on there.

A rebuild that cannot go on is refused before anything is moved.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka.admin import NewPartitions
from msgspec import Raw

from streamydb.backup import StateFolder, start
from streamydb.backup.start import Beginning
from streamydb.cli.common import Failure
from streamydb.cli.rebuild import _require_beginning
from streamydb.cli.target import Target
from streamydb.errors import ConfigurationError, StreamyError
from streamydb.kafka import TopicNames, check, create
from streamydb.kafka.admin import cluster, count_partitions, drop_before
from streamydb.kafka.clients import MESSAGES, administrator, appender
from streamydb.kafka.creation import log_id
from streamydb.local.folder import DatabaseFolder
from streamydb.pipeline import background, main
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.preparation import require_same_history
from streamydb.records import EXPIRY_ID
from streamydb.records.change import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    Resolved,
    encode_change,
    encode_resolved,
)
from streamydb.records.expiry import removal_number
from streamydb.records.marker import Marker, encode_marker
from streamydb.settings import Settings
from streamydb.sorter.state import PartitionState
from streamydb.testing.database import wait_for

if TYPE_CHECKING:
    from streamydb.pipeline.standby.coordinator import Coordinator

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def config(bootstrap: str, database: str, tmp_path: Path) -> PipelineConfig:
    settings = Settings(database=database, bootstrap=bootstrap)
    create(settings.client_config(), database)
    return PipelineConfig(settings, tmp_path / "checkpoint", None, tmp_path)


def made_anew(config: PipelineConfig) -> None:
    """Do what the message about changes that were given partitions says."""
    client, name = config.settings.client_config(), config.settings.database
    topic = TopicNames(name).changes
    admin = administrator(client)
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(30)
    wait_for(lambda: count_partitions(cluster(admin).topics[topic]) == 6, "more partitions")
    with pytest.raises(ConfigurationError, match=r"STREAMYDB_CHANGES_PARTITIONS=4.*rebuild"):
        main._find(config)
    delete_changes(config)
    create(client, name, changes_partitions=4)
    assert check(client, name) == []


def delete_changes(config: PipelineConfig) -> None:
    topic = TopicNames(config.settings.database).changes
    admin = administrator(config.settings.client_config())
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in cluster(admin).topics, "the topic to be gone")


def resolve(
    config: PipelineConfig,
    seq: int,
    partition: int,
    ts_ms: int = 1,
    offsets: dict[str, int] | None = None,
) -> None:
    """All changes up to a seq are there."""
    resolved = encode_resolved(Resolved(seq, ts_ms, offsets or {}))
    append(config, TopicNames(config.settings.database).changes, resolved, partition)


def append(
    config: PipelineConfig, topic: str, value: bytes, partition: int = 0, key: bytes | None = None
) -> None:
    producer = appender(config.settings.client_config(), MESSAGES, topic)
    producer.produce(topic, value, key, partition=partition)
    assert producer.flush(30) == 0


def test_a_checkpoint_whose_changes_were_made_anew_is_refused_and_a_new_one_begins(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    main._find(config)
    main._find(config)
    made_anew(config)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"made anew.*streamydb rebuild"):
            main._find(config)
    rebuilt = replace(config, checkpoint=tmp_path / "rebuilt")
    main._find(rebuilt)
    main._find(rebuilt)
    state = Beginning(tmp_path, 7, (0,))

    def begin(*_: Any) -> Beginning:
        return state

    monkeypatch.setattr(main, "begin", begin)
    from_state = replace(config, checkpoint=tmp_path / "from-state")
    for written in (0, 6):
        if written:
            resolve(config, written, partition=1)
        told = rf"up to seq {written}, .*state at seq 7.*log's beginning"
        with pytest.raises(ConfigurationError, match=told):
            main._find(from_state)
    resolve(config, 7, partition=2)
    found = main._find(from_state)
    assert found.start == state


@pytest.mark.parametrize(("seq", "written", "refused"), [
    (7, 0, True), (0, 0, False), (7, 7, False), (7, 6, True),
])  # fmt: skip
def test_a_rebuild_from_a_state_is_refused_before_anything_is_moved(
    config: PipelineConfig,
    monkeypatch: pytest.MonkeyPatch,
    *,
    seq: int,
    written: int,
    refused: bool,
) -> None:
    client, name = config.settings.client_config(), config.settings.database
    target = Target(config.settings, DatabaseFolder(config.local, name))
    begin_with(monkeypatch, log=log_id(client, name), seq=seq, positions={})
    if written:
        resolve(config, written, partition=0)
    told = pytest.raises(Failure, match="those up to seq 7 would not come back")
    with told if refused else nullcontext():
        _require_beginning(target, config.local)


def begin_with(monkeypatch: pytest.MonkeyPatch, **about: Any) -> None:
    """Let every folder be a state."""
    monkeypatch.setattr(start, "find_state", lambda folder: folder)
    monkeypatch.setattr(StateFolder, "about", lambda _: SimpleNamespace(files={}, **about))


@pytest.mark.parametrize(("seen", "told"), [
    (0, None), (1, "is not what this checkpoint has read"), (2, "ends at offset 1, .* was lost"),
])  # fmt: skip
def test_a_rebuild_from_a_state_that_the_log_has_lost_is_refused_before_anything_is_moved(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, seen: int, told: str | None
) -> None:
    client, name = config.settings.client_config(), config.settings.database
    append(config, TopicNames(name).transactions, b"{}")
    resolve(config, 7, partition=0)
    read = PartitionState(position=seen, stamp=5, mark="another")
    begin_with(monkeypatch, log=log_id(client, name), seq=7, positions={0: read})
    target = Target(config.settings, DatabaseFolder(config.local, name))
    with nullcontext() if told is None else pytest.raises(StreamyError, match=told):
        _require_beginning(target, config.local)


_LATER_MS = 1 << 50


@pytest.mark.parametrize(("records", "covered", "ts_ms", "lost"), [
    ([b"{}"], 1, _LATER_MS, False), ([b"{}"], 2, _LATER_MS, True), ([b"{}"], 1, 1, True),
    ([b"{}", encode_marker(Marker(9, 1, "s"))], 2, 1, False), ([], 0, 1, False),
    ([b"{}"], 0, 1, False),
])  # fmt: skip
def test_changes_of_transactions_that_the_log_has_lost_are_not_written_on(
    config: PipelineConfig,
    tmp_path: Path,
    records: list[bytes],
    covered: int,
    ts_ms: int,
    *,
    lost: bool,
) -> None:
    """The log ends before what is resolved, or has later records in its place."""
    main._find(config)
    (config.checkpoint / "query").mkdir()
    names = TopicNames(config.settings.database)
    for value in records:
        append(config, names.transactions, value)
    resolve(config, 7, 0, ts_ms, {"0": covered})
    rebuilt = replace(config, checkpoint=tmp_path / "rebuilt")
    target = Target(config.settings, DatabaseFolder(config.local, names.database))
    if not lost:
        main._find(rebuilt)
        _require_beginning(target, None)
        return
    told = rf"up to seq 7.*the log has lost.*delete .* with {names.changes}"
    with pytest.raises(ConfigurationError, match=told):
        main._find(rebuilt)
    with pytest.raises(ConfigurationError, match=told):
        _require_beginning(target, None)
    delete_changes(config)
    create(config.settings.client_config(), names.database)
    main._find(rebuilt)


@pytest.mark.parametrize(("offset", "ts_ms", "order", "lost"), [
    (0, _LATER_MS, 1, False), (0, 1, 1, True), (1, _LATER_MS, 1, True),
    (1, 1, removal_number(b"k"), False),
])  # fmt: skip
def test_changes_that_are_not_resolved_yet_tell_of_lost_transactions_too(
    config: PipelineConfig, offset: int, ts_ms: int, order: int, *, lost: bool
) -> None:
    """Power was lost, so the pipeline that wrote them has not said that it had written all."""
    client, name = config.settings.client_config(), config.settings.database
    append(config, TopicNames(name).transactions, b"{}")
    resolve(config, 6, 1, _LATER_MS, {"0": 0})
    origin = ChangeOrigin("streamydb", name, 0, offset, 7)
    txn = ChangeTransaction(EXPIRY_ID, order, order)  # a client may take this id, too
    change = Change("c", Raw(b"null"), Raw(b"1"), ts_ms, origin, txn)
    for partition in (0, 1):
        append(config, TopicNames(name).changes, encode_change(change), partition, b"k")
    told = "up to seq 7.*has lost"
    with pytest.raises(ConfigurationError, match=told) if lost else nullcontext():
        require_same_history(client, name)
    for partition in (0, 1):
        resolve(config, 7, partition, _LATER_MS, {"0": 1})
    require_same_history(client, name)


def test_a_log_that_was_trimmed_has_lost_nothing(config: PipelineConfig) -> None:
    client, name = config.settings.client_config(), config.settings.database
    topic = TopicNames(name).transactions
    for _ in range(3):
        append(config, topic, b"{}")
    resolve(config, 7, 0, 1, {"0": 2})
    with pytest.raises(ConfigurationError, match="has lost"):
        require_same_history(client, name)
    for trimmed in (2, 3):
        assert drop_before(client, topic, {0: trimmed}, _LATER_MS) == {0: trimmed}
        require_same_history(client, name)


@pytest.mark.parametrize("leads", [True, False])
def test_a_pipeline_under_which_the_changes_are_made_anew_stops_and_nobody_uses_what_it_wrote(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, leads: bool
) -> None:
    """One that only follows has written nothing: the leader may be writing all of them."""
    client, name = config.settings.client_config(), config.settings.database
    found = main._find(config)
    monkeypatch.setattr(background, "_GROWTH_S", 0.1)
    role = cast("Coordinator", SimpleNamespace(leads=leads))
    with main._growth(found, role) as watch:
        delete_changes(config)
        create(client, name, changes_partitions=4)
        wait_for(lambda: watch.failure is not None, "the pipeline to be stopped")
    rebuilt = replace(config, checkpoint=tmp_path / "rebuilt")
    if not leads:
        assert "made anew since" in str(watch.failure)
        main._find(rebuilt)
        return
    assert "while a pipeline ran" in str(watch.failure)
    told = r"while a pipeline ran.*delete .*STREAMYDB_CHANGES_PARTITIONS=4.*`streamydb rebuild`"
    for each in (config, rebuilt):
        with pytest.raises(ConfigurationError, match=told):
            main._find(each)
    target = Target(config.settings, DatabaseFolder(config.local, name))
    with pytest.raises(Failure, match=told):
        _require_beginning(target, None)
    delete_changes(config)
    create(client, name, changes_partitions=4)
    main._find(rebuilt)
