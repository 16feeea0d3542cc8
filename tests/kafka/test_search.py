"""Old results on a real broker: found by any id as long as they are kept."""

from __future__ import annotations

import uuid

import confluent_kafka
import pytest

from streamydb.client.session import new_id
from streamydb.facade import kafka_search
from streamydb.facade.kafka_search import search_result
from streamydb.facade.ports import NoResult
from streamydb.kafka import TopicNames, create
from streamydb.records import Result
from streamydb.settings import Settings
from streamydb.verify.oracle.core import Oracle

RESULTS = 3_000


@pytest.fixture
def written(bootstrap: str, database: str) -> tuple[Settings, list[str]]:
    """A database whose results topic has been written; the ids, in order."""
    settings = Settings(database=database, bootstrap=bootstrap)
    create(settings.client_config(), database)
    ids = [f"chosen-{number}" if number % 3 else str(uuid.uuid4()) for number in range(RESULTS)]
    ids[7] = new_id()
    producer = confluent_kafka.Producer(dict(settings.client_config()))
    oracle = Oracle(database)
    for offset, txn_id in enumerate(ids):
        output = oracle.apply(b'{"id":"%s"}' % txn_id.encode(), 0, offset, offset)[0]
        producer.produce(TopicNames(database).results, output.value, key=output.key)
        producer.poll(0)
    assert producer.flush(60) == 0
    return settings, ids


@pytest.mark.parametrize("stretch", [1_000, 50_000])
def test_any_id_is_found_wherever_its_result_lies(
    written: tuple[Settings, list[str]], monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    settings, ids = written
    monkeypatch.setattr(kafka_search, "_STRETCH", stretch)
    for number in (0, 1, 7, 1_500, RESULTS - 1):
        found = search_result(settings, ids[number], None)
        assert isinstance(found, Result)
        assert (found.id, found.seq) == (ids[number], number + 1)


def test_what_was_never_there_is_known_for_certain(
    written: tuple[Settings, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, _ = written
    missing = search_result(settings, "never", None)
    assert missing == NoResult(complete=True, since_ms=None)
    monkeypatch.setattr(kafka_search, "SEARCH_S", 0)
    assert search_result(settings, "never", None) == NoResult(complete=False, since_ms=None)
