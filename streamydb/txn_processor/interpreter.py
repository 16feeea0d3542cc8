"""The TransactionProcessor: executes one transaction on the values that were granted to it.

It does no I/O: it takes a transaction and a function that looks up values, and returns a verdict.
Others read the values, apply the writes and format the records.
This is the executor of `grouping=single` and of the transactions that the kernel leaves to Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import msgspec
import numpy.typing as npt

from streamydb import errors
from streamydb import records as r
from streamydb.constraints import DeclarationRefused, amended, parse
from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.limits import RESULT_BYTES_MAX, VIOLATED_CHARACTERS_MAX
from streamydb.procedures.core import Called, run, version_of
from streamydb.procedures.follow_ups import NO_OUTPUTS, Outputs, Turn, turn_of
from streamydb.procedures.meter import cut_reason
from streamydb.procedures.modules import Module, Modules
from streamydb.procedures.view import Declared, Stamp
from streamydb.records.ranges import Bounds, Range
from streamydb.records.updates import UpdateFailed, apply_update
from streamydb.txn_processor.comparisons import Failed, Value, failed_checks, failed_entry
from streamydb.txn_processor.enforce import Judged, NamedRanges, enforce
from streamydb.txn_processor.ranges import (
    Entries,
    See,
    entries_after,
    failed_range,
    nothing_seen,
    too_heavy,
    too_many,
)
from streamydb.txn_processor.run import Run

# Bytes of a result at most: of an escaped character, of a range and an entry beside their texts.
_ESCAPED_BYTES: Final = 6
_RANGE_BYTES: Final = 48
_ENTRY_BYTES: Final = 56


@dataclass(slots=True, frozen=True)
class Write:
    """One effective write; None stands for absent, before or after."""

    key: str
    before: bytes | None
    after: bytes | None


@dataclass(slots=True)
class Verdict:
    """The outcome of a transaction; ``code`` is None when it committed.

    ``ranges``: those that it read, with their entries.
    ``returned``: what its call returned, None without a call. ``reason``: why its call aborted.
    ``outputs``: what it gives to its workflow. A follow-up writes that it is done when it
    aborts, too.
    """

    code: str | None = None
    failed: list[Failed] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    reads: dict[str, bytes | None] = field(default_factory=dict)
    ranges: list[tuple[Range, Entries]] = field(default_factory=list)
    returned: bytes | None = None
    reason: str | None = None
    outputs: Outputs = NO_OUTPUTS


@dataclass(slots=True, frozen=True)
class ExecutionContext:
    """The context of an execution: the code of procedures, and the transaction's place.

    ``constrained``: whether the key of the constraints is among those that were granted. ``see``:
    the ranges that the transaction names.
    """

    modules: Modules
    place: Stamp
    constrained: bool = False
    see: See = nothing_seen


def execute(
    txn: r.Transaction,
    look: Callable[[str], Value],
    size: Callable[[Verdict], int],
    calls: ExecutionContext,
) -> Verdict:
    """Execute ``txn`` on the state before it, as ``look`` shows it.

    Args:
        txn: a valid transaction.
        look: the value and version of any key that the transaction touches.
        size: the bytes that the result record would have with this verdict.
        calls: where the code of procedures is, and the transaction's place.

    Raises ModuleMissing: the code that the transaction calls is not on this machine.
    """
    if too_many(txn, calls.see) or too_heavy(txn, calls.see):
        return too_large(txn, look, errors.RANGE_TOO_LARGE)
    failed = failed_checks(txn, look, partial(failed_range, see=calls.see))
    if failed:
        return Verdict(errors.CHECK_FAILED, failed)
    if txn.call is not msgspec.UNSET:
        return _call(txn, txn.call, look, size, calls)
    if txn.constrain is not msgspec.UNSET:
        return _constrain(txn, txn.constrain, look, size, calls)
    after: dict[str, bytes | None] = {}
    for index, update in enumerate(txn.updates):
        before, version = look(update.key)
        try:
            value = apply_update(update, before, calls.place.ts_ms)
        except UpdateFailed as failure:
            entry = failed_entry("update", index, update.key, before, version)
            return Verdict(failure.code, [entry])
        after[update.key] = value
    return _concluded(txn, after, look, size, calls)


def _concluded(
    txn: r.Transaction,
    after: dict[str, bytes | None],
    look: Callable[[str], Value],
    size: Callable[[Verdict], int],
    calls: ExecutionContext,
    called: Called | None = None,
) -> Verdict:
    """Return the verdict of a transaction that writes ``after``, unless a constraint forbids it.

    ``called``: what its call gives, which is lost with an abort.
    """
    if calls.constrained:
        rules = parse(look(r.CONSTRAINTS_KEY)[0])
        if rules.all or txn.locks:
            named = NamedRanges(txn.ranges, lambda bounds: calls.see.seen(bounds).keys)
            ruling = enforce(rules, _judged(after, look), txn.lock_keys, look, named)
            if ruling.code is not None:
                return _forbidden(Verdict(ruling.code, ruling.failed, reason=ruling.reason), size)
            after = after | ruling.indexed
    writes = []
    for key, value in after.items():
        before = look(key)[0]
        if before is not None or value is not None:
            writes.append(Write(key, before, value))
    reads = {key: after[key] if key in after else look(key)[0] for key in _read_keys(txn)}
    ranges = entries_after(txn, calls.see, after, calls.place.seq)
    if ranges is None:
        return Verdict(errors.RESULT_TOO_LARGE)
    verdict = Verdict(None, [], writes, reads, ranges)
    if called is not None:
        verdict.returned, verdict.outputs = called.returned, called.outputs
    return _fitting(verdict, size)


def _forbidden(verdict: Verdict, size: Callable[[Verdict], int]) -> Verdict:
    """The verdict of a transaction that constraints forbid; if its result is too large, what it
    tells of the broken rules is cut: they name places within values.
    """
    long = [e for e in verdict.failed if len(e.get("violated", "")) > VIOLATED_CHARACTERS_MAX]
    if long and size(verdict) > RESULT_BYTES_MAX:
        for entry in long:
            entry["violated"] = entry["violated"][:VIOLATED_CHARACTERS_MAX]
    return verdict


def _judged(after: dict[str, bytes | None], look: Callable[[str], Value]) -> list[Judged]:
    judged = []
    for place, (key, value) in enumerate(after.items()):
        before, version = look(key)
        if before is not None or value is not None:
            judged.append(Judged(place, key, before, value, version))
    return judged


def _constrain(
    txn: r.Transaction,
    wanted: bytes,
    look: Callable[[str], Value],
    size: Callable[[Verdict], int],
    calls: ExecutionContext,
) -> Verdict:
    try:
        before = look(r.CONSTRAINTS_KEY)[0]
        value = amended(before, wanted, calls.place.seq)
    except DeclarationRefused as refused:
        return Verdict(errors.CONSTRAINT_REFUSED, reason=cut_reason(str(refused)))
    return _concluded(txn, {r.CONSTRAINTS_KEY: value}, look, size, calls)


def _fitting(verdict: Verdict, size: Callable[[Verdict], int]) -> Verdict:
    """The verdict, if its result record is not too large; measured only if it might be."""
    about = sum(len(value or b"") + 6 * len(key) + 8 for key, value in verdict.reads.items())
    for named, entries in verdict.ranges:
        about += sum(map(len, named.names())) * _ESCAPED_BYTES + _RANGE_BYTES
        about += sum(
            len(value or b"") + _ESCAPED_BYTES * len(key) + _ENTRY_BYTES
            for key, (value, _) in entries.items()
        )
    if about + len(verdict.returned or b"") < RESULT_BYTES_MAX // 2:
        return verdict
    return Verdict(errors.RESULT_TOO_LARGE) if size(verdict) > RESULT_BYTES_MAX else verdict


class _Declared(Declared):
    """The keys and ranges of a call, with the values before it."""

    def __init__(self, call: r.Call, look: Callable[[str], Value], calls: ExecutionContext) -> None:
        super().__init__(call.keys, call.reads, call.ranges)
        self._look = look
        self._see = calls.see
        self._ts_ms = calls.place.ts_ms
        self._seen: dict[str, Value] = {}

    def look(self, key: str) -> Value:
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = self._look(key)
        return seen

    def entries(self, declared: Bounds) -> list[tuple[str, bytes]]:
        entries = (self._see.entries(declared) or {}).items()
        return sorted((key, value) for key, (value, _) in entries if value is not None)

    def apply(self, update: r.Update, before: bytes | None) -> bytes | None:
        return apply_update(update, before, self._ts_ms)


def _call(
    txn: r.Transaction,
    call: r.Call,
    look: Callable[[str], Value],
    size: Callable[[Verdict], int],
    calls: ExecutionContext,
) -> Verdict:
    """Call a procedure; if it is a follow-up, only when its turn has come, and count it in any
    case.
    """
    turn = turn_of(call, look)
    if turn is not None and turn.code is not None:
        return Verdict(turn.code)
    return _counted(_called(txn, call, look, size, calls), turn, look)


def _counted(verdict: Verdict, turn: Turn | None, look: Callable[[str], Value]) -> Verdict:
    if turn is not None and verdict.code is not None:
        verdict.writes = [Write(turn.key, look(turn.key)[0], turn.done)]
    return verdict


def failed(txn: r.Transaction | None, look: Callable[[str], Value]) -> Verdict:
    """Return the verdict of a transaction that an internal fault has ended."""
    call = msgspec.UNSET if txn is None else txn.call
    turn = None if call is msgspec.UNSET else turn_of(call, look)
    if turn is not None and turn.code is not None:
        turn = None
    return _counted(Verdict(errors.INTERNAL), turn, look)


def too_large(
    txn: r.Transaction, look: Callable[[str], Value], code: str = errors.VALUES_TOO_LARGE
) -> Verdict:
    """Return the verdict of a transaction whose keys, or ranges, hold too much; see `execute`."""
    turn = None if txn.call is msgspec.UNSET else turn_of(txn.call, look)
    if turn is not None and turn.code is not None:
        return Verdict(turn.code)
    return _counted(Verdict(code), turn, look)


def _called(
    txn: r.Transaction,
    call: r.Call,
    look: Callable[[str], Value],
    size: Callable[[Verdict], int],
    calls: ExecutionContext,
) -> Verdict:
    """Run the procedure with the version of its module that is current at this place in the
    order.
    """
    module = current_module(call, look, calls.modules)
    if module is None:
        return Verdict(errors.UNKNOWN_PROCEDURE, reason=call.procedure)
    host = _Declared(call, look, calls)
    batch = None if call.batch is msgspec.UNSET else call.batch
    called = run(module, call.name, call.args, host, calls.place, batch)
    if called.code is not None:
        return Verdict(called.code, reason=called.reason)
    return _concluded(txn, called.writes, host.look, size, calls, called)


class _Named(Protocol):
    """The name of a procedure: in the log, and its parts."""

    @property
    def module(self) -> str: ...

    @property
    def name(self) -> str: ...


def current_module(call: _Named, look: Callable[[str], Value], modules: Modules) -> Module | None:
    """The module as it is deployed before the transaction; None if the procedure is not in it."""
    deployed = look(r.module_key(call.module))[0]
    if deployed is None:
        return None
    version = version_of(deployed)
    if call.name not in version.procedures:
        return None
    module = modules.find(call.module, version.hash)
    return module if call.name in module.procedures else None


def _read_keys(txn: r.Transaction) -> dict[str, None]:
    keys = dict.fromkeys(txn.read_keys)
    keys.update(dict.fromkeys(u.key for u in txn.updates if isinstance(u, r.NextId)))
    return keys


def transaction_of(run: Run, i: int) -> r.Transaction:
    """The transaction at position ``i``: its payload, or what its steps were compiled from.
    Raises InvariantViolation: the payload was valid when it was compiled, and is not now.
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
            count = int(step["low"])
            setattr(check, _COMPARATORS[op], bool(count) if op == p.R_EXISTS else count)
        elif op == p.READ:
            reads.append(key)
        else:
            updates.append(_update_of(step, key, value))
    txn.checks = tuple(checks[index] for index in sorted(checks))
    txn.reads, txn.updates = tuple(reads), tuple(updates)
    return txn


_COMPARATORS: Final = {
    p.C_EQ: "eq", p.C_NE: "ne", p.C_VERSION: "version", p.C_EXISTS: "exists", p.C_LT: "lt",
    p.C_LE: "le", p.C_GT: "gt", p.C_GE: "ge", p.R_COUNT: "count", p.R_COUNT_LE: "count_le",
    p.R_COUNT_GE: "count_ge", p.R_VERSION_LE: "version_le", p.R_EXISTS: "exists",
}  # fmt: skip


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
