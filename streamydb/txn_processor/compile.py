"""Compile records of the log into columns for the sorter, the planner and the kernel.

Input: one batch of log records (partition, offset, append time in ms, value). Output: one table
whose rows
are the records, with three children: the keys of each record (for every shard), the home part
(payload and
steps, for the home shard of its id) and the marker, if it is one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb import errors
from streamydb import records as r
from streamydb.columns import program as p
from streamydb.columns.hashing import ID_SEED, KEY_SEED, PAYLOAD_SEED, hash_ragged
from streamydb.columns.jit import kernel
from streamydb.columns.program import REJECT_CODES
from streamydb.columns.table import Array, Bytes, Columns, Ragged, starts_of
from streamydb.records.names import FOLLOW_UP_PREFIX
from streamydb.records.rulings import NO_RULINGS, STOPPING, Fault, Place, Rulings, require_ruled
from streamydb.txn_processor.fault import keep, reported
from streamydb.txn_processor.scan import Scanned, scan

__all__ = ["compile_records", "parse_ints"]

_PACK: Final = struct.Struct(p.STEP_FORMAT).pack
_UNSET: Final = msgspec.UNSET
_CONSTRAINTS: Final = r.CONSTRAINTS_KEY.encode()
_CONSTRAINTS_HASH: Final = hash_ragged(Ragged.of([_CONSTRAINTS]), KEY_SEED)[0]
_FOLLOW_UP: Final = FOLLOW_UP_PREFIX.encode()
_REJECT_INDEX: Final = {code: i for i, code in enumerate(REJECT_CODES)}


@kernel
def _parse_int(data: Bytes, start: int, end: int) -> tuple[Any, Any]:
    """Read a canonical integer; False when the text is not one that fits in 64 bits."""
    at = start
    negative = data[at] == 45
    if negative:
        at += 1
    if at == end or end - at > 19:
        return False, 0
    value = np.uint64(0)
    for j in range(at, end):
        digit = data[j]
        if digit < 48 or digit > 57:
            return False, 0
        value = value * np.uint64(10) + np.uint64(digit - 48)
    bound = np.uint64(9223372036854775807)
    if value > bound:
        return negative and value == bound + np.uint64(1), np.int64(-9223372036854775807) - 1
    return True, -np.int64(value) if negative else np.int64(value)


@kernel
def parse_ints(
    data: Bytes, offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Tags (ABSENT for empty, INT, OPAQUE) and integers of canonical JSON texts; shapes (n,)."""
    n = len(offsets) - 1
    tags = np.zeros(n, np.uint8)
    ints = np.zeros(n, np.int64)
    for i in range(n):
        if offsets[i] == offsets[i + 1]:
            continue
        ok, value = _parse_int(data, offsets[i], offsets[i + 1])
        tags[i] = 1 if ok else 2
        ints[i] = value if ok else 0
    return tags, ints


