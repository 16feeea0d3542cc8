"""Choose how many records make one plan, by the bytes of the values that they touch.

A plan is granted every value that it touches once. A large value costs again whenever another
transaction of the plan touches it, because it may come back in that one's result or change record.
A small one costs a share of that: the outputs are written in blocks, so they may be more than is
granted, but not without a bound.
A value may be as large as the largest record that writes it; what appends and calls leave behind
can be larger, which only their execution shows (`key_processor.withdrawals`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.frames.jit import kernel
from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.sizes import SYSTEM
from streamydb.frames.table import Bytes, starts_of
from streamydb.limits import VALUE_BYTES_MAX
from streamydb.planner.plan import Plan

Ints = npt.NDArray[np.int64]

COPIED_BYTES = 4_096
"""A larger value costs again."""

_SHARE: Final = 8
"""A smaller one costs this part of its bytes again."""


@kernel
def _affordable(
    starts: Ints,
    slot: Ints,
    write: Bytes,
    sizes: Ints,
    system: npt.NDArray[np.bool_],
    records: Ints,
    bound: int,
    copied: int,
) -> int:
    seen = np.zeros(len(sizes), np.bool_)
    total = 0
    for i in range(len(starts) - 1):
        for k in range(starts[i], starts[i + 1]):
            s = slot[k]
            if not seen[s]:
                seen[s] = True
                total += sizes[s]
            elif write[k] != 0 or not system[s]:
                total += sizes[s] if sizes[s] > copied else sizes[s] // _SHARE
            if write[k] != 0 and records[i] > sizes[s]:
                sizes[s] = records[i]
        if i > 0 and total > bound:
            return i
    return len(starts) - 1


def affordable(released: TimedRecords, plan: Plan, sizes: Ints, bound: int) -> int:
    """Return how many of the first transactions touch values of at most ``bound`` bytes; at least
    one.

    ``sizes``: of the value of each slot of ``plan``. Values of the system that are only looked at,
    as the versions of modules are, cost once.
    """
    counts, keys = released.keys
    records = released.size.astype(np.int64)
    largest = max(int(sizes.max(initial=0)), int(records.max(initial=0)))
    copies = len(keys) * largest // _SHARE
    if largest <= COPIED_BYTES and int(sizes.sum()) + copies <= bound:
        return len(counts)
    texts = keys.key
    system = texts.data[texts.offsets[plan.first]] == SYSTEM
    write = keys.write
    return int(
        _affordable(
            starts_of(counts),
            plan.slot,
            write,
            sizes.copy(),
            system,
            np.minimum(records, VALUE_BYTES_MAX),
            bound,
            COPIED_BYTES,
        )
    )
