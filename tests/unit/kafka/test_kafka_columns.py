"""Records in columns: as single records say, and as they lie in librdkafka's memory."""

from __future__ import annotations

import ctypes
import random
from typing import Any, Final

import numpy as np
import pytest

from streamydb.errors import ConfigurationError
from streamydb.frames.addresses import SPARE_BYTES
from streamydb.kafka import librdkafka
from streamydb.kafka.clients import CHANGES, column_reader
from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.kafka.errors import PARTITION_EOF
from tests.support.seeds import seeds

Told = tuple[int, int, bytes | None, bytes | None]
_TIMED_OUT: Final = -185


class Message(ctypes.Structure):
    """`rd_kafka_message_t`, as rdkafka.h declares it."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("_private", ctypes.c_void_p),
    )


def told(records: RecordColumns) -> list[Told]:
    """The records, one by one."""
    return [(r.partition(), r.offset(), r.key(), r.value()) for r in records]


def drawn(dice: random.Random) -> list[Told]:
    """Some records."""

    def text() -> bytes | None:
        return dice.choice([None, b"", dice.randbytes(dice.randint(1, 30))])

    return [
        (dice.randrange(1 << 31), dice.randrange(1 << 62), text(), text())
        for _ in range(dice.randint(0, 20))
    ]


def check_spare(records: RecordColumns) -> None:
    """Kernels may load a whole word from any place of a text."""
    for texts in (records.keys, records.values):
        assert len(texts.data) >= texts.offsets[-1] + SPARE_BYTES


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_columns_say_what_single_records_say(seed: int) -> None:
    dice = random.Random(f"columns {seed}")
    wanted = drawn(dice)
    records = RecordColumns.of([OneRecord(*each) for each in wanted])
    check_spare(records)
    assert len(records) == len(wanted)
    assert told(records) == wanted
    kept = np.array([dice.random() < 0.5 for _ in wanted], np.bool_)
    some = records.where(kept)
    check_spare(some)
    assert told(some) == [each for each, keep in zip(wanted, kept, strict=True) if keep]


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_messages_are_copied_and_freed_once(seed: int) -> None:
    dice = random.Random(f"messages {seed}")
    freed: list[int] = []
    let_go = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(freed.append)
    kept: list[Any] = []

    def place(text: bytes | None) -> tuple[int | None, int]:
        """Where a text lies, and its length, which tells nothing without a place."""
        if text is None:
            return None, dice.randrange(1 << 40)
        kept.append(ctypes.create_string_buffer(text, len(text) + 1))
        return ctypes.addressof(kept[-1]), len(text)

    drawn_ones = drawn(dice)
    codes = [dice.choice([0, 0, 0, PARTITION_EOF, _TIMED_OUT, 3]) for _ in drawn_ones]
    numbers = {dice.randrange(1, 1 << 47): dice.randrange(9) for _ in range(dice.randint(0, 4))}
    topics = np.array([*numbers.items()], np.int64).reshape(-1, 2)
    topic_of = [dice.choice([*numbers, 0]) for _ in drawn_ones]
    messages = [
        Message(code, topic, partition, *place(value), *place(key), offset, None)
        for code, topic, (partition, offset, key, value) in zip(
            codes, topic_of, drawn_ones, strict=True
        )
    ]
    addresses = np.array([ctypes.addressof(each) for each in messages], np.int64)
    function = ctypes.cast(let_go, ctypes.c_void_p).value or 0
    records, failures = librdkafka._taken(*librdkafka._gathered(addresses, function, topics))
    check_spare(records)
    both = list(zip(codes, drawn_ones, strict=True))
    assert told(records) == [each for code, each in both if code == 0]
    assert records.topics.tolist() == [
        numbers.get(topic, 0) for code, topic in zip(codes, topic_of, strict=True) if code == 0
    ]
    assert [(f.error.code(), f.partition, f.offset) for f in failures] == [
        (code, partition, offset) for code, (partition, offset, _, _) in both if code != 0
    ]
    reasons = [(f.error.str(), value) for f, value in zip(
        failures, [each[3] for code, each in both if code != 0], strict=True
    )]  # fmt: skip
    for said, value in reasons:
        told_of = (value or b"").partition(b"\0")[0].decode(errors="replace")
        assert said == told_of or not told_of
    assert freed == addresses.tolist()


def test_settings_that_librdkafka_refuses_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"fetch\.wait\.max\.ms"):
        column_reader({"bootstrap.servers": "127.0.0.1:1", "fetch.wait.max.ms": "long"}, CHANGES)
    with pytest.raises(ConfigurationError, match="No such configuration property"):
        column_reader({"bootstrap.servers": "127.0.0.1:1", "no.such.setting": "1"}, CHANGES)


def test_a_library_that_is_missing_is_an_error_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "_FUNCTIONS", {"is_not_there": (None, [])})
    with pytest.raises(ConfigurationError, match="install confluent-kafka from its wheel"):
        librdkafka._library.__wrapped__()
