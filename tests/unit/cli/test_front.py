"""`streamydb up` and a port for the facade that another program takes first."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import typer
from typer.testing import CliRunner

from bench.main import app as bench_app
from streamydb.cli import app, front
from streamydb.cli.common import EXIT_USAGE, Failure
from streamydb.cli.front import Front, wished
from streamydb.cli.options import DatabaseOptions, FoundingOptions
from streamydb.cli.phases import Phases
from streamydb.cli.target import Target, find_target
from streamydb.cli.undone import undone_if_interrupted
from streamydb.cli.up import up
from streamydb.facade import FacadeSettings
from streamydb.kafka import creation
from streamydb.local import processes
from streamydb.local.broker import free_port
from streamydb.local.folder import CONNECT, FACADE, PIPELINE, READ_MODEL, DatabaseFolder
from tests.support.secured import Authority
from tests.support.served import serving

ANYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens there


class Ready(BaseHTTPRequestHandler):
    """Says that it is ready, as the facade of another database would."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """The port of a server, which ends with the block, however that ends."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def stranger() -> Iterator[int]:
    """The port of a server that is not ours."""
    with answering(Ready) as port:
        yield port


def test_a_stranger_at_the_port_is_not_taken_for_the_facade(
    stranger: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert front._obstacle(f"http://127.0.0.1:{stranger}") is None
    target: Any = SimpleNamespace(
        files=DatabaseFolder(tmp_path, "bank"), settings=SimpleNamespace(home=tmp_path)
    )
    failing = [sys.executable, "-c", "import sys; sys.exit('the address cannot be listened on')"]
    monkeypatch.setattr(front, "_command", lambda *_: failing)
    processes.start(target.files.folder, READ_MODEL, ["sleep", "60"])
    try:
        with pytest.raises(Failure, match="the address cannot be listened on"):
            front._served(target, Front(stranger, 60))
        monkeypatch.setattr(front, "_free_port", lambda _: stranger)
        assert front._served(target, Front(None, 60)) is None, "another port is to be tried"
    finally:
        processes.stop(target.files.folder, READ_MODEL)


def test_a_facade_of_another_user_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "net_connections", denied)
    assert front._listens(os.getpid(), 1)


