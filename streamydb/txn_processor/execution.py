"""Execute the part of a plan that one partition was granted.

Input: grant blocks, one from every shard (see `key_processor.grants`): the transactions from their
home
shards, the values from the shards that own the keys. Output: the outcome, from which the records
and the
feedback are made. Transactions run serially in seq order against *slots*, one for each key of the
plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb import records as r
from streamydb.columns import program as p
from streamydb.columns.program import NOT_A_DUPLICATE, REFUSALS, WINDOW_DUPLICATE
from streamydb.columns.table import Array, Columns, Ragged, starts_of
from streamydb.constraints import parse
from streamydb.errors import InvariantViolation
from streamydb.limits import INTEGER_MAX, INTEGER_MIN
from streamydb.procedures.follow_ups import NO_OUTPUTS, Outputs, joined
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.procedures.view import Stamp
from streamydb.records.begins import VALUES_BOUNDED, Begins
from streamydb.records.rulings import NO_RULINGS, STOPPING, Fault, Rulings, require_unread
from streamydb.txn_processor import interpreter
from streamydb.txn_processor.constrained import constrained, constraints_slot, covered
from streamydb.txn_processor.fault import reported, status_of
from streamydb.txn_processor.kernel import execute_steps
from streamydb.txn_processor.result import as_duplicate, result_bytes, verdict_bytes

__all__ = ["ExecutionOutcome", "Most", "decompile", "execute_grants"]


_KERNEL, _PYTHON, _NOTHING = 0, 1, 2


class Most(NamedTuple):
    """The bytes that a partition of a plan may produce: values, results and emitted records.

    Only transactions that Python executes count; the weight of the plan bounds the kernel's.
    ``first``: the plan's first seq. ``bytes``: 0 for any number.
    """

    first: int = 0
    bytes: int = 0

    def fits(self, made: int, seq: int) -> int:
        """Return how many of the plan's first records fit, when those up to ``seq`` have produced
        ``made`` bytes; 0: all so far.

        The first record alone always fits.
        """
        return seq - self.first if 0 < self.bytes < made else 0


_ANY: Final = Most()
# The digits of the largest integer of 64 bits.
_DIGITS_MAX = 19


@dataclass(slots=True)
class ExecutionOutcome:
    """The effects of a partition's transactions, in seq order.

    Shapes: n transactions, s slots. ``special`` maps a transaction's position to its finished
    result record
    where it is not a plain commit. ``internal``: the faults of ours among them, by position;
    ``unruled``: those that nobody has ruled on, so nothing of this may be written. ``workflow``:
    what goes to streams and to the log. ``made``, ``fits``: see `Most`; if all do not fit, nothing
    of this may be written.
    """

    txns: Columns
    slots: npt.NDArray[Any]
    slot_keys: Ragged
    slot_home: npt.NDArray[np.int64]
    pool: Ragged
    status: npt.NDArray[np.uint8]
    writes: npt.NDArray[Any]
    reads: npt.NDArray[Any]
    special: dict[int, bytes] = field(default_factory=dict)
    internal: dict[int, Fault] = field(default_factory=dict)
    unruled: list[Fault] = field(default_factory=list)
    workflow: Outputs = NO_OUTPUTS
    made: int = 0
    fits: int = 0


@dataclass(slots=True)
class _Run:
    """The working state of one execution."""

    txns: Columns
    slots: npt.NDArray[Any]
    keys: Ragged
    key_slot: npt.NDArray[np.int64]
    key_starts: npt.NDArray[np.int64]
    steps: npt.NDArray[Any]
    step_starts: npt.NDArray[np.int64]
    pool: Ragged
    operand_base: int
    status: npt.NDArray[np.uint8]
    writes: npt.NDArray[Any]
    reads: npt.NDArray[Any]
    fails: npt.NDArray[Any]
    counts: npt.NDArray[np.int64]
    extra: list[bytes] = field(default_factory=list)
    special: dict[int, bytes] = field(default_factory=dict)
    internal: dict[int, Fault] = field(default_factory=dict)
    unruled: list[Fault] = field(default_factory=list)
    workflow: list[Outputs] = field(default_factory=list)
    ruled: dict[int, Fault] = field(default_factory=dict)

    def text(self, ref: int) -> bytes:
        """A text of the pool, or one that Python made in this run."""
        return self.pool[ref] if ref < len(self.pool) else self.extra[ref - len(self.pool)]

    def value(self, tag: int, number: int, ref: int) -> bytes | None:
        """The canonical bytes of a tagged value."""
        if tag == p.ABSENT:
            return None
        return b"%d" % number if tag == p.INT else self.text(ref)

    def store(self, value: bytes | None) -> tuple[int, int, int]:
        """The tagged form of canonical bytes; keeps a text that is not an integer."""
        if value is None:
            return p.ABSENT, 0, 0
        digits = value[1:] if value[:1] == b"-" else value
        if len(digits) <= _DIGITS_MAX and digits.isdigit():
            number = int(value)
            if INTEGER_MIN <= number <= INTEGER_MAX:
                return p.INT, number, 0
        self.extra.append(value)
        return p.OPAQUE, 0, len(self.pool) + len(self.extra) - 1


def execute_grants(
    parts: Sequence[tuple[int, Columns, Columns]], modules: Modules = NO_MODULES,
    rulings: Rulings = NO_RULINGS, *, over: bool = False, most: Most = _ANY,
) -> ExecutionOutcome:
    """Execute the transactions of one partition of a plan.

    Args:
        parts: (shard, transactions, slots) from every shard.
        modules: where the code of procedures is.
        rulings: which transactions are aborted, whatever they would do.
        over: there is one transaction, whose keys hold too many bytes; their values were not sent.
        most: how much it may make; more, and execution stops.

    Raises:
        InvariantViolation: a transaction's key was not granted by any shard.
        ModuleMissing: the code that a transaction calls is not on this machine.

    """
    run, homes = _prepare(parts)
    txns = run.txns
    route = _routes(txns)
    _special_rejections(run, route)
    run.ruled = rulings.rows(txns.cols["part"], txns.cols["off"])
    for row, fault in run.ruled.items():
        if txns.cols["kind"][row] != p.REJECTED:
            require_unread(fault)
            route[row] = _PYTHON if route[row] == _KERNEL else route[row]
    rules = _Rules(run, constraints_slot(run.keys))
    rules.send(route, 0)
    weighed = _to_be_weighed(run, route, over=over)
    longest = int(np.diff(run.key_starts).max(initial=0))
    scratch = np.zeros(longest + 1, p.SLOT)
    scratch_at = np.full(longest + 1, -1, np.int64)
    n, at, made, fits = len(txns), 0, 0, 0
    id_lengths = txns.texts["id"].lengths()
    while at < n and not fits:
        at = execute_steps(
            at, route, txns.cols["seq"], id_lengths, run.step_starts, run.key_starts, run.steps,
            run.key_slot, run.slots, run.pool.data, run.pool.offsets, run.operand_base,
            run.keys.offsets, run.status, run.writes, run.reads, run.fails, run.counts, scratch,
            scratch_at,
        )
        if at < n:
            too_much = over or _meets_too_much(run, at, rulings.begins)
            if at in weighed and not (too_much or at in run.ruled or rules.concern(at)):
                weighed.remove(at)
                route[at] = _KERNEL
                continue
            made += _execute_in_python(run, at, modules, rules.slot, too_much=too_much)
            fits = most.fits(made, int(txns.cols["seq"][at]))
            at += 1
            rules.send(route, at)
    _special_aborts(run)
    pool = Ragged.concat([run.pool, Ragged.of(run.extra)]) if run.extra else run.pool
    return ExecutionOutcome(
        txns, run.slots, run.keys, homes, pool, run.status, run.writes[: run.counts[0]],
        run.reads[: run.counts[1]], run.special, run.internal,
        run.unruled, joined(run.workflow), made, fits,
    )


def _prepare(parts: Sequence[tuple[int, Columns, Columns]]) -> tuple[_Run, npt.NDArray[np.int64]]:
    """Join what the shards granted into one table of transactions in seq order and one of slots."""
    for shard, own, _ in parts:
        own.cols["home"] = np.full(len(own), shard, np.int32)
    txns = Columns.concat([txns for _, txns, _ in parts])
    seqs = txns.cols["seq"]
    if len(seqs) > 1 and np.any(seqs[1:] < seqs[:-1]):
        txns = txns.take(np.argsort(seqs, kind="stable"))
    granted = Columns.concat([slots for _, _, slots in parts])
    homes = np.repeat([shard for shard, _, _ in parts], [len(slots) for _, _, slots in parts])
    key_counts, key_table = txns.children["keys"]
    step_counts, step_table = txns.children["steps"]
    steps = p.steps_of(step_table.cols)
    operands = step_table.texts["operand"]
    texts = granted.texts["text"]
    n_checks = int(np.count_nonzero(steps["op"] <= p.LAST_CHECK))
    n_reads = int(np.count_nonzero(steps["op"] == p.READ))
    in_python = int(key_counts[txns.cols["kind"] == p.GENERIC].sum())
    n_writes = len(steps) - n_checks - n_reads + in_python
    slots = np.zeros(len(granted), p.SLOT)
    slots["tag"], slots["number"] = granted.cols["tag"], granted.cols["number"]
    slots["version"], slots["ref"] = granted.cols["version"], np.arange(len(granted))
    run = _Run(
        txns, slots, granted.texts["key"],
        _local_slots(granted.cols["slot"], key_table.cols["slot"]),
        starts_of(key_counts), steps, starts_of(step_counts), Ragged.concat([texts, operands]),
        len(texts), np.zeros(len(txns), np.uint8),
        np.zeros(n_writes, p.WRITE), np.zeros(n_reads, p.SEEN),
        np.zeros(n_checks + len(txns), p.SEEN), np.zeros(3, np.int64),
    )
    return run, homes.astype(np.int64)


def _local_slots(granted: Array, wanted: Array) -> npt.NDArray[np.int64]:
    """Positions in ``granted`` of the ``wanted`` slots."""
    top = int(max(granted.max(initial=-1), wanted.max(initial=-1))) + 1
    where = np.full(top, -1, np.int64)
    where[granted] = np.arange(len(granted))
    local = where[wanted]
    if local.min(initial=0) < 0:
        raise InvariantViolation("a key of a granted transaction has no slot; its shard sent none")
    return local


def _routes(txns: Columns) -> npt.NDArray[np.uint8]:
    kind, duplicate = txns.cols["kind"], txns.cols["duplicate"]
    route = np.full(len(txns), _KERNEL, np.uint8)
    route[kind == p.GENERIC] = _PYTHON
    route[(kind == p.REJECTED) | (duplicate != NOT_A_DUPLICATE)] = _NOTHING
    return route


def _special_rejections(run: _Run, route: npt.NDArray[np.uint8]) -> None:
    """Finished results of records that are not executed, except copies of an original in the plan.
    """
    cols = run.txns.cols
    for i in np.flatnonzero(route == _NOTHING).tolist():
        kind = int(cols["duplicate"][i])
        if kind == WINDOW_DUPLICATE:
            run.special[i] = as_duplicate(run.txns, i, run.txns.texts["verdict"][i])
        elif kind in REFUSALS:
            run.special[i] = result_bytes(run.txns, i, "rejected", REFUSALS[kind])
        elif cols["kind"][i] == p.REJECTED:
            code = p.REJECT_CODES[cols["code"][i]]
            run.special[i] = result_bytes(run.txns, i, status_of(code), code)


@dataclass(slots=True)
class _Rules:
    """The constraints as they are at one place in the plan; ``slot``: of their key, if granted."""

    run: _Run
    slot: int | None
    known: bytes | None = None
    found: npt.NDArray[np.bool_] | None = None

    def concern(self, at: int) -> bool:
        """Return True if constraints apply to a transaction."""
        return self.found is not None and bool(self.found[at])

    def send(self, route: npt.NDArray[np.uint8], start: int) -> None:
        """Send transactions from ``start`` on to Python if constraints concern them.

        Those that were sent for constraints which no longer hold stay there: it is the same.
        """
        if self.slot is None:
            return
        run = self.run
        _, number, ref, tag, *_ = run.slots[self.slot].item()
        value = run.value(tag, number, ref)
        if value == self.known:
            return
        self.known = value
        slots = covered(run.keys, parse(value))
        found = constrained(slots, run.steps, run.step_starts, run.key_slot, run.key_starts)
        self.found = found
        route[start:][found[start:] & (route[start:] == _KERNEL)] = _PYTHON


def _to_be_weighed(run: _Run, route: npt.NDArray[np.uint8], *, over: bool) -> set[int]:
    """The kernel's transactions with so many keys that their values may be too many bytes.

    They are routed to Python, and back when their turn comes, if they are not.
    """
    counts = np.diff(run.key_starts)
    many = counts > limits.TRANSACTION_VALUES_BYTES_MAX // limits.VALUE_BYTES_MAX
    chosen = (route == _KERNEL) & (many | over)
    route[chosen] = _PYTHON
    return set(np.flatnonzero(chosen).tolist())


def _meets_too_much(run: _Run, i: int, begins: Begins) -> bool:
    """Return True if the values of all keys of a transaction, at its instant, exceed the limit."""
    own = run.key_slot[run.key_starts[i] : run.key_starts[i + 1]]
    most = limits.TRANSACTION_VALUES_BYTES_MAX
    if len(own) <= most // limits.VALUE_BYTES_MAX:
        return False
    cols = run.txns.cols
    if not begins.holds(VALUES_BOUNDED, int(cols["part"][i]), int(cols["off"][i])):
        return False
    slots = run.slots[own]
    refs = slots["ref"][slots["tag"] == p.OPAQUE]
    known, offsets = refs[refs < len(run.pool)], run.pool.offsets
    total = int((offsets[known + 1] - offsets[known]).sum())
    total += sum(len(run.text(ref)) for ref in refs[refs >= len(run.pool)].tolist())
    numbers = slots["number"][slots["tag"] == p.INT]
    if total + (_DIGITS_MAX + 1) * len(numbers) > most:
        total += sum(len(b"%d" % number) for number in numbers.tolist())
    return total > most


def _execute_in_python(
    run: _Run, i: int, modules: Modules, rules: int | None, *, too_much: bool
) -> int:
    """Run one transaction on Python objects against the slots; how many bytes it makes.

    ``rules``: the slot of the constraints. ``too_much``: its keys hold too many bytes.
    """
    own = run.key_slot[run.key_starts[i] : run.key_starts[i + 1]].tolist()
    ids = {run.keys[slot_id].decode(): slot_id for slot_id in own}

    def look(key: str) -> interpreter.Value:
        version, number, ref, tag, *_ = run.slots[ids[key]].item()
        return run.value(tag, number, ref), version

    def size(verdict: interpreter.Verdict) -> int:
        return len(verdict_bytes(run.txns, i, verdict))

    cols = run.txns.cols
    place = Stamp(int(cols["seq"][i]), int(cols["ts"][i]), run.txns.texts["id"][i].decode())
    ruling, raw = run.ruled.get(i), run.txns.texts["raw"][i]
    txn = None
    try:
        if ruling is not None:
            run.internal[i] = ruling
            txn = _transaction_of(run, i) if ruling.counted and raw else None
            verdict = interpreter.failed(txn, look)
        else:
            txn = _transaction_of(run, i)
            calls = interpreter.ExecutionContext(modules, place, rules in own)
            verdict = (
                interpreter.too_large(txn, look)
                if too_much
                else interpreter.execute(txn, look, size, calls)
            )
    except STOPPING:
        raise
    except Exception as error:
        if ruling is not None:
            raise
        name = reported(error, f"transaction {place.seq}")
        fault = Fault(
            int(cols["part"][i]), int(cols["off"][i]), name, counted=txn is not None,
            shown=bool(raw),
        )
        run.internal[i] = fault
        run.unruled.append(fault)
        verdict = interpreter.failed(txn, look)
    run.workflow.append(verdict.outputs)
    run.status[i] = 0 if verdict.code is None else p.ABORT_CODES.index(verdict.code)
    run.special[i] = verdict_bytes(run.txns, i, verdict)
    made = len(run.special[i]) + verdict.outputs.size
    for write in verdict.writes:
        _write(run, i, ids[write.key], write.after)
        made += len(write.before or b"") + len(write.after or b"")
    return made


def _transaction_of(run: _Run, i: int) -> r.Transaction:
    raw = run.txns.texts["raw"][i]
    txn = r.decode(raw) if raw else decompile(run, i)
    if not isinstance(txn, r.Transaction):
        raise InvariantViolation("a payload that was valid when it was compiled is not valid now")
    return txn


def decompile(run: _Run, i: int) -> r.Transaction:
    """Return the transaction from which the steps of position ``i`` were compiled."""
    base = int(run.key_starts[i])
    txn = r.Transaction(run.txns.texts["id"][i].decode())
    reads, updates, checks = [], [], dict[int, r.Check]()
    for s in range(int(run.step_starts[i]), int(run.step_starts[i + 1])):
        step = run.steps[s]
        key = run.keys[run.key_slot[base + int(step["key"])]].decode()
        op = int(step["op"])
        value = run.pool[run.operand_base + s] if step["flags"] & p.HAS_OPERAND else None
        if op == p.A_EQ:
            txn.asserts[key] = value
        elif op <= p.LAST_CHECK:
            check = checks.setdefault(int(step["index"]), r.Check(key))
            operand = value if op in (p.C_EQ, p.C_NE) else int(step["a"])
            setattr(check, _COMPARATORS[op], bool(operand) if op == p.C_EXISTS else operand)
        elif op == p.READ:
            reads.append(key)
        else:
            updates.append(_update_of(step, key, value))
    txn.checks, txn.reads, txn.updates = tuple(checks.values()), tuple(reads), tuple(updates)
    return txn


_COMPARATORS = {
    p.C_EQ: "eq", p.C_NE: "ne", p.C_VERSION: "version", p.C_EXISTS: "exists", p.C_LT: "lt",
    p.C_LE: "le", p.C_GT: "gt", p.C_GE: "ge",
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


def _write(run: _Run, i: int, slot_id: int, after: bytes | None) -> None:
    _, old_number, old_ref, old_tag, *_ = run.slots[slot_id].item()
    tag, number, ref = run.store(after)
    version = 0 if after is None else int(run.txns.cols["seq"][i])
    written = (i, slot_id, old_number, old_ref, number, ref, old_tag, tag, 0, 0)
    run.writes[run.counts[0]] = written  # in the order of the fields of program.WRITE
    run.slots[slot_id] = (version, number, ref, tag, 1, 0, 0)  # and of program.SLOT
    run.counts[0] += 1


def _special_aborts(run: _Run) -> None:
    """Finished results of the transactions that the kernel aborted."""
    fails = run.fails[: run.counts[2]]
    bounds = np.searchsorted(fails["txn"], np.arange(len(run.txns) + 1))
    for i in np.flatnonzero(run.status).tolist():
        if i in run.special:
            continue
        failed = []
        for entry in fails[bounds[i] : bounds[i + 1]]:
            value = run.value(entry["tag"], int(entry["number"]), int(entry["ref"]))
            key = run.keys[entry["slot"]].decode()
            kind = ("assert", "check", "update")[entry["kind"]]
            failed.append(
                interpreter.failed_entry(
                    kind, int(entry["index"]), key, value, int(entry["version"])
                )
            )
        code = p.ABORT_CODES[run.status[i]]
        run.special[i] = verdict_bytes(run.txns, i, interpreter.Verdict(code, failed))
