"""Recognise changes that come again before they are resolved, as after a crash of the pipeline.

A change at or below its partition's resolved seq has been read before, and is only compared. One
above it may have been read, too: it would be stored twice. A table of what is stored and not
resolved says where to look; nothing is missing in it, so that the rest needs no search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamydb.errors import InvariantViolation
from streamydb.read_model.arrivals import Arrivals, enter, unresolved
from streamydb.read_model.lookup import DAMAGED, NONE, find_each
from streamydb.read_model.merging import differing, distinct, sorted_rows
from streamydb.read_model.rows import DamagedError, row_named

if TYPE_CHECKING:
    from streamydb.read_model.core import StoreBatch, TopicProgress
    from streamydb.read_model.rows import Ints
    from streamydb.read_model.runs import Runs


class UnresolvedChanges:
    """The changes that a store has and that are not resolved in their partition."""

    def __init__(self) -> None:
        self._seen: Arrivals | None = None

    def suspects(
        self, before: TopicProgress, runs: Runs, batch: StoreBatch
    ) -> npt.NDArray[np.bool_]:
        """Mark the changes of a batch that may be stored, and note them all.

        ``before``: how far the topic was read before the batch. ``batch``: it need not be committed
        afterwards.
        """
        resolved = _resolved(before)
        if self._seen is None:
            nobody = len(resolved) - 1
            newer = runs.newer(int(resolved[nobody]))
            self._seen = unresolved(_nothing(), resolved, len(newer))
            enter(self._seen, newer, np.full(len(newer), nobody))
        self._seen = unresolved(self._seen, resolved, len(batch.rows))
        return enter(self._seen, batch.rows, batch.partitions).astype(np.bool_)


def _nothing() -> Arrivals:
    return Arrivals(np.zeros(1, np.uint64), np.zeros(1, np.int64), np.zeros(1, np.int64))


def _resolved(progress: TopicProgress) -> Ints:
    """The resolved seq of each partition, and of changes whose partition is not known."""
    seqs = [progress.parts[number].resolved.seq for number in sorted(progress.parts)]
    return np.array([*seqs, min(seqs)], np.int64)


def new_rows(view: Ints, rows: Ints, suspects: npt.NDArray[np.bool_]) -> Ints:
    """The rows that are not stored, sorted, each of them once.

    ``suspects``: which of them may be stored.
    Raises InvariantViolation: one is stored and differs, or two of a name differ. Raises
    DamagedError: what is stored cannot be read.
    """
    if suspects.any():
        stored_rows = find_each(view, rows[suspects])
        stored = stored_rows != NONE
        check_same(stored_rows[stored], rows[suspects][stored])
        suspects[suspects] = stored
        rows = rows[~suspects]
    ordered, wrong = distinct(sorted_rows(rows))
    if wrong > 0:
        key, seq = row_named(wrong)
        raise InvariantViolation(f"two different changes of {key!r} have seq {-seq}")
    return ordered


def check_same(stored: Ints, rows: Ints) -> None:
    """Require that stored rows, or `NONE`, are equal to others.
    Raises InvariantViolation: one is not. Raises DamagedError: what is stored cannot be read.
    """
    if (stored == DAMAGED).any():
        raise DamagedError
    wrong = differing(stored, rows)
    if wrong >= 0:
        what = "another change" if stored[wrong] != NONE else "nothing"
        key, seq = row_named(int(rows[wrong]))
        raise InvariantViolation(
            f"a change that was read before is read again, and the store has {what} at its place "
            f"({key!r}, seq {-seq}): the changes topic is not what this read model has followed, "
            "or a resolved record came too early; load the read model again from the topic"
        )
