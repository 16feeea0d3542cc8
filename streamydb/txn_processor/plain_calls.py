"""Calls that are nothing but calls, executed one after the other on Python's own copies of slots.

The kernel's slots are made for machine code: Python takes longer to read and write one than a short
procedure runs. So while transactions of this kind follow each other, the slots that they touch are
held here, and go back into the kernel's when somebody else is to see them.

What this cannot do, it leaves untouched for the careful path (`execution`): a call with checks,
asserts, locks or ranges, a follow-up, keys with an end, constraints, faults.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb import errors, limits
from streamydb import records as r
from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.limits import INTEGER_MAX, INTEGER_MIN
from streamydb.procedures import core as procedures
from streamydb.procedures.core import Called, Guesser
from streamydb.procedures.follow_ups import NO_OUTPUTS
from streamydb.procedures.modules import Module, Modules
from streamydb.procedures.view import UNDECLARED
from streamydb.records.expiry import Expiring
from streamydb.records.names import FLOWS_PREFIX, MODULES_PREFIX, RESERVED, WINDOWS_PREFIX
from streamydb.records.ranges import Bounds
from streamydb.records.result import Position
from streamydb.records.rulings import STOPPING
from streamydb.records.updates import apply_update
from streamydb.records.values import canonical
from streamydb.txn_processor import interpreter
from streamydb.txn_processor.comparisons import Value
from streamydb.txn_processor.expiry import Ending
from streamydb.txn_processor.interpreter import Verdict
from streamydb.txn_processor.kernel import BY_PYTHON
from streamydb.txn_processor.outcome import OutputBudget
from streamydb.txn_processor.result import committed_call, encode_verdict
from streamydb.txn_processor.run import Run

_PRIVATE: Final = FLOWS_PREFIX.encode(), WINDOWS_PREFIX.encode()
"""Begin keys that no procedure reads."""
_UNKNOWN: Final[Any] = object()
_ABSENT: Final = type(None)
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
_encode = msgspec.json.Encoder().encode


class _CarefullyError(Exception):
    """The careful path executes this one."""


class _Held(dict[int, bytes | None]):
    """The value that each slot has now, read when it is first asked for."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def __missing__(self, slot_id: int) -> bytes | None:
        _, number, ref, tag, *_ = self._run.values.slots[slot_id].item()
        if tag == p.EXPIRING:
            raise _CarefullyError
        value = self[slot_id] = self._run.value(tag, number, ref)
        return value

    def read_all(self) -> None:
        """Read all slots, which costs less than one by one where most are asked for."""
        run, slots = self._run, self._run.values.slots
        texts = run.pool.whole().tolist()
        columns = (slots[name].tolist() for name in ("tag", "number", "ref"))
        for slot_id, (tag, number, ref) in enumerate(zip(*columns, strict=True)):
            if tag == p.INT:
                self[slot_id] = b"%d" % number
            elif tag == p.OPAQUE:
                self[slot_id] = texts[ref]
            elif tag == p.ABSENT:
                self[slot_id] = None


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
        self._guessers: dict[tuple[str, str], Guesser] = {}
        self._current: dict[tuple[str, bytes | None], Module | None] = {}
        self._private: frozenset[int] = frozenset()
        self.held = _Held(run)
        self.versions: dict[int, int] = {}
        self._noted = 0, 0
        self._writers: list[int] = []
        self._counts: list[int] = []
        self._written: list[int] = []
        self._afters: list[bytes | None] = []

    def executed(
        self, at: int, made: npt.NDArray[np.int64], total: int, budget: OutputBudget, until: int
    ) -> tuple[int, int, int]:
        """Execute from transaction ``at`` on, up to the first that is not of this kind.

        Args:
            at: the first one.
            made: how many bytes each makes is noted here.
            total: what all before have made.
            budget: how much they may make.
            until: the first that is not to be executed now, whatever it is. If it is Python's, it
                is executed here next.

        Returns:
            the first that was not executed, what all before it have made, and how many of the
            plan's first records fit, if not all do (else 0).
        """
        route, careful, fits = self._run.program.route, self._careful, 0
        until = min(until, len(route))
        while not fits and at < until and route[at] == BY_PYTHON and at not in careful:
            size = self.alone(at)
            if size is None:
                break
            made[at] = size
            total += size
            if total > budget.bytes:
                fits = budget.fits(total, self._run.txns.seq.item(at))
            at += 1
        self._put_back()
        if fits or at < until or at == len(route) or route[at] != BY_PYTHON:
            self.held.clear()  # somebody else may write the slots
        for guesser in self._guessers.values():
            guesser.end()
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
        """Give the kernel what has been written since the last time."""
        if self._writers:
            self._run.write_all(self._writers, self._counts, self._written, self._afters)
            self._writers, self._counts, self._written, self._afters = [], [], [], []
        self.versions.clear()
        self._noted = 0, 0

    def slot(self, slot_id: int) -> Value:
        """Return the value and the version that a slot has now."""
        self._note_versions()
        version = self.versions.get(slot_id)
        if version is None:
            version = self._run.values.slots["version"].item(slot_id)
        return self.held[slot_id], version

    def _note_versions(self) -> None:
        """Note the versions of what was written since somebody asked; mostly nobody does."""
        first, at = self._noted
        for i, count in zip(self._writers[first:], self._counts[first:], strict=True):
            seq = self._run.txns.seq.item(i)
            for k in range(at, at + count):
                self.versions[self._written[k]] = 0 if self._afters[k] is None else seq
            at += count
        self._noted = len(self._counts), at

    def _execute(self, i: int, *, guessed: bool = True) -> int | None:
        """As `alone`; ``guessed``: by the speculative form of a module, if that pays."""
        run, ending, held = self._run, self._ending, self.held
        if self._rows is None:
            self._rows = self._begun()
        raw, id_, own, position = self._rows.row(i)
        if len(own) > self._keys_max or not raw or (ending is not None and ending.sent[i]):
            return None
        txn = _decode(raw)
        call = txn.call
        module_key, name = self._names.get(call.procedure) or self._named(call.procedure)
        host = _host_of(self, own, txn, module_key)
        if host is None or (self._rules is not None and self._rules in own):
            return None
        code = self._module(call.procedure, held[host.module])
        seq, ts_ms, *_ = position
        if code is None:
            called = Called(errors.UNKNOWN_PROCEDURE, call.procedure)
        else:
            host.ts_ms = ts_ms
            place = seq, ts_ms, id_.decode()
            known = host if not self._private or self._private.isdisjoint(own) else None
            plain = guessed and known is not None and _are_as_decoded(call.args.values())
            guesser = self._guesser(code, name) if plain else None
            if guesser is None:
                args, taken = _arguments(call.args)
                called = procedures.run(code, name, args, host, place, known=known, taken=taken)
            else:
                guess = guesser.call(call.args, len(raw), host, place, host)
                if guess is None:
                    return self._execute(i, guessed=False)
                called = guess
        if called.code is not None:
            return self._aborted(i, id_, position, Verdict(called.code, reason=called.reason))
        after = called.writes
        if txn.reads:
            verdict = Verdict(reads=host.shown(txn.reads, after), returned=called.returned)
            result = encode_verdict(id_, position, verdict)
        else:
            result = committed_call(id_, position, called.returned)
        if len(result) > limits.RESULT_BYTES_MAX:
            return self._aborted(i, id_, position, Verdict(errors.RESULT_TOO_LARGE))
        run.special[i] = result
        made = len(result)
        if called.outputs is not NO_OUTPUTS:
            run.workflow.append(called.outputs)
            made += called.outputs.size
        return made + self._write(i, host.writable, after)

    def _guesser(self, module: Module, name: str) -> Guesser | None:
        """Return what executes the procedure by guesses; None: nothing does, or it does not pay."""
        guesser = self._guessers.get((module.hash, name))
        if guesser is None and module.speculative is not None:
            guesser = self._guessers[module.hash, name] = Guesser(module.speculative, name)
        return None if guesser is None or not guesser.pays() else guesser

    def _begun(self) -> _Rows:
        """Return the transactions; look at the keys, once for the plan."""
        rows, keys = _Rows(self._run), self._run.keys
        if rows.many:
            self.held.read_all()
        there = np.flatnonzero(keys.lengths())
        reserved = there[keys.data[keys.offsets[there]] == ord(RESERVED)].tolist()
        self._private = frozenset(slot for slot in reserved if keys[slot].startswith(_PRIVATE))
        return rows

    def _aborted(self, i: int, id_: bytes, position: Position, verdict: Verdict) -> int:
        """Note an abort; return the bytes of its result."""
        self._run.special[i] = result = encode_verdict(id_, position, verdict)
        self._run.program.status[i] = p.ABORT_CODES.index(verdict.code or "")
        return len(result)

    def _module(self, procedure: str, deployed: bytes | None) -> Module | None:
        """Return the module of a procedure, as it is deployed; see `interpreter.current_module`."""
        module: Module | None = self._current.get((procedure, deployed), _UNKNOWN)
        if module is _UNKNOWN:
            named = r.Call(procedure)
            module = interpreter.current_module(named, lambda _: (deployed, 0), self._modules)
            self._current[procedure, deployed] = module
        return module

    def _named(self, procedure: str) -> tuple[str, str]:
        """Return the key of the module of a procedure, and its name there."""
        module, _, name = procedure.partition(".")
        names = self._names[procedure] = MODULES_PREFIX + module, name
        return names

    def _write(self, i: int, ids: Mapping[str, int], writes: dict[str, bytes | None]) -> int:
        """Write to the slots; return the bytes of all values, before and after."""
        held, afters = self.held, list(writes.values())
        slots = list(map(ids.__getitem__, writes))
        befores = list(map(held.__getitem__, slots))
        kinds = set(map(type, afters))
        if _ABSENT in kinds:  # what deletes an absent key writes nothing
            kept = [
                k for k, after in enumerate(afters) if after is not None or befores[k] is not None
            ]
            slots, befores = [slots[k] for k in kept], [befores[k] for k in kept]
            afters = [afters[k] for k in kept]
        if not slots:
            return 0
        held.update(zip(slots, afters, strict=True))
        self._writers.append(i)
        self._counts.append(len(slots))
        self._written += slots
        self._afters += afters
        if self._ending is not None and Expiring in kinds:
            self._put_back()
            for slot_id, after in zip(slots, afters, strict=True):
                if type(after) is Expiring:
                    self._ending.send(slot_id)
        return sum(map(len, filter(None, befores))) + sum(map(len, filter(None, afters)))


