"""Constraints within a transaction: the violations of its writes, and the index of unique values.

A unique part of a value has an index key, which holds the key whose value it is. Only a transaction
that has it among its locks may change it. So two transactions that want the same part conflict,
wherever their keys lie. It ends when that key ends.

A transaction that makes a key in a range whose keys are counted must name that range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import errors
from streamydb import records as r
from streamydb.constraints import Constraint, Constraints, parse
from streamydb.frames import program as p
from streamydb.frames.table import Ragged
from streamydb.limits import FAILED_ENTRIES_MAX
from streamydb.records.expiry import ending, same
from streamydb.records.ranges import Bounds, Range
from streamydb.txn_processor.comparisons import failed_entry
from streamydb.txn_processor.kernel import BY_KERNEL, BY_PYTHON, Program
from streamydb.txn_processor.run import Run


class Judged(NamedTuple):
    """A key whose value a transaction changes; ``place``: among the writes."""

    place: int
    key: str
    before: bytes | None
    after: bytes | None
    version: int


class NamedRanges(NamedTuple):
    """The ranges that a transaction names, by their bounds,
    and how many keys each has before it.
    """

    bounds: Collection[Bounds]
    count: Callable[[Bounds], int]


class Enforced(NamedTuple):
    """The outcome of the constraints: a reason code with its entries,
    or the writes to the index.
    """

    code: str | None
    failed: list[dict[str, Any]]
    reason: str | None
    indexed: dict[str, bytes | None]


def enforce(
    constraints: Constraints,
    writes: Sequence[Judged],
    locks: Collection[str],
    look: Callable[[str], tuple[bytes | None, int]],
    named: NamedRanges,
) -> Enforced:
    """Judge the writes of a transaction by the constraints before it.

    Args:
        constraints: those that hold.
        writes: what it would write, in order.
        locks: the index keys that it may write.
        look: the value and version of any key that it touches.
        named: the ranges that it names.
    """
    failed = _faults(constraints, writes)
    if failed:
        return Enforced(errors.CONSTRAINT_VIOLATED, failed, None, {})
    released, claimed = _index_keys(constraints, writes)
    needed = [*released, *((write, name, key) for write, name, key in claimed)]
    grouped = _grouped(constraints, writes)
    needed = [each for each in needed if each[2] not in locks]
    needed += [
        (write, rule.name, group.begin)
        for write, rule, group in grouped
        if write.before is None and group.bounds() not in named.bounds
    ]
    missing = list(dict.fromkeys(key for _, _, key in needed))
    if missing:
        entries = [_entry("lock", write, None, key) for write, _, key in needed]
        return Enforced(errors.UNDECLARED_KEY, entries[:FAILED_ENTRIES_MAX], missing[0], {})
    failed = _crowded(grouped, named)
    owners = {key: look(key)[0] for key in locks}
    index: dict[str, bytes | None] = {
        key: None for key in locks if owners[key] is not None and not constraints.is_live(key)
    }
    for write, _, key in released:
        if owners[key] == r.canonical(write.key):
            owners[key] = index[key] = None
    for write, name, key in claimed:
        own = r.canonical(write.key)
        if owners[key] not in (None, own):
            entry = _entry("constraint", write, write.after, write.key)
            entry |= {"constraint": name, "violated": "unique"}
            failed.append(entry)
        owners[key] = index[key] = ending(own, r.end_of(write.after))
    if failed:
        return Enforced(errors.CONSTRAINT_VIOLATED, failed[:FAILED_ENTRIES_MAX], None, {})
    changed = {key: value for key, value in index.items() if not same(value, look(key)[0])}
    return Enforced(None, [], None, changed)


def _faults(constraints: Constraints, writes: Sequence[Judged]) -> list[dict[str, Any]]:
    """Entries for the values that break a rule, and the deletes that a rule forbids."""
    failed = []
    for write in writes:
        rules = constraints.covering(write.key)
        if not rules:
            continue
        value = None if write.after is None else r.decode_value(write.after)
        for rule in rules:
            if write.after is not None:
                fault = rule.fault(value)
                ends = rule.required and r.end_of(write.after) is not None
                fault = "required" if fault is None and ends else fault
            else:
                fault = "required" if rule.required else None
            if fault is not None:
                entry = _entry("constraint", write, write.after, write.key)
                failed.append(entry | {"constraint": rule.name, "violated": fault})
            if len(failed) == FAILED_ENTRIES_MAX:
                return failed
    return failed


_Grouped = list[tuple[Judged, Constraint, Range]]


def _grouped(constraints: Constraints, writes: Sequence[Judged]) -> _Grouped:
    """The writes that make or remove a key in a range whose keys are counted."""
    return [
        (write, rule, group)
        for write in writes if write.before is None or write.after is None
        for rule in constraints.covering(write.key)
        if (group := rule.group(write.key)) is not None
    ]  # fmt: skip


def _crowded(grouped: _Grouped, named: NamedRanges) -> list[dict[str, Any]]:
    """Entries for the writes that make a key in a range which then has too many."""
    counts: Counter[tuple[str, Range]] = Counter()
    for write, rule, group in grouped:
        counts[rule.name, group] += 1 if write.before is None else -1
    failed = []
    for write, rule, group in grouped:
        if write.before is not None:
            continue
        count = named.count(group.bounds()) + counts[rule.name, group]
        if count > (rule.keys_max or 0):
            entry = _entry("constraint", write, write.after, write.key)
            failed.append(entry | {"constraint": rule.name, "violated": rule.crowded})
    return failed


_Indexed = list[tuple[Judged, str, str]]


def _index_keys(constraints: Constraints, writes: Sequence[Judged]) -> tuple[_Indexed, _Indexed]:
    """The index keys that writes give up, and those that they need: (write, constraint, key)."""
    released, claimed = [], []
    for write in writes:
        for rule in constraints.covering(write.key):
            old, new = rule.index_key(write.before), rule.index_key(write.after)
            if old is not None:
                released.append((write, rule.name, old))
            if new is not None:
                claimed.append((write, rule.name, new))
    return released, claimed


def _entry(check: str, write: Judged, value: bytes | None, key: str) -> dict[str, Any]:
    version = write.version if check == "constraint" else 0
    return failed_entry(check, write.place, key, value, version)


# A plan that has no key of the constraints, or an empty one, costs one look at the lengths of its
# keys. Otherwise the slots that some prefix covers are found, column by column, and the
# transactions that write one of them; all others stay in the kernel. That is done again after a
# transaction that changes the constraints.
_KEY: Final = r.CONSTRAINTS_KEY.encode()
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Rules:
    """The constraints as they are at one place in the plan; ``slot``: of their key, if granted."""

    run: Run
    slot: int | None
    known: bytes | None = None
    mask: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, run: Run) -> Rules:
        """Those of an execution that begins."""
        rows = _with(run.keys, np.flatnonzero(run.keys.lengths() == len(_KEY)), _KEY)
        return cls(run, int(rows[0]) if len(rows) else None)

    def concern(self, at: int) -> bool:
        """Return True if constraints apply to a transaction."""
        return self.mask is not None and bool(self.mask[at])

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
        self.mask = mask = _constrained(_covered(run.keys, parse(value)), run.program)
        route = run.program.route[start:]
        route[mask[start:] & (route == BY_KERNEL)] = BY_PYTHON


def _covered(keys: Ragged, constraints: Constraints) -> Mask:
    """Return the keys that a constraint holds for, as a mask; shape (keys,)."""
    mask = np.zeros(len(keys), np.bool_)
    for prefix in {rule.prefix.encode() for rule in constraints.all}:
        mask |= _begins(keys, prefix)
    mask &= ~_begins(keys, b"$")
    return mask


def _begins(keys: Ragged, prefix: bytes) -> Mask:
    rows = _with(keys, np.flatnonzero(keys.lengths() >= len(prefix)), prefix)
    mask = np.zeros(len(keys), np.bool_)
    mask[rows] = True
    return mask


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
    mask = np.zeros(n, np.bool_)
    mask[owner[updates[slots[written]]]] = True
    return mask
