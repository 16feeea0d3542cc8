"""Calls that are nothing but calls, executed one after the other on Python's own copies of slots.

The kernel's slots are made for machine code: Python takes longer to read and write one than a short
procedure runs. So while transactions of this kind follow each other, the slots that they touch are
held here, and go back into the kernel's when somebody else is to see them.

What this cannot do, it leaves untouched for the careful path (`execution`): a call with checks,
asserts, locks or ranges, a follow-up, keys with an end, constraints, faults.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb import errors, limits
from streamydb import records as r
from streamydb.columns import program as p
from streamydb.errors import InvariantViolation
from streamydb.procedures import core as procedures
from streamydb.procedures.core import Called
from streamydb.procedures.follow_ups import NO_OUTPUTS
from streamydb.procedures.modules import Module, Modules
from streamydb.procedures.view import UNDECLARED, Stamp
from streamydb.records.names import MODULES_PREFIX
from streamydb.records.ranges import Bounds
from streamydb.records.rulings import STOPPING
from streamydb.records.updates import apply_update
from streamydb.records.values import canonical
from streamydb.txn_processor import interpreter
from streamydb.txn_processor.comparisons import Value
from streamydb.txn_processor.expiry import Ending
from streamydb.txn_processor.interpreter import Verdict
from streamydb.txn_processor.kernel import BY_PYTHON
from streamydb.txn_processor.outcome import Most
from streamydb.txn_processor.result import Position, committed_call, encode_verdict
from streamydb.txn_processor.run import Run

__all__ = ["PlainCalls"]

_MOSTLY: Final = 4
"""If a fourth of the transactions are Python's, lists of all columns cost less than looking."""


class _Call(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A call without ranges that is no follow-up; see `records.transaction.Call`."""

    procedure: str
    args: dict[str, Any] = {}
    keys: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


class _Record(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A record with nothing but a call, keys that are read, and a deadline."""

    id: msgspec.Raw
    call: _Call
    reads: tuple[str, ...] = ()
    deadline_ms: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Record).decode


class _CarefullyError(Exception):
    """The careful path executes this one."""


