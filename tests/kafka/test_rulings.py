"""`<db>.rulings` in a real broker: written once, fenced, read by all; what is known is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from streamydb.kafka import TopicNames, create, log_id
from streamydb.kafka.rulings import RulingTopic, aborted_before, rulings
from streamydb.pipeline.restarts import ExecutedBefore, FaultHandler, executed_before
from streamydb.records import Source, dead_letter, encode_dead_letter
from streamydb.records.begins import EVERYWHERE
from streamydb.records.rulings import Fault, TooLate, UnruledFaults
from streamydb.settings import Settings

pytestmark = pytest.mark.timeout(120)


def test_rulings_are_adopted_fenced_and_read(bootstrap: str, database: str, tmp_path: Path) -> None:
    client = Settings(bootstrap=bootstrap, database=database).client_config()
    create(client, database)
    names, log = TopicNames(database), log_id(client, database)
    producer = Producer({**client, "acks": "all"})
    letter = dead_letter(
        None, seq=1, ts_ms=1, code="internal", id="t", source=Source(0, 7), error="KeyError 0"
    )
    producer.produce(names.deadletters, encode_dead_letter(letter))
    producer.flush(30)
    old = Fault(0, 7, "KeyError 0", shown=False)
    assert aborted_before(client, database) == [old]
    assert rulings(client, database, log).faults == [old]

    topic, other = (RulingTopic(client, database, log, EVERYWHERE) for _ in range(2))
    topic.adopt(lambda: aborted_before(client, database))
    assert topic.fence(1, "a") == 1
    fault, late = Fault(0, 8, "LookupError 1"), Fault(0, 9, "LookupError 1")
    topic.rule([fault], 1)
    assert other.fence(2, "b") == 2
    topic.rule([late], 1)
    assert topic.rulings().faults == rulings(client, database, log).faults == [old, fault]
    assert other.refresh() == 2

    assert executed_before(tmp_path, client, database) == ExecutedBefore(0, {}, {0: 0})
    desk = FaultHandler(other, client, database, executed_before(tmp_path, client, database))
    messages = [f"x.UnruledFaults: {UnruledFaults([late])}"]
    result = b'{"id":"t","seq":3,"status":"committed","source":{"partition":0,"offset":9}}'
    producer.produce(names.results, result)
    producer.flush(30)
    assert desk.may_repeat(messages, 2, leads=True)
    with pytest.raises(TooLate):
        desk.may_repeat(messages, 2, leads=True)
