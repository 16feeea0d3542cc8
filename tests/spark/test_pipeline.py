"""The whole pipeline on a real broker and a real Spark: it runs, it resumes, it refuses."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from streamydb.kafka import TopicNames
from streamydb.kafka.admin import change_settings
from streamydb.kafka.clients import administrator
from streamydb.local.broker import free_port
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.client_session import connected, use
from tests.support.faulty import resolved
from tests.support.shared import OnShared
from tests.support.stack import Stack
from tests.support.tutorial import Reader, looking_on

pytestmark = pytest.mark.timeout(400)


def refusal(database: Database, *extra: str) -> str:
    """Start the pipeline where it must not start; what it says."""
    done = subprocess.run(
        database.command(extra), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def fetched(port: int, path: str) -> str:
    """What a server on this machine answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as page:
        return str(page.read().decode())


def metrics(port: int) -> dict[str, float]:
    """What the pipeline serves to Prometheus."""
    lines = fetched(port, "/metrics").splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
    }


def stamp(database: Database, kind: str) -> None:
    """Have the broker stamp the log's records so: CreateTime or LogAppendTime."""
    admin = administrator(database.settings.client_config())
    log = TopicNames(database.name).transactions
    change_settings(admin, {log: {"message.timestamp.type": kind}})


def refuses_what_was_changed(db: Database) -> None:
    """A pipeline that stands still: other settings, a poor topic. Each start takes seconds: what
    else is refused is in `tests/unit/pipeline`.
    """
    assert "was founded with id_window=1048576" in refusal(db, "--id-window", "5")
    stamp(db, "CreateTime")
    said = refusal(db)
    assert "CreateTime" in said
    assert "message.timestamp.type=LogAppendTime" in said
    stamp(db, "LogAppendTime")


def has_our_daemon(db: Database) -> bool:
    """The daemon that was started before Spark's JVM forks the workers."""
    for process in db.processes():
        with suppress(psutil.NoSuchProcess):
            if {"streamydb.pipeline.daemon", "--early"} <= set(process.cmdline()):
                return bool(process.children())
    return False


def leaves_no_files_open(db: Database, batches: int) -> None:
    """A micro-batch closes what it opens: Spark 4.2.0 left a socket open in each.

    A look may fall into the next micro-batch, which has sockets and files of its state open: so in
    one of three rounds nothing may be left. What leaks is there in each.
    """

    def handles() -> list[int]:
        return [process.num_fds() for process in db.processes()]

    grown = []
    for _ in range(3):
        before, seq = handles(), db.status().resolved or 0
        for done in range(seq + 1, seq + batches + 1):
            db.load(transfers(1, seed=1000 + done))
            resolved(db, done)
        grown.append((before, handles()))
        if sum(grown[-1][1]) < sum(before) + batches // 2:
            return
    pytest.fail(f"files of the processes, before and after {batches} micro-batches: {grown}")


@pytest.mark.fault(22, "a start with another id window", "refused with the recorded value")
@pytest.mark.fault(
    18, "CreateTime set on the log before a start", "the start refuses with the exact fix"
)
def test_one_shard_runs_stops_resumes_and_refuses(
    database_on_shared: Callable[..., OnShared],
) -> None:
    port = free_port()
    with database_on_shared(options=["--metrics-port", str(port)]) as db:
        db.load(transfers(300))
        assert db.assert_serial().ok
        resolved(db, 300)
        shown = metrics(port)
        assert shown["streamydb_seq"] >= shown["streamydb_resolved"] >= 300
        assert shown["streamydb_input_records_total"] >= 300
        assert shown["streamydb_lag_records"] == 0
        assert shown["streamydb_batch_seconds_count"] >= 1
        leaves_no_files_open(db, 12)
        assert has_our_daemon(db)
        assert db.stop_pipeline() == 0
        assert db.status().state == "stopped"
        db.load(transfers(200, seed=2))
        refuses_what_was_changed(db)
        db.start_pipeline()
        report = db.assert_serial()
        assert report.transactions > 500
        said = db.log_file.read_text()
        assert "batch " in said
        assert "stay as they are" not in said  # Spark's projections; see `AdaptiveSettings`


