"""The whole database over TLS and SCRAM, every part with just its own rights; no secret leaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import streamydb
from streamydb.kafka import create
from streamydb.kafka.roles import apply
from streamydb.local.broker import EmbeddedBroker, free_port
from streamydb.local.launcher import LocalProcess
from streamydb.settings import Settings
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.secured import ADMIN, Secured

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SECRET = "verysecret"  # noqa: S105 - what all passwords of the tests begin with
ROLES = ("pipeline", "facade", "read-model", "client", "auditor")


class SecuredDatabase(Database):
    """A database on a secured broker; each part is its own user, by the environment it gets."""

    def __init__(self, folder: Path, secured: Secured, **options: Any) -> None:
        """Use the broker of `secured`."""
        super().__init__(folder, **options)
        self.secured = secured
        self.broker: EmbeddedBroker = secured.broker

    def user(self, role: str, **more: Any) -> Settings:
        """The settings of the user who has a role."""
        mechanism = "PLAIN" if role == ADMIN else "SCRAM-SHA-512"
        name = ADMIN if role == ADMIN else f"its-{role}"
        return self.secured.settings(
            name,
            mechanism,
            database=self.name,
            partitions=self.partitions,
            shards=self.shards,
            **more,
        )

    def begin(self) -> None:
        """Start the broker, make users and topics, grant each role."""
        self.broker.start()
        self.secured.add_scram([f"its-{role}" for role in ROLES])
        admin = self.user(ADMIN).client_config()
        create(admin, self.name, partitions=self.partitions, shards=self.shards)
        for role in ROLES:
            apply(admin, self.name, role, f"User:its-{role}")

    def environment(self, role: str) -> dict[str, str]:
        """The environment of a part."""
        secured = self.secured.environment(self.user(role))
        return {**os.environ, **secured, "STREAMYDB_HOME": str(self.folder / "home")}


def running(arguments: list[str], environment: Mapping[str, str], log: Path) -> LocalProcess:
    """A part of the database in a process of its own, ended with SIGTERM."""
    return LocalProcess(log.stem, [sys.executable, "-m", *arguments], log, environment=environment)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health/ready", timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.parametrize(("shards", "partitions"), [(1, 1), (2, 2)])
def test_every_part_with_its_own_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, partitions: int
) -> None:
    secured = Secured(tmp_path / "secured", acls=True)
    db = SecuredDatabase(tmp_path, secured, shards=shards, partitions=partitions)
    folder, port = tmp_path / "read-model", free_port()
    url = f"http://127.0.0.1:{port}"
    try:
        db.begin()
        for name, value in secured.environment(db.user("pipeline")).items():
            monkeypatch.setenv(name, value)
        db.start_pipeline()
        place = ["--database", db.name, "--bootstrap", secured.broker.bootstrap]
        cli = "streamydb.cli"
        with (
            running(
                [cli, "read-model", *place, "--folder", str(folder)],
                db.environment("read-model"),
                tmp_path / "read-model.log",
            ),
            running(
                [cli, "serve", *place, "--folder", str(folder), "--port", str(port)],
                db.environment("facade"),
                tmp_path / "facade.log",
            ),
        ):
            wait_for(lambda: answers(url), "the facade", 120)
            with streamydb.connect(url, timeout_s=150) as client:
                client.put("hello", "world")
                assert client.get("hello") == "world"
            said = as_client(db, monkeypatch, folder)
        for name, value in secured.environment(db.user("client")).items():
            monkeypatch.setenv(name, value)
        db.load(transfers(300))
        for name, value in secured.environment(db.user("auditor")).items():
            monkeypatch.setenv(name, value)
        report = db.assert_serial()
        assert report.transactions > 300
        assert db.stop_pipeline() == 0
    finally:
        db.kill_pipeline()
        secured.broker.kill()
    assert SECRET not in said
    no_secret_below(tmp_path)


def as_client(db: SecuredDatabase, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """Use the commands and `kafka://`; what they printed."""
    said = []
    for role, command in (
        ("client", ["txn", "--put", 'a="b"', "--read", "a"]), ("auditor", ["status", "--json"]),
        ("auditor", ["doctor"]), ("auditor", ["check", "--json"]),
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "streamydb.cli", *command],
            env=db.environment(role),
            capture_output=True,
            text=True,
            check=False,
        )
        said.append(done.stdout + done.stderr)
        assert done.returncode == 0 or command[0] == "doctor", said[-1]
    assert json.loads(said[1])["broker"] == "answers"
    for name, value in db.secured.environment(db.user("facade")).items():
        monkeypatch.setenv(name, value)
    with streamydb.connect(
        f"kafka://{db.secured.broker.bootstrap}/{db.name}?read_model={folder}"
    ) as client:
        client.put("direct", 1)
        assert client.get("direct") == 1
    return "".join(said)


def no_secret_below(folder: Path) -> None:
    """No password is in a log, a status, a checkpoint, the read model or the broker's log."""
    searched = 0
    for path in folder.rglob("*"):
        if path.suffix == ".password" or path.name == "server.properties" or not path.is_file():
            continue
        searched += 1
        assert SECRET.encode() not in path.read_bytes(), path
    assert searched > 20
    assert (folder / "pipeline.log").stat().st_size > 0
    assert (folder / "secured" / "home" / "broker" / "server.properties").stat().st_mode & 0o77 == 0


def test_the_pipeline_with_a_wrong_password_says_so(tmp_path: Path) -> None:
    secured = Secured(tmp_path / "secured")
    with secured.broker:
        create(secured.settings(ADMIN).client_config(), "bank")
        stranger = secured.settings("stranger", "SCRAM-SHA-512")
        done = subprocess.run(
            [
                sys.executable, "-m", "streamydb.pipeline", "--checkpoint", str(tmp_path / "c"),
                "--master", "local[2]", "--local", str(tmp_path / "l"),
            ],
            env={**os.environ, **secured.environment(stranger)}, capture_output=True, text=True,
            check=False, timeout=120,
        )  # fmt: skip
    assert done.returncode == 2
    assert "does not let user 'stranger' in" in done.stderr
    assert SECRET not in done.stderr + done.stdout