class PlainCalls:
    """The calls of one execution, with the slots that they have touched since the kernel ran."""

    def __init__(
        self, run: Run, modules: Modules, ending: Ending | None, rules: int | None,
        careful: Container[int],
    ) -> None:  # fmt: skip
        """Execute on ``run``.

        Args:
            run: the execution.
            modules: the code of procedures.
            ending: the keys that end; None if none can.
            rules: the slot of the constraints, if it was granted.
            careful: transactions that are left to the careful path, whatever they are.

        """
        self._careful = careful
        self._keys_max = limits.TRANSACTION_VALUES_BYTES_MAX // limits.VALUE_BYTES_MAX
        self._run, self._modules, self._ending, self._rules = run, modules, ending, rules
        self._rows: _Rows | None = None
        self._names: dict[str, tuple[str, str]] = {}
        self._current: dict[tuple[str, bytes | None], Module | None] = {}
        self.held: dict[int, Value] = {}
        self._writers: list[int] = []
        self._written: list[int] = []
        self._afters: list[bytes | None] = []

    def executed(
        self, at: int, made: npt.NDArray[np.int64], total: int, most: Most
    ) -> tuple[int, int, int]:
        """Execute from transaction ``at`` on, up to the first that is not of this kind.

        Args:
            at: the first one.
            made: how many bytes each makes is noted here.
            total: what all before have made.
            most: how much they may make.

        Returns:
            the first that was not executed, what all before it have made, and how many of the
            plan's first records fit, if not all do (else 0).

        """
        route, careful, fits, first = self._run.program.route, self._careful, 0, at
        while not fits and at < len(route) and route[at] == BY_PYTHON and at not in careful:
            size = self.alone(at)
            if size is None:
                break
            made[at] = size
            total += size
            if total > most.bytes:
                fits = most.fits(total, self._run.txns.seq.item(at))
            at += 1
        if at > first:
            self._put_back()
        return at, total, fits

    def alone(self, i: int) -> int | None:
        """Execute transaction ``i``; return how many bytes it makes. None: it is not of this kind,
        and nothing was done.
        """
        try:
            return self._execute(i)
        except STOPPING:
            raise
        except Exception:  # noqa: BLE001 - the careful path meets it again, and reports it
            return None

    def id_of(self, i: int) -> bytes:
        """Return the id of transaction ``i``."""
        return self._run.txns.id[i]

    def _put_back(self) -> None:
        """Give the kernel what has been written since the last time; forget all slots."""
        if self._afters:
            self._run.write_all(self._writers, self._written, self._afters)
            self._writers, self._written, self._afters = [], [], []
        self.held.clear()

    def slot(self, slot_id: int) -> Value:
        """Return the value and the version that a slot has now."""
        known = self.held.get(slot_id)
        if known is not None:
            return known
        version, number, ref, tag, *_ = self._run.values.slots[slot_id].item()
        if tag == p.EXPIRING:
            raise _CarefullyError
        found = self.held[slot_id] = self._run.value(tag, number, ref), version
        return found

    def _execute(self, i: int) -> int | None:
        run, ending = self._run, self._ending
        if self._rows is None:
            self._rows = _Rows(run)
        raw, id_, own, position = self._rows.row(i)
        if len(own) > self._keys_max or not raw or (ending is not None and ending.sent[i]):
            return None
        txn = _decode(raw)
        call = txn.call
        module_key, name = self._names.get(call.procedure) or self._named(call.procedure)
        slots = _slots(own, txn, module_key)
        if slots is None or self._rules in own:
            return None
        code = self._module(call.procedure, self.slot(slots.module)[0])
        seq, ts_ms, *_ = position
        host = _Host(self, slots, ts_ms)
        stamp = Stamp(seq, ts_ms, id_.decode())
        if code is None:
            called = Called(errors.UNKNOWN_PROCEDURE, call.procedure)
        else:
            called = procedures.run(code, name, canonical(call.args), host, stamp)
        if called.code is not None:
            return self._aborted(i, id_, position, Verdict(called.code, reason=called.reason))
        after = called.writes
        if txn.reads:
            reads = {
                key: after[key] if key in after else self.slot(slots.read[key])[0]
                for key in txn.reads
            }
            shown = Verdict(reads=reads, returned=called.returned)
            result = encode_verdict(id_, position, shown)
        else:
            result = committed_call(id_, position, called.returned)
        if len(result) > limits.RESULT_BYTES_MAX:
            return self._aborted(i, id_, position, Verdict(errors.RESULT_TOO_LARGE))
        run.special[i] = result
        made = len(result)
        if called.outputs is not NO_OUTPUTS:
            run.workflow.append(called.outputs)
            made += called.outputs.size
        return made + self._write(i, seq, slots.writable, after)

    def _aborted(self, i: int, id_: bytes, position: Position, verdict: Verdict) -> int:
        """Note an abort; return the bytes of its result."""
        self._run.special[i] = result = encode_verdict(id_, position, verdict)
        self._run.program.status[i] = p.ABORT_CODES.index(verdict.code or "")
        return len(result)

    def _module(self, procedure: str, deployed: bytes | None) -> Module | None:
        """Return the module of a procedure, as it is deployed; see `interpreter.current_module`."""
        if (procedure, deployed) not in self._current:
            named = r.Call(procedure)
            found = interpreter.current_module(named, lambda _: (deployed, 0), self._modules)
            self._current[procedure, deployed] = found
        return self._current[procedure, deployed]

    def _named(self, procedure: str) -> tuple[str, str]:
        """Return the key of the module of a procedure, and its name there."""
        module, _, name = procedure.partition(".")
        found = self._names[procedure] = MODULES_PREFIX + module, name
        return found

    def _write(
        self, i: int, seq: int, ids: Mapping[str, int], writes: dict[str, bytes | None]
    ) -> int:
        """Write to the slots; return the bytes of all values, before and after."""
        made, ends = 0, []
        for key, after in writes.items():
            slot_id = ids[key]
            before = self.slot(slot_id)[0]
            if after is None:
                if before is None:
                    continue
                self.held[slot_id] = None, 0
            else:
                made += len(after)
                self.held[slot_id] = after, seq
                if type(after) is not bytes:
                    ends.append(slot_id)
            if before is not None:
                made += len(before)
            self._writers.append(i)
            self._written.append(slot_id)
            self._afters.append(after)
        if ends and self._ending is not None:
            self._put_back()
            for slot_id in ends:
                self._ending.send(slot_id)
        return made


