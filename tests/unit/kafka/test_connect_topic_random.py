"""Where the copy for Kafka Connect goes on: after the last record that a Kafka transaction wrote,
wherever writers ended, and however many control records lie behind it.
"""

from __future__ import annotations

import random
from contextlib import suppress

import msgspec
import pytest
from msgspec import Raw

from streamydb.kafka.connect import copier
from streamydb.kafka.connect.copier import HEADER, NUL_HEADER, KafkaCopy
from streamydb.kafka.connect.core import ConnectError, CopiedRecord, PartitionCopy
from streamydb.kafka.names import TopicNames
from streamydb.records import Change, ChangeOrigin, ChangeTransaction, Resolved
from streamydb.records.connect import CopyProgress, decode_progress
from tests.support.memory_kafka import CONNECTION, Died, MemoryKafka
from tests.support.seeds import seeds

NAME = TopicNames("bank").connect


def lasts(kafka: MemoryKafka) -> dict[int, CopyProgress | None]:
    """The progress of each partition's last record that can be read."""
    return {
        number: decode_progress((part.records[-1].named_bytes or {})[HEADER])
        if part.records
        else None
        for number, part in enumerate(kafka.topics[NAME])
    }


def test_a_key_with_a_null_character_can_be_told_by_a_header(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of its changes and of its tombstones; the other keys have no such header."""
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    [part] = kafka.create(NAME, 1)
    change = Change(
        "d", Raw(b"1"), Raw(b"null"), 1, ChangeOrigin("streamydb", "bank", 0, 1, 1),
        ChangeTransaction("t", 1, 1),
    )  # fmt: skip
    copy = KafkaCopy(CONNECTION, "bank")
    copy.begin()
    for seq, key in enumerate(["a", "\0", "a\0b", "\\u0000"], 1):
        known = PartitionCopy(0, CopyProgress("topic-id", 0, seq - 1))
        source = ChangeOrigin("streamydb", "bank", 0, seq, seq)
        told = msgspec.structs.replace(change, source=source)
        known.take(2 * seq, key.encode(), told)
        copy.append(known.take(2 * seq + 1, b"", Resolved(seq, 1, {})))
    named = [NUL_HEADER in (record.named_bytes or {}) for record in part.records]
    assert named == [False] * 2 + [True] * 4 + [False] * 2


@pytest.mark.parametrize("seed", range(seeds(150, 37)))
def test_it_goes_on_where_the_last_transaction_ended(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"connect {seed}")
    kafka = MemoryKafka(dice)
    kafka.install(monkeypatch)
    monkeypatch.setattr(copier, "_WINDOW_RECORDS", dice.choice([1, 2, 5, 100]))
    parts = kafka.create(NAME, dice.randint(1, 3))
    seqs = [0] * len(parts)
    for _ in range(dice.randint(2, 12)):
        kafka.failing = dice.choice([0.0, 0.2])
        copy = KafkaCopy(CONNECTION, "bank")
        with suppress(Died):
            copied = copy.begin()
            assert copied == lasts(kafka)
            seqs = [0 if progress is None else progress.seq for progress in copied.values()]
            for _ in range(dice.randint(0, 4)):
                records = []
                for number in dice.choices(range(len(parts)), k=dice.randint(1, 6)):
                    seqs[number] += 1
                    progress = CopyProgress("topic-id", 3 * seqs[number], seqs[number])
                    records.append(
                        CopiedRecord(number, b"key", dice.choice([None, b"v"]), progress)
                    )
                copy.append(records)
                assert [
                    progress.seq if progress else 0 for progress in lasts(kafka).values()
                ] == seqs
        for part in parts:  # of writers that were shut out
            part.high += dice.choice([0, 0, 1, 9])
            if dice.random() < 0.2:
                part.trim(min(part.high, part.low + 1))
    kafka.failing = 0.0
    assert KafkaCopy(CONNECTION, "bank").begin() == lasts(kafka)


def test_a_record_of_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    kafka.create(NAME)
    kafka.append(NAME, 0, b"a record", b"key")
    with pytest.raises(ConnectError, match="somebody else has written it"):
        KafkaCopy(CONNECTION, "bank").begin()
