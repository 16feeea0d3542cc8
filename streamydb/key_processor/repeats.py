"""The results of transactions that repeat one of an earlier plan, which their home shard knows.

They are not executed: each has the result of its original. A short record can repeat a long result,
hundreds of thousands of times in one plan, so these results travel in blocks of their own, and at
most so many bytes in a micro-batch. When there are more, they take turns (`known_outputs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import BlobStore
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.known_results import copy_of, plain_result
from streamydb.frames.messages import KnownResults, RecordTexts
from streamydb.frames.table import Ragged, chunk_bounds
from streamydb.key_processor.id_rows import RepeatedIds
from streamydb.key_processor.idwindow import IdWindow

_BLOB: Final = "plan/repeats"
_REST_BYTES: Final = 400
"""Of a result, without what it tells of values: id, places, names."""


class RepeatedResults:
    """The repeated results of one shard's plan within one step."""

    def __init__(self, blobs: BlobStore, ids: IdWindow) -> None:
        """Take originals from ``ids``; keep in ``blobs`` what is left for later turns."""
        self._blobs = blobs
        self._ids = ids
        self._last: tuple[int, bytes] = (0, b"")

    def first(self, rows: RepeatedIds, bound: int) -> tuple[RepeatedIds, int]:
        """Return the rows of the first turn, and how many turns there are; keeps those of the
        others.

        ``bound``: bytes of results in a turn; at least one result.
        """
        turns = chunk_bounds(self._sizes(rows.original), bound, len(rows))
        if len(turns) < 2:
            return rows, 1
        counts = [end - start for start, end in turns]
        rows = rows.in_turns(np.repeat(np.arange(len(turns)), counts))
        self._blobs.put(_BLOB, pack(rows.flatten()))
        return rows.part(*turns[0]), len(turns)

    def of_turn(self, turn: int) -> RepeatedIds | None:
        """The rows of a later turn; None after the last one. Then nothing is kept."""
        data = self._blobs.get(_BLOB)
        if data is None:
            return None
        rows = RepeatedIds.unflatten(unpack(data)[1])
        if rows.turn is None:
            raise InvariantViolation(f"the blob {_BLOB} of the state tells no turns")
        if turn == int(rows.turn.max()):
            self._blobs.delete(_BLOB)
        return rows.take(np.flatnonzero(rows.turn == turn))

    def results(self, rows: RepeatedIds) -> Iterator[KnownResults]:
        """The results, in messages of some `BLOCK_BYTES_MAX`."""
        made: list[bytes] = []
        size, start = 0, 0
        for i, result in enumerate(self._results(rows)):
            if made and size + len(result) > limits.BLOCK_BYTES_MAX:
                yield _told(rows.id.part(start, i), made)
                made, size, start = [], 0, i
            made.append(result)
            size += len(result)
        if made:
            yield _told(rows.id.part(start, len(rows)), made)

    def _results(self, rows: RepeatedIds) -> Iterator[bytes]:
        columns = (rows.seq, rows.ts_ms, rows.partition, rows.offset)
        places = zip(*(column.tolist() for column in columns), strict=True)
        for i, (original, place) in enumerate(zip(rows.original.tolist(), places, strict=True)):
            if original != self._last[0]:
                self._last = original, self._result(original, rows.id[i])
            yield copy_of(self._last[1], place)

    def _result(self, original: int, id_: bytes) -> bytes:
        kept = self._ids.verdict(original)
        if kept is not None:
            return kept
        use = self._ids.use(original)
        return plain_result(id_, (original, use.ts_ms, use.partition, use.offset))

    def _sizes(self, originals: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Bytes of the result of each original, about."""
        each, at = np.unique(originals, return_inverse=True)
        sizes = [len(self._ids.verdict(original) or b"") for original in each.tolist()]
        return np.array(sizes, np.int64)[at] + _REST_BYTES


def _told(ids: Ragged, results: list[bytes]) -> KnownResults:
    return KnownResults(RecordTexts(ids, Ragged.of(results)))
