"""What something else has written to a topic of ours stops nobody, and is told of."""

from __future__ import annotations

import json
import random

import pytest
from msgspec import Raw

from streamydb.errors import RecordError
from streamydb.kafka import rulings, streams
from streamydb.kafka.names import TopicNames
from streamydb.kafka.positions import written, written_until
from streamydb.kafka.strangers import ChangeRecords
from streamydb.records import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    Resolved,
    Source,
    dead_letter,
    encode_change,
    encode_dead_letter,
    encode_resolved,
    is_strange_change,
    is_strange_result,
)
from streamydb.records.begins import EVERYWHERE
from streamydb.records.emission import is_strange_emission
from streamydb.records.rulings import Adopted, Fault, encode_ruling, is_strange_ruling, ruling_of
from tests.support.memory_kafka import CONNECTION, MemoryKafka
from tests.support.strange import LATER, STRANGE

NAMES = TopicNames("bank")
CHANGE = Change(
    "c", Raw(b"null"), Raw(b"1"), 5, ChangeOrigin("streamydb", "bank", 0, 7, 8),
    ChangeTransaction("t", 1, 1),
)  # fmt: skip
RESOLVED = Resolved(7, 5, {"0": 7})


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> MemoryKafka:
    made = MemoryKafka(random.Random("strangers"))
    made.install(monkeypatch)
    return made


@pytest.mark.parametrize("value", STRANGE)
def test_what_is_of_no_release_is_told_apart(value: bytes | None) -> None:
    assert is_strange_ruling(value)
    assert is_strange_emission(value)
    assert is_strange_change(value or b"")
    assert is_strange_result(value or b"")


@pytest.mark.parametrize("value", LATER)
def test_what_is_of_a_later_release_is_no_strangers(value: bytes) -> None:
    assert not is_strange_change(value)
    assert not is_strange_result(value)
    assert not is_strange_ruling(value)


@pytest.mark.parametrize("told", ['"new":1', '"ts_ms":"x"'])
def test_ours_that_cannot_be_read_are_no_strangers(told: str) -> None:
    """A later release may have forgotten to raise the format; a fault of ours may be in it."""
    for value in (encode_change(CHANGE), encode_resolved(RESOLVED)):
        assert not is_strange_change(value[:-1] + b"," + told.encode() + b"}")
    assert not is_strange_result(b'{"seq":1,%s}' % told.encode())
    assert not is_strange_ruling(b'{"kind":"other","log":"l",%s}' % told.encode())
    assert not is_strange_emission(b'{"seq":1,"index":1,%s}' % told.encode())


def test_the_first_stranger_is_told_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    records = ChangeRecords("bank.changes")
    assert records.read(0, 1, None) is None
    assert not caplog.messages
    for offset in (4, 5):
        assert records.read(2, offset, b"junk") is None
    (told,) = caplog.messages
    assert "bank.changes, partition 2, offset 4 is no record of streamy-db's" in told
    assert records.count == 2
    assert records.read(0, 1, encode_change(CHANGE)) == CHANGE
    with pytest.raises(RecordError, match=r"bank\.changes, partition 1, offset 9: .*format 2"):
        records.read(1, 9, LATER[1])


def test_a_start_reads_the_end_of_the_changes_past_strangers(kafka: MemoryKafka) -> None:
    (part,) = kafka.create(NAMES.changes)
    for key in (None, b"k"):
        for value in STRANGE:
            kafka.append(NAMES.changes, 0, value, key)
    assert written_until(CONNECTION, "bank") == 0
    kafka.append(NAMES.changes, 0, encode_resolved(RESOLVED))
    kafka.append(NAMES.changes, 0, encode_change(CHANGE), b"k")
    for key in (None, b"k"):
        for value in STRANGE:
            kafka.append(NAMES.changes, 0, value, key)
    assert written(CONNECTION, "bank") == (RESOLVED, {0: CHANGE})
    kafka.append(NAMES.changes, 0, LATER[0], b"k")
    told = rf"bank\.changes, partition 0, offset {part.high - 1}: .*format 2"
    with pytest.raises(RecordError, match=told):
        written(CONNECTION, "bank")


def test_a_start_reads_the_rulings_past_strangers(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.create(NAMES.rulings)
    fault = Fault(0, 3, "KeyError 0")
    for value in (*STRANGE, encode_ruling(ruling_of(fault, "log")), *STRANGE):
        kafka.append(NAMES.rulings, 0, value)
    topic = rulings.RulingTopic(CONNECTION, "bank", "log", EVERYWHERE)
    assert topic.refresh() == 1
    assert topic.rulings().faults == [fault]
    assert "bank.rulings, partition 0, offset 0 is no record" in caplog.text
    kafka.append(NAMES.rulings, 0, encode_ruling(Adopted(log="log"))[:-1] + b',"more":1,"log":4}')
    kafka.append(NAMES.rulings, 0, b'{"kind":"more","log":"log"}')
    with pytest.raises(RecordError, match=r"bank\.rulings, partition 0, offset 32: Not a ruling"):
        topic.refresh()


def test_faults_of_earlier_releases_are_read_past_strangers(kafka: MemoryKafka) -> None:
    kafka.create(NAMES.deadletters)
    letter = dead_letter(
        b"{}", seq=4, ts_ms=1, code="internal", id="t", source=Source(0, 3), error="KeyError 0"
    )
    for value in (*STRANGE, b'{"code":"internal"}', encode_dead_letter(letter)):
        kafka.append(NAMES.deadletters, 0, value)
    assert [each.offset for each in rulings.aborted_before(CONNECTION, "bank")] == [3]
    kafka.append(NAMES.deadletters, 0, b'{"format":2,"code":"internal"}')
    with pytest.raises(RecordError, match="format 2"):
        rulings.aborted_before(CONNECTION, "bank")


def test_a_stream_is_read_past_strangers(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.create(NAMES.streams)
    about = {"stream": "a.b", "seq": 1, "index": 1, "ts_ms": 1, "batch": 1, "id": "t", "record": 4}
    for value in (*STRANGE, json.dumps(about).encode(), *STRANGE):
        kafka.append(NAMES.streams, 0, value, b"a.b")
    assert [each.record for each in streams.follow(CONNECTION, "bank", "a.b", end=True)] == [4]
    assert "bank.streams, partition 0, offset 0 is no record" in caplog.text
