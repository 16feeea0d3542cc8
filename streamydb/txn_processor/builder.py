"""Builds the table of compiled records one by one, from decoded records: the careful half of
`compile`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb import records as r
from streamydb.columns import program as p
from streamydb.columns.hashing import ID_SEED, KEY_SEED, hash_ragged
from streamydb.columns.program import REJECT_CODES
from streamydb.columns.program_steps import ProgramSteps
from streamydb.columns.record_rows import RecordKeys, RecordMarkers, RecordRanges
from streamydb.columns.table import Array, Bytes, ChildRows, ColumnTable, Ragged, starts_of
from streamydb.txn_processor.tokens import parse_ints

__all__ = ["Builder", "DraftHome", "DraftRecords", "draft_home", "draft_of"]

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_PACK: Final = struct.Struct(p.STEP_FORMAT).pack
_UNSET: Final = msgspec.UNSET
_REJECT_INDEX: Final = {code: i for i, code in enumerate(REJECT_CODES)}


class DraftHome(ColumnTable, frozen=True):
    """The home part of records while they are compiled: as `HomeRows`, without the payload.

    ``digits``, ``digits_end``: where the digits of the deadline are within the record.
    """

    code: Bytes
    deadline: Ints
    digits: Ints
    digits_end: Ints
    id: Ragged
    raw: Ragged
    steps: ChildRows[ProgramSteps]


class DraftRecords(ColumnTable, frozen=True):
    """Records while they are compiled: as `CompiledRecords`, without their places."""

    kind: Bytes
    id0: Hashes
    id1: Hashes
    keys: ChildRows[RecordKeys]
    marker: ChildRows[RecordMarkers]
    ranges: ChildRows[RecordRanges] | None
    home: ChildRows[DraftHome]


@dataclass(slots=True)
class Builder:
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
    range_counts: list[int] = field(default_factory=list)
    ranges: list[tuple[bytes, bytes, bool]] = field(default_factory=list)

    def transaction(self, txn: r.Transaction, raw: bytes) -> None:
        """Add a valid transaction: its keys, and its steps when it compiles."""
        touched = r.keys(txn)
        may_range = txn.checks or txn.reads or txn.locks or txn.call is not _UNSET
        ranges = txn.ranges if may_range else {}
        self.ranges += [(*bounds, read) for bounds, read in ranges.items()]
        self.range_counts.append(len(ranges))
        self.keys += touched
        ends = {update.key for update in txn.updates if _ends(update)}
        if txn.call is not _UNSET:
            ends.update(txn.call.keys)
        written = [p.ENDING if key in ends else write for key, write in touched.items()]
        self.writes += written if ends else touched.values()
        self.key_counts.append(len(touched))
        steps: list[bytes] = []
        operands: list[bytes] = []
        local = {key: i for i, key in enumerate(touched)}
        simple = txn.call is _UNSET and txn.constrain is _UNSET and not txn.locks
        simple = simple and (not ranges or (bool(touched) and not any(ranges.values())))
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
        self.range_counts.append(0)
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
        self.range_counts.append(0)
        self.step_counts.append(0)

    def table(self) -> DraftRecords:
        """The records so far."""
        kind = np.array(self.kind, np.uint8)
        markers = np.array(self.markers, np.int64).reshape(-1, 3)
        numbers = RecordMarkers(markers[:, 1].copy(), markers[:, 2].copy())
        home = draft_home(
            np.array(self.code, np.uint8),
            self.deadlines,
            Ragged.of(self.ids),
            Ragged.of(self.raws),
            ChildRows(np.array(self.step_counts, np.int64), _steps(self)),
        )
        ranges = None
        if self.ranges:
            ranges = ChildRows(np.array(self.range_counts, np.int64), _ranges(self.ranges))
        keys = Ragged.of([key.encode() for key in self.keys])
        return draft_of(
            kind,
            np.array(self.key_counts, np.int64),
            (np.array(self.writes, np.uint8), keys),
            home,
            ChildRows((kind == p.MARKER).astype(np.int64), numbers),
            ranges,
        )


def _ends(update: r.Update) -> bool:
    """Return True if an update may say when its key ends."""
    if isinstance(update, r.Put | r.Append):
        return update.ttl_ms is not _UNSET
    return isinstance(update, r.Touch)


def _ranges(rows: list[tuple[bytes, bytes, bool]]) -> RecordRanges:
    """The table of ranges: where each begins, what is behind it, and whether it is read."""
    starts, ends, reads = zip(*rows, strict=True)
    return RecordRanges(np.array(reads, np.uint8), Ragged.of(starts), Ragged.of(ends))


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
    """Append the steps of asserts, checks and reads; False when a check does not compile.

    Those of ranges come after the other checks; no range is read.
    """
    ranged: list[bytes] = []
    range_operands: list[bytes] = []
    for i, (key, value) in enumerate(txn.asserts.items()):
        steps.append(_step(local[key], p.A_EQ, i, flags=_operand(value, operands)))
    for i, check in enumerate(txn.checks):
        if check.range is not _UNSET:
            operand = p.bounds_operand(check.range.bounds())
            for op, wanted in _comparisons(check):
                ranged.append(_PACK(0, wanted, 0, 0, i, op, p.HAS_OPERAND, 0, 0, 0))
                range_operands.append(operand)
            continue
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
    steps += ranged
    operands += range_operands
    seen = set()
    for key in txn.read_keys:
        if key not in seen:
            seen.add(key)
            steps.append(_step(local[key], p.READ, 0))
    for update in txn.updates:
        if type(update) is r.NextId and update.key not in seen:
            seen.add(update.key)
            steps.append(_step(local[update.key], p.READ, 0))
    return True


def _comparisons(check: r.Check) -> list[tuple[int, int]]:
    """Return what a check compares of a range: operations, and with what."""
    named = (
        (p.R_COUNT, check.count),
        (p.R_COUNT_LE, check.count_le),
        (p.R_COUNT_GE, check.count_ge),
        (p.R_VERSION_LE, check.version_le),
        (p.R_EXISTS, check.exists),
    )
    return [(op, int(wanted)) for op, wanted in named if wanted is not _UNSET]


def _bounds(check: r.Check) -> list[tuple[int, Any]]:
    named = ((p.C_LT, check.lt), (p.C_LE, check.le), (p.C_GT, check.gt), (p.C_GE, check.ge))
    return [(op, bound) for op, bound in named if bound is not _UNSET]


def _updates(
    txn: r.Transaction, local: dict[str, int], steps: list[bytes], operands: list[bytes]
) -> bool:
    """Append the steps of the updates; False when one of them does not compile."""
    for i, update in enumerate(txn.updates):
        key = local[update.key]
        if type(update) is r.Put and update.ttl_ms is _UNSET:
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


def draft_home(
    code: Bytes,
    deadlines: Sequence[tuple[int, int, int]] | Array,
    ids: Ragged,
    raws: Ragged,
    steps: ChildRows[ProgramSteps],
) -> DraftHome:
    """The home part; ``deadlines``: of each record (0: none), and where its digits are."""
    table = np.asarray(deadlines, np.int64).reshape(-1, 3)
    deadline, digits, digits_end = (np.ascontiguousarray(table[:, i]) for i in range(3))
    return DraftHome(code, deadline, digits, digits_end, ids, raws, steps)


def draft_of(
    kind: Bytes,
    key_counts: Array,
    keys: tuple[Bytes, Ragged],
    home: DraftHome,
    markers: ChildRows[RecordMarkers],
    ranges: ChildRows[RecordRanges] | None = None,
) -> DraftRecords:
    """Records with the hashes of their ids and keys; ``keys``: whether they are written,
    and they.
    """
    ids, (writes, texts) = home.id, keys
    has_id = ids.lengths() > 0
    return DraftRecords(
        kind,
        np.where(has_id, hash_ragged(ids, ID_SEED), 0).astype(np.uint64, copy=False),
        np.where(has_id, hash_ragged(ids, KEY_SEED), 0).astype(np.uint64, copy=False),
        ChildRows(key_counts, RecordKeys(writes, hash_ragged(texts, KEY_SEED), texts)),
        markers,
        ranges,
        ChildRows(np.ones(len(kind), np.int64), home),
    )


def _steps(b: Builder) -> ProgramSteps:
    packed = np.frombuffer(bytearray().join(b.steps), p.STEP)
    if not b.operands:
        return ProgramSteps.of(packed, Ragged.empty(len(packed)))
    has_operand = (packed["flags"] & p.HAS_OPERAND) != 0
    texts = Ragged.of(b.operands)
    lengths = np.zeros(len(packed), np.int64)
    lengths[has_operand] = texts.lengths()
    packed = packed.copy()
    packed["tag"][has_operand], packed["a"][has_operand] = parse_ints(texts.data, texts.offsets)
    return ProgramSteps.of(packed, Ragged(texts.data, starts_of(lengths)))
