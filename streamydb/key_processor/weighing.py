"""How much of what could be released may be one plan, by the bytes of the values that it touches.

A plan is granted every value that it touches once. A large value costs again whenever another
transaction of the plan touches it, because it may come back in that one's result or change record.
A value may be as large as the largest record that writes it; what appends and calls leave behind
can be larger, which only their execution shows (`pipeline.withdrawing`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb.columns.jit import kernel
from streamydb.columns.table import Array, Bytes, Ragged, Table, starts_of
from streamydb.limits import VALUE_BYTES_MAX
from streamydb.sorter.planner import Plan

__all__ = ["COPIED_BYTES", "affordable", "only_system", "text_bytes"]

Ints = npt.NDArray[np.int64]

COPIED_BYTES = 4_096
"""A larger value costs again."""

_SYSTEM: Final = ord("$")


@kernel
def _affordable(
    starts: Ints, slot: Ints, write: Bytes, sizes: Ints, system: npt.NDArray[np.bool_],
    records: Ints, bound: int, copied: int,
) -> int:
    seen = np.zeros(len(sizes), np.bool_)
    total = 0
    for i in range(len(starts) - 1):
        for k in range(starts[i], starts[i + 1]):
            s = slot[k]
            if not seen[s]:
                seen[s] = True
                total += sizes[s]
            elif sizes[s] > copied and (write[k] != 0 or not system[s]):
                total += sizes[s]
            if write[k] != 0 and records[i] > sizes[s]:
                sizes[s] = records[i]
        if i > 0 and total > bound:
            return i
    return len(starts) - 1


def affordable(released: Table, plan: Plan, sizes: Ints, bound: int) -> int:
    """How many of the first transactions touch values of at most ``bound`` bytes; at least one.

    ``sizes``: of the value of each slot of ``plan``. Values of the system that are only looked at,
    as the versions of modules are, cost once.
    """
    counts, keys = released.children["keys"]
    records = released.cols["size"].astype(np.int64)
    small = max(sizes.max(initial=0), records.max(initial=0)) <= COPIED_BYTES
    if not len(sizes) or (small and int(sizes.sum()) <= bound):
        return len(counts)
    texts = keys.texts["key"]
    system = texts.data[texts.offsets[plan.first]] == _SYSTEM
    write = keys.cols["write"]
    return int(
        _affordable(
            starts_of(counts), plan.slot, write, sizes.copy(), system,
            np.minimum(records, VALUE_BYTES_MAX), bound, COPIED_BYTES,
        )
    )


def text_bytes(slots: Table) -> int:
    """Bytes of the values of slots that are no integers."""
    return int(slots.texts["text"].lengths().sum())


def only_system(keys: Ragged, read: Callable[[Array], Table]) -> Table:
    """Slots without their values, but for the system's own: of a transaction that meets too much.

    ``read``: the values at given positions of ``keys``.
    """
    chosen = np.flatnonzero(keys.data[keys.offsets[:-1]] == _SYSTEM) if len(keys) else _NONE
    found = read(chosen)
    cols: dict[str, Any] = {}
    for name in ("tag", "number", "version"):
        cols[name] = np.zeros(len(keys), found.cols[name].dtype)
        cols[name][chosen] = found.cols[name]
    lengths = np.zeros(len(keys), np.int64)
    lengths[chosen] = found.texts["text"].lengths()
    return Table(cols, {"text": Ragged(found.texts["text"].data, starts_of(lengths))})


_NONE: Final = np.empty(0, np.int64)
