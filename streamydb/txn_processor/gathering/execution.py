"""Execute one gathered transaction on Python objects, and make its records: `grouping=single`.

The same executor (`interpreter`), the same record encoders as the rest of the package, no kernel:
the reference that the planner's path is measured against.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from msgspec import UNSET, Raw

from streamydb import errors, limits
from streamydb import records as r
from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.lock_messages import Payload, Released
from streamydb.frames.program import NOT_A_DUPLICATE, REFUSALS
from streamydb.key_processor.locking.messages import RemovedAt, id_lock, key_lock, packed, unpacked
from streamydb.parser.fault import opened, reported, status_of
from streamydb.procedures.follow_ups import NO_OUTPUTS, Outputs
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.procedures.view import Stamp
from streamydb.records.change import CONNECTOR
from streamydb.records.expiry import removal_number
from streamydb.records.result import Position, copy_of
from streamydb.records.rulings import NO_RULINGS, STOPPING, Fault, Rulings, require_unread
from streamydb.txn_processor import interpreter
from streamydb.txn_processor.comparisons import Value
from streamydb.txn_processor.gathering.gathered import Gathered, looked, see_of
from streamydb.txn_processor.result import encode, encode_verdict

_NULL = Raw(b"null")
_CONSTRAINTS = key_lock(r.CONSTRAINTS_KEY.encode())


@dataclass(slots=True)
class Finished:
    """The effects of a transaction: its records, and the feedback for each shard.

    ``changes``: (key, value), a None after a delete. ``releases``: by shard; the home shard is
    always among them, with nothing to release when the record was rejected. ``workflow``: what
    goes to streams and to the log. ``fault``: ours, on which nobody has ruled, so nothing of this
    may be written. ``silent``: only feedback comes of it.
    """

    seq: int
    id: bytes
    result: bytes
    changes: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    letter: tuple[bytes, bytes] | None = None
    releases: dict[int, list[Released]] = field(default_factory=dict)
    workflow: Outputs = NO_OUTPUTS
    fault: Fault | None = None
    silent: bool = False

    @property
    def size(self) -> int:
        """About how many bytes it takes, and its records will."""
        changed = sum(len(value or b"") for _, value in self.changes)
        written = sum(len(row.value or b"") for rows in self.releases.values() for row in rows)
        return len(self.result) + changed + written + self.workflow.size


def execute_gathered(
    gathered: Gathered,
    database: str,
    home: int,
    modules: Modules = NO_MODULES,
    rulings: Rulings = NO_RULINGS,
) -> Finished:
    """Execute a complete transaction whose id lives on shard ``home``; ``rulings``: as given."""
    payload = gathered.payload
    position = (payload.seq, payload.ts, payload.part, payload.off)
    ruling = rulings.get((payload.part, payload.off))
    rejected = payload.kind == p.REJECTED
    if ruling is not None and not (rejected and p.REJECT_CODES[payload.code] == errors.INTERNAL):
        require_unread(ruling)  # unless it was ruled when it was read
    if rejected:
        return _rejected(payload, position, home)
    if payload.duplicate in REFUSALS:
        result = encode(payload.id, position, "rejected", REFUSALS[payload.duplicate])
        return _finished(gathered, result, interpreter.Verdict(), (database, home), None)
    if payload.duplicate != NOT_A_DUPLICATE:
        original = gathered.grants[id_lock(payload.id)].value
        if original is None:
            raise InvariantViolation(f"transaction {payload.seq} repeats one without a result")
        result = copy_of(original, position)
        return _finished(gathered, result, interpreter.Verdict(), (database, home), None)
    if ruling is not None:
        return _ruled(gathered, position, database, home, ruling)
    return _executed(gathered, position, database, home, modules)


def _look(gathered: Gathered, key: str) -> Value:
    return looked(gathered.grants[key_lock(key.encode())])


def _ruled(
    gathered: Gathered, position: Position, database: str, home: int, ruling: Fault
) -> Finished:
    """Return the effects of a transaction that a ruling aborts."""
    payload = gathered.payload
    txn = _transaction_of(payload) if ruling.counted else None
    verdict = interpreter.failed(txn, partial(_look, gathered))
    result = encode_verdict(payload.id, position, verdict)
    finished = _finished(gathered, result, verdict, (database, home), result)
    raw = payload.raw if ruling.shown else None
    finished.letter = _letter(payload, raw, ruling.error, errors.INTERNAL)
    return finished


def _rejected(payload: Payload, position: Position, home: int) -> Finished:
    code = p.REJECT_CODES[payload.code]
    letter = _letter(payload, *opened(payload.raw), code)
    result = encode(payload.id, position, status_of(code), code)
    return Finished(payload.seq, payload.id, result, [], letter, {home: []}, silent=payload.silent)


def _letter(
    payload: Payload, raw: bytes | None, error: str | None, code: str
) -> tuple[bytes, bytes]:
    source = r.Source(payload.part, payload.off)
    letter = r.dead_letter(
        raw,
        seq=payload.seq,
        ts_ms=payload.ts,
        code=code,
        id=payload.id.decode() or None,
        source=source,
        error=error,
    )
    return r.dead_letter_key(source), r.encode_dead_letter(letter)


def _executed(
    gathered: Gathered, position: Position, database: str, home: int, modules: Modules
) -> Finished:
    payload, look = gathered.payload, partial(_look, gathered)

    def size(verdict: interpreter.Verdict) -> int:
        return len(encode_verdict(payload.id, position, verdict))

    place = Stamp(payload.seq, payload.ts, payload.id.decode())
    constrained = _CONSTRAINTS in gathered.grants
    txn, fault = None, None
    try:
        txn = _transaction_of(payload)
        see = see_of(gathered, txn)
        calls = interpreter.ExecutionContext(modules, place, constrained, see)
        if _met(gathered) > limits.TRANSACTION_VALUES_BYTES_MAX:
            verdict = interpreter.too_large(txn, look)
        else:
            verdict = interpreter.execute(txn, look, size, calls)
    except STOPPING:
        raise
    except Exception as error:  # noqa: BLE001 - our own fault must not stop the database
        name = reported(error, f"transaction {payload.seq}")
        fault = Fault(payload.part, payload.off, name, counted=txn is not None)
        verdict = interpreter.failed(txn, look)
    result = encode_verdict(payload.id, position, verdict)
    shown = verdict.reads or verdict.ranges or verdict.returned is not None
    remembered = result if shown or verdict.code is not None else None
    finished = _finished(gathered, result, verdict, (database, home), remembered)
    finished.workflow, finished.fault = verdict.outputs, fault
    return finished


def _met(gathered: Gathered) -> int:
    grants = [gathered.grants[key_lock(key)] for key, _, _ in gathered.payload.keys]
    return sum(len(looked(grant)[0] or b"") + grant.left_out for grant in grants)


def _transaction_of(payload: Payload) -> r.Transaction:
    txn = r.decode(payload.raw)
    if not isinstance(txn, r.Transaction):
        raise InvariantViolation("a payload that was valid when it was compiled is not valid now")
    return txn


def _finished(
    gathered: Gathered,
    result: bytes,
    verdict: interpreter.Verdict,
    at: tuple[str, int],
    remembered: bytes | None,
) -> Finished:
    """Give every written key's lock back, written or not, and that of the id.

    A key that has ended before is removed, whatever else becomes of it. ``at``: database, and home.
    """
    payload, (database, home) = gathered.payload, at
    after = {write.key.encode(): write.after for write in verdict.writes}
    releases: dict[int, list[Released]] = {home: []}
    over: dict[bytes, tuple[bytes, RemovedAt]] = {}
    for key, written, owner in payload.keys:
        if written:
            value, removed = unpacked(gathered.grants[key_lock(key)].value)
            if value is not None and removed is not None:
                over[key] = value, removed
            wrote = key in after or key in over
            row = Released(payload.seq, key_lock(key), wrote, packed(after.get(key)))
            releases.setdefault(owner, []).append(row)
    lock = id_lock(payload.id)
    releases[home].append(Released(payload.seq, lock, remembered is not None, remembered))
    here = {key: value for key, (value, place) in over.items() if place.seq == payload.seq}
    removals = [
        change
        for key, (value, place) in over.items()
        if not (key in here and key in after)
        for change in _removal(key, value, place, database)
    ]
    return Finished(
        payload.seq,
        payload.id,
        result,
        changes=removals + _changes(payload, verdict.writes, database, here),
        releases=releases,
        silent=payload.silent,
    )


def _removal(
    key: bytes, before: bytes, place: RemovedAt, database: str
) -> list[tuple[bytes, bytes | None]]:
    """Return the changes that tell of a key that has ended."""
    number = removal_number(key)
    change = r.Change(
        op="d",
        before=Raw(before),
        after=_NULL,
        ts_ms=place.ts,
        source=r.ChangeOrigin(CONNECTOR, database, place.part, place.off, place.seq),
        transaction=r.ChangeTransaction(r.EXPIRY_ID, number, number),
    )
    return [(key, r.encode_change(change)), (key, None)]


def _changes(
    payload: Payload, writes: list[interpreter.Write], database: str, over: dict[bytes, bytes]
) -> list[tuple[bytes, bytes | None]]:
    """Return the changes of writes; ``over``: the values of keys that end at this place."""
    source = r.ChangeOrigin(CONNECTOR, database, payload.part, payload.off, payload.seq)
    name = payload.id.decode()
    changes: list[tuple[bytes, bytes | None]] = []
    for index, write in enumerate(writes, start=1):
        before = over.get(write.key.encode(), write.before)
        change = r.Change(
            op="d" if write.after is None else "c" if before is None else "u",
            before=_raw(before),
            after=_raw(write.after),
            ts_ms=payload.ts,
            source=source,
            transaction=r.ChangeTransaction(name, index, index),
            expires_ms=UNSET if (end := r.end_of(write.after)) is None else end,
        )
        key = write.key.encode()
        changes.append((key, r.encode_change(change)))
        if write.after is None:
            changes.append((key, None))
    return changes


def _raw(value: bytes | None) -> Raw:
    return _NULL if value is None else Raw(value)
