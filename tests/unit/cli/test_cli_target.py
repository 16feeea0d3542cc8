"""Commands say at once that no Kafka is there."""

from __future__ import annotations

import json
import socket
import socketserver
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.cli.common import Failure
from streamydb.cli.create import refuse_changes
from streamydb.cli.doctor import Finding
from streamydb.cli.options import DatabaseOptions
from streamydb.cli.restore import _reshard
from streamydb.cli.target import facade_of, find_target
from streamydb.kafka.connection import listens
from streamydb.local import processes
from streamydb.local.broker import free_port
from streamydb.local.folder import DatabaseFolder, DatabaseRecord


@pytest.mark.parametrize(
    "arguments",
    [
        ["txn", "--put", "a=1"], ["watch", "--no-follow"], ["check"], ["create"], ["handover"],
        ["up"], ["resize", "--shards", "2"], ["backup", "b"], ["snapshot", "--to", "s"],
        ["fork", "new"], ["whatif", "--drop-constraint", "x"], ["explain", "x"],
        ["acls", "--role", "facade", "--principal", "User:x", "--apply"],
    ],
    ids=lambda a: a[0],
)  # fmt: skip
def test_without_kafka(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = f"127.0.0.1:{free_port()}"
    done = CliRunner().invoke(app, [*arguments, "--home", str(tmp_path), "--bootstrap", address])
    assert done.exit_code == 1
    assert f"no Kafka at {address}; start it (`streamydb up`)" in done.stderr


def test_of_an_embedded_broker_that_is_stopped_its_home_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamydb.kafka.connection.listens", lambda _: False)
    home = str(tmp_path)
    done = CliRunner().invoke(app, ["txn", "--put", "a=1", "--home", home, "--database", "shop"])
    assert done.exit_code == 1
    told = f"the embedded broker of {home} does not run, and no Kafka at 127.0.0.1:9092; start it"
    assert f"{told} (`streamydb up --database shop --home {home}`)" in done.stderr


@pytest.fixture
def web_server() -> Iterator[str]:
    """The address of something that is not Kafka."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield "{}:{}".format(*server.server_address)
        server.shutdown()


@pytest.mark.parametrize(
    "command",
    [
        "txn --put a=1", "watch --no-follow", "check", "create", "handover", "up",
        "resize --shards 2", "rebuild", "snapshot --to s", "fork new", "explain x",
        "constraints list",
    ],
)  # fmt: skip
def test_something_else_at_kafkas_address_is_told_at_once(
    command: str, web_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*command.split(), "--home", str(tmp_path), "--bootstrap", web_server]
    monkeypatch.setattr("streamydb.kafka.clients._Client.__init__", _no_client)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert f"what listens at {web_server} does not answer as Kafka does" in done.stderr
    assert "STREAMYDB_SECURITY_PROTOCOL (now PLAINTEXT)" in done.stderr


def test_a_broker_that_takes_its_time_is_waited_for_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("streamydb.kafka.connection._PROBE_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "{}:{}".format(*silent.getsockname())
        for _ in range(2):  # a command may ask more than once
            find_target(DatabaseOptions(home=tmp_path, bootstrap=address)).must_listen()
    assert capsys.readouterr().err.count(f"{address} takes connections, and is slow to answer") == 1


def _no_client(*_: object) -> None:
    raise AssertionError("a client of Kafka would try for long")


def test_status_and_doctor_know_something_else_from_kafka(web_server: str, tmp_path: Path) -> None:
    where = ["--home", str(tmp_path), "--bootstrap", web_server]
    shown = json.loads(CliRunner().invoke(app, ["status", "--json", *where]).stdout)
    assert "does not answer as Kafka does" in shown["broker"]
    assert "does not answer as Kafka does" in CliRunner().invoke(app, ["doctor", *where]).output


def test_only_a_facade_of_the_same_kafka_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        facade = "http://{}:{}".format(*server.getsockname())
        monkeypatch.setattr(DatabaseFolder, "facade_url", lambda _: facade)
        monkeypatch.setattr(DatabaseFolder, "facade_bootstrap", lambda _: "a:1,b:2")

        def asked(bootstrap: str, url: str | None = None) -> str:
            return facade_of(find_target(DatabaseOptions(home=tmp_path, bootstrap=bootstrap)), url)

        assert asked("b:2,c:3") == facade
        with pytest.raises(Failure, match=r"serves bank at a:1,b:2, not at c:3.*--url"):
            asked("c:3")
        assert asked("c:3", facade) == facade


def test_where_the_facade_reads_is_known_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = DatabaseFolder(tmp_path, "bank")
    assert place.facade_bootstrap() is None
    command = ["python", "-m", "streamydb.cli", "serve", "--bootstrap", "k:9", "--port", "1"]
    running = processes.ProcessRecord("facade", 1, 0.0, command, "log", 0)
    monkeypatch.setattr(processes, "find", lambda *_: running)
    assert place.facade_bootstrap() == "k:9"
    place.note_facade("https://[::1]:2")  # by another `up`, which was second
    assert place.facade_url() == "https://[::1]:1"


@pytest.mark.parametrize("command", [["sql", "select 1"], ["constraints", "verify"]])
def test_a_facade_that_does_not_run_is_not_waited_for(command: list[str], tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = CliRunner().invoke(app, [*command, "--home", str(tmp_path), "--url", url])
    assert done.exit_code == 1
    assert f"nobody listens at {url}" in done.stderr
    for no_url in ("here", "ftp://here", "http://here:port", "http://"):
        done = CliRunner().invoke(app, [*command, "--home", str(tmp_path), "--url", no_url])
        assert (done.exit_code, "is no URL" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", [["explain", "x"], ["handover"], ["backup", "b"]])
def test_a_database_that_does_not_exist(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamydb.kafka.connection.listens", lambda _: True)
    monkeypatch.setattr("streamydb.kafka.describe", lambda *_: {})
    done = CliRunner().invoke(app, [*command, "--home", str(tmp_path), "--database", "nosuch"])
    assert done.exit_code == 1
    assert "there is no database nosuch at" in done.stderr


def test_the_doctor_names_no_exception_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    module = import_module("streamydb.cli.doctor")
    monkeypatch.setattr(module, "_broker", lambda _: Finding("broker", "ok", "there"))
    monkeypatch.setattr(module, "_topics", lambda _: iter([_MISSING]))
    monkeypatch.setattr(module, "_pipeline", lambda _: Finding("pipeline", "ok", "-"))
    done = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path), "--json"])
    found = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert found["java"]["what"].startswith(f"JAVA_HOME is {tmp_path}")
    assert "clock" not in found
    assert done.exit_code == 3


_MISSING = Finding("topic bank.transactions", "fail", "the topic is missing", "create it")


def test_a_database_that_did_not_run_was_not_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("streamydb.cli.down")
    monkeypatch.setattr(module, "_others_running", lambda _: ["bank"])
    done = CliRunner().invoke(app, ["down", "--home", str(tmp_path), "--database", "typo"])
    assert "Nothing was running for database typo" in done.stderr
    assert "The broker goes on for bank" in done.stderr


def test_status_and_doctor_without_kafka(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    where = ["--home", str(tmp_path), "--bootstrap", address]
    shown = CliRunner().invoke(app, ["status", "--json", *where])
    assert shown.exit_code == 3
    assert json.loads(shown.stdout)["broker"].startswith("does not answer; start it")
    examined = CliRunner().invoke(app, ["doctor", *where])
    assert f"broker: no answer at {address}" in examined.output


@pytest.mark.parametrize(
    ("told", "may_be_there"), [(socket.EAI_NONAME, False), (socket.EAI_AGAIN, True)]
)
def test_a_host_that_does_not_exist_is_not_waited_for(
    told: int, may_be_there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(told, "not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    assert listens("no.such.host.invalid:9092") is may_be_there


def test_an_address_is_silent_only_when_all_refuse() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        somebody = "{}:{}".format(*server.getsockname())
        assert listens(somebody)
        assert listens(f"{nobody}, {somebody}")
        assert not listens(f"{nobody},{nobody}")
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
    refuse_changes(find_target(DatabaseOptions("bank", tmp_path)))
    message = f"bank has {option} .* and {value} was asked for.*{remedy}"
    with pytest.raises(Failure, match=message) as refused:
        refuse_changes(find_target(DatabaseOptions("bank", tmp_path), **{option: value}))
    assert refused.value.code == 1  # as for what Kafka tells: the arguments themselves make sense


def test_another_number_of_partitions_is_refused_by_up_of_a_database_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, log = import_module("streamydb.cli.up"), SimpleNamespace(partitions=2)
    monkeypatch.setattr("streamydb.cli.target.Target.must_exist", lambda _: log)
    monkeypatch.setattr(command, "_runs", lambda _: True)
    went_on: list[object] = []
    monkeypatch.setattr(command, "_go_on", lambda *_, **__: went_on.append(1))
    monkeypatch.setattr(command, "_tell_running", lambda *_: None)
    up = ["up", "--home", str(tmp_path), "--bootstrap", "k:9", "--no-http"]
    done = CliRunner().invoke(app, [*up, "--partitions", "3"])
    assert (done.exit_code, went_on) == (1, [])
    assert "bank has partitions 2, and 3 was asked for" in done.stderr
    for given in ([], ["--partitions", "2"]):  # it may have grown
        assert CliRunner().invoke(app, [*up, *given]).exit_code == 0
    assert went_on == [1, 1]


def test_a_database_without_plans_keeps_its_shards(tmp_path: Path) -> None:
    """Its pipeline could not begin with the state that was divided."""
    DatabaseFolder(tmp_path, "bank").write_record(
        DatabaseRecord(database="bank", shards=1, partitions=1, grouping="single")
    )
    with pytest.raises(Failure, match=r"grouping=single.*streamydb restore --shards"):
        _reshard(find_target(DatabaseOptions("bank", tmp_path)), 2, None)
