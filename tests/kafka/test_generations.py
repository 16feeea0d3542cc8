"""Generations on a real broker: they begin where a history does, and a read model knows its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from msgspec import Raw

from streamydb.backup.restore import keep_rulings
from streamydb.kafka import FoundingFacts, TopicNames, create, log_id, recall, record, renew
from streamydb.kafka.clients import administrator
from streamydb.kafka.creation import changes_begun, existing
from streamydb.read_model import Follower, ReadModel
from streamydb.records import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    Resolved,
    encode_change,
    encode_resolved,
)
from streamydb.records.generation import FIRST, generation_of
from streamydb.records.rulings import NO_RULINGS
from streamydb.settings import Settings
from streamydb.testing.database import wait_for

Client = dict[str, str]


@pytest.fixture
def client(bootstrap: str) -> Client:
    return {"bootstrap.servers": bootstrap}


def generation(client: Client, database: str) -> str:
    """What is recorded beside the log."""
    return recall(client, database, log_id(client, database)).generation


def append(client: Client, topic: str, value: bytes, partition: int = 0) -> None:
    """Write one record."""
    producer = Producer(client)
    producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def deleted(client: Client, *topics: str) -> None:
    """Delete topics, as the runbook does."""
    admin = administrator(client)
    for future in admin.delete_topics([*topics]).values():
        future.result(30)
    wait_for(lambda: existing(client, [*topics]) == [], "the topics to be gone")


def test_a_database_that_was_created_is_of_the_first_generation(
    client: Client, database: str
) -> None:
    for _ in range(2):
        create(client, database)
        assert generation(client, database) == FIRST


def test_a_generation_that_has_begun_is_not_undone_by_who_has_read_before(
    client: Client, database: str
) -> None:
    create(client, database)
    log = log_id(client, database)
    before = recall(client, database, log)
    for topic in ("one", "one", "other"):
        assert renew(client, database, log, topic) == generation_of(topic)
        assert generation(client, database) == generation_of(topic)
    holds = record(client, database, FoundingFacts(log=log, id_window=7, generations=("late",)))
    assert record(client, database, before).generation == holds.generation
    assert holds.generation == generation(client, database) == generation_of("other")
    assert recall(client, database, "another log").generation == FIRST


def test_a_restored_database_is_of_another_generation(client: Client, database: str) -> None:
    create(client, database, loading=True)
    for _ in range(2):  # the command was repeated
        keep_rulings(client, database, NO_RULINGS, {})
        assert generation(client, database) == generation_of(log_id(client, database))


def test_outputs_that_are_made_anew_beside_a_log_begin_a_generation(
    client: Client, database: str
) -> None:
    names = create(client, database)
    deleted(client, names.results, names.changes)
    create(client, database)
    assert generation(client, database) == FIRST, "nothing was ever executed"
    append(client, names.transactions, b'{"id":"a"}')
    deleted(client, names.changes)
    create(client, database)
    assert generation(client, database) == FIRST, "the results show that nothing is lost"
    deleted(client, names.results, names.changes)
    for _ in range(2):
        create(client, database)
        (changes,) = changes_begun(client, database)
        assert generation(client, database) == generation_of(changes)


def written(client: Client, database: str) -> None:
    """A change of seq 1, resolved."""
    names = TopicNames(database)
    origin = ChangeOrigin("streamydb", database, 0, 0, 1)
    change = Change("c", Raw(b"null"), Raw(b"1"), 9, origin, ChangeTransaction("t", 1, 1))
    producer = Producer(client)
    producer.produce(names.changes, encode_change(change), "a", 0)
    for partition in range(4):
        resolved = Resolved(resolved=1, ts_ms=9, offsets={"0": 1})
        producer.produce(names.changes, encode_resolved(resolved), partition=partition)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("renewed", [False, True])
def test_a_read_model_knows_its_generation_before_it_shows_anything(
    client: Client, bootstrap: str, database: str, tmp_path: Path, *, renewed: bool
) -> None:
    create(client, database)
    settings = Settings(bootstrap=bootstrap, database=database)
    with ReadModel.open(tmp_path / "model", database, write=True) as model:
        follower = Follower(model, settings)
        follower.step(0.2)
        assert (model.generation, model.store.generation()) == (FIRST, None)
        begun = FIRST
        if renewed:  # by a pipeline that starts after the follower
            begun = renew(client, database, log_id(client, database), "new")
        written(client, database)
        wait_for(lambda: follower.step(0.2) >= 0 and model.latest().seq == 1, "the change")
        assert model.store.generation() == begun
        follower.close()
    with ReadModel.open(tmp_path / "model", database) as model:
        assert model.generation == begun
