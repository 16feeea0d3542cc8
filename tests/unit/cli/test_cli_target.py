"""Commands say at once that no Kafka is there."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.cli.common import Failure
from streamydb.cli.create import refuse_changes
from streamydb.cli.options import Named
from streamydb.cli.restore import _reshard
from streamydb.cli.target import find_target
from streamydb.kafka.connection import listens
from streamydb.local.broker import free_port
from streamydb.local.folder import DatabaseFolder, DatabaseRecord


@pytest.mark.parametrize(
    "arguments",
    [
        ["txn", "--put", "a=1"], ["watch", "--no-follow"], ["check"], ["create"], ["handover"],
        ["up"], ["resize", "--shards", "2"], ["backup", "b"], ["snapshot", "--to", "s"],
        ["fork", "new"], ["whatif", "--drop-constraint", "x"],
    ],
    ids=lambda a: a[0],
)  # fmt: skip
def test_without_kafka(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = f"127.0.0.1:{free_port()}"
    done = CliRunner().invoke(
        app, [*arguments, "--home", str(tmp_path), "--bootstrap", address]
    )
    assert done.exit_code == 1
    assert f"no Kafka at {address}; start it (`streamydb up`)" in done.stderr


def test_status_and_doctor_without_kafka(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    where = ["--home", str(tmp_path), "--bootstrap", address]
    shown = CliRunner().invoke(app, ["status", "--json", *where])
    assert shown.exit_code == 3
    assert json.loads(shown.stdout)["broker"].startswith("does not answer; start it")
    examined = CliRunner().invoke(app, ["doctor", *where])
    assert f"broker: no answer at {address}" in examined.output


def test_an_address_is_silent_only_when_all_refuse() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        somebody = "{}:{}".format(*server.getsockname())
        assert listens(somebody)
        assert listens(f"{nobody}, {somebody}")
        assert not listens(f"{nobody},{nobody}")
    assert listens("no.such.host.invalid:9092")
    assert listens("nonsense")


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("shards", 2, "change it with `streamydb resize`"),
        ("grouping", "single", "create another database"),
    ],
)
def test_what_contradicts_the_creation_is_refused_with_what_can_be_done(
    option: str, value: object, remedy: str, tmp_path: Path
) -> None:
    DatabaseFolder(tmp_path, "bank").write_record(
        DatabaseRecord(database="bank", shards=1, partitions=1)
    )
    refuse_changes(find_target(Named("bank", tmp_path)))
    with pytest.raises(Failure, match=f"bank has {option} .* and {value} was asked for.*{remedy}"):
        refuse_changes(find_target(Named("bank", tmp_path), **{option: value}))


def test_a_database_without_plans_keeps_its_shards(tmp_path: Path) -> None:
    """Its pipeline could not begin with the state that was divided."""
    DatabaseFolder(tmp_path, "bank").write_record(
        DatabaseRecord(database="bank", shards=1, partitions=1, grouping="single")
    )
    with pytest.raises(Failure, match=r"grouping=single.*streamydb restore --shards"):
        _reshard(find_target(Named("bank", tmp_path)), 2, None)
