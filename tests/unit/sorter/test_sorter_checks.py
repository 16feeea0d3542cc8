"""Each invariant of the sorter fires when what it is about is damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from streamydb.frames.record_rows import CompiledRecords, TimedRecords
from streamydb.frames.table import ChildRows, Ragged
from streamydb.sorter import checks
from tests.support.seams import Damage, must_fire


def unknown_kind(piece: CompiledRecords) -> None:
    piece.kind[0] = 9


def two_homes(piece: CompiledRecords) -> None:
    piece.home.counts[0] = 2


def lost_key(piece: CompiledRecords) -> tuple[CompiledRecords]:
    counts, keys = piece.keys
    keys.key[0]
    return (replace(piece, keys=ChildRows(counts, keys.part(1, len(keys)))),)


def with_first(piece: CompiledRecords, key: bytes) -> tuple[CompiledRecords]:
    """The same records, with another first key."""
    counts, keys = piece.keys
    texts = Ragged.of([key, *keys.key.tolist()[1:]])
    return (replace(piece, keys=ChildRows(counts, replace(keys, key=texts))),)


def empty_key(piece: CompiledRecords) -> tuple[CompiledRecords]:
    return with_first(piece, b"")


def long_key(piece: CompiledRecords) -> tuple[CompiledRecords]:
    return with_first(piece, b"k" * 481)


def swapped(records: TimedRecords, *_: Any) -> tuple[Any, ...]:
    order = np.arange(len(records))
    order[[0, 1]] = order[[1, 0]]
    return records.take(order), *_


def twice(records: TimedRecords, *_: Any) -> tuple[Any, ...]:
    return records.take(np.array([0, *range(len(records))])), *_


def at_the_watermark(records: TimedRecords, _: int, limit: int) -> tuple[Any, ...]:
    return records, int(records.ts_ms[-1]), limit


def too_many(records: TimedRecords, watermark: int, _: int) -> tuple[Any, ...]:
    return records, watermark, len(records) - 1


@pytest.mark.parametrize(
    ("check", "damage", "fact"),
    [
        (checks.received, unknown_kind, "known kind"),
        (checks.received, two_homes, "one home"),
        (checks.received, lost_key, "add up"),
        (checks.received, empty_key, "keys are within"),
        (checks.received, long_key, "keys are within"),
        (checks.released, swapped, "total order"),
        (checks.released, twice, "total order"),
        (checks.released, at_the_watermark, "below the watermark"),
        (checks.released, too_many, "no more is released"),
    ],
)
def test_a_damaged_order_stops_the_batch(check: Any, damage: Damage, fact: str) -> None:
    must_fire(check, damage, f"sorter .*{fact}")