@pytest.mark.long
def test_single_transactions_with_lock_queues(tmp_path: Path) -> None:
    """`grouping=single`: locks are handed on from micro-batch to micro-batch."""
    with Database(tmp_path, shards=2, options=["--grouping", "single"]) as db:
        db.load(transfers(200, accounts=60))
        assert db.assert_serial().transactions > 200
        wait_for(lambda: db.status().resolved == db.status().seq, "everything resolved")
        assert db.stop_pipeline() == 0


@pytest.mark.fault(1, "SIGKILL with lock queues (grouping=single)")
@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 2])
def test_lock_queues_survive_a_kill(tmp_path: Path, shards: int) -> None:
    with Database(tmp_path, shards=shards, options=["--grouping", "single"]) as db:
        db.load(transfers(150, accounts=60))
        db.kill_pipeline()
        db.start_pipeline()
        db.load(transfers(50, accounts=60, seed=2))
        assert db.assert_serial().transactions > 200


README = Path(__file__).parents[2] / "README.md"
VOLATILE = re.compile(r"id [0-9a-f]{32}|127\.0\.0\.1:\d+|process \d+|\([\d.]+ s\)|[\d,.]+/s")
COPIES = re.compile(r"^(\D+\d+ +\d+ +)\d+(?=(?: +\d+){5}$)")
"""In the table of `check`, how many outputs came twice: the gear that goes on may repeat them."""


def readme_session() -> list[tuple[list[str], list[str]]]:
    """The commands of the README's first console block, and what each is said to print."""
    block = README.read_text("utf-8").split("```")[1]
    parts = [part.strip("\n").split("\n") for part in block.split("\n$ ")[1:]]
    return [(shlex.split(command), said) for command, *said in parts]


def steady(line: str) -> str:
    return VOLATILE.sub("*", COPIES.sub(r"\1*", line.strip()))


def used_from_the_command_line(stack: Stack) -> None:
    """What the README does not show."""
    refused = stack.run("txn", "--add", "alice=-5,min=0", "--json")
    assert (refused.returncode, json.loads(refused.stdout)["code"]) == (3, "bound-violated")
    assert stack.run("status").returncode == 0
    checked = stack.run("check", "--json")
    assert (checked.returncode, json.loads(checked.stdout)["ok"]) == (0, True), checked.stderr
    examined = stack.run("doctor")
    assert examined.returncode == 0, examined.stdout


@pytest.mark.long
def test_the_tutorial(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        reader = Reader(tmp_path / "shop", stack.http, stack.run)
        assert reader.follow(lambda shop: looking_on(shop, stack.http)) >= 10


def test_the_session_of_the_readme_the_command_line_and_the_clients(tmp_path: Path) -> None:
    session = readme_session()
    assert [words[:2] for words, _ in (session[0], session[-1])] == [
        ["make", "up"], ["make", "down"],
    ]  # fmt: skip
    with Stack(tmp_path) as stack:
        assert stack.started["first_result"]["status"] == "committed"
        printed = {steady(line) for line in stack.said.splitlines()}
        elsewhere = ("Fetching jars", "Pipeline: running on Spark local[*]")
        phases = [line for line in session[0][1] if not any(text in line for text in elsewhere)]
        assert [line for line in map(steady, phases) if line and line not in printed] == [], printed
        for words, said in session[1:-1]:
            if words[0] == "curl":
                served = int(stack.http.rpartition(":")[2])
                assert fetched(served, words[1].partition(":8080")[2]).strip() == said[0]
                continue
            done = stack.run(*words[1:])
            printed = {steady(line) for line in (done.stdout + done.stderr).splitlines()}
            missing = [line for line in map(steady, said) if line and line not in printed]
            assert missing == [], (words, printed)
        with connected(stack.http, stack.kafka) as clients:
            use(clients)
        used_from_the_command_line(stack)
