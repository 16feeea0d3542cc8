"""Records of a topic in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from streamydb.frames.addresses import SPARE_BYTES
from streamydb.frames.table import Bytes, Ragged

Ints = npt.NDArray[np.int64]

NO_KEY: Final = 1
NO_VALUE: Final = 2


class Record(Protocol):
    """A record, as confluent-kafka's messages are; a tombstone has no value."""

    def partition(self) -> int: ...

    def offset(self) -> int: ...

    def key(self) -> bytes | None: ...

    def value(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class OneRecord:
    """One of some records in columns; a `Record`."""

    number: int
    at: int
    named: bytes | None
    content: bytes | None

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.named

    def value(self) -> bytes | None:
        return self.content


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """``n`` records, each partition's in order.

    Attributes:
        partitions: shape (n,).
        offsets: shape (n,).
        keys: empty where there is none; at least `SPARE_BYTES` lie behind the last one.
        values: likewise.
        absent: what each lacks: `NO_KEY`, `NO_VALUE`, both or neither; shape (n,).
        topics: the number of each one's topic, as its reader was told it; shape (n,).
    """

    partitions: Ints
    offsets: Ints
    keys: Ragged
    values: Ragged
    absent: Bytes
    topics: Ints

    @classmethod
    def of(cls, records: Sequence[Record]) -> RecordColumns:
        """Build from single records of topic 0."""
        keys, values = [r.key() for r in records], [r.value() for r in records]
        lacks = [
            NO_KEY * (key is None) | NO_VALUE * (value is None)
            for key, value in zip(keys, values, strict=True)
        ]
        return cls(
            np.array([r.partition() for r in records], np.int64),
            np.array([r.offset() for r in records], np.int64),
            _texts(keys), _texts(values), np.array(lacks, np.uint8),
            np.zeros(len(records), np.int64),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[OneRecord]:
        rows = zip(
            self.partitions.tolist(), self.offsets.tolist(), self.keys.tolist(),
            self.values.tolist(), self.absent.tolist(), strict=True,
        )  # fmt: skip
        for number, at, key, value, absent in rows:
            yield OneRecord(
                number, at, None if absent & NO_KEY else key, None if absent & NO_VALUE else value
            )

    def __getitem__(self, row: int) -> OneRecord:
        absent = int(self.absent[row])
        return OneRecord(
            int(self.partitions[row]), int(self.offsets[row]),
            None if absent & NO_KEY else self.keys[row],
            None if absent & NO_VALUE else self.values[row],
        )  # fmt: skip

    def where(self, wanted: npt.NDArray[np.bool_]) -> RecordColumns:
        """Some of the records; ``wanted``: shape (n,)."""
        rows = np.flatnonzero(wanted)
        return RecordColumns(
            self.partitions[rows], self.offsets[rows],
            _spared(self.keys.take(rows)), _spared(self.values.take(rows)), self.absent[rows],
            self.topics[rows],
        )  # fmt: skip


def _texts(texts: Sequence[bytes | None]) -> Ragged:
    return _spared(Ragged.of([text or b"" for text in texts]))


def _spared(texts: Ragged) -> Ragged:
    """The same, with `SPARE_BYTES` behind the last one."""
    return Ragged.concat([texts, Ragged.of([bytes(SPARE_BYTES)])]).part(0, len(texts))
