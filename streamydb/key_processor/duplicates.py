"""Duplicates: the transactions of a plan whose ids were used before, and their results.

The shard finds them where the ids live. One that repeats a transaction of an earlier plan is not
executed: it has the result of its original, which the home shard knows. A short record can repeat a
long result, hundreds of thousands of times in one plan, so these results travel in blocks of their
own, and at most so many bytes in a micro-batch. When there are more, they take turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import BlobStore
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.messages import Feedback, KnownResults, RecordTexts
from streamydb.frames.plans import OpenPlan
from streamydb.frames.program import NOT_A_DUPLICATE, PLAN_DUPLICATE, REUSED, WINDOW_DUPLICATE
from streamydb.frames.readers import ToExecutor
from streamydb.frames.record_rows import ReleasedRecords
from streamydb.frames.table import Bytes, Ragged, chunk_bounds
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.expiry import Removals
from streamydb.key_processor.id_rows import HomeIds, IdUse, RepeatedIds, UsedIds, untimely
from streamydb.key_processor.idwindow import IdWindow
from streamydb.key_processor.state import NOT_YET, ShardOutput, ShardState
from streamydb.records.result import copy_of, plain_result

Ints = npt.NDArray[np.int64]

_BLOB: Final = "plan/repeats"
_REST_BYTES: Final = 400
"""Of a result, without what it tells of values: id, places, names."""


class Duplicates(NamedTuple):
    """For each transaction at home here: which kind of duplicate it is, and of which seq.

    ``used``: the ids of those that are none, to be remembered. ``repeats``: those that repeat a
    transaction of an earlier plan.
    """

    kind: Bytes
    of: Ints
    used: UsedIds
    repeats: RepeatedIds


def find_duplicates(
    released: ReleasedRecords, at_home: Ints, earlier: Ints, ids: IdWindow
) -> Duplicates:
    """Find the transactions among those ``at_home`` whose id was used before.

    ``earlier``: of each record the one before it in the plan with the same id, or -1.
    """
    home = released.home.rows
    own = HomeIds.of(released, at_home)
    valid, refused = own.valid(), untimely(own.deadline, own.ts_ms)
    id0, id1 = np.where(valid, own.id0, 0), np.where(valid, own.id1, 0)
    last = ids.last_use(id0, id1, int(released.seq[0]) - 1)
    kind, of = np.zeros(len(own), np.uint8), np.zeros(len(own), np.int64)
    hit = (valid & ids.suspects(last, own.seq)).nonzero()[0]
    inside = _repeated(earlier, at_home)
    suspects = np.union1d(hit, inside) if len(inside) else hit
    if len(suspects):
        _resolve(suspects, own, ids, (last, refused), (kind, of))
    fresh = valid & (kind == NOT_A_DUPLICATE)
    kind[fresh] = refused[fresh]
    used = own.used((valid & (kind == NOT_A_DUPLICATE)).nonzero()[0])
    again = (kind == WINDOW_DUPLICATE).nonzero()[0]
    repeats = own.repeats(again, of, home.id) if len(again) else RepeatedIds.none()
    return Duplicates(kind, of, used, repeats)


def _resolve(
    suspects: Ints, own: HomeIds, ids: IdWindow, known: tuple[Ints, Bytes], out: tuple[Bytes, Ints]
) -> None:
    """Decide in seq order which suspects are duplicates, and of which transaction.

    ``known``: of each the last use of its id, and why it is refused if it is no duplicate; ``out``:
    kind, and seq of the original.
    """
    (last, refused), (kind, of) = known, out
    in_plan: dict[tuple[int, int], IdUse] = {}
    for i in suspects.tolist():
        key = (int(own.id0[i]), int(own.id1[i]))
        use = own.use(i)
        original = in_plan.get(key)
        inside = original is not None
        if original is None:
            original = ids.repeated(int(last[i]), use.seq, use.ts_ms)
        elif not ids.remembers((original.seq, original.deadline), use.seq, use.ts_ms):
            original = None
        if original is None:
            if refused[i] == NOT_A_DUPLICATE:
                in_plan[key] = use
            continue
        of[i] = original.seq
        if original.payload != use.payload:
            kind[i] = REUSED
        else:
            kind[i] = PLAN_DUPLICATE if inside else WINDOW_DUPLICATE


def _repeated(earlier: Ints, at_home: Ints) -> Ints:
    """Positions among ``at_home`` of transactions whose id occurs more than once in the plan."""
    later = (earlier >= 0).nonzero()[0]
    if not len(later):
        return later
    return np.flatnonzero(np.isin(at_home, np.concatenate([later, earlier[later]])))


def result_of(ids: IdWindow, original: int, id_: bytes) -> bytes:
    """The result of the finished transaction ``original``, whose id was ``id_``."""
    result = ids.verdict(original)
    if result is not None:
        return result
    use = ids.use(original)
    return plain_result(id_, (original, use.ts_ms, use.partition, use.offset))


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
                self._last = original, result_of(self._ids, original, rows.id[i])
            yield copy_of(self._last[1], place)

    def _sizes(self, originals: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        each, at = np.unique(originals, return_inverse=True)
        sizes = [len(self._ids.verdict(original) or b"") for original in each.tolist()]
        return np.array(sizes, np.int64)[at] + _REST_BYTES


def _told(ids: Ragged, results: list[bytes]) -> KnownResults:
    return KnownResults(RecordTexts(ids, Ragged.of(results)))


def partition_of(shard: int) -> int:
    """Return the number of a shard among the partitions of a plan."""
    return limits.SHARDS_MAX + shard


# A shard emits at most so many bytes of them in a micro-batch. When there are more, they take
# *turns*: the plan stays in flight until the last one. Then the shard counts as one more partition
# of the plan, and gives a chunk of feedback with each turn, so all shards wait for it.
class KnownOutputs:
    """Emits the known outputs of one shard's plan within one step."""

    def __init__(
        self, meta: ShardState, shard: int, repeats: RepeatedResults, removals: Removals
    ) -> None:
        self._meta = meta
        self._shard = shard
        self._repeats = repeats
        self._removals = removals

    def first_turn(
        self, plan: OpenPlan, repeated: RepeatedIds, bytes_max: int, *, silent: bool
    ) -> list[ShardOutput[ToExecutor]]:
        """Emit the known outputs of a new plan, at most some ``bytes_max`` bytes of results.

        ``silent``: they have been written; the digest has still to know the removals.
        """
        if silent:
            plan.deltas = self._removals.count()
            return []
        rows, turns = self._repeats.first(repeated, bytes_max) if len(repeated) else (None, 1)
        plan.turns = max(turns, self._removals.turns)
        if plan.turns > 1:
            plan.procs.append(partition_of(self._shard))
        return self._turn(plan, rows)

    def next_turn(self, plan: OpenPlan) -> list[ShardOutput[ToExecutor]]:
        """Emit the next known outputs of the plan in flight, if there are more."""
        turn = self._meta.turn
        if turn >= plan.turns or plan.turns == 1:
            return []
        self._removals.go_on(turn)
        return self._turn(plan, self._repeats.of_turn(turn))

    def _turn(self, plan: OpenPlan, rows: RepeatedIds | None) -> list[ShardOutput[ToExecutor]]:
        meta = self._meta
        messages: list[ToExecutor] = [] if rows is None else [*self._repeats.results(rows)]
        messages += self._removals.take(meta.turn)
        plan.deltas = [*plan.deltas, *self._removals.deltas]
        if plan.turns > 1:
            messages += self._feedback(plan)
        resolves = NOT_YET if plan.turns > 1 else ""
        meta.turn += 1
        return [meta.emit(self._shard, message, resolves) for message in messages]

    def _feedback(self, plan: OpenPlan) -> list[Feedback]:
        """Return the feedback by which every shard knows that this turn is over."""
        config = self._meta.config
        return [
            Feedback(
                plan=plan.name(),
                incarnation=config.incarnation,
                proc=partition_of(self._shard),
                shard=shard,
                chunk=self._meta.turn,
                chunks=plan.turns,
                deltas=[],
                writes=WrittenValues.none(),
                verdicts=Verdicts.none(),
            )
            for shard in range(config.shards)
        ]
