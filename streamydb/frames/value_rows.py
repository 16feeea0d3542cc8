"""Tables of values and of verdicts: of the keys of a shard, and of what feedback tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.frames import program as p
from streamydb.frames.invariants import Seam
from streamydb.frames.jit import inlined, kernel
from streamydb.frames.table import Array, Bytes, ChildRows, ColumnTable, Ragged

Ints = npt.NDArray[np.int64]

KEYS_FACT: Final = "keys are within their limit"
VERSIONS_FACT: Final = "versions are of the seqs that they may have"
VALUES_FACT: Final = "values are within their limit"


class ValueRows(ColumnTable, frozen=True):
    """Values of keys.

    ``tag``: ABSENT, INT, OPAQUE or EXPIRING (see `program`). ``number``: of an integer its value,
    of a value that ends its end (ms). ``version``: the seq that wrote it, 0 if absent. ``text``:
    canonical JSON of values that are no integers, else empty.
    """

    tag: Bytes
    number: Ints
    version: Ints
    text: Ragged

    def of_keys(self, keys: Ragged) -> WrittenValues:
        return self.cast(WrittenValues, key=keys)


class WrittenValues(ColumnTable, frozen=True):
    """Values; as `ValueRows`, with the ``key`` of each. A delete is an absent value."""

    tag: Bytes
    number: Ints
    version: Ints
    key: Ragged
    text: Ragged

    @classmethod
    def none(cls) -> WrittenValues:
        return cls.deletes([])

    @classmethod
    def deletes(cls, keys: Sequence[bytes]) -> WrittenValues:
        n = len(keys)
        tag, number, version = np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64)
        return cls(tag, number, version, Ragged.of(keys), Ragged.empty(n))

    def check(self, seam: Seam, seqs: tuple[int, int]) -> None:
        """Require what holds of the writes of a plan; ``seqs``: its first and its last."""
        wrong = _wrong_values(ValueLimits.of(self, *seqs))
        seam.require_none(wrong, VALUE_FACTS, first=seqs[0], last=seqs[1])


class Verdicts(ColumnTable, frozen=True):
    """Results that are not plain commits, by seq: ``result`` is the record."""

    seq: Ints
    result: Ragged

    @classmethod
    def none(cls) -> Verdicts:
        return cls(np.empty(0, np.int64), Ragged.empty())

    @classmethod
    def of(cls, results: Sequence[tuple[int, bytes]]) -> Verdicts:
        seqs = np.array([seq for seq, _ in results], np.int64)
        return cls(seqs, Ragged.of([result for _, result in results]))

    def check(self, seam: Seam, seqs: tuple[int, int]) -> None:
        """Require what holds of the verdicts of a plan; ``seqs``: its first and its last."""
        wrong = _wrong_verdict(self.seq, self.result.offsets, seqs, limits.RESULT_BYTES_MAX)
        seam.require_none(wrong, _VERDICT_FACTS, first=seqs[0], last=seqs[1])


VALUE_FACTS: Final = (VERSIONS_FACT, KEYS_FACT, VALUES_FACT)
_VERDICT_FACTS: Final = ("verdicts are of the plan's seqs", "results are within their limit")


class ValueLimits(NamedTuple):
    """Values with versions from ``low`` to ``high``, which only those have that are there."""

    tags: Bytes
    versions: Array
    keys: Ints
    texts: Ints
    low: int
    high: int
    key_bytes: int
    value_bytes: int

    @classmethod
    def of(cls, rows: WrittenValues, low: int, high: int) -> ValueLimits:
        return cls(
            rows.tag,
            rows.version,
            rows.key.offsets,
            rows.text.offsets,
            low,
            high,
            limits.KEY_BYTES_MAX,
            limits.VALUE_BYTES_MAX,
        )


@inlined
def wrong_value(values: ValueLimits) -> tuple[int, int]:
    """For kernels: return which of `VALUE_FACTS` is not true, and of which row; -1: all are."""
    for i in range(len(values.tags)):
        tag, version = values.tags[i], values.versions[i]
        in_bounds = values.low <= version <= values.high
        absent = tag == p.ABSENT
        if tag > p.EXPIRING or (absent and version != 0) or not (absent or in_bounds):
            return 0, i
        length = values.keys[i + 1] - values.keys[i]
        if length < 1 or length > values.key_bytes:
            return 1, i
        length = values.texts[i + 1] - values.texts[i]
        if length < 0 or length > values.value_bytes:
            return 2, i
    return -1, -1


@kernel
def _wrong_values(values: ValueLimits) -> tuple[int, int]:
    return wrong_value(values)


@kernel
def _wrong_verdict(
    seqs: Ints, results: Ints, plan: tuple[int, int], result_bytes: int
) -> tuple[int, int]:
    for i in range(len(seqs)):
        if seqs[i] < plan[0] or seqs[i] > plan[1]:
            return 0, i
        length = results[i + 1] - results[i]
        if length < 1 or length > result_bytes:
            return 1, i
    return -1, -1


class PlaceRows(ColumnTable, frozen=True):
    """The places of writes, in order.

    ``seq``, ``ts_ms`` (commit time), ``partition``, ``offset``: each place. ``id``: of the
    transaction.
    """

    seq: Ints
    ts_ms: Ints
    partition: Array
    offset: Ints
    id: Ragged


class ReadValues(ColumnTable, frozen=True):
    """Values that transactions have read; as `ValueRows`, with the ``key`` of each."""

    tag: Bytes
    number: Ints
    key: Ragged
    text: Ragged


class ResultRows(ColumnTable, frozen=True):
    """Results of transactions; the place and the id of each are as in `PlaceRows`.

    ``special``: the finished record, where it is not that of a plain commit; else empty.
    ``reads``: what the transaction has read.
    """

    seq: Ints
    ts_ms: Ints
    partition: Array
    offset: Ints
    id: Ragged
    special: Ragged
    reads: ChildRows[ReadValues]


class ChangeRows(ColumnTable, frozen=True):
    """Writes; the place of each and the id of its transaction are as in `PlaceRows`.

    ``index``: the number of the write in its transaction, from 1. ``key``: what it writes.
    ``before_tag``, ``before_number`` and the text ``before``: the value before it, as in
    `ValueRows`. ``after_tag``, ``after_number`` and ``after``: the value after it.
    """

    seq: Ints
    ts_ms: Ints
    partition: Array
    offset: Ints
    index: Array
    before_tag: Bytes
    before_number: Ints
    after_tag: Bytes
    after_number: Ints
    id: Ragged
    key: Ragged
    before: Ragged
    after: Ragged
