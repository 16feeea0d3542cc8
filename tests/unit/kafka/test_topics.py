"""Topic names, and the checks that need no broker."""

from __future__ import annotations

from typing import Any

import pytest

from streamydb.kafka import TopicNames, TopicProblem, create


def test_names() -> None:
    names = TopicNames("bank-2")
    assert names.all() == (
        "bank-2.transactions",
        "bank-2.results",
        "bank-2.changes",
        "bank-2.feedback",
        "bank-2.deadletters",
    )


@pytest.mark.parametrize("name", ["", "Bank", "a.b", "a" * 49, "a\n"])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a database's name"):
        TopicNames(name)


@pytest.mark.parametrize(
    "numbers",
    [
        {"partitions": 0},
        {"partitions": 1025},
        {"shards": 65},
        {"replication": 0},
        {"replication": 2, "min_insync": 3},
        {"changes_partitions": 0},
    ],
)
def test_numbers_out_of_bounds_are_refused_before_kafka_is_asked(numbers: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be between 1 and"):
        create({"bootstrap.servers": "127.0.0.1:1"}, "bank", **numbers)


def test_a_problem_reads_as_one_line() -> None:
    problem = TopicProblem("t", "it is wrong", "mend it", "warning")
    assert str(problem) == "warning: t: it is wrong. Fix: mend it"
