"""What the embedded broker is configured with, and how its processes are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamydb.local.broker.config import (
    SMALL_HEAP_MB,
    cluster_id,
    jvm_options,
    parse_properties,
    server_properties,
)
from streamydb.local.broker.embedded import BrokerRecord, read_record, remove_record, write_record
from streamydb.local.broker.ports import accepts, free_port, is_free
from streamydb.local.java import GIVES_BACK


def test_listens_on_the_loopback_device_only() -> None:
    properties = parse_properties(server_properties(Path("data"), 9092, 9093))
    assert properties["listeners"] == "BROKER://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert properties["advertised.listeners"] == "BROKER://127.0.0.1:9092"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:9093"
    assert properties["auto.create.topics.enable"] == "false"


def test_extra_properties_win() -> None:
    text = server_properties(Path("data"), 1, 2, {"auto.create.topics.enable": "true", "a.b": "c"})
    assert parse_properties(text)["auto.create.topics.enable"] == "true"
    assert parse_properties(text)["a.b"] == "c"
    assert text.count("auto.create.topics.enable") == 1


@given(st.binary(min_size=16, max_size=16))
@example(b"\xf8" + bytes(15))
@example(b"\xfb" + b"\xff" * 15)
def test_a_cluster_id_is_no_option_of_a_tool(identity: bytes) -> None:
    text = cluster_id(identity)
    assert len(text) == 22
    assert not text.startswith("-")


@given(st.text(st.characters(codec="utf-8")))
@example("/data/jürgen/😀")
@example(" \\\t\r\n\f\\")
def test_a_value_is_read_back_as_it_was_written(value: str) -> None:
    text = server_properties(Path("data"), 1, 2, {"x": value, "a =:b": "c"})
    assert text.isascii(), "Kafka reads Latin-1"
    assert (parse_properties(text)["x"], parse_properties(text)["a =:b"]) == (value, "c")


JAAS = r"""
# Kafka's documentation writes it so.
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.example.ScramLoginModule required \
    username="admin" \
    password="a=b";
  ! another=comment
\
super.users = User:admin;User:b
log.dirs: /data\u00e9/\ud83d\ude00
name value = more \\
empty
a\:b\=c=d#e
last=one"""


def test_properties_are_read_as_java_reads_them() -> None:
    assert parse_properties(f"{JAAS} \\") == {
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            'org.example.ScramLoginModule required username="admin" password="a=b";'
        ),
        "super.users": "User:admin;User:b",
        "log.dirs": "/dataé/😀",
        "name": "value = more \\",
        "empty": "",
        "a:b=c": "d#e",
        "last": "one ",
    }


def test_the_first_heap_is_not_larger_than_the_largest() -> None:
    for heap_mb, first_mb in ((24, 24), (128, 32), (1024, 64)):
        sizes = [f"-XX:InitialHeapSize={first_mb}m", f"-XX:MaxHeapSize={heap_mb}m"]
        assert jvm_options(heap_mb, Path("log"))[:2] == sizes


def test_a_broker_gives_its_heap_back_and_a_small_one_is_small_in_all() -> None:
    usual, small = (set(jvm_options(mb, Path("log"))) for mb in (SMALL_HEAP_MB + 1, SMALL_HEAP_MB))
    assert {"-XX:+UseSerialGC", "-XX:MinHeapSize=24m"} <= usual & small
    assert "-XX:MaxHeapFreeRatio=30" in usual
    assert set(GIVES_BACK) <= usual & small
    assert "-XX:TieredStopAtLevel=1" in small
    assert not any("Tier4" in option for option in small)


def test_a_small_broker_has_few_threads_and_what_is_given_wins() -> None:
    def threads(heap_mb: int, **given: str) -> str:
        extra = {name.replace("_", "."): value for name, value in given.items()}
        text = server_properties(Path("data"), 1, 2, extra, heap_mb=heap_mb)
        return parse_properties(text)["num.io.threads"]

    assert threads(SMALL_HEAP_MB) == "2"
    assert threads(SMALL_HEAP_MB + 1) == "4"
    assert threads(SMALL_HEAP_MB, num_io_threads="7") == "7"


def test_a_free_port_is_free_and_below_the_range_of_outgoing_connections() -> None:
    port = free_port()
    assert port < 32768
    assert is_free(port)
    assert not accepts(port)
    assert free_port(besides=port) != port


def test_record_round_trip(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    record = BrokerRecord(1, 2.5, "127.0.0.1:9092", "log")
    write_record(tmp_path / "home", record)
    assert read_record(tmp_path / "home") == record
    assert [file.name for file in (tmp_path / "home").iterdir()] == ["broker.json"]
    remove_record(tmp_path / "home")
    remove_record(tmp_path / "home")
    assert read_record(tmp_path / "home") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"other": 1}'])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker.json").write_text(text)
    assert read_record(tmp_path) is None
