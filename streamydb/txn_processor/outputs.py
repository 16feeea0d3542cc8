"""From an outcome to records: results, changes, dead letters, and what workflows emit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from streamydb import errors, limits
from streamydb import records as r
from streamydb.frames import program as p
from streamydb.frames.encoding import Part, peel
from streamydb.frames.hashing import hash_ragged
from streamydb.frames.jit import kernel
from streamydb.frames.lock_messages import ReleasedLocks, Swept
from streamydb.frames.messages import Feedback, RecordTexts, ValueSizes
from streamydb.frames.program import PLAN_DUPLICATE, WINDOW_DUPLICATE
from streamydb.frames.protocol import Message, require_format
from streamydb.frames.table import Array, Bytes, Ragged, chunk_bounds
from streamydb.frames.value_rows import ChangeRows, ResultRows
from streamydb.parser.fault import opened
from streamydb.procedures.follow_ups import Outputs
from streamydb.records.expiry import removal_number
from streamydb.txn_processor.format import change_rows, format_changes, format_results, result_rows
from streamydb.txn_processor.outcome import ExecutionOutcome
from streamydb.txn_processor.result import as_duplicate, originals

RESULTS: Final = 0
CHANGES: Final = 1
FEEDBACK: Final = 2
DEAD_LETTERS: Final = 3
DIGESTS: Final = 4
STREAMS: Final = 5
FOLLOW_UPS: Final = 6

ROWS_MAX: Final = 1 << 16
"""Records in one block: what they have beside their texts, some hundred bytes each, counts, too."""

_TASK_ROWS: Final = 1_000
"""So many results or changes of an executing partition, at least, go to a formatting task."""

_READ_BYTES: Final = 24
"""Of a value in a result that is no text, with its marks."""

_FOLLOW_UP_PARTITION: Final = 0
"""Of the log: follow-ups are in order along one partition."""

Ints = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]


@dataclass(slots=True)
class OutputRecords:
    """Output records of one topic: keys (an empty one is null), values (an empty one is null).

    ``spread``: which formatting task writes them. ``partition``: the Kafka partition, or -1 for the
    key's.
    """

    topic: int
    keys: Ragged
    values: Ragged
    spread: int = 0
    partition: int = -1


@dataclass(slots=True)
class OutputRows:
    """Results or changes before they are formatted; ``spread``: which formatting task does it."""

    table: ResultRows | ChangeRows
    spread: int = 0

    @property
    def topic(self) -> int:
        """The topic to which their records go."""
        return RESULTS if isinstance(self.table, ResultRows) else CHANGES


@dataclass(slots=True)
class ShardMessage:
    """A message that goes to shards through the feedback topic; its partition is the shard's."""

    message: ToShards
    topic: ClassVar[int] = FEEDBACK
    spread: ClassVar[int] = 0


ToShards: TypeAlias = Feedback | ValueSizes | ReleasedLocks | Swept
Output: TypeAlias = OutputRows | OutputRecords | ShardMessage
"""An output of an executing partition."""


def formatted(item: Output, database: str) -> OutputRecords:
    """The records of an output."""
    if isinstance(item, OutputRecords):
        return item
    if isinstance(item, ShardMessage):
        value = Ragged.of([item.message.block()])
        return OutputRecords(FEEDBACK, Ragged.empty(1), value, 0, item.message.shard)
    if isinstance(item.table, ResultRows):
        return OutputRecords(RESULTS, item.table.id, format_results(item.table), item.spread)
    keys, values = format_changes(database, item.table)
    return OutputRecords(CHANGES, keys, values, item.spread)


def outputs_of(outcome: ExecutionOutcome, spreads: int) -> Iterator[OutputRows | OutputRecords]:
    """All outputs of an outcome except feedback; the changes of one key have one ``spread``.

    Changes come before results: a strong read waits until the read model shows all results, so
    their changes should come soon.
    """
    yield from OutputProgress(spreads).rest(outcome)


