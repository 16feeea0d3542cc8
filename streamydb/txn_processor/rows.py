"""The contents of results and changes: the rows that `format` makes records of."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb.frames import program as p
from streamydb.frames.jit import kernel
from streamydb.frames.table import Array, ChildRows, Ragged, expand, starts_of
from streamydb.frames.value_rows import ChangeRows, ReadValues, ResultRows
from streamydb.txn_processor.outcome import ExecutionOutcome

Ints = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]

_NO_REFS: Final = np.empty(0, np.int64)
_NO_READS: Final = ReadValues(np.empty(0, np.uint8), _NO_REFS, Ragged.empty(), Ragged.empty())
_NONE: Final[Mapping[int, bytes]] = MappingProxyType({})


def result_rows(
    outcome: ExecutionOutcome, rows: Ints, repeated: Mapping[int, bytes] = _NONE
) -> ResultRows:
    """Return the contents of the results of the transactions at ``rows``.

    ``repeated``: finished results beside those of the outcome, by position.
    """
    txns, reads = outcome.txns, outcome.reads
    if not len(reads):
        counts, values = np.zeros(len(rows), np.int64), _NO_READS
    else:
        counts, values = _reads_of(outcome, rows)
    return ResultRows(
        txns.seq[rows],
        txns.ts_ms[rows],
        txns.partition[rows],
        txns.offset[rows],
        txns.id.take(rows),
        _at({**outcome.special, **repeated}, rows),
        ChildRows(counts, values),
    )


def _reads_of(outcome: ExecutionOutcome, rows: Ints) -> tuple[Ints, ReadValues]:
    """Return how many values each of some transactions has read, and these."""
    txns, reads = outcome.txns, outcome.reads
    counts = np.bincount(reads["txn"], minlength=len(txns))
    seen = reads[expand(starts_of(counts)[rows], counts[rows])]
    return counts[rows], ReadValues(
        np.ascontiguousarray(seen["tag"]),
        np.ascontiguousarray(seen["number"]),
        outcome.slot_keys.take(seen["slot"]),
        _opaque(outcome.pool, seen["tag"], seen["ref"]),
    )


def _at(texts: dict[int, bytes], rows: Ints) -> Ragged:
    """The texts of the positions ``rows``, empty where there is none."""
    if not texts:
        return Ragged.empty(len(rows))
    known = np.fromiter(texts, np.int64, len(texts))
    chosen = np.flatnonzero(np.isin(rows, known))
    found = Ragged.of([texts[i] for i in rows[chosen].tolist()])
    lengths = np.zeros(len(rows), np.int64)
    lengths[chosen] = found.lengths()
    return Ragged(found.data, starts_of(lengths))


def _opaque(pool: Ragged, tags: Array, refs: Array) -> Ragged:
    """The texts of the values that are no integers, empty for the others."""
    chosen = tags >= p.OPAQUE
    if not chosen.any():
        return Ragged.empty(len(tags))
    texts = pool.take(refs[chosen])
    lengths = np.zeros(len(tags), np.int64)
    lengths[chosen] = texts.lengths()
    return Ragged(texts.data, starts_of(lengths))


@kernel
def _columns_of(writes: npt.NDArray[Any], rows: Ints) -> tuple[Parts, Parts, Any, Any]:
    """Transactions and slots of the writes at ``rows``; tags and numbers before and after each."""
    n = len(rows)
    txn, slot = np.empty(n, np.int32), np.empty(n, np.int32)
    tags, numbers = np.empty((2, n), np.uint8), np.empty((2, n), np.int64)
    for i in range(n):
        write = writes[rows[i]]
        txn[i], slot[i] = write.txn, write.slot
        tags[0, i], tags[1, i] = write.before_tag, write.after_tag
        numbers[0, i], numbers[1, i] = write.before_number, write.after_number
    return txn, slot, tags, numbers


def change_rows(outcome: ExecutionOutcome, rows: Ints, index: Parts | Ints) -> ChangeRows:
    """Return the contents of the change records of the writes at ``rows``.

    ``index``: the number of each write of the outcome at its place.
    """
    places, writes = outcome.places.table, outcome.writes
    txn, slot, tags, numbers = _columns_of(writes, rows)

    def texts(at: int, name: str) -> Ragged:
        refs = writes[name][rows] if tags[at].max(initial=0) >= p.OPAQUE else _NO_REFS
        return _opaque(outcome.pool, tags[at], refs)

    return ChangeRows(
        places.seq[txn],
        places.ts_ms[txn],
        places.partition[txn],
        places.offset[txn],
        index[rows],
        tags[0],
        numbers[0],
        tags[1],
        numbers[1],
        places.id.take(txn),
        outcome.slot_keys.take(slot),
        texts(0, "before_ref"),
        texts(1, "after_ref"),
    )
