"""Find the transactions of a plan that constraints concern; the interpreter executes them.

A plan that has no key of the constraints, or an empty one, costs one look at the lengths of its
keys. Otherwise the slots that some prefix covers are found, column by column, and the transactions
that write one of them; all others stay in the kernel. That is done again after a transaction that
changes the constraints.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb import records as r
from streamydb.columns import program as p
from streamydb.columns.table import Ragged
from streamydb.constraints import Constraints

__all__ = ["constrained", "constraints_slot", "covered"]

_KEY: Final = r.CONSTRAINTS_KEY.encode()
Mask = npt.NDArray[np.bool_]


def constraints_slot(keys: Ragged) -> int | None:
    """The slot of the constraints' key among ``keys``, if it is one of them."""
    found = _with(keys, np.flatnonzero(keys.lengths() == len(_KEY)), _KEY)
    return int(found[0]) if len(found) else None


def covered(keys: Ragged, constraints: Constraints) -> Mask:
    """Mark the keys that some constraint covers; shape (keys,)."""
    found = np.zeros(len(keys), np.bool_)
    for prefix in {rule.prefix.encode() for rule in constraints.all}:
        found |= _begins(keys, prefix)
    found &= ~_begins(keys, b"$")
    return found


def _begins(keys: Ragged, prefix: bytes) -> Mask:
    rows = _with(keys, np.flatnonzero(keys.lengths() >= len(prefix)), prefix)
    found = np.zeros(len(keys), np.bool_)
    found[rows] = True
    return found


def _with(keys: Ragged, rows: npt.NDArray[np.int64], prefix: bytes) -> npt.NDArray[np.int64]:
    """Those of the ``rows`` whose keys, none of them shorter, begin with ``prefix``."""
    for place, byte in enumerate(prefix):
        rows = rows[keys.data[keys.offsets[rows] + place] == byte]
    return rows


def constrained(
    slots: Mask, steps: npt.NDArray[Any], step_starts: npt.NDArray[np.int64],
    key_slot: npt.NDArray[np.int64], key_starts: npt.NDArray[np.int64],
) -> Mask:
    """Mark the compiled transactions that update one of the ``slots``; shape (transactions,)."""
    n = len(step_starts) - 1
    owner = np.repeat(np.arange(n), np.diff(step_starts))
    updates = np.flatnonzero(steps["op"] >= p.PUT)
    written = key_slot[key_starts[owner[updates]] + steps["key"][updates]]
    found = np.zeros(n, np.bool_)
    found[owner[updates[slots[written]]]] = True
    return found
