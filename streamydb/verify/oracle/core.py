"""The serial oracle executes a log in plain single-threaded Python.

Every test, the simulator and ``streamydb check`` compare the outputs of the engine with this, byte
for byte. It is written to be read: one record after the other, in the total order, on a dictionary.
It shares with the engine what is no execution of ours: codecs of records, the language of stored
procedures (what a call does with its keys, and what a follow-up's turn is), how constraints are
declared and read, and the list of rulings. Of sorting, planning, locking, granting, ids, updates,
checks and enforced constraints it has its own (`order`, `steps`, `constraints.judge`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import UNSET

from streamydb import errors, limits
from streamydb.constraints import DeclarationRefused, amended
from streamydb.constraints.judge import CountedRanges, Judge
from streamydb.procedures.core import ModuleVersion, version_of
from streamydb.procedures.core import run as call_procedure
from streamydb.procedures.follow_ups import NO_OUTPUTS, Outputs, turn_of
from streamydb.procedures.meter import cut_reason
from streamydb.procedures.modules import NO_MODULES, Module, Modules
from streamydb.procedures.view import Declared
from streamydb.procedures.view import Stamp as CallPlace
from streamydb.records import (
    CONSTRAINTS_KEY,
    Call,
    Failed,
    Marker,
    NextId,
    Rejection,
    Result,
    Source,
    Transaction,
    Update,
    decode,
    encode_result,
    keys,
    module_key,
)
from streamydb.records.begins import CONSTRAINTS_ANYWHERE, EXPIRY, RANGES, VALUES_BOUNDED
from streamydb.records.ranges import Bounds
from streamydb.records.result import NULL
from streamydb.records.rulings import NO_RULINGS, Fault, Rulings
from streamydb.records.updates import UpdateFailed
from streamydb.verify.oracle.expiry import OracleExpiry, removals
from streamydb.verify.oracle.outputs import (
    OutputRecord,
    Place,
    Verdict,
    raw_value,
    refuse,
    repeat,
    with_letter,
)
from streamydb.verify.oracle.ranges import OracleRanges
from streamydb.verify.oracle.steps import ended, holds, payload_hash_of, untimely, updated

__all__ = ["Oracle"]

_Abort = UpdateFailed


class Oracle:
    """Applies the records of the log one by one, in the total order.

    ``state`` maps a key to its canonical value and its version (the seq that wrote it). What has
    ended by the time of a record is removed before it is executed; its change is told with that
    record, unless that writes the key itself: then its change tells both.
    """

    def __init__(
        self,
        database: str,
        id_window: int = limits.ID_WINDOW_DEFAULT,
        rulings: Rulings = NO_RULINGS,
        modules: Modules = NO_MODULES,
        *,
        constraints: bool = False,
    ) -> None:
        """Start with an empty database; an id is remembered for ``id_window`` seqs, and until its
        transaction's deadline.

        ``rulings``: which records a fault of ours has aborted, and where rules begin. ``modules``:
        where the code of stored procedures is. ``constraints``: it was created for constraints.
        """
        self.rulings = rulings
        self.modules = modules
        self.constraints = constraints
        self.database = database
        self.id_window = id_window
        self.state: dict[str, tuple[bytes, int]] = {}
        self._ranges = OracleRanges(lambda: self.state)
        self._expiry = OracleExpiry()
        self._gone: dict[str, bytes] = {}
        self._place: Place | None = None
        self.next_seq = 1
        self._seen: OrderedDict[str, Verdict] = OrderedDict()
        self._outputs = NO_OUTPUTS

    def apply(
        self, raw: bytes | None, partition: int, offset: int, ts_ms: int
    ) -> list[OutputRecord]:
        """The outputs of the next record in the total order, in output order; updates the state.

        Args:
            raw: the record's value; a marker is no transaction, takes no seq and has no outputs.
            partition: where the record lies in the log.
            offset: where the record lies in its partition.
            ts_ms: the record's effective time.
        """
        return self._with_removals(self._outputs_of(raw, partition, offset, ts_ms))

    def _with_removals(self, outputs: list[OutputRecord]) -> list[OutputRecord]:
        """The outputs of a record; behind its result the removals of what has ended by its time."""
        if self._place is None or not self._gone:
            return outputs
        gone, self._gone = self._gone, {}
        return [*outputs[:1], *removals(gone, self._place), *outputs[1:]]

    def _outputs_of(
        self, raw: bytes | None, partition: int, offset: int, ts_ms: int
    ) -> list[OutputRecord]:
        """The outputs of the next record, but for the removals of what has ended."""
        fault = self.rulings.get((partition, offset))
        if fault is not None:
            return self._fail(fault, raw, self._next(partition, offset, ts_ms))
        record = self._decoded(raw, partition, offset)
        if isinstance(record, Marker):
            return []
        place = self._next(partition, offset, ts_ms)
        payload_hash = payload_hash_of(raw or b"", record)
        if isinstance(record, Transaction) and not self._may_be(record, place):
            record = Rejection(errors.CONSTRAINTS_OFF, record.id)
        if isinstance(record, Rejection):
            return refuse(record, raw, place)
        if record.call is not UNSET and record.call.batch is not UNSET:
            return self._follow(record, record.call, place)
        seen = self._seen.get(record.id)
        if seen is not None and self._is_remembered(seen, place):
            return repeat(record.id, seen, payload_hash, place)
        code = untimely(record, ts_ms)
        if code is not None:
            result = place.result(record.id, "rejected", code=code)
            return [OutputRecord("results", record.id.encode(), encode_result(result))]
        result, writes = self._execute(record, place)
        encoded = encode_result(result)
        self._see(record.id, Verdict(place.seq, record.deadline, payload_hash, encoded))
        return self._given(record.id, encoded, writes, place)

    def _decoded(
        self, raw: bytes | None, partition: int, offset: int
    ) -> Transaction | Marker | Rejection:
        """A record, by the rules of its place in the log."""
        begins = self.rulings.begins
        return decode(
            raw,
            ranges=begins.holds(RANGES, partition, offset),
            expiry=begins.holds(EXPIRY, partition, offset),
        )

    def _given(
        self, name: str, result: bytes, writes: Mapping[str, bytes | None], place: Place
    ) -> list[OutputRecord]:
        """All outputs of an executed transaction; updates the state."""
        outputs = [OutputRecord("results", name.encode(), result)]
        outputs += self._write(name, writes, place)
        outputs += [OutputRecord("streams", *record) for record in self._outputs.emitted]
        outputs += [OutputRecord("transactions", *record) for record in self._outputs.follow_ups]
        self._outputs = NO_OUTPUTS
        return outputs

    def _follow(self, txn: Transaction, call: Call, place: Place) -> list[OutputRecord]:
        """The outputs of a follow-up: executed in its turn, and counted even when it aborts."""
        turn = turn_of(call, self._look)
        if turn is None or turn.code is not None:
            code = None if turn is None else turn.code
            result = place.result(txn.id, "aborted", code=code)
            writes: dict[str, bytes | None] = {}
        else:
            result, writes = self._execute(txn, place)
            if result.status != "committed":
                writes = {turn.key: turn.done}
        return self._given(txn.id, encode_result(result), writes, place)

    def _look(self, key: str) -> tuple[bytes | None, int]:
        return self.state.get(key, (None, 0))

    def _may_be(self, txn: Transaction, place: Place) -> bool:
        """Constraints are declared where the rule holds, or in a database created for them."""
        at = place.source
        anywhere = self.rulings.begins.holds(CONSTRAINTS_ANYWHERE, at.partition, at.offset)
        return txn.constrain is UNSET or self.constraints or anywhere

    def _next(self, partition: int, offset: int, ts_ms: int) -> Place:
        """The place of the next transaction."""
        seq = self.next_seq
        self.next_seq += 1
        self._forget(seq, ts_ms)
        self._place = Place(self.database, seq, ts_ms, Source(partition, offset))
        for key in self._expiry.over(ts_ms, self.state):
            self._gone[key], _ = self.state.pop(key)
            self._ranges.note(key, self._gone[key], None)
        return self._place

    def _fail(self, fault: Fault, raw: bytes | None, place: Place) -> list[OutputRecord]:
        """The abort and the dead letter of a transaction that a fault of ours has ended."""
        record = decode(raw) if fault.named else None
        name = record.id if isinstance(record, Transaction) else None
        result = encode_result(place.result(name, "aborted", code=errors.INTERNAL))
        if isinstance(record, Transaction):
            hashed = payload_hash_of(raw or b"", record)
            self._see(record.id, Verdict(place.seq, record.deadline, hashed, result))
        shown = raw if fault.shown else None
        outputs = with_letter(result, name, errors.INTERNAL, shown, place, fault.error)
        if isinstance(record, Transaction) and record.call is not UNSET:
            turn = turn_of(record.call, self._look)
            if turn is not None:
                self._seen.pop(record.id, None)
                if turn.code is None and fault.counted:
                    outputs += self._write(record.id, {turn.key: turn.done}, place)
        return outputs

    def _see(self, name: str, verdict: Verdict) -> None:
        """Remember the use of an id, after those of smaller seqs."""
        self._seen.pop(name, None)
        self._seen[name] = verdict

    def _is_remembered(self, seen: Verdict, place: Place) -> bool:
        """Return True if a use is within the window, or its deadline has not passed."""
        in_time = seen.deadline > 0 and place.ts_ms <= seen.deadline
        return in_time or seen.seq > place.seq - self.id_window

    def _forget(self, seq: int, ts_ms: int) -> None:
        """Drop the oldest ids as far as they are not remembered any more."""
        place = Place(self.database, seq, ts_ms, Source(0, 0))
        while self._seen:
            oldest = next(iter(self._seen))
            if self._is_remembered(self._seen[oldest], place):
                return
            del self._seen[oldest]

    def _execute(self, txn: Transaction, place: Place) -> tuple[Result, dict[str, bytes | None]]:
        """The result of a transaction and what it writes (key -> value, None = delete)."""
        if self._meets_too_much(txn, place.source):
            return place.result(txn.id, "aborted", code=errors.VALUES_TOO_LARGE), {}
        if self._ranges.too_many(txn) or self._ranges.too_heavy(txn):
            return place.result(txn.id, "aborted", code=errors.RANGE_TOO_LARGE), {}
        failed = self._failed_checks(txn)
        if failed:
            return place.result(txn.id, "aborted", code=errors.CHECK_FAILED, failed=failed), {}
        if txn.call is not UNSET:
            return self._call(txn, txn.call, place)
        if txn.constrain is not UNSET:
            return self._constrain(txn, txn.constrain, place)
        writes: dict[str, bytes | None] = {}
        for index, update in enumerate(txn.updates):
            try:
                before = self._value(update.key)
                after = ended(update, before, updated(update, before), place.ts_ms)
            except _Abort as abort:
                failed = [self._failed("update", index, update.key)]
                return place.result(txn.id, "aborted", code=abort.code, failed=failed), {}
            writes[update.key] = after
        return self._concluded(txn, writes, place)

    def _meets_too_much(self, txn: Transaction, at: Source) -> bool:
        """Return True if the values of all keys that it touches are too large.

        A transaction that writes touches the constraints, too.
        """
        touched = keys(txn)
        if any(touched.values()):
            touched[CONSTRAINTS_KEY] = False
        met = sum(len(self._value(key) or b"") for key in touched)
        bounded = self.rulings.begins.holds(VALUES_BOUNDED, at.partition, at.offset)
        return bounded and met > limits.TRANSACTION_VALUES_BYTES_MAX

    def _concluded(
        self,
        txn: Transaction,
        after: dict[str, bytes | None],
        place: Place,
        returned: bytes | None = None,
        outputs: Outputs = NO_OUTPUTS,
    ) -> tuple[Result, dict[str, bytes | None]]:
        """The result of a transaction that leaves values behind (None = absent), if it may."""
        writes = {k: v for k, v in after.items() if v is not None or k in self.state}
        if CONSTRAINTS_KEY in self.state or txn.locks:
            judge = self._judge(txn, list(after), writes)
            verdict = judge.verdict(writes)
            if verdict is not None:
                code, failed, reason = verdict
                result = place.result(txn.id, "aborted", code=code, failed=failed, reason=reason)
                if len(encode_result(result)) > limits.RESULT_BYTES_MAX:
                    _cut(result.failed)
                return result, {}
            writes |= judge.index_writes(writes)
        reads = {key: writes[key] if key in writes else self._value(key) for key in _read_keys(txn)}
        result = place.result(txn.id, "committed", reads=reads, returned=returned)
        if txn.read_ranges:
            result.ranges = [self._ranges.read(each, writes, place.seq) for each in txn.read_ranges]
        if len(encode_result(result)) > limits.RESULT_BYTES_MAX:
            return place.result(txn.id, "aborted", code=errors.RESULT_TOO_LARGE), {}
        self._outputs = outputs
        return result, writes

    def _judge(
        self, txn: Transaction, touched: Sequence[str], _writes: Mapping[str, bytes | None]
    ) -> Judge:
        """The judge of what a transaction writes."""
        named = CountedRanges(txn.ranges, self._ranges.count)
        return Judge(self.state, touched, txn.lock_keys, named)

    def _constrain(
        self, txn: Transaction, wanted: bytes, place: Place
    ) -> tuple[Result, dict[str, bytes | None]]:
        """As `_execute`, for a declaration: a write of the key that all constraints lie under."""
        try:
            at = place.source
            ranges = self.rulings.begins.ranges_anywhere(at.partition, at.offset)
            value = amended(self._value(CONSTRAINTS_KEY), wanted, place.seq, ranges=ranges)
        except DeclarationRefused as refused:
            code, reason = errors.CONSTRAINT_REFUSED, cut_reason(str(refused))
            return place.result(txn.id, "aborted", code=code, reason=reason), {}
        return self._concluded(txn, {CONSTRAINTS_KEY: value}, place)

    def _call(
        self, txn: Transaction, call: Call, place: Place
    ) -> tuple[Result, dict[str, bytes | None]]:
        """As `_execute`, for a call: with the version of its module that is deployed now."""
        deployed = self._value(module_key(call.module))
        module = None if deployed is None else self._module(call, version_of(deployed))
        if module is None or call.name not in module.procedures:
            code, reason = errors.UNKNOWN_PROCEDURE, call.procedure
            return place.result(txn.id, "aborted", code=code, reason=reason), {}
        order = CallPlace(place.seq, place.ts_ms, txn.id)
        host = _CallHost(call, self.state, self._ranges, place.ts_ms)
        batch = None if call.batch is UNSET else call.batch
        called = call_procedure(module, call.name, call.args, host, order, batch)
        if called.code is not None:
            result = place.result(txn.id, "aborted", code=called.code, reason=called.reason)
            return result, {}
        return self._concluded(txn, called.writes, place, called.returned, called.outputs)

    def _module(self, call: Call, version: ModuleVersion) -> Module | None:
        """The code of a deployed version, if that has the procedure."""
        if call.name not in version.procedures:
            return None
        return self.modules.find(call.module, version.hash)

    def _failed_checks(self, txn: Transaction) -> list[Failed]:
        """The asserts and checks that do not hold on the state, at most as many as are listed."""
        failed = []
        for index, (key, expected) in enumerate(txn.asserts.items()):
            if self._value(key) != expected:
                failed.append(self._failed("assert", index, key))
        for index, check in enumerate(txn.checks):
            if check.range is not UNSET:
                failed += self._ranges.failed(index, check, check.range)
            elif not holds(check, self._value(check.key), self._version(check.key)):
                failed.append(self._failed("check", index, check.key))
        return failed[: limits.FAILED_ENTRIES_MAX]

    def _failed(self, check: Literal["assert", "check", "update"], index: int, key: str) -> Failed:
        value = self._value(key)
        if value is not None and len(value) > limits.FAILED_VALUE_BYTES_MAX:
            return Failed(check, index, key, NULL, self._version(key), truncated=True)
        return Failed(check, index, key, raw_value(value), self._version(key))

    def _write(
        self, name: str, writes: Mapping[str, bytes | None], place: Place
    ) -> list[OutputRecord]:
        """Put the writes into the state; their change records, a tombstone after each delete."""
        outputs = []
        for index, (key, after) in enumerate(writes.items(), start=1):
            there = self._value(key)
            before = there if there is not None else self._gone.pop(key, None)
            value = place.change(name, index, before, after)
            outputs.append(OutputRecord("changes", key.encode(), value))
            if after is None:
                outputs.append(OutputRecord("changes", key.encode(), None))
                del self.state[key]
            else:
                self.state[key] = (after, place.seq)
            self._ranges.note(key, there, after)
            self._expiry.note(key, after)
        return outputs

    def _value(self, key: str) -> bytes | None:
        return self.state[key][0] if key in self.state else None

    def _version(self, key: str) -> int:
        return self.state[key][1] if key in self.state else 0


class _CallHost(Declared):
    """The view of a procedure: the state before the transaction, and the oracle's own updates."""

    def __init__(
        self, call: Call, state: Mapping[str, tuple[bytes, int]], ranges: OracleRanges, ts_ms: int
    ) -> None:
        super().__init__(call.keys, call.reads, call.ranges)
        self.state = state
        self.ranges = ranges
        self.named = {each.bounds(): each for each in call.ranges}
        self.ts_ms = ts_ms

    def look(self, key: str) -> tuple[bytes | None, int]:
        return self.state.get(key, (None, 0))

    def entries(self, declared: Bounds) -> list[tuple[str, bytes]]:
        return self.ranges.entries(self.named[declared])

    def apply(self, update: Update, before: bytes | None) -> bytes | None:
        return ended(update, before, updated(update, before), self.ts_ms)


def _cut(failed: Sequence[Failed]) -> None:
    """Cut what a result tells of broken rules, where it has no room for all of it."""
    for entry in failed:
        if entry.violated is not UNSET:
            entry.violated = entry.violated[: limits.VIOLATED_CHARACTERS_MAX]


def _read_keys(txn: Transaction) -> dict[str, None]:
    """The keys whose values a result gives: reads, then the counters, each once."""
    counters = (update.key for update in txn.updates if isinstance(update, NextId))
    return dict.fromkeys([*txn.read_keys, *counters])