def test_the_facade_may_take_as_long_as_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, too: by itself it waits for a minute for the read model."""
    target: Any = SimpleNamespace(
        files=DatabaseFolder(tmp_path, "bank"), settings=SimpleNamespace(home=tmp_path)
    )
    asked: list[tuple[str, ...]] = []

    def command(_: Target, *words: str) -> list[str]:
        asked.append(words)
        return ["sleep", "60"]

    monkeypatch.setattr(front, "_command", command)
    processes.start(target.files.folder, READ_MODEL, ["sleep", "60"])
    try:
        with pytest.raises(Failure, match=r"not ready after 0\.3 s \(--timeout"):
            front._served(target, Front(None, 0.3))
        assert asked[0][-2:] == ("--timeout", "0.3")
    finally:
        processes.stop(target.files.folder, FACADE)
        processes.stop(target.files.folder, READ_MODEL)


def test_the_port_that_the_environment_names(
    stranger: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, port in ((str(stranger), stranger), ("", None), ("0", None)):
        monkeypatch.setenv("STREAMYDB_SERVE_PORT", text)
        assert wished(None, 60) == Front(port, 60)
        assert wished(9, 60) == Front(9, 60)
    for text in ("http", "65536", "-1"):
        monkeypatch.setenv("STREAMYDB_SERVE_PORT", text)
        with pytest.raises(Failure, match="STREAMYDB_SERVE_PORT: Input should be") as refused:
            wished(None, 60)
        assert refused.value.code == EXIT_USAGE
    monkeypatch.setenv("STREAMYDB_SERVE_PORT", str(stranger))
    with pytest.raises(Failure, match=f"another program has port {stranger}"):
        up(DatabaseOptions(home=tmp_path / "home"), FoundingOptions())


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), (ANYWHERE, "127.0.0.1"),
        ("::", "[::1]"), ("::1", "[::1]"), ("10.0.0.7", "10.0.0.7"), ("db.example", "db.example"),
    ],
)  # fmt: skip
def test_where_this_machine_reaches_a_facade(host: str, here: str) -> None:
    """A program cannot connect to what stands for all addresses."""
    assert FacadeSettings(host=host).local_url == f"http://{here}"
    tls = FacadeSettings(host=host, tls_certificate_file=Path("c"), tls_key_file=Path("k"))
    assert tls.local_url == f"https://{here}"


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("HOST", ANYWHERE, "the facade needs tokens"),
        ("HOST", "192.0.2.1", "HOST: 192.0.2.1 is no address"),
        ("TLS_KEY_FILE", "key.pem", "belong together"),
        ("CORS_ORIGINS", "no JSON", "write a JSON list"),
        ("ALLOWED_HOSTS", "[]", "one or more names"),
        ("ALLOWED_HOSTS", '["*"]', "one or more names"),
        ("ALLOWED_HOSTS", '["db.example:80"]', "without a port"),
        ("ALLOWED_HOSTS", '["[::1]"]', "names or addresses"),
        ("ALLOWED_HOSTS", '["dä.example"]', "others than ASCII as xn--"),
    ],
)
def test_settings_that_no_facade_serves_with_start_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, why: str
) -> None:
    monkeypatch.setenv(f"STREAMYDB_SERVE_{variable}", value)
    if why.startswith("HOST"):
        monkeypatch.setenv("STREAMYDB_SERVE_TOKENS", '[{"name": "a", "token": "' + 43 * "t" + '"}]')
    home = tmp_path / "home"
    with pytest.raises(Failure, match=why):
        up(DatabaseOptions(home=home), FoundingOptions())
    assert not home.exists()


def test_a_facade_with_tls_and_names_of_its_own_is_found_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate names another host, as one for a public name does."""
    issued = Authority(tmp_path).issue("db.example", host="192.0.2.1")
    for name, value in (
        ("TLS_CERTIFICATE_FILE", str(issued.certificate)), ("TLS_KEY_FILE", str(issued.key)),
        ("ALLOWED_HOSTS", '["db.example"]'),
    ):  # fmt: skip
        monkeypatch.setenv(f"STREAMYDB_SERVE_{name}", value)
    asked = wished(None, 60)
    assert (asked.url, asked.name) == ("https://127.0.0.1", "db.example")
    with serving(FacadeSettings(port=0)) as served:
        port = served.url.rpartition(":")[2]
        assert front._obstacle(f"{asked.url}:{port}", asked.name) is None
        assert front._obstacle(f"{asked.url}:{port}") is None, "probes name an address"


def test_a_facade_that_answers_for_an_address_of_six_is_found_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAMYDB_SERVE_ALLOWED_HOSTS", '["::1"]')
    asked = wished(None, 60)
    with serving(FacadeSettings(port=0)) as served:
        assert front._obstacle(served.url, asked.name) is None


