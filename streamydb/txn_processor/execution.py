"""Execute transactions on Python objects, one by one, and conclude what the kernel has executed.

`core` has the loop over the transactions of a partition; here are its steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import errors, limits
from streamydb.frames import program as p
from streamydb.frames.grant_rows import GrantedTransactions, RangeRows, SlotRows
from streamydb.frames.messages import Grant
from streamydb.frames.plans import PlanName, Timeline
from streamydb.frames.program import PLAN_DUPLICATE, REFUSALS
from streamydb.frames.sizes import only_system, over_by, text_bytes
from streamydb.frames.table import Array
from streamydb.frames.value_rows import ValueRows
from streamydb.parser.fault import reported, status_of
from streamydb.procedures.follow_ups import NO_OUTPUTS, joined
from streamydb.procedures.modules import Modules
from streamydb.procedures.view import Stamp
from streamydb.records.rulings import STOPPING, Fault, require_unread
from streamydb.txn_processor import interpreter
from streamydb.txn_processor.comparisons import Value, failed_entry
from streamydb.txn_processor.expiry import Ending
from streamydb.txn_processor.interpreter import transaction_of
from streamydb.txn_processor.kernel import BY_KERNEL, BY_NOBODY, BY_PYTHON, FAILS, READS, WRITES
from streamydb.txn_processor.outcome import ExecutionOutcome, OutputBudget, Places
from streamydb.txn_processor.ranges import See
from streamydb.txn_processor.result import originals, result_bytes, verdict_bytes
from streamydb.txn_processor.run import DIGITS_MAX, Run

Ints = npt.NDArray[np.int64]


def outcome_of(
    run: Run, places: Places, made: int, fits: int, *, executed: int
) -> ExecutionOutcome:
    """Return what a run has made with the transactions that it has ``executed``: ``made`` bytes, of
    which transactions up to ``fits`` (0: all).
    """
    notes, program = run.notes, run.program
    return ExecutionOutcome(
        run.txns,
        places,
        run.values.slots,
        run.keys,
        run.homes,
        run.pool.whole(),
        program.status,
        notes.writes[: notes.counts[WRITES]],
        notes.reads[: notes.counts[READS]],
        run.special,
        run.internal,
        run.unruled,
        joined(run.workflow) if run.workflow else NO_OUTPUTS,
        made,
        fits,
        executed,
    )


def part_of(
    run: Run, ending: Ending | None, made: int, executed: int
) -> Iterator[ExecutionOutcome]:
    """Yield what a run has made so far, if later transactions leave it as it is.

    They do not if our own code has failed, as nothing of the batch may be written then, or if keys
    end: a removal is a write of an earlier place.
    """
    if not run.unruled and (ending is None or not ending.ends.any()):
        special_aborts(run)
        yield outcome_of(run, Places(run.txns.places()), made, 0, executed=executed)


def send_ruled(run: Run) -> None:
    """Send to Python what was ruled on."""
    txns, route = run.txns, run.program.route
    for row, fault in run.ruled.items():
        if txns.kind[row] == p.REJECTED and p.REJECT_CODES[txns.code[row]] == errors.INTERNAL:
            continue  # ruled when it was read
        require_unread(fault)
        if route[row] == BY_KERNEL:
            route[row] = BY_PYTHON


def refuse(run: Run) -> None:
    """Make the results of records that are not executed, except those that repeat another one."""
    txns = run.txns
    for i in (run.program.route == BY_NOBODY).nonzero()[0].tolist():
        kind = int(txns.duplicate[i])
        if kind in REFUSALS:
            run.special[i] = result_bytes(run.txns, i, "rejected", REFUSALS[kind])
        elif txns.kind[i] == p.REJECTED:
            code = p.REJECT_CODES[txns.code[i]]
            run.special[i] = result_bytes(run.txns, i, status_of(code), code)


def size_by_bytes(run: Run, made: Ints, budget: OutputBudget) -> int:
    """Return how many of the plan's first records fit, by what each has ``made``; 0: all.

    To that is added what the kernel's aborts tell of values that Python has made, as the weight of
    the plan did not know them. (What reads such a value is executed by Python.)
    """
    first = run.pool.granted
    if not (budget.bytes and len(run.pool) > first):
        return 0
    sizes = run.pool.whole().lengths()[first:]
    seen = run.notes.fails[: run.notes.counts[FAILS]]
    rows = seen[(seen["tag"] >= p.OPAQUE) & (seen["ref"] >= first)]
    listed = sizes[rows["ref"] - first]
    np.add.at(made, rows["txn"], np.where(listed <= limits.FAILED_VALUE_BYTES_MAX, listed, 0))
    total, seqs = np.cumsum(made), run.txns.seq
    over = np.flatnonzero(total > budget.bytes)[:2]  # the first record alone always fits
    for i in over.tolist():
        if fits := budget.fits(int(total[i]), int(seqs[i])):
            return fits
    return 0


def conclude(run: Run, made: int, budget: OutputBudget) -> int:
    """Make the results of what the kernel aborted. Return how many of the plan's first records fit,
    with those that repeat a result that Python has made; 0: all.
    """
    special_aborts(run)
    if not budget.bytes:
        return 0
    copies = np.flatnonzero(run.txns.duplicate == PLAN_DUPLICATE)
    for i, original in zip(copies.tolist(), originals(run.txns, copies).tolist(), strict=True):
        made += len(run.special.get(original, b""))
        if fits := budget.fits(made, int(run.txns.seq[i])):
            return fits
    return 0


def to_be_weighed(run: Run, *, over: bool) -> set[int]:
    """The kernel's transactions with so many keys that their values may be too many bytes.

    They are routed to Python, and back when their turn comes, if they are not.
    """
    counts, route = np.diff(run.program.key_starts), run.program.route
    many = counts > limits.TRANSACTION_VALUES_BYTES_MAX // limits.VALUE_BYTES_MAX
    chosen = (route == BY_KERNEL) & (many | over)
    route[chosen] = BY_PYTHON
    return set(chosen.nonzero()[0].tolist())


def meets_too_much(run: Run, i: int) -> bool:
    """Return True if the values of all keys of a transaction, at its instant, exceed the limit."""
    own = run.slots_of(i)
    bytes_max = limits.TRANSACTION_VALUES_BYTES_MAX
    if len(own) <= bytes_max // limits.VALUE_BYTES_MAX:
        return False
    slots = run.values.slots[own]
    there = (slots["tag"] == p.EXPIRING) & (slots["number"] > run.txns.ts_ms[i])
    refs = slots["ref"][(slots["tag"] == p.OPAQUE) | there]
    offsets = run.pool.whole().offsets
    total = int((offsets[refs + 1] - offsets[refs]).sum())
    numbers = slots["number"][slots["tag"] == p.INT]
    if total + (DIGITS_MAX + 1) * len(numbers) > bytes_max:
        total += sum(len(b"%d" % number) for number in numbers.tolist())
    return total > bytes_max


class Calls(NamedTuple):
    """The code of procedures, the slot of the constraints, and the ranges that are granted."""

    modules: Modules
    rules: int | None
    see: See


def executed_in_time(
    run: Run, i: int, given: Calls, ending: Ending | None, *, too_much: bool
) -> int:
    """As `_execute_in_python`, with the removals of its keys that have ended."""
    run.now = int(run.txns.ts_ms[i])
    if ending is None:
        return _execute_in_python(run, i, given, too_much=too_much)
    ending.before(i)
    made = _execute_in_python(run, i, given, too_much=too_much)
    ending.after(i)
    return made


def _execute_in_python(run: Run, i: int, given: Calls, *, too_much: bool) -> int:
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
            calls = interpreter.ExecutionContext(
                given.modules, place, given.rules in own, given.see
            )
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


def special_aborts(run: Run) -> None:
    """Make the results of what the kernel has aborted so far."""
    fails = run.notes.fails[: run.notes.counts[FAILS]]
    aborted = run.program.status.nonzero()[0].tolist()
    if not aborted:
        return
    bounds = np.searchsorted(fails["txn"], np.arange(len(run.txns) + 1))
    for i in aborted:
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


class PlanPart(NamedTuple):
    """The part of a plan that some grants are, and what they say of it."""

    plan: PlanName
    proc: int
    silent: bool
    feedback_bytes_max: int
    makes_max: int

    @classmethod
    def of(cls, grant: Grant) -> PlanPart:
        """The part of which a grant is."""
        return cls(grant.plan, grant.proc, grant.silent, grant.feedback_bytes_max, grant.makes_max)


@dataclass(slots=True)
class PartGrants:
    """The grants of all shards to one partition: by shard and number, transactions and slots.

    ``over``: the plan is one transaction, whose keys hold too many bytes. Then their values are not
    kept, whoever sent them. ``ranges``: of each block. ``left_out``: the seq from which on ranges
    did not fit into the plan; 0: all did. ``more``: partitions of the plan beside those that
    execute. ``timeline``: where keys may end.
    """

    parts: dict[tuple[int, int], tuple[GrantedTransactions, SlotRows]] = field(default_factory=dict)
    ranges: list[RangeRows] = field(default_factory=list)
    left_out: int = 0
    timeline: Timeline | None = None
    over: bool = False
    met: int = 0
    members: int = 0
    more: set[int] = field(default_factory=set)

    def add(self, grant: Grant) -> None:
        """Take a grant of one shard."""
        left_out = grant.left_out or 0
        self.left_out = min(self.left_out or left_out, left_out or self.left_out)
        if grant.ranges is not None and len(grant.ranges):
            self.ranges.append(grant.ranges)
        self.members = grant.members
        if grant.more is not None:
            self.more.add(grant.more)
        self.parts[grant.shard, grant.chunk] = grant.txns, grant.slots
        self.timeline = grant.timeline or self.timeline
        now = 0 if self.timeline is None else int(self.timeline.ts[-1])
        if grant.alone:
            self.met += text_bytes(grant.slots, now)
            self.over |= grant.over or self.met > limits.TRANSACTION_VALUES_BYTES_MAX
        if self.over:
            self.parts = {
                at: (txns, _emptied(rows, now)) for at, (txns, rows) in self.parts.items()
            }

    def in_order(self) -> list[tuple[int, GrantedTransactions, SlotRows]]:
        """(shard, transactions, slots), the same whatever order they came in."""
        return [
            (shard, *grant) for (shard, _), grant in sorted(self.parts.items(), key=itemgetter(0))
        ]


def _emptied(slots: SlotRows, now: int) -> SlotRows:
    """Drop the values of all slots but those of the database's own keys,
    and those that have ended.
    """

    def values(chosen: Array) -> ValueRows:
        return slots.take(chosen).cast(ValueRows)

    left = only_system(slots.key, values, over_by(slots, now))
    columns = {"slot": slots.slot, "covered": slots.covered, "written": slots.written}
    return left.cast(SlotRows, **columns, key=slots.key)
