"""The copies of a new database's topics, by the size of the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from streamydb import kafka
from streamydb.cli import app
from streamydb.kafka.admin import TopicDescription, TopicsError
from streamydb.kafka.topic_plans import Copies, choose


def log_with(replication: int, min_insync: int) -> TopicDescription:
    settings = {"min.insync.replicas": str(min_insync)}
    return TopicDescription("bank.transactions", 1, replication, settings, (), ())


@pytest.mark.parametrize(
    ("brokers", "asked", "chosen"),
    [
        (1, (None, None), (1, 1)),
        (2, (None, None), (1, 1)),
        (3, (None, None), (3, 2)),
        (9, (None, None), (3, 2)),
        (3, (1, None), (1, 1)),
        (3, (2, None), (2, 1)),
        (3, (None, 1), (3, 1)),
        (3, (None, 3), (3, 3)),
        (5, (5, None), (5, 2)),
        (2, (3, 2), (3, 2)),
    ],
)
def test_a_new_database_has_the_copies_that_the_cluster_can_hold(
    brokers: int, asked: tuple[int | None, int | None], chosen: tuple[int, int]
) -> None:
    assert choose(brokers, *asked, None) == (*chosen, brokers)


def test_an_existing_database_keeps_its_copies_unless_others_are_asked_for() -> None:
    assert choose(3, None, None, log_with(1, 1)) == (1, 1, 3)
    assert choose(1, None, None, log_with(3, 2)) == (3, 2, 1)
    assert choose(3, 3, None, log_with(1, 1)) == (3, 2, 3)
    assert choose(3, 3, None, log_with(3, 1)) == (3, 1, 3)


def test_copies_that_can_never_acknowledge_are_refused() -> None:
    with pytest.raises(TopicsError, match="min_insync 2 is above replication 1"):
        choose(2, None, 2, None)


def test_less_than_the_cluster_could_keep_is_warned_of() -> None:
    assert Copies(3, 2, 3).danger is None
    assert Copies(1, 1, 2).danger is None
    for less in (Copies(1, 1, 3), Copies(2, 2, 4), Copies(3, 1, 3)):
        assert "--replication 3 --min-insync 2" in str(less.danger)


@pytest.mark.parametrize(("options", "warned"), [([], False), (["--replication", "1"], True)])
def test_create_says_which_copies_there_are(
    options: list[str], *, warned: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    made: list[dict[str, int]] = []

    def create(_client: object, database: str, **numbers: int) -> kafka.TopicNames:
        made.append(numbers)
        return kafka.TopicNames(database)

    monkeypatch.setattr(kafka, "create", create)
    monkeypatch.setattr("streamydb.kafka.connection.listens", lambda _: True)
    monkeypatch.setattr("streamydb.kafka.topic_plans.administrator", lambda _: None)
    monkeypatch.setattr("streamydb.kafka.topic_plans.describe_topics", lambda *_: {})
    three = SimpleNamespace(brokers={1: 1, 2: 2, 3: 3})
    monkeypatch.setattr("streamydb.kafka.topic_plans.cluster", lambda _: three)
    done = CliRunner().invoke(app, ["create", "--home", str(tmp_path), *options])
    assert done.exit_code == 0, done.output
    assert ("warning: this cluster has 3 brokers" in done.stderr) is warned
    wanted = (1, 1) if warned else (3, 2)
    assert (made[0]["replication"], made[0]["min_insync"]) == wanted
    assert f"{wanted[0]} copies of each topic, {wanted[1]} of which acknowledge" in done.stderr
