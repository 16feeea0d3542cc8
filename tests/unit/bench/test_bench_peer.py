"""`streamydb bench bank --beside postgresql` without PostgreSQL: wire, load, figures, refusals."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bench import peer
from bench.costs import Used
from bench.errors import BenchError
from bench.main import app
from bench.peer import peer_row, wrong_balances
from bench.peer_load import Transfers, offer
from bench.peer_wire import READY, Call, error_code, is_ready, messages, prepare, startup
from bench.rest import postgresql
from bench.workload import BALANCE

DONE = b"2\0\0\0\4" + b"D\0\0\0\x0b\0\1\0\0\0\1\1" + b"C\0\0\0\x0dSELECT 1\0" + READY
_OPENED = b"R\0\0\0\x08\0\0\0\0" + READY
_CALL = struct.Struct("!IqIqIq")


def error(code: str) -> bytes:
    body = b"SERROR\0VERROR\0C" + code.encode() + b"\0Mno\0\0"
    return b"2\0\0\0\4E" + struct.pack("!I", len(body) + 4) + body + READY


def test_a_connection_is_opened_with_its_settings() -> None:
    sent = startup("bench", "postgres", {"synchronous_commit": "off", "a": "1"})
    length, version = struct.unpack_from("!II", sent)
    assert (length, version) == (len(sent), 3 << 16)
    fields = sent[8:].split(b"\0")
    assert fields[:4] == [b"user", b"bench", b"database", b"postgres"]
    assert fields[4:6] == [b"options", b"-c synchronous_commit=off -c a=1"]


def test_a_call_is_three_messages_of_the_lengths_that_they_tell() -> None:
    assert [kind for kind, _ in messages(prepare("SELECT f($1)", 1))] == [b"P", b"S"]
    sent = Call(3).of(1, -2, 1 << 40)
    found = list(messages(sent))
    assert [kind for kind, _ in found] == [b"B", b"E", b"S"]
    assert sum(5 + len(body) for _, body in found) == len(sent)
    assert _CALL.pack(8, 1, 8, -2, 8, 1 << 40) in found[0][1]


@pytest.mark.parametrize("cut", range(1, len(DONE)))
def test_an_answer_that_has_not_come_whole_is_not_ready(cut: int) -> None:
    assert not is_ready(DONE[:cut])
    assert error_code(DONE[:cut]) is None


def test_the_code_of_an_error() -> None:
    assert error_code(DONE) is None
    assert error_code(error("40001")) == "40001"
    with pytest.raises(BenchError, match="oops"):
        error_code(b"E\0\0\0\x09oops\0" + READY)


@contextmanager
def server(folder: Path, answers: Iterator[bytes]) -> Iterator[list[tuple[int, int]]]:
    """A server that gives these answers to calls, one by one; yields the accounts of each call."""
    calls: list[tuple[int, int]] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            for reply in itertools.chain((_OPENED, b"1\0\0\0\4" + READY), answers):
                data = connection.recv(65_536)
                if not data:
                    return
                if data.startswith(b"B"):
                    at = data.index(struct.pack("!I", 8))
                    _, source, _, target, *_ = _CALL.unpack_from(data, at)
                    calls.append((source, target))
                for part in (reply[:7], reply[7:]):
                    connection.sendall(part)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / ".s.PGSQL.5432"))
        listener.listen()

        def accept() -> None:
            serve(listener.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield calls
        thread.join(10)


def offered(folder: Path, seconds: float = 0.2) -> Transfers:
    pairs = itertools.cycle([(0, 1), (2, 0), (1, 2)])
    return offer(folder, "bench", {}, pairs, 3, 1, 0.0, seconds)


def test_what_is_not_serialized_is_sent_again_and_counted(tmp_path: Path) -> None:
    answers = itertools.cycle([error("40001"), error("40P01"), DONE])
    with server(tmp_path, answers) as calls:
        found = offered(tmp_path)
    assert found.committed > 3
    assert found.again in {2 * found.committed, 2 * found.committed - 1, 2 * found.committed - 2}
    assert calls[::3] == calls[1 : len(calls) - 1 : 3] == calls[2::3]
    assert calls[:9:3] == [(0, 1), (2, 0), (1, 2)]
    done = calls[2::3]
    expected = np.zeros(3, np.int64)
    for source, target in done:
        expected[source] -= 1
        expected[target] += 1
    assert found.moved.tolist() == expected.tolist()
    assert len(found.latencies_s) == found.committed


def test_what_is_refused_moves_nothing(tmp_path: Path) -> None:
    with server(tmp_path, itertools.chain([error("23514")], itertools.repeat(DONE))) as calls:
        found = offered(tmp_path)
    assert found.refused == 1
    assert found.moved.sum() == 0
    assert np.abs(found.moved).sum() <= 2 * (len(calls) - 1)


def test_another_error_ends_the_load(tmp_path: Path) -> None:
    with server(tmp_path, itertools.repeat(error("42P01"))), pytest.raises(BenchError, match="42P"):
        offered(tmp_path)


def test_the_row_of_a_load() -> None:
    found = Transfers(np.zeros(2, np.int64), committed=100, seconds=2.0, again=50, client_s=0.5)
    found.latencies_s.extend([0.001] * 100)
    row = peer_row("uniform", "on", 4, found, (1.0, 40_000, 123.0))
    assert (row["txn_per_s"], row["again_each"], row["client_percent"]) == (50.0, 0.5, 25.0)
    assert row["cpu_us"] == {"server": 10_000.0, "client": 5_000.0}
    assert (row["sync"], row["disk_bytes_each"], row["memory_mb"]) == (True, 400.0, 123.0)
    empty = peer_row("uniform", "off", 4, Transfers(found.moved, seconds=1.0), (1.0, 0, 1.0))
    assert (empty["p50"], empty["txn_per_s"]) == (None, 0.0)


def test_each_balance_is_compared() -> None:
    moved = np.array([3, -3, 0], np.int64)
    right = BALANCE + moved
    assert not wrong_balances(right, moved)
    swapped = right[[1, 0, 2]]  # the sum is right
    assert "account 0" in wrong_balances(swapped, moved)
    assert "2 accounts instead of 3" in wrong_balances(right[:2], moved)


def test_processor_time_by_part() -> None:
    used = Used(3.0, 2.0, 1.0) - Used(1.0, 1.0, 1.0) + Used(0.0, 1.0, 0.5)
    assert used.us_each(1_000_000) == {"pipeline": 2.0, "brokers": 2.0, "client": 0.5}


def test_without_postgresql_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(postgresql, "find_programs", lambda: None)
    monkeypatch.setattr(peer, "running", lambda *given: started.append(given))
    done = CliRunner().invoke(app, ["bank", "--beside", "postgresql"])
    assert isinstance(done.exception, BenchError)
    assert "apt-get install postgresql" in str(done.exception)
    assert not started


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bank", "--beside", "oracle"], "'oracle' is none of postgresql"),
        (["bank", "--beside", "postgresql", "--connections", "1,x"], "numbers of clients"),
        (["bank", "--beside", "postgresql", "--sustain", "5"], "--sustain"),
        (["bank", "--replication", "2"], "--replication is 1 or 3"),
        (["latency", "--replication", "5"], "--replication is 1 or 3"),
        (["latency", "--gear", "both", "--shards", "2"], "one shard"),
    ],
)
def test_options_that_cannot_be(arguments: list[str], told: str) -> None:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 2
    assert told in " ".join(done.output.replace("│", " ").split())