class OutputProgress:
    """The outputs of an execution that goes on: each of them once, in the order of `outputs_of`
    within its topic.
    """

    def __init__(self, spreads: int) -> None:
        """Nothing was given yet; ``spreads``: how many tasks format."""
        self._spreads = spreads
        self._changes = self._results = self._executed = 0

    def part(self, outcome: ExecutionOutcome) -> Iterator[OutputRows]:
        """Yield the results of the part before, and then the changes of this one.

        Whoever takes the blocks takes the next one when it is done with the last. So the execution
        should wait for few and large ones, and mostly it waits for the short results alone.
        """
        yield from _results(outcome, self._spreads, self._results, self._executed)
        yield from _changes(outcome, self._spreads, self._changes)
        self._results, self._executed = self._executed, outcome.executed
        self._changes = len(outcome.writes)

    def rest(self, outcome: ExecutionOutcome) -> Iterator[OutputRows | OutputRecords]:
        """Yield all that was not given yet; the execution has ended."""
        if not len(outcome.txns):
            return
        yield from _changes(outcome, self._spreads, self._changes)
        yield from _results(outcome, self._spreads, self._results, len(outcome.txns))
        yield from _letters(outcome)
        yield from workflow_records(outcome.workflow)


def _letters(outcome: ExecutionOutcome) -> Iterator[OutputRecords]:
    rejected = (outcome.txns.kind == p.REJECTED).nonzero()[0]
    rows = sorted({*rejected.tolist(), *outcome.internal})
    for start in range(0, len(rows), ROWS_MAX):
        letters = [_dead_letter(outcome, i) for i in rows[start : start + ROWS_MAX]]
        keys = [r.dead_letter_key(letter.source) for letter in letters]
        values = [r.encode_dead_letter(letter) for letter in letters]
        yield OutputRecords(DEAD_LETTERS, Ragged.of(keys), Ragged.of(values))


def _results(
    outcome: ExecutionOutcome, spreads: int, first: int, last: int
) -> Iterator[OutputRows]:
    """Yield the results of the transactions from ``first`` up to ``last``."""
    chosen = outcome.txns.duplicate[first:last] != WINDOW_DUPLICATE
    positions = first + chosen.nonzero()[0]
    sizes = _result_bytes(outcome)
    for spread, rows in enumerate(np.array_split(positions, _tasks(len(positions), spreads))):
        for part in _in_blocks(rows, sizes):
            yield OutputRows(result_rows(outcome, part, _repeated(outcome, part)), spread)


