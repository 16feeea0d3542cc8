"""Settings: sources, rules, and that no secret shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streamydb.pipeline.__main__ import parse
from streamydb.settings import (
    BOOTSTRAP_DEFAULT,
    BrokerFileError,
    ClientConfig,
    SecretFileError,
    Settings,
)

SASL: dict[str, Any] = {
    "bootstrap": "kafka.example:9093",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "ada",
}


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text('se"cr\\et\n', encoding="utf-8")
    return path


def test_defaults_come_without_any_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "CACHE"):
        monkeypatch.delenv(f"STREAMYDB_{name}", raising=False)
    settings = Settings()
    assert (settings.database, settings.shards, settings.partitions) == ("bank", 1, 1)
    assert settings.grouping == "planner"
    assert settings.home == Path.home() / ".local/share/streamydb"


def test_environment_and_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMYDB_DATABASE", "shop")
    monkeypatch.setenv("STREAMYDB_SHARDS", "4")
    monkeypatch.setenv("STREAMYDB_METRICS_PORT", "")
    settings = Settings(shards=2)
    assert (settings.database, settings.shards, settings.metrics_port) == ("shop", 2, None)


def test_nothing_is_read_at_import() -> None:
    wrong = os.environ | {"STREAMYDB_SHARDS": "many"}
    run = [sys.executable, "-c"]
    subprocess.run([*run, "import streamydb.settings"], env=wrong, check=True)
    done = subprocess.run(
        [*run, "from streamydb.settings import Settings; Settings()"],
        env=wrong,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "shards" in done.stderr


@pytest.mark.parametrize("name", ["", "Bank", "1bank", "a" * 49, "a.b", "a_b", "a\n", "../x"])
def test_names_that_no_database_can_have(name: str) -> None:
    with pytest.raises(ValidationError, match="cannot be a database's name"):
        Settings(database=name)


@pytest.mark.parametrize("name", ["a", "a" * 48, "a-1"])
def test_names_that_a_database_can_have(name: str) -> None:
    assert Settings(database=name).database == name


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:99999", "a:1,,b:2", "a:x"])
def test_addresses_that_no_client_could_use(address: str) -> None:
    with pytest.raises(ValidationError, match="is not an address of a Kafka broker"):
        Settings(bootstrap=address)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shards": 0},
        {"shards": 65},
        {"partitions": 1025},
        {"grouping": "none"},
        {"replication": 1, "min_insync": 2},
        {"id_window": 0},
        {"marker_interval_ms": 0},
        {"no_such_setting": 1},
        {"security_protocol": "SASL_SSL"},
        {"sasl_username": "ada"},
        {"security_protocol": "SSL", "ssl_key_file": "/k"},
        {"ssl_ca_file": "/ca"},
        {"ssl_certificate_file": "/c", "ssl_key_file": "/k"},
        {
            **SASL,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_password_file": "/p",
            "ssl_ca_file": "/ca",
        },
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)


def test_bootstrap_is_found_in_the_home_of_the_embedded_broker(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert settings.bootstrap_servers == BOOTSTRAP_DEFAULT
    settings.broker_file.write_text(json.dumps({"bootstrap": "127.0.0.1:4711"}), encoding="utf-8")
    assert settings.bootstrap_servers == "127.0.0.1:4711"
    assert Settings(home=tmp_path, bootstrap="k:1").bootstrap_servers == "k:1"
    settings.broker_file.write_text("{", encoding="utf-8")
    with pytest.raises(BrokerFileError, match=r"broker\.json cannot be read"):
        _ = settings.bootstrap_servers


def test_both_clients_are_configured_from_the_same_settings(password_file: Path) -> None:
    ca = password_file.with_name("ca.pem")
    ca.write_text("-----BEGIN CERTIFICATE-----", encoding="utf-8")
    settings = Settings(**SASL, sasl_password_file=password_file, ssl_ca_file=ca)
    assert dict(settings.client_config()) == {
        "bootstrap.servers": "kafka.example:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": 'se"cr\\et',
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----",
    }
    assert dict(settings.spark_options()) == {
        "kafka.bootstrap.servers": "kafka.example:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="ada" password="se\\"cr\\\\et";'
        ),
        "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
        "kafka.ssl.truststore.type": "PEM",
    }


def test_secrets_do_not_show(password_file: Path) -> None:
    settings = Settings(**SASL, sasl_password_file=password_file)
    shown = [
        repr(settings),
        str(settings),
        str(settings.model_dump()),
        f"{settings.client_config()}",
    ]
    shown += [repr(settings.spark_options()), repr(settings.client_config())]
    assert not any("cr\\" in text for text in shown)
    assert repr(ClientConfig(b="x", a="y")) == "ClientConfig(a, b)"


def test_a_missing_secret_is_named_by_its_file(tmp_path: Path) -> None:
    settings = Settings(**SASL, sasl_password_file=tmp_path / "none")
    with pytest.raises(ValueError, match=r"none, which the settings name, cannot be read"):
        settings.client_config()


def test_a_file_that_is_no_certificate_is_named(password_file: Path) -> None:
    settings = Settings(security_protocol="SSL", ssl_ca_file=password_file)
    for configure in (settings.client_config, settings.spark_options):
        with pytest.raises(SecretFileError, match="password, which the settings name, is no PEM"):
            configure()


def test_without_security_there_is_only_the_address() -> None:
    settings = Settings(bootstrap="a:1,b:2")
    assert dict(settings.client_config()) == {"bootstrap.servers": "a:1,b:2"}
    assert dict(settings.spark_options()) == {"kafka.bootstrap.servers": "a:1,b:2"}


def test_the_pipeline_heeds_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"BOOTSTRAP": "k:9", "DATABASE": "shop", "SHARDS": "4", "ID_WINDOW": "77"}
    for name, value in given.items():
        monkeypatch.setenv(f"STREAMYDB_{name}", value)
    settings = parse(["--checkpoint", "/nowhere"]).settings
    assert (settings.bootstrap, settings.database) == ("k:9", "shop")
    assert (settings.shards, settings.id_window) == (4, 77)
    assert parse(["--checkpoint", "/nowhere", "--shards", "2"]).settings.shards == 2
    words = [
        "--id-window=5", "--max-offsets=6", "--metrics-port=7", "--digest-interval=800",
        "--partitions=9", "--grouping=single", "--bootstrap=x:1",
        "--database=other",
    ]  # fmt: skip
    found = parse(["--checkpoint", "/nowhere", *words]).settings
    assert (found.id_window, found.max_offsets_per_trigger, found.metrics_port) == (5, 6, 7)
    assert (found.digest_interval, found.partitions, found.grouping) == (800, 9, "single")
    assert (found.bootstrap, found.database) == ("x:1", "other")


def test_procedures_of_arguments_win_over_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMYDB_PROCEDURES", "/some")
    assert parse(["--checkpoint", "/nowhere"]).procedures == (Path("/some"),)
    given = ["--procedures", "/a", "--procedures", "/b"]
    found = parse(["--checkpoint", "/nowhere", *given])
    assert found.procedures == (Path("/a"), Path("/b"))
    assert found.settings.procedures == Path("/some")