class _Slots(NamedTuple):
    """The slots of a call's keys: its module's, and by key those that it may write, that it only
    reads, and that the result shows.
    """

    module: int
    writable: Mapping[str, int]
    readable: Mapping[str, int]
    read: Mapping[str, int]


def _slots(own: list[int], txn: _Record, module_key: str) -> _Slots | None:
    """Give the keys of a record their slots; None: that is not plain.

    ``own``: its slots in the order of `r.keys`, in which each key is once.
    """
    call, shown = txn.call, txn.reads
    first = len(shown) + 1
    end = first + len(call.reads)
    if len(own) == end + len(call.keys) and not shown:
        readable = dict(zip(call.reads, own[first:end], strict=True))
        writable = dict(zip(call.keys, own[end:], strict=True))
        if (
            len(readable) + len(writable) + 1 == len(own)
            and module_key not in readable
            and (readable.keys().isdisjoint(writable))
        ):
            return _Slots(own[0], writable, readable, readable)
    named = dict.fromkeys((*shown, module_key, *call.reads, *call.keys))
    if len(named) != len(own):
        return None
    ids = dict(zip(named, own, strict=True))
    writable = {key: ids[key] for key in call.keys}
    return _Slots(ids[module_key], writable, {key: ids[key] for key in call.reads}, ids)


_Row = tuple[bytes, bytes, list[int], Position]
"""A transaction: its record and its id, its slots in the order of `r.keys`, and where it lies."""


class _Rows:
    """The transactions of a run, one by one: as lists, if many of them are Python's."""

    __slots__ = ("_lists", "_run")

    def __init__(self, run: Run) -> None:
        """Make lists, where looking into arrays costs more."""
        program, txns = run.program, run.txns
        self._run = run
        self._lists: tuple[list[bytes], list[bytes], list[int], list[int], list[Position]] | None
        self._lists = None
        if np.count_nonzero(program.route == BY_PYTHON) * _MOSTLY >= len(program.route):
            columns = txns.seq, txns.ts_ms, txns.partition, txns.offset
            positions = zip(*(column.tolist() for column in columns), strict=True)
            self._lists = (
                txns.raw.tolist(),
                txns.id.tolist(),
                program.key_starts.tolist(),
                program.key_slot.tolist(),
                list(positions),
            )

    def row(self, i: int) -> _Row:
        """Return one."""
        if self._lists is None:
            run, txns = self._run, self._run.txns
            columns = txns.seq, txns.ts_ms, txns.partition, txns.offset
            seq, ts_ms, part, off = (column.item(i) for column in columns)
            own: list[int] = run.slots_of(i).tolist()
            return txns.raw[i], txns.id[i], own, (seq, ts_ms, part, off)
        raws, ids, starts, slots, positions = self._lists
        return raws[i], ids[i], slots[starts[i] : starts[i + 1]], positions[i]


class _Host:
    """The keys of a call, with the slots behind them; see `procedures.view.Host`."""

    __slots__ = ("_calls", "_held", "_readable", "_ts_ms", "_writable")

    def __init__(self, calls: PlainCalls, slots: _Slots, ts_ms: int) -> None:
        self._writable, self._readable = slots.writable, slots.readable
        self._calls, self._ts_ms = calls, ts_ms
        self._held = calls.held

    def look(self, key: str) -> Value:
        slot_id = self._writable.get(key)
        return self._calls.slot(self._readable[key] if slot_id is None else slot_id)

    def may(self, key: str, *, write: bool) -> bool:
        return key in self._writable or (not write and key in self._readable)

    def fetch(self, key: str, write: bool) -> Any:  # noqa: FBT001 - as in `view.Host`
        slot_id = self._writable.get(key)
        if slot_id is None:
            if write or key not in self._readable:
                return UNDECLARED
            slot_id = self._readable[key]
        known = self._held.get(slot_id)
        return (self._calls.slot(slot_id) if known is None else known)[0]

    def around(self, _bounds: Bounds) -> Bounds | None:
        return None  # it has declared none

    def entries(self, declared: Bounds) -> Sequence[tuple[str, bytes]]:
        raise InvariantViolation(f"a call scans {declared}, and names no range")

    def apply(self, update: r.Update, before: bytes | None) -> bytes | None:
        return apply_update(update, before, self._ts_ms)
