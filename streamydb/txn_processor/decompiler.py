"""From the steps of a transaction back to the transaction, for what runs in Python."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy.typing as npt

from streamydb import records as r
from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.records.ranges import Range
from streamydb.txn_processor.run import Run


def transaction_of(run: Run, i: int) -> r.Transaction:
    """The transaction at position ``i``: its payload, or what its steps were compiled from.

    Raises:
        InvariantViolation: the payload was valid when it was compiled, and is not now.
    """
    raw = run.txns.raw[i]
    txn = r.decode(raw) if raw else _decompiled(run, i)
    if not isinstance(txn, r.Transaction):
        raise InvariantViolation("a payload that was valid when it was compiled is not valid now")
    return txn


def _decompiled(run: Run, i: int) -> r.Transaction:
    """The transaction that the steps of position ``i`` were compiled from."""
    program, slots = run.program, run.slots_of(i)
    txn = r.Transaction(run.txns.id[i].decode())
    reads, updates, checks = [], [], dict[int, r.Check]()
    for s in range(int(program.step_starts[i]), int(program.step_starts[i + 1])):
        step = program.steps[s]
        key = run.keys[slots[int(step["key"])]].decode()
        op = int(step["op"])
        value = run.pool[run.values.first_operand + s] if step["flags"] & p.HAS_OPERAND else None
        if op == p.A_EQ:
            txn.asserts[key] = value
        elif op <= p.LAST_CHECK:
            check = checks.setdefault(int(step["index"]), r.Check(key))
            operand = value if op in (p.C_EQ, p.C_NE) else int(step["a"])
            setattr(check, _COMPARATORS[op], bool(operand) if op == p.C_EXISTS else operand)
        elif op <= p.LAST_OF_RANGE:
            named = Range.of(p.operand_bounds(value or b""))
            check = checks.setdefault(int(step["index"]), r.Check(range=named))
            wanted = int(step["low"])
            setattr(check, _COMPARATORS[op], bool(wanted) if op == p.R_EXISTS else wanted)
        elif op == p.READ:
            reads.append(key)
        else:
            updates.append(_update_of(step, key, value))
    txn.checks = tuple(checks[index] for index in sorted(checks))
    txn.reads, txn.updates = tuple(reads), tuple(updates)
    return txn


_COMPARATORS: Final = {
    p.C_EQ: "eq",
    p.C_NE: "ne",
    p.C_VERSION: "version",
    p.C_EXISTS: "exists",
    p.C_LT: "lt",
    p.C_LE: "le",
    p.C_GT: "gt",
    p.C_GE: "ge",
    p.R_COUNT: "count",
    p.R_COUNT_LE: "count_le",
    p.R_COUNT_GE: "count_ge",
    p.R_VERSION_LE: "version_le",
    p.R_EXISTS: "exists",
}


def _update_of(step: npt.NDArray[Any], key: str, value: bytes | None) -> r.Update:
    op, number = int(step["op"]), int(step["a"])
    if op == p.PUT:
        return r.Put(key, value or b"")
    if op == p.DELETE:
        return r.Delete(key)
    if op == p.NEXT_ID:
        return r.NextId(key)
    if op != p.ADD:
        return r.Max(key, number) if op == p.MAX else r.Min(key, number)
    low = int(step["low"]) if step["flags"] & p.HAS_LOW else msgspec.UNSET
    high = int(step["high"]) if step["flags"] & p.HAS_HIGH else msgspec.UNSET
    return r.Add(key, number, low, high)
