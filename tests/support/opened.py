"""Records of the log as shards have them: of blocks, and made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamydb.frames.program import ProgramSteps
from streamydb.frames.protocol import BlockReader
from streamydb.frames.record_messages import LogRecords
from streamydb.frames.record_rows import (
    CompiledRecords,
    HomeRows,
    RecordKeys,
    RecordRanges,
    TimedRecords,
)
from streamydb.frames.table import Array, ChildRows, Ragged
from streamydb.key_processor.inbox import LastRecords

__all__ = ["opened", "timed", "to_plan"]


def opened(blocks: Sequence[bytes]) -> list[CompiledRecords]:
    """The tables of some blocks of records."""
    return LastRecords().of([*BlockReader(LogRecords).each(blocks)], 1)


def timed(records: CompiledRecords) -> TimedRecords:
    """Records whose effective time is when they were appended."""
    return records.timed(records.append_ms)


def to_plan(
    kinds: Array,
    ids: Array,
    keys: ChildRows[RecordKeys],
    ranges: ChildRows[RecordRanges] | None = None,
) -> TimedRecords:
    """Records with what the planner reads, and nothing else."""
    n = len(kinds)
    zeros, hashes, texts = np.zeros(n, np.int64), np.zeros(n, np.uint64), Ragged.empty(n)
    steps = ProgramSteps.of(np.zeros(0, np.dtype([(name, "<i8") for name in _STEP])), Ragged.of([]))
    home = HomeRows(np.zeros(n, np.uint8), zeros, hashes, texts, texts, ChildRows(zeros, steps))
    return TimedRecords(
        kinds,
        ids,
        zeros,
        np.arange(n),
        zeros,
        zeros,
        ids,
        zeros,
        keys,
        ranges,
        ChildRows(np.ones(n, np.int64), home),
    )


_STEP = ("a", "low", "high", "key", "index", "op", "flags", "tag")
