"""Tables of what is to be written: results and changes before they are formatted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamydb.columns.table import Array, Bytes, ChildRows, ColumnTable, Ragged

Ints = npt.NDArray[np.int64]


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
