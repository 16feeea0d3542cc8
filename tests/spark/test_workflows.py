"""Workflows on a real broker and a real Spark: follow-ups through the log, exactly once."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import streamydb
from streamydb.check import Report
from streamydb.procedures.folder import publish
from streamydb.read_model import Follower, ReadModel
from streamydb.reading import TopicReader
from streamydb.streams import follow
from streamydb.testing import Database, wait_for
from tests.read_model import drained
from tests.workflows import VOTER

pytestmark = pytest.mark.timeout(600)

FLOW = "$flows/voter"


def deploy(database: Database) -> None:
    file = database.folder / "voter.py"
    file.write_text(VOTER)
    module = publish(file, database.place.procedures)
    record = {"module": "voter", "hash": module.hash, "procedures": module.procedures}
    database.load([{"id": "deploy", "deploy": record}])


def votes(first: int, count: int) -> list[dict[str, Any]]:
    """Transactions that enter the workflow."""
    calls = [
        {"procedure": "voter.vote", "args": {"phone": n, "who": f"c{n % 7}"},
         "keys": [f"phone/{n}", FLOW]}
        for n in range(first, first + count)
    ]  # fmt: skip
    return [{"id": f"vote-{n}", "call": call} for n, call in enumerate(calls, first)]


def records(database: Database, topic: str) -> list[Any]:
    """What a topic holds, copies included."""
    with TopicReader(database.settings.client_config(), f"{database.name}.{topic}") as reader:
        spans = reader.spans()
        reader.assign(dict.fromkeys(spans, 0))
        ends = {number: span.high for number, span in spans.items()}
        values = [message.value() for batch in reader.until(ends) for message in batch]
        return [json.loads(value) for value in values if value]


def executed(database: Database) -> int:
    """How many follow-ups have results."""
    ids = {found["id"] for found in records(database, "results")}
    return sum(name.startswith("$flow/") for name in ids)


def repeated(database: Database) -> int:
    """How many copies of follow-ups have results."""
    results = records(database, "results")
    return len({found["seq"] for found in results if found["code"] == "batch-repeated"})


def assert_read_by_clients(database: Database, last: int) -> None:
    """The stream as clients see it: from the beginning, and from the middle on."""
    folder = database.folder / "read-model"
    settings = database.settings.client_config()
    known = [*follow(settings, database.name, "voter.counted", end=True)]
    with ReadModel.open(folder, database.name, write=True) as model:
        drained(Follower(model, database.settings), last)
    url = f"kafka://{database.broker.bootstrap}/{database.name}?read_model={folder}"
    with streamydb.connect(url) as client:
        assert list(client.stream("voter.counted", end=True)) == known
        after = known[2].seq, known[2].index
        assert list(client.stream("voter.counted", after=after, end=True)) == known[3:]


def assert_whole(database: Database, count: int) -> Report:
    """Every vote has gone through the whole graph, once."""
    wait_for(lambda: executed(database) >= 3 * count, f"{3 * count} follow-ups", 300)
    report = database.assert_serial()
    assert report.follow_ups.matched == report.follow_ups.expected == 3 * count
    settings = database.settings.client_config()
    emitted = list(follow(settings, database.name, "voter.counted", end=True))
    places = [(found.seq, found.index) for found in emitted]
    assert places == sorted(set(places))
    assert [found.record["total"] for found in emitted if found.record["who"] == "c0"] == [
        *range(1, len(range(0, count, 7)) + 1)
    ]
    assert report.streams.matched == report.streams.expected == 2 * count
    values = [change.get("after") for change in records(database, "changes")]
    assert {"done": 3 * count, "made": 3 * count} in values
    boards = [value for value in values if isinstance(value, dict) and "c0" in value]
    assert sum(boards[-1].values()) == count
    return report


@pytest.mark.parametrize("grouping", ["planner", pytest.param("single", marks=pytest.mark.long)])
def test_votes_go_through_the_graph(tmp_path: Path, grouping: str) -> None:
    count = 20 if grouping == "planner" else 4
    with Database(tmp_path, options=["--grouping", grouping]) as database:
        deploy(database)
        database.load(votes(0, count))
        report = assert_whole(database, count)
        assert report.transactions == 1 + count + 3 * count
        assert_read_by_clients(database, report.transactions)


def _more(database: Database, before: int) -> bool:
    return executed(database) > before


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 2])
def test_a_kill_in_the_middle_loses_and_repeats_nothing(tmp_path: Path, shards: int) -> None:
    """SIGKILL of the driver, three times, while follow-ups make follow-ups."""
    with Database(tmp_path, shards=shards, partitions=2) as database:
        deploy(database)
        count = 0
        for _ in range(3):
            database.load(votes(count, 300))
            count += 300
            wait_for(partial(_more, database, executed(database)), "some follow-ups", 120)
            database.kill_pipeline()
            database.start_pipeline()
        assert_whole(database, count)


@pytest.mark.long
def test_a_database_rebuilt_from_its_log_does_nothing_twice(tmp_path: Path) -> None:
    """A new checkpoint appends every follow-up once more; its window of ids has long forgotten."""
    with Database(tmp_path, options=["--id-window", "5"]) as database:
        deploy(database)
        database.load(votes(0, 30))
        assert_whole(database, 30)
        database.stop_pipeline()
        shutil.rmtree(database.place.checkpoint)
        database.start_pipeline()
        wait_for(lambda: repeated(database) == 90, "a verdict on a copy of each follow-up", 300)
        assert assert_whole(database, 30).follow_ups.duplicates == 90