@dataclass(slots=True)
class _Builder:
    """Grows the columns record by record; lists, because that is the fastest Python has."""

    kind: list[int] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    code: list[int] = field(default_factory=list)
    raws: list[bytes] = field(default_factory=list)
    key_counts: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    step_counts: list[int] = field(default_factory=list)
    steps: list[bytes] = field(default_factory=list)
    operands: list[bytes] = field(default_factory=list)
    markers: list[tuple[int, int, int]] = field(default_factory=list)
    deadlines: list[tuple[int, int, int]] = field(default_factory=list)

    def transaction(self, txn: r.Transaction, raw: bytes) -> None:
        """Add a valid transaction: its keys, and its steps when it compiles."""
        touched = r.keys(txn)
        self.keys += touched
        self.writes += touched.values()
        self.key_counts.append(len(touched))
        steps: list[bytes] = []
        operands: list[bytes] = []
        local = {key: i for i, key in enumerate(touched)}
        simple = txn.call is _UNSET and txn.constrain is _UNSET and not txn.locks
        simple = simple and _checks(txn, local, steps, operands)
        simple = simple and _updates(txn, local, steps, operands)
        self.kind.append(p.SIMPLE if simple else p.GENERIC)
        self.ids.append(txn.id.encode())
        self.deadlines.append((txn.deadline, *(r.deadline_span(raw) if txn.deadline else (0, 0))))
        self.code.append(0)
        self.raws.append(b"" if simple else raw)
        self.step_counts.append(len(steps) if simple else 0)
        if simple:
            self.steps += steps
            self.operands += operands

    def refuse(self, id_: str, code: str, kept: bytes) -> None:
        """Add a record that will not be executed; ``kept``: see `fault`."""
        self.kind.append(p.REJECTED)
        self.ids.append(id_.encode())
        self.deadlines.append((0, 0, 0))
        self.code.append(_REJECT_INDEX[code])
        self.raws.append(kept)
        self.key_counts.append(0)
        self.step_counts.append(0)

    def marker(self, row: int, marker: r.Marker) -> None:
        """Add an epoch marker."""
        self.markers.append((row, marker.marker, marker.partitions))
        self.kind.append(p.MARKER)
        self.ids.append(b"")
        self.deadlines.append((0, 0, 0))
        self.code.append(0)
        self.raws.append(b"")
        self.key_counts.append(0)
        self.step_counts.append(0)

    def table(self) -> Columns:
        """The records as a table like that of `_plain`."""
        kind = np.array(self.kind, np.uint8)
        markers = np.array(self.markers, np.int64).reshape(-1, 3)
        numbers = {"number": markers[:, 1].copy(), "partitions": markers[:, 2].copy()}
        keys = Columns(
            {"write": np.array(self.writes, np.uint8)},
            {"key": Ragged.of([key.encode() for key in self.keys])},
        )
        home = Columns(
            {"code": np.array(self.code, np.uint8), **_deadlines(self.deadlines)},
            {"id": Ragged.of(self.ids), "raw": Ragged.of(self.raws)},
            {"steps": (np.array(self.step_counts, np.int64), _steps(self))},
        )
        return _table(
            kind, (np.array(self.key_counts, np.int64), keys), home,
            ((kind == p.MARKER).astype(np.int64), Columns(numbers)),
        )


def _step(key: int, op: int, index: int, a: int = 0, flags: int = 0) -> bytes:
    return _PACK(a, 0, 0, key, index, op, flags, 0, 0, 0)


def _operand(value: bytes | None, operands: list[bytes]) -> int:
    if value is None:
        return 0
    operands.append(value)
    return p.HAS_OPERAND


def _checks(
    txn: r.Transaction, local: dict[str, int], steps: list[bytes], operands: list[bytes]
) -> bool:
    """Append the steps of asserts, checks and reads; False when a check does not compile."""
    for i, (key, value) in enumerate(txn.asserts.items()):
        steps.append(_step(local[key], p.A_EQ, i, flags=_operand(value, operands)))
    for i, check in enumerate(txn.checks):
        key_index = local[check.key]
        if check.version is not _UNSET:
            steps.append(_step(key_index, p.C_VERSION, i, check.version))
        if check.exists is not _UNSET:
            steps.append(_step(key_index, p.C_EXISTS, i, int(check.exists)))
        for op, expected in ((p.C_EQ, check.eq), (p.C_NE, check.ne)):
            if expected is not _UNSET:
                steps.append(_step(key_index, op, i, flags=_operand(expected, operands)))
        for op, bound in _bounds(check):
            if type(bound) is not int:
                return False
            steps.append(_step(key_index, op, i, bound))
    seen = set()
    for key in txn.reads:
        if key not in seen:
            seen.add(key)
            steps.append(_step(local[key], p.READ, 0))
    for update in txn.updates:
        if type(update) is r.NextId and update.key not in seen:
            seen.add(update.key)
            steps.append(_step(local[update.key], p.READ, 0))
    return True


