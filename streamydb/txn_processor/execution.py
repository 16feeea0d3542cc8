"""Execute the part of a plan that one partition was given, and say what came of it.

Input: grant blocks, one from every shard (see `key_processor.grants`): the transactions from their
home shards, the values from the shards that own the keys. Output: the outcome, from which the
records and the feedback are made. Transactions run serially in seq order against *slots*, one for
each key of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import errors, limits
from streamydb.columns import program as p
from streamydb.columns.grant_rows import GrantedTransactions, SlotRows
from streamydb.columns.program import PLAN_DUPLICATE, REFUSALS
from streamydb.columns.table import Ragged
from streamydb.columns.timeline import Timeline
from streamydb.procedures.follow_ups import joined
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.procedures.view import Stamp
from streamydb.records.begins import VALUES_BOUNDED, Begins
from streamydb.records.rulings import NO_RULINGS, STOPPING, Fault, Rulings, require_unread
from streamydb.txn_processor import interpreter
from streamydb.txn_processor.comparisons import Value, failed_entry
from streamydb.txn_processor.constrained import Rules
from streamydb.txn_processor.decompiler import transaction_of
from streamydb.txn_processor.expiry import Ending
from streamydb.txn_processor.fault import reported, status_of
from streamydb.txn_processor.granted_ranges import NO_PARTS, GrantedRanges, RangeParts
from streamydb.txn_processor.kernel import (
    BY_KERNEL,
    BY_NOBODY,
    BY_PYTHON,
    FAILS,
    READS,
    WRITES,
    NewValues,
    execute_steps,
)
from streamydb.txn_processor.outcome import ExecutionOutcome, Most
from streamydb.txn_processor.places import Places
from streamydb.txn_processor.plain_calls import PlainCalls
from streamydb.txn_processor.ranges import See
from streamydb.txn_processor.result import originals, result_bytes, verdict_bytes
from streamydb.txn_processor.run import DIGITS_MAX, Run, prepared

__all__ = ["execute_grants"]

_ANY: Final = Most()
Ints = npt.NDArray[np.int64]


def execute_grants(
    parts: Sequence[tuple[int, GrantedTransactions, SlotRows]],
    modules: Modules = NO_MODULES,
    rulings: Rulings = NO_RULINGS,
    *,
    over: bool = False,
    most: Most = _ANY,
    ranges: RangeParts = NO_PARTS,
    timeline: Timeline | None = None,
) -> ExecutionOutcome:
    """Execute the transactions of one partition of a plan.

    Args:
        parts: (shard, transactions, slots) from every shard.
        modules: where the code of procedures is.
        rulings: which transactions are aborted, whatever they would do.
        over: there is one transaction, whose keys hold too many bytes; their values were not sent.
        most: how much it may make; more, and execution stops.
        ranges: those that the transactions name, as each shard holds them.
        timeline: of the plan, where keys may end.

    Raises:
        InvariantViolation: a transaction's key was not granted by any shard.
        ModuleMissing: the code that a transaction calls is not on this machine.

    """
    run = prepared(parts, rulings, timeline)
    txns, program, notes = run.txns, run.program, run.notes
    _special_rejections(run)
    _send_ruled(run)
    granted, rules = GrantedRanges(run, ranges), Rules.of(run)
    table = granted.compiled()
    rules.send(0)
    ending = Ending.of(run, in_ranges=granted.end)
    weighed = _to_be_weighed(run, over=over)
    longest = int(np.diff(program.key_starts).max(initial=0))
    new = NewValues(np.zeros(longest + 1, p.SLOT), np.full(longest + 1, -1, np.int64))
    n, at, total, fits, made = len(txns), 0, 0, 0, np.zeros(len(txns), np.int64)
    careful = range(n) if over else run.ruled.keys() | weighed
    plain = PlainCalls(run, modules, ending, rules.slot, careful)
    while at < n and not fits:
        at, total, fits = plain.executed(at, made, total, most)
        if not fits:
            at = execute_steps(at, program, run.values, new, notes, table)
        if at < n and not fits:
            too_much = over or _meets_too_much(run, at, rulings.begins)
            python = at in run.ruled or rules.concern(at) or (ending and ending.concerns(at))
            if at in weighed and not (too_much or python):
                weighed.remove(at)
                program.route[at] = BY_KERNEL
                continue
            calls = _Calls(modules, rules.slot, granted.see, rulings.begins)
            made[at] = _executed_in_time(run, at, calls, ending, too_much=too_much)
            total += int(made[at])
            fits = most.fits(total, int(txns.seq[at]))
            at += 1
            rules.send(at)
    fits = _fitting(run, made, most) or fits or _concluded(run, int(made.sum()), most)
    places = Places(txns.places()) if ending is None else ending.places()
    return _outcome(run, places, int(made.sum()), fits)


def _outcome(run: Run, places: Places, made: int, fits: int) -> ExecutionOutcome:
    """Return what a run has made: ``made`` bytes, of which transactions up to ``fits`` (0: all)."""
    notes, program = run.notes, run.program
    pool = Ragged.concat([run.pool, Ragged.of(run.extra)]) if run.extra else run.pool
    return ExecutionOutcome(
        run.txns,
        places,
        run.values.slots,
        run.keys,
        run.homes,
        pool,
        program.status,
        notes.writes[: notes.counts[WRITES]],
        notes.reads[: notes.counts[READS]],
        run.special,
        run.internal,
        run.unruled,
        joined(run.workflow),
        made,
        fits,
    )


def _send_ruled(run: Run) -> None:
    """Send to Python what was ruled on."""
    txns, route = run.txns, run.program.route
    for row, fault in run.ruled.items():
        if txns.kind[row] == p.REJECTED and p.REJECT_CODES[txns.code[row]] == errors.INTERNAL:
            continue  # ruled when it was read
        require_unread(fault)
        if route[row] == BY_KERNEL:
            route[row] = BY_PYTHON


def _special_rejections(run: Run) -> None:
    """Finished results of records that are not executed, except those that repeat another one."""
    txns = run.txns
    for i in np.flatnonzero(run.program.route == BY_NOBODY).tolist():
        kind = int(txns.duplicate[i])
        if kind in REFUSALS:
            run.special[i] = result_bytes(run.txns, i, "rejected", REFUSALS[kind])
        elif txns.kind[i] == p.REJECTED:
            code = p.REJECT_CODES[txns.code[i]]
            run.special[i] = result_bytes(run.txns, i, status_of(code), code)


def _fitting(run: Run, made: Ints, most: Most) -> int:
    """Return how many of the plan's first records fit, by what each has ``made``; 0: all.

    To that is added what the kernel's aborts tell of values that Python has made, as the weight of
    the plan did not know them. (What reads such a value is executed by Python.)
    """
    if not (most.bytes and run.extra):
        return 0
    sizes, first = np.array(list(map(len, run.extra))), len(run.pool)
    seen = run.notes.fails[: run.notes.counts[FAILS]]
    rows = seen[(seen["tag"] >= p.OPAQUE) & (seen["ref"] >= first)]
    told = sizes[rows["ref"] - first]
    np.add.at(made, rows["txn"], np.where(told <= limits.FAILED_VALUE_BYTES_MAX, told, 0))
    total, seqs = np.cumsum(made), run.txns.seq
    for i in np.flatnonzero(total > most.bytes)[:2].tolist():  # the first record alone always fits
        if fits := most.fits(int(total[i]), int(seqs[i])):
            return fits
    return 0


def _concluded(run: Run, made: int, most: Most) -> int:
    """Make the results of what the kernel aborted. Return how many of the plan's first records fit,
    with those that repeat a result that Python has made; 0: all.
    """
    _special_aborts(run)
    if not most.bytes:
        return 0
    copies = np.flatnonzero(run.txns.duplicate == PLAN_DUPLICATE)
    for i, original in zip(copies.tolist(), originals(run.txns, copies).tolist(), strict=True):
        made += len(run.special.get(original, b""))
        if fits := most.fits(made, int(run.txns.seq[i])):
            return fits
    return 0


def _to_be_weighed(run: Run, *, over: bool) -> set[int]:
    """The kernel's transactions with so many keys that their values may be too many bytes.

    They are routed to Python, and back when their turn comes, if they are not.
    """
    counts, route = np.diff(run.program.key_starts), run.program.route
    many = counts > limits.TRANSACTION_VALUES_BYTES_MAX // limits.VALUE_BYTES_MAX
    chosen = (route == BY_KERNEL) & (many | over)
    route[chosen] = BY_PYTHON
    return set(np.flatnonzero(chosen).tolist())


def _meets_too_much(run: Run, i: int, begins: Begins) -> bool:
    """Return True if the values of all keys of a transaction, at its instant, exceed the limit."""
    own = run.slots_of(i)
    most = limits.TRANSACTION_VALUES_BYTES_MAX
    if len(own) <= most // limits.VALUE_BYTES_MAX:
        return False
    txns = run.txns
    if not begins.holds(VALUES_BOUNDED, int(txns.partition[i]), int(txns.offset[i])):
        return False
    slots = run.values.slots[own]
    there = (slots["tag"] == p.EXPIRING) & (slots["number"] > txns.ts_ms[i])
    refs = slots["ref"][(slots["tag"] == p.OPAQUE) | there]
    known, offsets = refs[refs < len(run.pool)], run.pool.offsets
    total = int((offsets[known + 1] - offsets[known]).sum())
    total += sum(len(run.text(ref)) for ref in refs[refs >= len(run.pool)].tolist())
    numbers = slots["number"][slots["tag"] == p.INT]
    if total + (DIGITS_MAX + 1) * len(numbers) > most:
        total += sum(len(b"%d" % number) for number in numbers.tolist())
    return total > most


class _Calls(NamedTuple):
    """The code of procedures, the slot of the constraints, the ranges that are granted, and where
    rules begin.
    """

    modules: Modules
    rules: int | None
    see: See
    begins: Begins


def _executed_in_time(
    run: Run, i: int, given: _Calls, ending: Ending | None, *, too_much: bool
) -> int:
    """As `_execute_in_python`, with the removals of its keys that have ended."""
    run.now = int(run.txns.ts_ms[i])
    if ending is None:
        return _execute_in_python(run, i, given, too_much=too_much)
    ending.before(i)
    made = _execute_in_python(run, i, given, too_much=too_much)
    ending.after(i)
    return made


def _execute_in_python(run: Run, i: int, given: _Calls, *, too_much: bool) -> int:
    """Run one transaction on Python objects against the slots; how many bytes it makes.

    ``too_much``: its keys hold too many bytes.
    """
    own = run.slots_of(i).tolist()
    ids = {run.keys[slot_id].decode(): slot_id for slot_id in own}

    def look(key: str) -> Value:
        version, number, ref, tag, *_ = run.values.slots[ids[key]].item()
        if tag == p.EXPIRING and number <= run.now:
            return None, 0
        return run.value(tag, number, ref), version

    def size(verdict: interpreter.Verdict) -> int:
        return len(verdict_bytes(run.txns, i, verdict))

    txns = run.txns
    place = Stamp(int(txns.seq[i]), int(txns.ts_ms[i]), txns.id[i].decode())
    ruling, raw = run.ruled.get(i), txns.raw[i]
    txn = None
    try:
        if ruling is not None:
            run.internal[i] = ruling
            txn = transaction_of(run, i) if ruling.counted and raw else None
            verdict = interpreter.failed(txn, look)
        else:
            txn = transaction_of(run, i)
            calls = _context(run, i, given, place, ruled=given.rules in own)
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
            int(txns.partition[i]),
            int(txns.offset[i]),
            name,
            counted=txn is not None,
            shown=bool(raw),
        )
        run.internal[i] = fault
        run.unruled.append(fault)
        verdict = interpreter.failed(txn, look)
    run.workflow.append(verdict.outputs)
    run.program.status[i] = 0 if verdict.code is None else p.ABORT_CODES.index(verdict.code)
    run.special[i] = verdict_bytes(run.txns, i, verdict)
    made = len(run.special[i]) + verdict.outputs.size
    for write in verdict.writes:
        run.write(i, ids[write.key], write.after)
        made += len(write.before or b"") + len(write.after or b"")
    return made


def _context(
    run: Run, i: int, given: _Calls, place: Stamp, *, ruled: bool
) -> interpreter.ExecutionContext:
    """Return what the calls of one transaction may use. ``ruled``: it holds the rules' slot."""
    at = int(run.txns.partition[i]), int(run.txns.offset[i])
    return interpreter.ExecutionContext(
        given.modules, place, ruled, given.see, given.begins.ranges_anywhere(*at)
    )


def _special_aborts(run: Run) -> None:
    """Finished results of the transactions that the kernel aborted."""
    fails = run.notes.fails[: run.notes.counts[FAILS]]
    bounds = np.searchsorted(fails["txn"], np.arange(len(run.txns) + 1))
    for i in np.flatnonzero(run.program.status).tolist():
        if i in run.special:
            continue
        failed = []
        for entry in fails[bounds[i] : bounds[i + 1]]:
            value = run.value(entry["tag"], int(entry["number"]), int(entry["ref"]))
            key = run.keys[entry["slot"]].decode()
            kind = p.SEEN_KINDS[entry["kind"]]
            failed.append(
                failed_entry(kind, int(entry["index"]), key, value, int(entry["version"]))
            )
        code = p.ABORT_CODES[run.program.status[i]]
        run.special[i] = verdict_bytes(run.txns, i, interpreter.Verdict(code, failed))
