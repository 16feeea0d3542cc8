"""Compile records of the log into columns: what the sorter orders, the planner locks and the kernel
runs.

Input: one batch of log records (partition, offset, append time in ms, value). Output: one table
whose rows are the records, with three children: the keys of each record (for every shard), the home
part (payload and steps, for the home shard of its id) and the marker, if it is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb import errors
from streamydb import records as r
from streamydb.frames import characters as c
from streamydb.frames import program as p
from streamydb.frames.hashing import ID_SEED, PAYLOAD_SEED, hash_ragged
from streamydb.frames.jit import leaf
from streamydb.frames.record_rows import CompiledRecords, HomeRows, RecordMarkers
from streamydb.frames.table import Array, Bytes, ChildRows, Ragged, starts_of
from streamydb.parser.builder import Builder, DraftHome, DraftRecords, draft_home, draft_of
from streamydb.parser.fault import keep, reported
from streamydb.parser.scan import Scanned, scan
from streamydb.records.names import FOLLOW_UP_PREFIX
from streamydb.records.rulings import (
    NO_RULINGS,
    STOPPING,
    Fault,
    LogPosition,
    Rulings,
    require_ruled,
)

_FOLLOW_UP: Final = FOLLOW_UP_PREFIX.encode()


def compile_records(
    partitions: Array,
    offsets: Array,
    append_ms: Array,
    values: Sequence[bytes | None] | Ragged,
    *,
    rulings: Rulings = NO_RULINGS,
) -> CompiledRecords:
    """Compile one batch of log records, in the order given.

    Args:
        partitions: shape (n,), int32.
        offsets: shape (n,), int64.
        append_ms: LogAppendTime of each record in ms since the epoch, shape (n,), int64.
        values: the records' values.
        rulings: which records cannot be compiled, whatever this release makes of them.

    Raises UnruledFaults: our own code failed on others.
    """
    texts = values if isinstance(values, Ragged) else Ragged.of([value or b"" for value in values])
    scanned = scan(texts)
    records = _plain(scanned, texts.offsets[:-1][scanned.plain])
    if scanned.calls.any():
        writes = records.keys.rows.write
        writes[np.repeat(scanned.calls, scanned.key_counts) & (writes != 0)] = p.ENDING
    if not scanned.plain.all():
        rest = np.flatnonzero(~scanned.plain)
        care = _Care(rulings)
        other = _compile_with_care(
            [values[row] for row in rest.tolist()],
            list(zip(partitions[rest].tolist(), offsets[rest].tolist(), strict=True)),
            care,
        )
        require_ruled(care.faults)
        order = np.empty(len(texts), np.int64)
        order[np.flatnonzero(scanned.plain)] = np.arange(len(records))
        order[rest] = len(records) + np.arange(len(rest))
        records = DraftRecords.concat([records, other]).take(order)
    ruled = rulings.rows(partitions, offsets)
    if ruled:
        records = _as_ruled(records, values, ruled)
    counts, draft = records.home
    payload = hash_ragged(_identities(texts, draft), PAYLOAD_SEED)
    home = HomeRows(draft.code, draft.deadline, payload, draft.id, draft.raw, draft.steps)
    if not scanned.plain.all():
        _tell_copies_apart(records, partitions, offsets, ~scanned.plain)
    return CompiledRecords(
        records.kind,
        records.id0,
        records.id1,
        np.ascontiguousarray(partitions, np.int32),
        np.ascontiguousarray(offsets, np.int64),
        texts.lengths().astype(np.int32),
        np.ascontiguousarray(append_ms, np.int64),
        records.keys,
        records.marker,
        records.ranges,
        ChildRows(counts, home),
    )


@leaf
def _blank_out(
    data: Bytes,
    offsets: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> None:
    """Put zeros in place of the digits from ``starts`` to ``ends`` of each record."""
    for i in range(len(starts)):
        for j in range(offsets[i] + starts[i], offsets[i] + ends[i]):
            data[j] = c.ZERO


def _identities(texts: Ragged, home: DraftHome) -> Ragged:
    """Return the bytes by which payloads are compared: those without the deadline
    (`records.deadline`).
    """
    if not home.deadline.any():
        return texts
    data = texts.data.copy()
    _blank_out(data, texts.offsets, home.digits, home.digits_end)
    return Ragged(data, texts.offsets)


def _tell_copies_apart(
    records: DraftRecords, partitions: Array, offsets: Array, among: npt.NDArray[np.bool_]
) -> None:
    """Give each copy of a follow-up an id of its own, because follow-ups are known by their number.

    So an early one can come again, and one that comes after any time is still known.
    """
    ids = records.home.rows.id
    generic = np.flatnonzero((records.kind == p.GENERIC) & among).tolist()
    rows = [row for row in generic if ids[row].startswith(_FOLLOW_UP)]
    if rows:
        positions = Ragged.of([b"%d/%d" % (partitions[row], offsets[row]) for row in rows])
        records.id0[rows] = hash_ragged(positions, ID_SEED)
        records.id1[rows] = hash_ragged(positions, PAYLOAD_SEED)


@dataclass(slots=True)
class _Care:
    """The settings of compiling record by record, and the ``faults`` that it meets."""

    rulings: Rulings
    faults: list[Fault] = field(default_factory=list)


def _compile_with_care(
    values: Sequence[bytes | None], positions: Sequence[LogPosition], care: _Care
) -> DraftRecords:
    """Compile the records that are not plain, one by one."""
    try:
        return _compile_each(values)
    except STOPPING:
        raise
    except Exception as error:  # noqa: BLE001 - our own fault must not stop the database
        if len(values) == 1:
            return _faulty(values[0] or b"", positions[0], error, care)
        each = zip(values, positions, strict=True)
        alone = [_compile_with_care([raw], [position], care) for raw, position in each]
        return DraftRecords.concat(alone)


def _faulty(raw: bytes, position: LogPosition, error: Exception, care: _Care) -> DraftRecords:
    """Make the row of a record that our own code cannot compile; note a fault without ruling."""
    name = reported(error, f"the record at partition {position[0]}, offset {position[1]},")
    known = care.rulings.get(position)
    fault = Fault(*position, name, named=False, counted=False)
    if known is None:
        care.faults.append(fault)
    elif known.named:
        require_ruled([fault], executed=True)  # an earlier release could read it
    return _poison(raw, name)


def _compile_each(values: Sequence[bytes | None]) -> DraftRecords:
    builder = Builder()
    for row, raw in enumerate(values):
        item = r.decode(raw)
        if isinstance(item, r.Transaction):
            builder.transaction(item, raw or b"")
        elif isinstance(item, r.Marker):
            builder.marker(row, item)
        else:
            builder.refuse(item.id or "", item.code, keep(raw))
    return builder.table()


def _as_ruled(
    records: DraftRecords, values: Sequence[bytes | None] | Ragged, ruled: dict[int, Fault]
) -> DraftRecords:
    """Apply rulings to the records: those that could not be read stay unread."""
    poisons: list[DraftRecords] = []
    order = np.arange(len(records))
    counts, home = records.home
    raws = home.raw.tolist()
    for row, fault in ruled.items():
        kind = records.kind[row]
        if not fault.named:
            order[row] = len(records) + len(poisons)
            poisons.append(_poison(values[row] or b"", fault.error))
        elif fault.shown and kind == p.SIMPLE:
            records.kind[row] = p.GENERIC
            raws[row] = values[row] or b""
    home = msgspec.structs.replace(home, raw=Ragged.of(raws))
    records = msgspec.structs.replace(records, home=ChildRows(counts, home))
    return DraftRecords.concat([records, *poisons]).take(order)


def _poison(raw: bytes, fault: str) -> DraftRecords:
    """Make the row of a record that our own code cannot compile: it gets a seq and an abort."""
    builder = Builder()
    builder.refuse("", errors.INTERNAL, keep(raw, fault))
    return builder.table()


def _plain(s: Scanned, starts: Array) -> DraftRecords:
    """The table of records that were compiled straight from their bytes.

    ``starts``: where each of them begins in the buffer.
    """
    n = len(s.ids)
    none = RecordMarkers(np.empty(0, np.int64), np.empty(0, np.int64))
    within = s.deadline_spans - (starts * (s.deadlines > 0))[:, None]
    home = draft_home(
        np.zeros(n, np.uint8),
        np.column_stack([s.deadlines, within]),
        s.ids,
        _payloads(s),
        ChildRows(s.step_counts, s.steps),
    )
    markers = ChildRows(np.zeros(n, np.int64), none)
    kind = np.where(s.calls, p.GENERIC, p.SIMPLE).astype(np.uint8)
    return draft_of(kind, s.key_counts, (s.writes, s.keys), home, markers)


def _payloads(s: Scanned) -> Ragged:
    """The plain records that are executed from their payloads; empty for the others."""
    lengths = np.zeros(len(s.calls), np.int64)
    lengths[s.calls] = s.payloads.lengths()
    return Ragged(s.payloads.data, starts_of(lengths))
