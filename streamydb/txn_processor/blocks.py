"""The messages that carry outputs to the task which formats them."""

from __future__ import annotations

from typing import ClassVar

from streamydb.frames.encoding import Part, peel
from streamydb.frames.messages import RecordTexts
from streamydb.frames.protocol import Message, require_format
from streamydb.frames.value_rows import ChangeRows, ResultRows
from streamydb.txn_processor.outputs import (
    CHANGES,
    RESULTS,
    Output,
    OutputRecords,
    OutputRows,
    ShardMessage,
    formatted,
)


class _Results(Message, frozen=True):
    """Results that are to be formatted."""

    KIND: ClassVar[str] = "rows"

    topic: int
    rows: ResultRows


class _Changes(Message, frozen=True):
    """Changes that are to be formatted."""

    KIND: ClassVar[str] = "rows"

    topic: int
    rows: ChangeRows


class _Output(Message, frozen=True):
    """Records of a topic, for a partition of it; -1: that of their keys."""

    KIND: ClassVar[str] = "output"

    topic: int
    partition: int
    records: RecordTexts


def output_parts(item: Output, database: str = "") -> list[Part]:
    """An output of an executing partition, for the task that formats it: a block in pieces."""
    if isinstance(item, ShardMessage):
        item = formatted(item, database)
    if isinstance(item, OutputRecords):
        return _Output(item.topic, item.partition, RecordTexts(item.keys, item.values)).pieces()
    if isinstance(item.table, ResultRows):
        return _Results(RESULTS, item.table).pieces()
    return _Changes(CHANGES, item.table).pieces()


def output_block(item: Output) -> bytes:
    """As `output_parts`, in one piece."""
    return b"".join(output_parts(item))


def open_output(block: bytes, database: str) -> OutputRecords:
    """The records of an output block of ``database``.
    Raises InvariantViolation: the block was written by a release with another format.
    """
    header, stored = peel(block)
    require_format(header)
    if header["kind"] == _Output.KIND:
        output = _Output.opened(header, stored)
        return OutputRecords(
            output.topic, output.records.key, output.records.value, 0, output.partition
        )
    kind = _Results if header["topic"] == RESULTS else _Changes
    return formatted(OutputRows(kind.opened(header, stored).rows), database)
