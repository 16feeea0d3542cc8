"""Constraints over what the steps of a workflow write, on the serial oracle."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamydb import records as r
from tests.support.workflows import VOTER, Log

FLOW = "$flows/voter"


def vote(log: Log, who: str, phone: int = 1) -> dict[str, Any]:
    return log.call("voter.vote", [f"phone/{phone}", FLOW], phone=phone, who=who)


@pytest.fixture
def log() -> Log:
    return Log(VOTER)


def test_a_follow_up_that_violates_counts_and_the_next_one_runs(log: Log) -> None:
    log.declare("few", "votes/", max=1)
    vote(log, "ann", 1)
    vote(log, "ann", 2)
    vote(log, "bob", 3)
    results = [found for found in log.settle() if "votes/" in json.dumps(found["failed"])]
    (found,) = results
    assert found["code"] == "constraint-violated"
    assert [(each["constraint"], each["key"], each["value"]) for each in found["failed"]] == [
        ("few", "votes/ann", 2)
    ]
    assert (log.value("votes/ann"), log.value("votes/bob")) == (1, 1)
    assert [record for name, record in log.streams() if name == "voter.counted"] == [
        {"who": "ann", "total": 1}, {"who": "bob", "total": 1},
    ]  # fmt: skip
    assert log.value("board") == {"ann": 1, "bob": 1}
    assert log.value(FLOW) == {"done": 7, "made": 7}, "three counted, two of them told to both"


def test_a_copy_of_one_that_violated_is_a_copy(log: Log) -> None:
    log.declare("none", "votes/", max=0)
    vote(log, "ann")
    (raw,) = log.waiting
    assert [found["code"] for found in log.settle()] == ["constraint-violated"]
    assert log.append(raw)["code"] == "batch-repeated"
    assert log.value(FLOW) == {"done": 1, "made": 1}


def test_an_entry_that_violates_emits_nothing(log: Log) -> None:
    log.declare("once", "phone/", max=1)
    vote(log, "ann")
    log.settle()
    counts = log.value(FLOW)
    assert vote(log, "ann")["code"] == "constraint-violated"
    assert not log.waiting
    assert [name for name, _ in log.streams()].count("voter.votes") == 1
    assert log.value(FLOW) == counts


def test_constraints_on_every_key_leave_the_database_its_own(log: Log) -> None:
    log.declare("numbers", "", type="number")
    vote(log, "ann")
    codes = [found["code"] for found in log.settle()]
    assert codes == [None, "constraint-violated", None], "the board is an object"
    assert log.value("$windows/voter.last") == {"active": [], "staged": ["ann"]}


def test_a_follow_up_cannot_change_the_index_of_unique_values(log: Log) -> None:
    log.declare("own", "votes/", unique="$")
    vote(log, "ann")
    (found,) = log.settle()
    assert (found["code"], found["failed"][0]["check"]) == ("undeclared-key", "lock")
    assert log.value(FLOW) == {"done": 1, "made": 1}


def test_an_entry_with_locks_changes_the_index(log: Log) -> None:
    log.declare("own", "phone/", unique="$")
    missing = vote(log, "ann")["failed"][0]["key"]

    def locked(phone: int) -> dict[str, Any]:
        args, keys = {"phone": phone, "who": "ann"}, [f"phone/{phone}", FLOW]
        call = {"procedure": "voter.vote", "args": args, "keys": keys}
        fields = {"id": f"locked-{phone}", "call": call, "locks": [missing]}
        return log.append(json.dumps(fields).encode())

    assert locked(1)["code"] is None
    assert vote(log, "bob", 2)["code"] == "undeclared-key"
    again = locked(2)
    assert (again["code"], again["failed"][0]["violated"]) == ("constraint-violated", "unique")
    assert len(log.waiting) == 1, "of the one that committed"


def test_follow_ups_with_locks_are_nobodys() -> None:
    batch = {"id": 1, "stream": "s", "number": 1, "depth": 1}
    call = {"procedure": "m.p", "keys": ["$flows/m"], "batch": batch}
    fields = {"id": "$flow/1/1", "call": call}
    assert isinstance(r.decode(json.dumps(fields).encode()), r.Transaction)
    found = r.decode(json.dumps({**fields, "locks": ["$unique/a/1/x"]}).encode())
    assert isinstance(found, r.Rejection)
    assert found.code == "reserved-id"
