"""Find the transactions of a plan whose ids were used before, in the shard where the ids live."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames.program import NOT_A_DUPLICATE, PLAN_DUPLICATE, REUSED, WINDOW_DUPLICATE
from streamydb.frames.record_rows import ReleasedRecords
from streamydb.frames.table import Bytes
from streamydb.key_processor.id_rows import HomeIds, IdUse, RepeatedIds, UsedIds, untimely
from streamydb.key_processor.idwindow import IdWindow

Ints = npt.NDArray[np.int64]


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
