"""Find the transactions of a plan that constraints concern; the interpreter executes them.

A plan that has no key of the constraints, or an empty one, costs one look at the lengths of its
keys. Otherwise the slots that some prefix covers are found, column by column, and the transactions
that write one of them; all others stay in the kernel. That is done again after a transaction that
changes the constraints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb import records as r
from streamydb.constraints import Constraints, parse
from streamydb.frames import program as p
from streamydb.frames.table import Ragged
from streamydb.txn_processor.kernel import BY_KERNEL, BY_PYTHON, Program
from streamydb.txn_processor.run import Run

_KEY: Final = r.CONSTRAINTS_KEY.encode()
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Rules:
    """The constraints as they are at one place in the plan; ``slot``: of their key, if granted."""

    run: Run
    slot: int | None
    known: bytes | None = None
    found: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, run: Run) -> Rules:
        """Those of an execution that begins."""
        found = _with(run.keys, np.flatnonzero(run.keys.lengths() == len(_KEY)), _KEY)
        return cls(run, int(found[0]) if len(found) else None)

    def concern(self, at: int) -> bool:
        """Return True if constraints apply to a transaction."""
        return self.found is not None and bool(self.found[at])

    def send(self, start: int) -> None:
        """Send transactions from ``start`` on to Python if constraints concern them.

        Those that were sent for constraints which no longer hold stay there: it is the same.
        """
        if self.slot is None:
            return
        run = self.run
        _, number, ref, tag, *_ = run.values.slots[self.slot].item()
        value = run.value(tag, number, ref)
        if value == self.known:
            return
        self.known = value
        self.found = found = _constrained(_covered(run.keys, parse(value)), run.program)
        route = run.program.route[start:]
        route[found[start:] & (route == BY_KERNEL)] = BY_PYTHON


def _covered(keys: Ragged, constraints: Constraints) -> Mask:
    """Return the keys that a constraint holds for, as a mask; shape (keys,)."""
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


def _constrained(slots: Mask, program: Program) -> Mask:
    """Mark the compiled transactions that update one of ``slots``; shape (transactions,)."""
    n, steps = len(program.seq), program.steps
    owner = np.repeat(np.arange(n), np.diff(program.step_starts))
    updates = np.flatnonzero(steps["op"] >= p.FIRST_UPDATE)
    written = program.key_slot[program.key_starts[owner[updates]] + steps["key"][updates]]
    found = np.zeros(n, np.bool_)
    found[owner[updates[slots[written]]]] = True
    return found