def _bounds(check: r.Check) -> list[tuple[int, Any]]:
    named = ((p.C_LT, check.lt), (p.C_LE, check.le), (p.C_GT, check.gt), (p.C_GE, check.ge))
    return [(op, bound) for op, bound in named if bound is not _UNSET]


def _updates(
    txn: r.Transaction, local: dict[str, int], steps: list[bytes], operands: list[bytes]
) -> bool:
    """Append the steps of the updates; False when one of them does not compile."""
    for i, update in enumerate(txn.updates):
        key = local[update.key]
        if type(update) is r.Put:
            steps.append(_step(key, p.PUT, i, flags=_operand(update.value, operands)))
        elif type(update) is r.Delete:
            steps.append(_step(key, p.DELETE, i))
        elif type(update) is r.NextId:
            steps.append(_step(key, p.NEXT_ID, i, 1))
        elif type(update) is r.Add:
            low = 0 if update.min is _UNSET else update.min
            high = 0 if update.max is _UNSET else update.max
            flags = 0 if update.min is _UNSET else p.HAS_LOW
            flags |= 0 if update.max is _UNSET else p.HAS_HIGH
            operand = (update.by, low, high)
            if any(type(number) is not int for number in operand):
                return False
            steps.append(_PACK(*operand, key, i, p.ADD, flags, 0, 0, 0))
        elif isinstance(update, r.Max | r.Min) and type(update.value) is int:
            op = p.MAX if type(update) is r.Max else p.MIN
            steps.append(_step(key, op, i, update.value))
        else:
            return False
    return True


def compile_records(
    partitions: Array, offsets: Array, append_ms: Array, values: Sequence[bytes | None] | Ragged,
    *, constraints: bool = False, rulings: Rulings = NO_RULINGS,
) -> Columns:
    """Compile one batch of log records, in the order given.

    Args:
        partitions: shape (n,), int32.
        offsets: shape (n,), int64.
        append_ms: LogAppendTime of each record in ms since the epoch, shape (n,), int64.
        values: the records' values.
        constraints: whether the database has constraints: then what writes reads their key, too.
        rulings: which records cannot be compiled, whatever this release makes of them.

    Raises:
        UnruledFaults: our own code failed on others.

    """
    texts = values if isinstance(values, Ragged) else Ragged.of([value or b"" for value in values])
    scanned = scan(texts)
    records = _plain(scanned, texts.offsets[:-1][scanned.plain])
    if not scanned.plain.all():
        rest = np.flatnonzero(~scanned.plain)
        care = _Care(constraints, rulings)
        other = _compile_with_care(
            [values[row] for row in rest.tolist()],
            list(zip(partitions[rest].tolist(), offsets[rest].tolist(), strict=True)), care,
        )
        require_ruled(care.faults)
        order = np.empty(len(texts), np.int64)
        order[np.flatnonzero(scanned.plain)] = np.arange(len(records))
        order[rest] = len(records) + np.arange(len(rest))
        records = Columns.concat([records, other]).take(order)
    ruled = rulings.rows(partitions, offsets)
    if ruled:
        records = _as_ruled(records, values, ruled)
    if constraints:
        _read_constraints(records)
    home = records.children["home"][1]
    home.cols["payload"] = hash_ragged(_identities(texts, home), PAYLOAD_SEED)
    records.cols["part"] = np.ascontiguousarray(partitions, np.int32)
    records.cols["off"] = np.ascontiguousarray(offsets, np.int64)
    if not scanned.plain.all():
        _tell_copies_apart(records, home)
    records.cols["size"] = texts.lengths().astype(np.int32)
    records.cols["append"] = np.ascontiguousarray(append_ms, np.int64)
    return records


def _deadlines(rows: Sequence[tuple[int, int, int]] | Array) -> dict[str, Array]:
    """Columns of deadlines (0: none), and of where the digits are within the record."""
    table = np.asarray(rows, np.int64).reshape(-1, 3)
    names = ("deadline", "digits", "digits_end")
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(names)}


