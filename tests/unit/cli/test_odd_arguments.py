"""Arguments and variables that make no sense are an error of usage, never a traceback."""

from __future__ import annotations

import json
import math
import os
import shlex
import socket
from concurrent.futures import Future
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ResourcePatternType
from typer.testing import CliRunner

from streamydb.cli import app, calls
from streamydb.cli.common import Failure
from streamydb.errors import StreamyError
from streamydb.local.broker import BrokerError, EmbeddedBroker
from streamydb.local.folder import databases
from streamydb.read_model import service
from streamydb.read_model.follower import Follower

HUGE = "9" * 30
NO_TEXT = os.fsdecode(b"\xff")
"""A byte of the command line that is no UTF-8, as Python gives it to programs."""


def said(arguments: list[str], home: Path, **variables: str) -> str:
    """Return what a command says that ends as an error of usage."""
    env = {"STREAMYDB_HOME": str(home), "STREAMYDB_BOOTSTRAP": "", **variables}
    done = CliRunner().invoke(app, arguments, env=env)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2, done.output
    return " ".join(done.output.replace("│", "").split())


@pytest.mark.parametrize("number", ["nan", "inf", "1e300", "-1"])
@pytest.mark.parametrize(
    "command",
    [
        "txn --put a=1 --timeout", "check --timeout", "handover --timeout", "up --timeout",
        "down --grace", "serve --timeout", "rebuild --timeout", "constraints list --timeout",
    ],
)  # fmt: skip
def test_what_is_no_time(command: str, number: str, tmp_path: Path) -> None:
    assert "Invalid value" in said([*command.split(), number], tmp_path)


@pytest.mark.parametrize("option", ["--retention-s", "--retention-seqs"])
def test_what_a_read_model_keeps_may_be_all_but_is_a_number(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[dict[str, float]] = []

    class Noted(Follower):
        def __init__(self, *_: Any, **given: float) -> None:
            kept.append(given)
            raise StreamyError("noted")

    monkeypatch.setattr(service, "warm_up", lambda: None)
    monkeypatch.setattr(service, "Follower", Noted)
    place = ["--bootstrap", "127.0.0.1:9", "--folder", str(tmp_path / "model")]
    for number in ("nan", "-1", "-inf"):
        done = CliRunner().invoke(app, ["read-model", *place, option, number])
        assert (done.exit_code, "must be 0 or more" in done.output) == (1, True)
    assert kept == []
    CliRunner().invoke(app, ["read-model", *place, option, "inf"])
    assert [given[option[2:].replace("-", "_")] for given in kept] == [math.inf]


@pytest.mark.parametrize(
    "command",
    [
        "up --http-port 70000", "up --port 70000", "broker --port 70000", "up --http-port -1",
        "serve --port 70000", "resize --shards 0", "resize --shards 65", "restore x --shards 0",
        "fork other --shards 0", "serve --port 0", "resize --partitions 0",
        "resize --partitions 1025", "broker --heap-mb -5", "restore x --at abc",
        "fork other --at -1", "snapshot --to x --at 2026-01-31T12:00:00",
        "backup x --keep 0", "backup x --keep -1",
    ],
)  # fmt: skip
def test_numbers_that_are_too_large_or_too_small(command: str, tmp_path: Path) -> None:
    assert "Invalid value" in (told := said(command.split(), tmp_path)) or "--port: " in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["txn", "--put", f"a={NO_TEXT}"],
        ["txn", "--put", f"{NO_TEXT}=1"],
        ["txn", "--id", NO_TEXT, "--put", "a=1"],
        ["txn", "--check", f"a@{'1' * 5000}"],
        ["constraints", "declare", NO_TEXT],
        ["constraints", "drop", NO_TEXT],
        ["whatif", "--drop-constraint", NO_TEXT],
        ["explain", "a", "--record", f"0:{HUGE}"],
        ["explain", "a", "--record", "0"],
        ["explain", NO_TEXT],
        ["watch", "--start", NO_TEXT],
        ["broker", "--host", "no.such.host.invalid"],
        ["broker", "--advertise", "nonsense"],
        ["txn", "--call", "transfer"],
        ["txn", "--call", "bank.transfer", "--arg", "x=1", "--arg", "x=2"],
        ["txn", "--put", "b=1", "--assert", "a=1", "--assert", "a=2"],
        ["constraints", "list", "balance"],
        ["constraints", "declare"],
        ["constraints", "declare", "[]"],
        ["constraints", "drop"],
        ["whatif", "--constraint", "[]"],
        ["watch", "--where", f'{{"ge": {HUGE}}}'],
    ],
)
def test_what_no_record_can_hold(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamydb.cli.target.Target.must_listen", lambda _: None)
    said(arguments, tmp_path, STREAMYDB_BOOTSTRAP="127.0.0.1:1")


@pytest.mark.parametrize(
    ("host", "listens", "reached"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"), ("0.0.0.0", "0.0.0.0", "127.0.0.1"),  # noqa: S104
        ("127.0.0.2", "127.0.0.2", "127.0.0.2"), ("::1", "[::1]", "[::1]"),
    ],
)  # fmt: skip
def test_a_broker_is_reached_where_it_listens(
    host: str, listens: str, reached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[EmbeddedBroker] = []

    def start(broker: EmbeddedBroker) -> EmbeddedBroker:
        begun.append(broker)
        raise BrokerError("it is enough")

    monkeypatch.setattr(EmbeddedBroker, "start", start)
    words = ["broker", "--home", str(tmp_path), "--host", host, "--port", "9095"]
    assert "it is enough" in CliRunner().invoke(app, words).stderr
    (broker,) = begun
    assert broker.bootstrap == f"{reached}:9095"
    assert broker.properties["listeners"].startswith(f"BROKER://{listens}:9095,")
    assert broker.properties["advertised.listeners"] == f"BROKER://{reached}:9095"


def test_a_brokers_address_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text("{")
    done = CliRunner().invoke(app, ["txn", "--put", "a=1", "--home", str(tmp_path)])
    assert isinstance(done.exception, SystemExit)
    assert (done.exit_code, "broker.json cannot be read" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"PORT": "70000"}, "STREAMYDB_SERVE_PORT: "),
        ({"CORS_ORIGINS": "https://app.example"}, "STREAMYDB_SERVE_CORS_ORIGINS: write a JSON"),
        ({"TOKENS": '[{"token": "secret"}]', "TOKENS_FILE": "/t"}, "tokens or tokens_file"),
    ],
)
def test_settings_of_a_facade_are_told_without_their_values(
    variables: dict[str, str], told: str, tmp_path: Path
) -> None:
    given = {f"STREAMYDB_SERVE_{name}": value for name, value in variables.items()}
    message = said(["serve"], tmp_path, **given)
    assert told in message
    assert "secret" not in message
    assert "pydantic" not in message


