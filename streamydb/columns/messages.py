"""The messages that travel between the rooms of the engine.

| message | from | to |
|---|---|---|
| `Role`, `Audit` | the driver, through the feedback topic | all shards |
| `ValueSizes` | a shard, through the feedback topic | all shards |
| `ResolvedRecord`, `DigestRecords`, `KnownResults` | a shard | an executing partition, which writes |
| `Notice` | a shard | the driver |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from streamydb.columns.protocol import Message
from streamydb.columns.table import Bytes, ColumnTable, Ragged
from streamydb.records.change import Resolved, encode_resolved

__all__ = [
    "Audit", "ByteColumn", "DigestRecords", "KeyValues", "KnownResults", "Notice", "ResolvedRecord",
    "Role", "ValueSizes", "resolved_value",
]  # fmt: skip


class Role(Message, frozen=True):
    """The driver tells the shards of a pipeline whether they lead or follow.

    ``covered``: everything up to this seq has been written by some pipeline. One that follows
    executes that far, silently; one that leads does, too, and writes what comes after. ``at``: the
    offset of the message in the feedback topic; -1: it was not read from there.
    """

    KIND: ClassVar[str] = "role"
    LAST: ClassVar[tuple[str, ...]] = ("at",)

    incarnation: str
    leads: bool
    covered: int
    at: int = -1


class Audit(Message, frozen=True):
    """The driver has all shards of a pipeline hold their states against their digests.

    ``reason``: a sentence for people. ``at``: as in `Role`.
    """

    KIND: ClassVar[str] = "audit"
    LAST: ClassVar[tuple[str, ...]] = ("at",)

    incarnation: str
    reason: str
    at: int = -1


class ValueSizes(Message, frozen=True):
    """A shard tells all shards the sizes of a part of its values; see `columns.sizes`.

    ``chunk``: the number of the part, of ``chunks``. ``sizes``: see `columns.sizes.tells`. ``at``:
    as in `Role`.
    """

    KIND: ClassVar[str] = "sizes"
    LAST: ClassVar[tuple[str, ...]] = ("at",)

    incarnation: str
    shard: int
    chunk: int
    chunks: int
    sizes: bytes
    at: int = -1


class Notice(Message, frozen=True):
    """A shard has nothing to be executed: the row that carries this tells the driver something."""

    KIND: ClassVar[str] = "notice"


class ByteColumn(ColumnTable, frozen=True):
    """One text: its bytes."""

    value: Bytes


class ResolvedRecord(Message, frozen=True):
    """A shard tells that everything up to a seq has been written.

    ``text``: the value of the resolved record that is written to every partition of the changes,
    unless ``silent``.
    """

    KIND: ClassVar[str] = "resolved"
    LAST: ClassVar[tuple[str, ...]] = ("silent",)

    text: ByteColumn
    silent: bool

    @classmethod
    def of(cls, value: bytes, *, silent: bool) -> ResolvedRecord:
        """The message with this value of the record."""
        return cls(ByteColumn(np.frombuffer(value, np.uint8)), silent)

    @property
    def value(self) -> bytes:
        """The value of the record."""
        return self.text.value.tobytes()


def resolved_value(seq: int, ts_ms: int, offsets: Mapping[int, int]) -> bytes:
    """The value of a resolved record; ``offsets``: first ones of the log that are not covered."""
    shown = {str(number): offset for number, offset in sorted(offsets.items())}
    return encode_resolved(Resolved(seq, ts_ms, shown))


class KeyValues(ColumnTable, frozen=True):
    """Keys and values of records that are to be written."""

    key: Ragged
    value: Ragged


class DigestRecords(Message, frozen=True):
    """A shard gives digests of its state to be written."""

    KIND: ClassVar[str] = "digests"

    records: KeyValues

    @classmethod
    def of(cls, rows: Sequence[tuple[bytes, bytes]]) -> DigestRecords:
        """The message with these keys and values."""
        keys, values = ([row[at] for row in rows] for at in (0, 1))
        return cls(KeyValues(Ragged.of(keys), Ragged.of(values)))


class KnownResults(Message, frozen=True):
    """A shard gives results of transactions that are not executed, to be written; by their ids."""

    KIND: ClassVar[str] = "results"

    records: KeyValues
