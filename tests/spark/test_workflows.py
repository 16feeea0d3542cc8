"""Workflows on a real broker and a real Spark: follow-ups through the log, exactly once."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

import streamydb
from streamydb.kafka.streams import follow
from streamydb.read_model import Follower, ReadModel
from streamydb.testing.database import Database, wait_for
from tests.support.programs import assert_whole, deploy_voter, executed, records, votes
from tests.support.read_model import drained

pytestmark = pytest.mark.timeout(600)


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


@pytest.mark.long
@pytest.mark.parametrize("grouping", ["planner", "single"])
def test_votes_go_through_the_graph(tmp_path: Path, grouping: str) -> None:
    count = 20 if grouping == "planner" else 4
    with Database(tmp_path, options=["--grouping", grouping]) as database:
        deploy_voter(database)
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
        deploy_voter(database)
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
        deploy_voter(database)
        database.load(votes(0, 30))
        assert_whole(database, 30)
        database.stop_pipeline()
        shutil.rmtree(database.place.checkpoint)
        database.start_pipeline()
        wait_for(lambda: repeated(database) == 90, "a verdict on a copy of each follow-up", 300)
        assert assert_whole(database, 30).follow_ups.duplicates == 90