def _tasks(rows: int, spreads: int) -> int:
    """Return how many formatting tasks get a part of so many rows: each costs a block."""
    return min(spreads, max(1, rows // _TASK_ROWS))


def _in_blocks(rows: Ints, sizes: Ints | None) -> Iterator[Ints]:
    """Rows in runs of at most a block of bytes and `ROWS_MAX` rows, none of them empty; ``sizes``:
    None if all are small.
    """
    if sizes is None or int(sizes[rows].sum()) <= limits.BLOCK_BYTES_MAX:
        bounds = [(at, at + ROWS_MAX) for at in range(0, len(rows), ROWS_MAX)]
    else:
        bounds = chunk_bounds(sizes[rows], limits.BLOCK_BYTES_MAX, ROWS_MAX)
    for start, end in bounds:
        yield rows[start:end]


def _text_bytes(pool: Ragged, tags: Array, refs: Array) -> Ints | None:
    """Bytes of the values that are no integers; None when there are none."""
    opaque = tags >= p.OPAQUE
    if not opaque.any():
        return None
    chosen = np.where(opaque, refs, 0)
    return np.where(opaque, pool.offsets[chosen + 1] - pool.offsets[chosen], 0)


def _result_bytes(outcome: ExecutionOutcome) -> Ints | None:
    """Return the size of each result, about; None when all are small."""
    if not outcome.special and not len(outcome.reads):
        return None
    copies = np.flatnonzero(outcome.txns.duplicate == PLAN_DUPLICATE)
    read = _read_bytes(outcome, len(copies))
    special = sum(map(len, outcome.special.values()))
    if read is None and special * (1 + len(copies)) <= limits.BLOCK_BYTES_MAX:
        return None
    sizes = np.zeros(len(outcome.txns), np.int64)
    if read is not None:
        np.add.at(sizes, outcome.reads["txn"], read)
    for i, result in outcome.special.items():
        sizes[i] += len(result)
    sizes[copies] = sizes[originals(outcome.txns, copies)]
    return sizes


def _read_bytes(outcome: ExecutionOutcome, copies: int) -> Ints | None:
    """Return the bytes of each value that was read, about, with its key; None when they are few,
    even if each of so many ``copies`` tells all of them.
    """
    reads = outcome.reads
    texts = _text_bytes(outcome.pool, reads["tag"], reads["ref"])
    if texts is None and len(reads) * (1 + copies) <= ROWS_MAX:
        return None
    own: Ints = outcome.slot_keys.lengths()[reads["slot"]] + _READ_BYTES
    return own if texts is None else own + texts


def _change_bytes(pool: Ragged, writes: npt.NDArray[Any]) -> Ints | None:
    """Return the size of each change record, about; None when all are small."""
    sizes = None
    for tag, ref in (("before_tag", "before_ref"), ("after_tag", "after_ref")):
        own = _text_bytes(pool, writes[tag], writes[ref])
        if own is not None:
            sizes = own if sizes is None else sizes + own
    return sizes


def workflow_records(outputs: Outputs) -> Iterator[OutputRecords]:
    """Records of streams and of the log, each in one piece, so that they keep their order."""
    for topic, records, partition in (
        (STREAMS, outputs.emitted, -1),
        (FOLLOW_UPS, outputs.follow_ups, _FOLLOW_UP_PARTITION),
    ):
        if records:
            keys, values = (Ragged.of(list(column)) for column in zip(*records, strict=True))
            yield OutputRecords(topic, keys, values, 0, partition)


def _repeated(outcome: ExecutionOutcome, rows: Ints) -> dict[int, bytes]:
    """Make the results of those of ``rows`` that repeat one of the plan, from that one's."""
    txns = outcome.txns
    copies = rows[txns.duplicate[rows] == PLAN_DUPLICATE]
    if not len(copies):
        return {}
    each, at = np.unique(originals(txns, copies), return_inverse=True)
    results = format_results(result_rows(outcome, each))
    pairs = zip(copies.tolist(), at.tolist(), strict=True)
    return {i: as_duplicate(txns, i, results[k]) for i, k in pairs}


@kernel
def _ordinals(writes: npt.NDArray[Any]) -> Parts:
    out = np.ones(len(writes), np.int32)
    for i in range(1, len(writes)):
        if writes[i].txn == writes[i - 1].txn:
            out[i] = out[i - 1] + 1
    return out


def _numbers(outcome: ExecutionOutcome) -> Parts | Ints:
    """Return the number of each write among the changes of its seq."""
    writes, removals = outcome.writes, outcome.places.removals
    index: Parts | Ints = _ordinals(writes)
    if removals is not None:
        index = index.astype(np.int64)
        rows = np.flatnonzero(removals[writes["txn"]])
        keys = outcome.slot_keys.take(writes["slot"][rows]).tolist()
        index[rows] = [removal_number(key) for key in keys]
    return index


def removals(table: ChangeRows, spreads: int) -> Iterator[OutputRows]:
    """The changes of keys that have ended; the plan that tells of them writes none of these."""
    lane = _lanes(table.key, spreads)
    for spread in np.unique(lane).tolist():
        yield OutputRows(table.take(np.flatnonzero(lane == spread)), spread)


def _lanes(keys: Ragged, spreads: int) -> Bytes:
    """Return the formatting task of the changes of each key."""
    return ((hash_ragged(keys) >> np.uint64(32)) % np.uint64(spreads)).astype(np.uint8)


@kernel
def _by_lane(lane: Bytes, writes: npt.NDArray[Any], lanes: int) -> tuple[Ints, Ints]:
    """Positions of the writes of each lane, in order, and where each lane's begin."""
    starts = np.zeros(lanes + 1, np.int64)
    for i in range(len(writes)):
        starts[lane[writes[i].slot] + 1] += 1
    for q in range(lanes):
        starts[q + 1] += starts[q]
    at = starts[:-1].copy()
    order = np.empty(len(writes), np.int64)
    for i in range(len(writes)):
        q = lane[writes[i].slot]
        order[at[q]] = i
        at[q] += 1
    return order, starts


def _changes(outcome: ExecutionOutcome, spreads: int, first: int) -> Iterator[OutputRows]:
    """Yield the changes of the writes from ``first`` on."""
    writes = outcome.writes[first:]
    if not len(writes):
        return
    index = _numbers(outcome)
    order, starts = np.arange(len(writes)), np.array([0, len(writes)])
    tasks = _tasks(len(writes), spreads)
    if tasks > 1:
        order, starts = _by_lane(_lanes(outcome.slot_keys, tasks), writes, tasks)
    sizes = _change_bytes(outcome.pool, writes)
    for spread, (start, end) in enumerate(pairwise(starts.tolist())):
        for chosen in _in_blocks(order[start:end], sizes):
            yield OutputRows(change_rows(outcome, first + chosen, index), spread)


def _dead_letter(outcome: ExecutionOutcome, i: int) -> r.DeadLetter:
    txns = outcome.txns
    raw: bytes | None = txns.raw[i] or None
    code, error = errors.INTERNAL, None
    fault = outcome.internal.get(i)
    if fault is not None:
        raw, error = raw if fault.shown else None, fault.error
    if txns.kind[i] == p.REJECTED:
        code = p.REJECT_CODES[txns.code[i]]
        raw, error = opened(raw or b"")
    return r.dead_letter(
        raw,
        seq=int(txns.seq[i]),
        ts_ms=int(txns.ts_ms[i]),
        code=code,
        id=txns.id[i].decode() or None,
        source=r.Source(int(txns.partition[i]), int(txns.offset[i])),
        error=error,
    )


class _Results(Message, frozen=True):
    """Results that are to be formatted."""

    KIND: ClassVar[str] = "rows"

    topic: int
    rows: ResultRows


class _Changes(Message, frozen=True):
    """Changes that are to be formatted."""

    KIND: ClassVar[str] = "rows"

    topic: int
    rows: ChangeRows


class _Output(Message, frozen=True):
    """Records of a topic, for a partition of it; -1: that of their keys."""

    KIND: ClassVar[str] = "output"

    topic: int
    partition: int
    records: RecordTexts


def output_parts(item: Output, database: str = "") -> list[Part]:
    """An output of an executing partition, for the task that formats it: a block in pieces."""
    if isinstance(item, ShardMessage):
        item = formatted(item, database)
    if isinstance(item, OutputRecords):
        return _Output(item.topic, item.partition, RecordTexts(item.keys, item.values)).pieces()
    if isinstance(item.table, ResultRows):
        return _Results(RESULTS, item.table).pieces()
    return _Changes(CHANGES, item.table).pieces()


def output_block(item: Output) -> bytes:
    """As `output_parts`, in one piece."""
    return b"".join(output_parts(item))


def open_output(block: bytes, database: str) -> OutputRecords:
    """The records of an output block of ``database``.
    Raises InvariantViolation: the block was written by a release with another format.
    """
    header, stored = peel(block)
    require_format(header)
    if header["kind"] == _Output.KIND:
        output = _Output.opened(header, stored)
        return OutputRecords(
            output.topic, output.records.key, output.records.value, 0, output.partition
        )
    kind = _Results if header["topic"] == RESULTS else _Changes
    return formatted(OutputRows(kind.opened(header, stored).rows), database)
