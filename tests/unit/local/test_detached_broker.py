"""A broker is known as soon as there is a process: a second one would spoil its data."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamydb.local.broker import (
    BrokerError,
    BrokerRecord,
    EmbeddedBroker,
    config,
    find_broker,
    free_port,
    start_detached,
)
from streamydb.local.broker.embedded import write_record
from streamydb.local.launcher import LocalProcess

WAITS = [sys.executable, "-c", "import signal; signal.pause()"]


@pytest.fixture
def child(tmp_path: Path) -> Iterator[LocalProcess]:
    with LocalProcess("broker", WAITS, tmp_path / "log") as process:
        yield process


def known(home: Path, child: LocalProcess, port: int) -> BrokerRecord:
    record = BrokerRecord(
        child.pid, child.birth.created_s, f"127.0.0.1:{port}", "log", child.birth.since_boot
    )
    write_record(home, record)
    return record


def test_one_that_starts_is_found_and_gone_if_its_start_is_interrupted(
    tmp_path: Path, child: LocalProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[BrokerRecord | None] = []

    def interrupted(_: EmbeddedBroker) -> None:
        found.append(find_broker(tmp_path))
        raise KeyboardInterrupt

    for step in ("_choose_port", "_write_configuration", "_format_storage"):
        monkeypatch.setattr(EmbeddedBroker, step, lambda _: None)
    monkeypatch.setattr(
        EmbeddedBroker, "_launch", lambda broker: setattr(broker, "_process", child)
    )
    monkeypatch.setattr(EmbeddedBroker, "_wait_until_ready", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_detached(tmp_path, port=1)
    (record,) = found
    assert record is not None
    assert record.pid == child.pid
    assert not child.alive
    assert not (tmp_path / "broker.json").exists()


def test_one_whose_starter_was_killed_is_waited_for(tmp_path: Path, child: LocalProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        record = known(tmp_path, child, server.getsockname()[1])
        assert start_detached(tmp_path) == record


def test_one_that_does_not_come_to_listen_is_told_and_no_second_one_started(
    tmp_path: Path, child: LocalProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "START_S_DEFAULT", 0.0)
    monkeypatch.setattr(EmbeddedBroker, "start", None)
    known(tmp_path, child, free_port())
    with pytest.raises(BrokerError, match=rf"process {child.pid}\) does not listen .*down"):
        start_detached(tmp_path)