def test_a_port_that_is_taken_is_told_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        words = ["serve", "--port", port, "--home", str(tmp_path), "--timeout", "1000"]
        done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 1
    assert f"127.0.0.1:{port} cannot be listened on" in done.stderr
    assert "Serving" not in done.stderr


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:8080"), ("::1", "http://[::1]:8080")]
)
def test_serving_ends_well_by_ctrl_c(
    host: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: Any) -> None:
        raise KeyboardInterrupt

    module = import_module("streamydb.cli.serve")
    monkeypatch.setattr("streamydb.facade.serve_database", ended)
    monkeypatch.setattr("streamydb.facade.server.listen", lambda _: socket.socket())
    monkeypatch.setattr(module, "_opened", lambda *_: nullcontext())
    done = CliRunner().invoke(app, ["serve", "--home", str(tmp_path), "--host", host])
    assert (done.exit_code, f"Serving bank on {url}\n" in done.stderr) == (0, True)


def test_what_is_no_database_is_not_taken_for_one(tmp_path: Path) -> None:
    folder = tmp_path / "databases"
    (folder / "bank").mkdir(parents=True)
    (folder / ".DS_Store").touch()
    (folder / "lost+found").mkdir()
    assert databases(tmp_path) == ["bank"]


@pytest.mark.parametrize("command", ["constraints list", "procedures list"])
def test_a_read_that_is_rejected_is_no_answer(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected: Any = json.loads('{"status": "rejected", "code": "deadline-passed", "reads": {}}')
    result = type("Rejected", (), rejected)
    monkeypatch.setattr(calls, "call", lambda *_: result)
    (tmp_path / f"bank.{'0' * 64}.py").touch()
    given = ["--procedures", str(tmp_path)] if command.startswith("p") else []
    done = CliRunner().invoke(app, [*command.split(), "--home", str(tmp_path), *given])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 1
    assert "could not be read: rejected deadline-passed" in done.stderr


def test_a_verification_shows_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    def connect(address: str, **options: Any) -> Any:
        shown.append((address, options["token"]))
        raise Failure("seen")

    monkeypatch.setattr("streamydb.connect", connect)
    monkeypatch.setattr("streamydb.kafka.connection.listens", lambda _: True)
    words = ["constraints", "verify", "--url", "https://f", "--token", "t", "--home", str(tmp_path)]
    assert CliRunner().invoke(app, words).exit_code == 1
    assert shown == [("https://f", "t")]


@pytest.mark.parametrize("user", ["User:bank", "User:CN=bank facade,O=A & B's,C=DE", "User:*"])
def test_rights_are_granted_to_whom_they_are_meant_for(user: str, tmp_path: Path) -> None:
    words = ["acls", "--role", "standby", "--principal", user, "--home", str(tmp_path)]
    lines = CliRunner().invoke(app, words).stdout.splitlines()
    assert len(lines) > 5
    for line in lines:
        found = shlex.split(line)
        at = found.index("--allow-principal")
        assert found[at + 1] == user
        assert all(word.startswith("--") for word in found[at + 2 :: 2])


def test_a_right_that_is_not_granted_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_acls(wanted: list[Any]) -> dict[Any, Future[None]]:
        found: dict[Any, Future[None]] = {each: Future() for each in wanted}
        for each, done in found.items():
            if each.resource_pattern_type is not ResourcePatternType.PREFIXED:
                done.set_result(None)
            else:
                refused = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
                done.set_exception(KafkaException(refused))
        return found

    admin = SimpleNamespace(create_acls=create_acls)
    monkeypatch.setattr("streamydb.kafka.roles.administrator", lambda _: admin)
    monkeypatch.setattr("streamydb.cli.target.Target.must_listen", lambda _: None)
    words = ["acls", "--role", "facade", "--principal", "User:ann", "--home", str(tmp_path)]
    done = CliRunner().invoke(app, [*words, "--apply"])
    assert (done.exit_code, "AclBinding" in done.stderr) == (1, False)
    told = "refused to let User:ann Describe groups that begin with streamydb: "
    assert told in done.stderr