class NotReady(BaseHTTPRequestHandler):
    """Says why it is not ready, or something else that is no problem's form."""

    body = b""

    def do_GET(self) -> None:
        self.send_response(503)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"title":"x","detail":"The read model\\ncannot be read."}',
         "503: The read model cannot be read."),
        (b'{"detail":7}', "503."), (b"[]", "503."), (b"", "503."), (b"\xff", "503."),
        (b"{" * 200_000, "503."),
    ],
)  # fmt: skip
def test_a_start_that_waits_in_vain_says_what_the_facade_said(
    body: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target: Any = SimpleNamespace(
        files=DatabaseFolder(tmp_path, "bank"), settings=SimpleNamespace(home=tmp_path)
    )
    ours = SimpleNamespace(pid=os.getpid())
    monkeypatch.setattr(processes, "find", lambda *_: ours)
    monkeypatch.setattr(NotReady, "body", body)
    with answering(NotReady) as port:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(Failure) as failed:
            front._comes_up(target, url, Front(port, 0.5))
    told = f"not ready after 0.5 s (--timeout gives it longer): it answered with status {said}\n"
    assert told in str(failed.value)
    with pytest.raises(Failure, match=rf"longer\): it does not listen at {url}\."):
        front._comes_up(target, url, Front(port, 0.2))


def test_who_serves_a_port_is_known(stranger: int) -> None:
    assert front._listens(os.getpid(), stranger)
    assert not front._listens(os.getppid(), stranger)
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    assert not front._listens(os.getpid(), free)


def test_a_port_that_is_taken_is_found_before_anything_starts(
    stranger: int, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with pytest.raises(Failure, match=f"another program has port {stranger}"):
        up(DatabaseOptions(home=home), FoundingOptions(), http_port=stranger)
    assert not home.exists()


def interrupted(target: Target) -> None:
    """Start a pipeline, and be interrupted."""
    with undone_if_interrupted(target, Phases()):
        processes.start(target.files.folder, PIPELINE, ["sleep", "60"])
        raise KeyboardInterrupt


def test_an_interrupted_start_ends_what_it_has_started_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = find_target(DatabaseOptions("bank", tmp_path, "127.0.0.1:1"))
    folder = target.files.folder
    processes.start(folder, READ_MODEL, ["sleep", "60"])
    try:
        with pytest.raises(typer.Exit) as ended:
            interrupted(target)
        assert ended.value.exit_code == 130
        assert processes.find(folder, PIPELINE) is None
        assert processes.find(folder, READ_MODEL) is not None
        assert "what this call had started is stopped" in capsys.readouterr().err
    finally:
        processes.stop(folder, READ_MODEL)
        processes.stop(folder, PIPELINE)


@pytest.mark.parametrize("command", ["rebuild", "resize --partitions 2"])
def test_whatever_starts_a_broker_ends_it_when_it_is_interrupted(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stands for any that the command starts: a broker, a pipeline."""

    def start(target: Target, *_: object) -> None:
        processes.start(target.files.folder, PIPELINE, ["sleep", "60"])
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[up.__module__], "start_broker", start)
    words = [*command.split(), "--home", str(tmp_path), "--database", "new"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 130, done.output
    assert "what this call had started is stopped" in done.stderr
    assert processes.find(DatabaseFolder(tmp_path, "new").folder, PIPELINE) is None


def test_suggested_commands_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMYDB_HOME", raising=False)
    home = tmp_path / "it's a home"
    command = find_target(DatabaseOptions("shop", home)).command("up")
    assert shlex.split(command) == ["streamydb", "up", "--database", "shop", "--home", str(home)]
    assert find_target(DatabaseOptions("bank")).command("status") == "streamydb status"


def test_a_folder_of_a_benchmark_that_is_not_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    done = CliRunner().invoke(bench_app, ["bank", "--folder", missing])
    assert done.exit_code == EXIT_USAGE
    said = done.output.replace("│", "")  # in a box, whose lines end where the folder's name has it
    assert "does not exist" in " ".join(said.split())


def test_the_copy_for_kafka_connect_runs_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = find_target(DatabaseOptions("bank", tmp_path, "127.0.0.1:1"))
    folder = target.files.folder
    monkeypatch.setattr(front, "_command", lambda *_: ["sleep", "60"])
    for topics in ([], ["bank.connect"]):
        monkeypatch.setattr(creation, "existing", lambda *_, found=topics: found)
        front.start_copy(target, Phases())
        assert (processes.find(folder, CONNECT) is not None) == bool(topics)
    assert front.stop_front(tmp_path, "bank", Phases())
    assert processes.find(folder, CONNECT) is None


def test_where_a_facade_serves_is_known_from_its_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(_: Path, name: str, command: list[str], *__: object) -> None:
        running = processes.ProcessRecord(name, 1, 0.0, command, "log", 0)
        monkeypatch.setattr(processes, "find", lambda *_: running)
        raise KeyboardInterrupt  # `up` ends here

    monkeypatch.setattr(processes, "start", started)
    target = find_target(DatabaseOptions(home=tmp_path, bootstrap="k:9"))
    port = free_port()
    with pytest.raises(KeyboardInterrupt):
        front._served(target, front.Front(port, 1.0))
    assert target.files.facade_url() == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("small", [True, False])
def test_a_small_facade_keeps_little_unless_its_settings_say_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, small: bool
) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setattr(processes, "start", lambda *words: given.append(words[3]))
    monkeypatch.setattr(processes, "find", lambda *_: None)
    monkeypatch.setattr(front, "_comes_up", lambda *_: True)
    monkeypatch.setenv("STREAMYDB_SERVE_RESULTS_BYTES_MAX", "7")
    target = find_target(DatabaseOptions(home=tmp_path, bootstrap="127.0.0.1:1"))
    front.start_front(target, Front(8080, 1, small=small), Phases())
    reader, facade, *_ = given  # nothing is found to run, so the facade is started again
    assert reader == facade
    assert "STREAMYDB_SERVE_RESULTS_BYTES_MAX" not in facade
    found = facade.get("STREAMYDB_SERVE_STREAM_BYTES_MAX")
    assert found == (str(4 << 20) if small else None)