@kernel
def _blank_out(
    data: Bytes, offsets: npt.NDArray[np.int64], starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> None:
    """Put zeros in place of the digits from ``starts`` to ``ends`` of each record."""
    for i in range(len(starts)):
        for j in range(offsets[i] + starts[i], offsets[i] + ends[i]):
            data[j] = 48


def _identities(texts: Ragged, home: Columns) -> Ragged:
    """Return the bytes by which payloads are compared: those without the deadline
    (`records.deadline`).
    """
    starts, ends = home.cols.pop("digits"), home.cols.pop("digits_end")
    if not home.cols["deadline"].any():
        return texts
    data = texts.data.copy()
    _blank_out(data, texts.offsets, starts, ends)
    return Ragged(data, texts.offsets)


def _tell_copies_apart(records: Columns, home: Columns) -> None:
    """Give each copy of a follow-up an id of its own, because follow-ups are known by their number.

    So an early one can come again, and one that comes after any time is still known.
    """
    ids = home.texts["id"]
    generic = np.flatnonzero(records.cols["kind"] == p.GENERIC).tolist()
    rows = [row for row in generic if ids[row].startswith(_FOLLOW_UP)]
    if rows:
        places = [
            b"%d/%d" % (records.cols["part"][row], records.cols["off"][row]) for row in rows
        ]
        records.cols["id0"][rows] = hash_ragged(Ragged.of(places), ID_SEED)
        records.cols["id1"][rows] = hash_ragged(Ragged.of(places), PAYLOAD_SEED)


@dataclass(slots=True)
class _Care:
    """The settings of compiling record by record, and the ``faults`` that it meets."""

    constraints: bool
    rulings: Rulings
    faults: list[Fault] = field(default_factory=list)


def _compile_with_care(
    values: Sequence[bytes | None], places: Sequence[Place], care: _Care
) -> Columns:
    """Compile the records that are not plain, one by one."""
    try:
        return _compile_each(values, constraints=care.constraints)
    except STOPPING:
        raise
    except Exception as error:  # noqa: BLE001 - our own fault must not stop the database
        if len(values) == 1:
            return _faulty(values[0] or b"", places[0], error, care)
        each = zip(values, places, strict=True)
        return Columns.concat([_compile_with_care([raw], [place], care) for raw, place in each])


def _faulty(raw: bytes, place: Place, error: Exception, care: _Care) -> Columns:
    """Make the row of a record that our own code cannot compile; note a fault without ruling."""
    name = reported(error, f"the record at partition {place[0]}, offset {place[1]},")
    known = care.rulings.get(place)
    fault = Fault(*place, name, named=False, counted=False)
    if known is None:
        care.faults.append(fault)
    elif known.named:
        require_ruled([fault], executed=True)  # an earlier release could read it
    return _poison(raw, name)


def _compile_each(values: Sequence[bytes | None], *, constraints: bool) -> Columns:
    builder = _Builder()
    for row, raw in enumerate(values):
        item = r.decode(raw)
        if isinstance(item, r.Transaction) and item.constrain is not _UNSET and not constraints:
            builder.refuse(item.id, errors.CONSTRAINTS_OFF, keep(raw))
        elif isinstance(item, r.Transaction):
            builder.transaction(item, raw or b"")
        elif isinstance(item, r.Marker):
            builder.marker(row, item)
        else:
            builder.refuse(item.id or "", item.code, keep(raw))
    return builder.table()


def _read_constraints(records: Columns) -> None:
    """Add the key of the constraints to the reads of each writing transaction."""
    counts, keys = records.children["keys"]
    ends = np.cumsum(counts)
    owner = np.repeat(np.arange(len(counts)), counts)
    wanted = np.bincount(owner, keys.cols["write"], len(counts)) > 0
    own = keys.cols["hash"] == _CONSTRAINTS_HASH
    if own.any():
        rows = np.flatnonzero(own)
        named = [row for row in rows.tolist() if keys.texts["key"][row] == _CONSTRAINTS]
        wanted[owner[named]] = False
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return
    more = Columns(
        {"write": np.zeros(1, np.uint8), "hash": np.array([_CONSTRAINTS_HASH], np.uint64)},
        {"key": Ragged.of([_CONSTRAINTS])},
    )
    order = np.insert(np.arange(len(keys)), ends[rows], len(keys))
    both = Columns.concat([keys, more]).take(order)
    records.children["keys"] = (counts + wanted, both)


def _as_ruled(
    records: Columns, values: Sequence[bytes | None] | Ragged, ruled: dict[int, Fault]
) -> Columns:
    """Apply rulings to the records: those that could not be read stay unread."""
    poisons: list[Columns] = []
    order = np.arange(len(records))
    raws = records.children["home"][1].texts["raw"].tolist()
    for row, fault in ruled.items():
        kind = records.cols["kind"][row]
        if not fault.named:
            order[row] = len(records) + len(poisons)
            poisons.append(_poison(values[row] or b"", fault.error))
        elif fault.shown and kind == p.SIMPLE:
            records.cols["kind"][row] = p.GENERIC
            raws[row] = values[row] or b""
    records.children["home"][1].texts["raw"] = Ragged.of(raws)
    return Columns.concat([records, *poisons]).take(order)


def _poison(raw: bytes, fault: str) -> Columns:
    """Make the row of a record that our own code cannot compile: it gets a seq and an abort."""
    builder = _Builder()
    builder.refuse("", errors.INTERNAL, keep(raw, fault))
    return builder.table()


def _plain(s: Scanned, starts: Array) -> Columns:
    """The table of records that were compiled straight from their bytes.

    ``starts``: where each of them begins in the buffer.
    """
    n = len(s.ids)
    keys = Columns({"write": s.writes}, {"key": s.keys})
    none = Columns({"number": np.empty(0, np.int64), "partitions": np.empty(0, np.int64)})
    within = s.deadline_spans - (starts * (s.deadlines > 0))[:, None]
    dated = _deadlines(np.column_stack([s.deadlines, within]))
    home = Columns(
        {"code": np.zeros(n, np.uint8), **dated}, {"id": s.ids, "raw": Ragged.empty(n)},
        {"steps": (s.step_counts, s.steps)},
    )
    return _table(np.zeros(n, np.uint8), (s.key_counts, keys), home, (np.zeros(n, np.int64), none))


def _table(
    kind: Array, keys: tuple[Array, Columns], home: Columns, markers: tuple[Array, Columns]
) -> Columns:
    """Records with the hashes of their ids and keys."""
    ids = home.texts["id"]
    has_id = ids.lengths() > 0
    keys[1].cols["hash"] = hash_ragged(keys[1].texts["key"], KEY_SEED)
    return Columns(
        {
            "kind": kind,
            "id0": np.where(has_id, hash_ragged(ids, ID_SEED), 0).astype(np.uint64, copy=False),
            "id1": np.where(has_id, hash_ragged(ids, KEY_SEED), 0).astype(np.uint64, copy=False),
        },
        {},
        {"keys": keys, "home": (np.ones(len(kind), np.int64), home), "marker": markers},
    )


def _steps(b: _Builder) -> Columns:
    packed = np.frombuffer(bytearray().join(b.steps), p.STEP)
    if not b.operands:
        return Columns(p.step_columns(packed), {"operand": Ragged.empty(len(packed))})
    has_operand = (packed["flags"] & p.HAS_OPERAND) != 0
    texts = Ragged.of(b.operands)
    lengths = np.zeros(len(packed), np.int64)
    lengths[has_operand] = texts.lengths()
    packed = packed.copy()
    packed["tag"][has_operand], packed["a"][has_operand] = parse_ints(texts.data, texts.offsets)
    operands = Ragged(texts.data, starts_of(lengths))
    return Columns(p.step_columns(packed), {"operand": operands})
