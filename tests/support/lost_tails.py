"""A broker loses the end of a partition of the log, and it grows again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.support.memory_kafka import MemoryKafka, Record

__all__ = ["another_end"]


@contextmanager
def another_end(
    kafka: MemoryKafka, topic: str, number: int, last: int, dice: random.Random
) -> Iterator[None]:
    """Within the body, records from somewhere up to ``last`` are lost; others may take their
    places.

    Where there are others, they differ in time, key or value, or there is none but an offset.
    """
    parts = kafka.topics[topic]
    was = parts[number]
    cut = dice.randint(was.low, last)
    high = max(cut, dice.choice([last, last + 1, last + 1, was.high, was.high + 5]))
    known = {record.at: record for record in was.records}
    records = [record for record in was.records if record.at < cut]
    for at in range(cut, high):
        old = known.get(at, Record(number, at, 1, None, b"{}"))
        changes: list[dict[str, Any] | None] = [
            {"append_ms": old.append_ms + 1}, {"named": b"?"}, {"content": b"?"},
            {"content": None if old.content is not None else b"?"}, None,
        ]  # fmt: skip
        new = dice.choice(changes)
        if new is not None:
            records.append(replace(old, **new))
    parts[number] = replace(was, records=records, high=high)
    try:
        yield
    finally:
        assert parts[number].low == was.low, "nothing was deleted"
        parts[number] = was