def _arguments(given: dict[str, Any]) -> tuple[bytes, dict[str, Any] | None]:
    """Return the canonical bytes of a call's arguments, or as many; and the objects that a
    procedure would get of them, None if these have to be made.
    """
    if _are_as_decoded(given.values()):
        return _encode(given), given
    return canonical(given), None


def _are_as_decoded(values: Iterable[Any]) -> bool:
    """Return True if values are what is decoded of their canonical bytes."""
    for value in values:
        kind = type(value)
        if kind is int:
            if not INTEGER_MIN <= value <= INTEGER_MAX:
                return False
        elif kind is list:
            if not _are_as_decoded(value):
                return False
        elif kind is not str and kind is not bool and value is not None:
            return False
    return True


_Row = tuple[bytes, bytes, list[int], Position]
"""A transaction: its record and its id, its slots in the order of `r.keys`, and where it lies."""


class _Rows:
    """The transactions of a run, one by one: as lists, if ``many`` of them are Python's."""

    __slots__ = ("_lists", "_run", "many")

    def __init__(self, run: Run) -> None:
        program, txns = run.program, run.txns
        self._run = run
        self._lists: tuple[list[bytes], list[bytes], list[int], list[int], list[Position]] | None
        self._lists = None
        self.many = np.count_nonzero(program.route == BY_PYTHON) * _MOSTLY >= len(program.route)
        if self.many:
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
    """The keys of a call, with the slots behind them; see `procedures.view.Host`.

    Attributes:
        module: the slot of its module.
        values: the values of its keys before the call, which changes them (see `view.Known`).
        writable: the slots of those that it may write.
        ts_ms: when the call commits.
    """

    __slots__ = (
        "_calls", "_named", "_slots", "module", "ts_ms", "values", "writable",
    )  # fmt: skip

    def __init__(
        self, calls: PlainCalls, module: int, values: dict[str, bytes | None],
        writable: dict[str, int], named: tuple[Sequence[str], Sequence[int]],
    ) -> None:  # fmt: skip
        """``named``: keys and their slots, as many as both have."""
        self._calls, self._named = calls, named
        self._slots: dict[str, int] | None = None
        self.module, self.values, self.writable = module, values, writable
        self.ts_ms = 0

    def shown(
        self, keys: Sequence[str], after: Mapping[str, bytes | None]
    ) -> dict[str, bytes | None]:
        """Return the values of keys that the result shows."""
        held, slots = self._calls.held, dict(zip(*self._named, strict=True))
        return {key: after[key] if key in after else held[slots[key]] for key in keys}

    def _slot(self, key: str) -> int | None:
        if key not in self.values:
            return None
        if self._slots is None:
            self._slots = dict(zip(*self._named, strict=True))
        return self._slots.get(key)

    def look(self, key: str) -> Value:
        slot_id = self._slot(key)
        if slot_id is None:
            raise InvariantViolation(f"a call looks at {key}, and does not name it")
        return self._calls.slot(slot_id)

    def may(self, key: str, *, write: bool) -> bool:
        return key in self.writable or (not write and key in self.values)

    def fetch(self, key: str, write: bool) -> Any:  # noqa: FBT001 - as in `view.Host`
        slot_id = self.writable.get(key) if write else self._slot(key)
        return UNDECLARED if slot_id is None else self._calls.held[slot_id]

    def around(self, _bounds: Bounds) -> Bounds | None:
        return None  # it has declared none

    def entries(self, declared: Bounds) -> Sequence[tuple[str, bytes]]:
        raise InvariantViolation(f"a call scans {declared}, and names no range")

    def apply(self, update: r.Update, before: bytes | None) -> bytes | None:
        return apply_update(update, before, self.ts_ms)


def _host_of(calls: PlainCalls, own: list[int], txn: _Record, module_key: str) -> _Host | None:
    """Give the keys of a record their slots; None: that is not plain.

    ``own``: its slots in the order of `r.keys`, in which each key is once.
    """
    call, value_of = txn.call, calls.held.__getitem__
    reads, keys = call.reads, call.keys
    if not txn.reads and len(own) == 1 + len(reads) + len(keys):
        names = reads + keys if reads else keys
        slots = own[1:]
        values = dict(zip(names, map(value_of, slots)))  # noqa: B905 - they are as many
        if len(values) == len(slots) and module_key not in values:
            writable = dict(zip(keys, slots[len(reads) :] if reads else slots))  # noqa: B905
            return _Host(calls, own[0], values, writable, (names, slots))
    ids = dict.fromkeys((*txn.reads, module_key, *reads, *keys), 0)
    if len(ids) != len(own):
        return None
    ids = dict(zip(ids, own, strict=True))
    values = {key: value_of(ids[key]) for key in (*reads, *keys)}
    writable = {key: ids[key] for key in keys}
    return _Host(calls, ids[module_key], values, writable, (tuple(ids), own))
