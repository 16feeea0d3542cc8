"""The contents of results and changes: the rows that `format` makes records of."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb.columns import program as p
from streamydb.columns.table import Array, Columns, Ragged, expand, starts_of
from streamydb.txn_processor.outcome import ExecutionOutcome

__all__ = ["change_rows", "result_rows"]

Ints = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]

_POSITION: Final = ("seq", "ts", "part", "off")


def result_rows(outcome: ExecutionOutcome, rows: Ints) -> Columns:
    """Return the contents of the results of the transactions at ``rows``."""
    txns, reads = outcome.txns, outcome.reads
    counts = np.bincount(reads["txn"], minlength=len(txns))
    seen = reads
    if len(reads):
        starts = starts_of(counts)[rows]
        seen = reads[expand(starts, counts[rows])]
    return Columns(
        {name: txns.cols[name][rows] for name in _POSITION},
        {"id": txns.texts["id"].take(rows), "special": _at(outcome.special, rows)},
        {
            "reads": (
                counts[rows],
                Columns(
                    {name: np.ascontiguousarray(seen[name]) for name in ("tag", "number")},
                    {
                        "key": outcome.slot_keys.take(seen["slot"]),
                        "text": _opaque(outcome.pool, seen["tag"], seen["ref"]),
                    },
                ),
            )
        },
    )


def _at(texts: dict[int, bytes], rows: Ints) -> Ragged:
    """The texts of the positions ``rows``, empty where there is none."""
    known = np.fromiter(texts, np.int64, len(texts))
    chosen = np.flatnonzero(np.isin(rows, known))
    found = Ragged.of([texts[i] for i in rows[chosen].tolist()])
    lengths = np.zeros(len(rows), np.int64)
    lengths[chosen] = found.lengths()
    return Ragged(found.data, starts_of(lengths))


def _opaque(pool: Ragged, tags: Array, refs: Array) -> Ragged:
    """The texts of the values that are no integers, empty for the others."""
    chosen = tags == p.OPAQUE
    if not chosen.any():
        return Ragged.empty(len(tags))
    texts = pool.take(refs[chosen])
    lengths = np.zeros(len(tags), np.int64)
    lengths[chosen] = texts.lengths()
    return Ragged(texts.data, starts_of(lengths))


def change_rows(outcome: ExecutionOutcome, writes: npt.NDArray[Any], index: Parts) -> Columns:
    """Return the contents of the change records of ``writes``."""
    txns, pool = outcome.txns, outcome.pool
    txn = np.ascontiguousarray(writes["txn"])
    cols = {name: txns.cols[name][txn] for name in _POSITION}
    cols["index"] = index
    for name in ("before_tag", "before_number", "after_tag", "after_number"):
        cols[name] = np.ascontiguousarray(writes[name])
    texts = {
        "id": txns.texts["id"].take(txn),
        "key": outcome.slot_keys.take(np.ascontiguousarray(writes["slot"])),
        "before": _opaque(pool, writes["before_tag"], writes["before_ref"]),
        "after": _opaque(pool, writes["after_tag"], writes["after_ref"]),
    }
    return Columns(cols, texts)
