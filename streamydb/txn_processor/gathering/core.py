"""The executing partition of `grouping=single`: gathers, executes, writes records and feedback."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import BlobStore
from streamydb.frames.lock_messages import Locks, MessagePart, Released, ReleasedLocks
from streamydb.frames.readers import ToGatherer
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Ragged
from streamydb.key_processor.locking.messages import is_packed
from streamydb.procedures.follow_ups import joined
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records.rulings import NO_RULINGS, Rulings, require_ruled
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import passed_on
from streamydb.txn_processor.gathering import checks
from streamydb.txn_processor.gathering.execution import Finished, execute_gathered
from streamydb.txn_processor.gathering.gathered import TransactionGatherer

_ROW_BYTES = 32


class Gatherer:
    """One executing partition within one micro-batch."""

    def __init__(
        self,
        config: ShardConfig,
        proc: int,
        blobs: BlobStore,
        changes_partitions: int = 1,
        modules: Modules = NO_MODULES,
        rulings: Rulings = NO_RULINGS,
    ) -> None:
        """Continue from ``blobs``; resolved records go to each of ``changes_partitions``.

        ``modules``: where the code of procedures is. ``rulings``: as they are given.
        """
        self._config = config
        self._proc = proc
        self._blobs = blobs
        self._changes_partitions = changes_partitions
        self._modules = modules
        self._rulings = rulings

    def step(self, messages: Iterable[ToGatherer]) -> list[o.OutputRecords]:
        """Execute what is complete now; return records, feedback last.
        Raises UnruledFaults, InvariantViolation: as `TransactionProcessor.step`.
        """
        records: list[o.OutputRecords] = []
        gatherer = TransactionGatherer(self._blobs)
        stamps: set[tuple[str, int, int, int]] = set()
        for message in messages:
            if not isinstance(message, Locks):
                known = passed_on(message, self._changes_partitions)
                records += (o.formatted(each, self._config.database) for each in known)
                continue
            stamps.add(
                (message.life, message.step, message.feedback_bytes_max, message.values_bytes_max)
            )
            checks.gathered(message.payloads, message.grants)
            gatherer.add(message.payloads, message.grants)
        if len(stamps) > 1:
            raise InvariantViolation(f"shards of one batch are in different steps: {stamps}")
        for life, step, bytes_max, values_max in stamps:
            finished = self._executed(gatherer, values_max)
            for executed in (True, False):
                faults = [f for txn in finished if (f := txn.fault) and txn.silent is executed]
                require_ruled(faults, executed=executed)
            checks.finished(finished)
            gatherer.save()
            records += _records([txn for txn in finished if not txn.silent])
            more = bool(gatherer.state.complete)
            records += self._feedback(finished, life, step, bytes_max, more=more)
        return records

    def _executed(self, gatherer: TransactionGatherer, bytes_max: int) -> list[Finished]:
        """Execute what is complete, until it and its records have so many bytes; at least one.

        The rest is executed in the next step, which the feedback of these leads to.
        """
        finished, taken = [], 0
        for gathered in gatherer.complete():
            txn = execute_gathered(
                gathered, self._config.database, self._proc, self._modules, self._rulings
            )
            finished.append(txn)
            taken += gathered.size + txn.size
            if taken > bytes_max:
                break
        return finished

    def _feedback(
        self, finished: list[Finished], life: str, step: int, bytes_max: int, *, more: bool
    ) -> Iterator[o.OutputRecords]:
        """Blocks for every shard that has something to release or to learn.

        ``more``: the shard that this partition belongs to shall make it go on.
        """
        ends = any(is_packed(row.value) for txn in finished
                   for rows in txn.releases.values() for row in rows)  # fmt: skip
        for shard in range(self._config.shards):
            blocks = [_Block()]
            for txn in finished:
                if shard in txn.releases:
                    _fill(blocks, txn.seq, txn.releases[shard], bytes_max)
            for block in blocks:
                if block.parts:
                    feedback = ReleasedLocks(
                        incarnation=self._config.incarnation,
                        shard=shard,
                        life=life,
                        step=step,
                        more=more and shard == self._proc,
                        ends=ends,
                        rows=block.rows,
                        parts=block.parts,
                    )
                    yield o.formatted(o.ShardMessage(feedback), self._config.database)


@dataclass(slots=True)
class _Block:
    """A block of feedback being filled."""

    rows: list[Released] = field(default_factory=list)
    parts: list[MessagePart] = field(default_factory=list)
    size: int = 0


def _size(row: Released) -> int:
    return len(row.lock) + len(row.value or b"") + _ROW_BYTES


def _fill(blocks: list[_Block], seq: int, rows: list[Released], bytes_max: int) -> None:
    """Add the feedback of transaction ``seq`` for a shard, in chunks when it is too much for one
    block.
    """
    chunks: list[list[Released]] = [[]]
    total = 0
    for row in rows:
        if chunks[-1] and total + _size(row) > bytes_max:
            chunks.append([])
            total = 0
        chunks[-1].append(row)
        total += _size(row)
    for number, chunk in enumerate(chunks):
        size = sum(map(_size, chunk)) + _ROW_BYTES
        if blocks[-1].parts and blocks[-1].size + size > bytes_max:
            blocks.append(_Block())
        block = blocks[-1]
        block.rows += chunk
        block.parts.append(MessagePart(seq, number, len(chunks)))
        block.size += size


def _records(finished: list[Finished]) -> Iterator[o.OutputRecords]:
    if not finished:
        return
    results = [(txn.id, txn.result) for txn in finished]
    changes = [change for txn in finished for change in txn.changes]
    letters = [txn.letter for txn in finished if txn.letter is not None]
    for topic, rows in ((o.RESULTS, results), (o.CHANGES, changes), (o.DEAD_LETTERS, letters)):
        if rows:
            keys = Ragged.of([key for key, _ in rows])
            yield o.OutputRecords(topic, keys, Ragged.of([value or b"" for _, value in rows]))
    yield from o.workflow_records(joined(txn.workflow for txn in finished))
