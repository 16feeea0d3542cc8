"""Procedures, a workflow and constraints together, in one database on real Kafka and Spark.

What each does alone, and through kills, is in test_procedures.py, test_workflows.py and
test_constraints.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamydb.testing.database import Database
from tests.support.programs import (
    assert_whole,
    cli,
    deploy_voter,
    outcome,
    put,
    sent,
    transfer,
    versions_are_deployed_and_called,
    votes,
)  # fmt: skip
from tests.support.submitted import Submitted, environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
VOTES = 20


def constraints_hold(database: Database) -> None:
    """For updates, and for what procedures write."""
    declared = '{"name": "balance", "prefix": "a", "type": "integer", "min": 70}'
    assert "declared balance" in cli(database, "constraints", "declare", declared)
    assert sent(database, **put("a", "five")).failed[0].violated == "type integer"
    refused = sent(database, **transfer(1))
    assert (refused.code, refused.failed[0].constraint) == ("constraint-violated", "balance")
    sent(database, constrain={"declare": {"name": "one", "prefix": "user/", "unique": "$"}})
    first = sent(database, **put("user/1", "ann"))
    assert first.status == "committed"
    assert str(first.id).endswith("~1"), "sent again with the lock that its verdict named"
    assert sent(database, **put("user/2", "ann")).failed[0].violated == "unique"
    listed = json.loads(cli(database, "constraints", "list", "--json"))
    assert set(listed) == {"balance", "one"}
    cli(database, "constraints", "drop", "balance")
    assert outcome(database, transfer(1))[2]["left"] == 68


def test_programs_of_every_kind_share_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And spark-submit starts it, on this machine; on clusters it is a long test."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    with Submitted(tmp_path, master="local[2]") as database:
        deploy_voter(database)
        database.load(votes(0, VOTES))
        versions_are_deployed_and_called(database)
        constraints_hold(database)
        report = assert_whole(database, VOTES)
        assert report.transactions > 1 + VOTES + 3 * VOTES + 14
        assert report.faults == 0
        assert database.stop_pipeline() == 0
        database.assert_quiet()
