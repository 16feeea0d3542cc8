"""A shard of `grouping=single`: nothing is planned, locks are held over batches.

The reference implementation of the locking protocol. A batch, with the pure classes alone:

    parse_transactions(..., shards, whole=True), parse_feedback(values, config)  -> Routed
    SingleShard(config, shard, blobs, store, tables, life).step(messages)        -> Emitted
    Gatherer(config, proc, blobs, changes_partitions).step(messages)             -> outputs.Records

Shards and gatherers each have a blob store of their own, durable with the batch. Messages may
come in any order, feedback late, twice, and in any order between shards; feedback of a step that
was not committed is ignored. ``config.grouping`` is "single". When all is at rest,
``load(SingleMeta, shard_blobs.get("meta")).unresolved`` is empty, the gatherers' index
(`GatherState` in blob "gather") has nothing waiting, and the values
are in ``meta.values`` as in planner mode.

Protocol. Every shard sorts all records and numbers them alike. It enqueues each transaction for
the locks that live there, keys by their hash and the id in its home shard, in seq order. A granted
lock goes to the transaction's executing partition (its home shard's number) with the value under
it; a writer holds it until its feedback is applied. Whether an id was used before depends on the
order alone and is decided on release; the original's verdict may still be on its way, and that is
what a repetition waits for at the lock of its id.

Every part of the feedback is told to every shard, so all know which transactions are resolved and
release up to the same limits in the same batch. Nothing depends on that: the order is the same
whoever is ahead, and a gatherer takes payload and grants in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.blobs import BlobStore
from streamydb.frames.lock_messages import Granted, Locks, MessagePart, Payload, Released, Swept
from streamydb.frames.messages import ResolvedRecord, resolved_value
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.readers import ToGatherer, ToSingleShard
from streamydb.frames.record_rows import ReleasedRecords
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Ragged, chunk_bounds
from streamydb.frames.value_rows import ValueRows, Verdicts, WrittenValues
from streamydb.key_processor.id_rows import HomeIds, IdTables
from streamydb.key_processor.idwindow import IdWindow
from streamydb.key_processor.inbox import refuse_to_wait
from streamydb.key_processor.locking import checks
from streamydb.key_processor.locking.expiry import EndedKeys, Sweep, place_of, split_removals, swept
from streamydb.key_processor.locking.locks import LockTable, answer, range_locks
from streamydb.key_processor.locking.messages import (
    id_lock,
    is_id_lock,
    is_key_lock,
    is_range_lock,
    key_lock,
    locked_name,
    packed,
    range_lock,
)
from streamydb.key_processor.locking.repetitions import Repeats
from streamydb.key_processor.locking.state import (
    LockInbox,
    SingleMeta,
    Unresolved,
    canonical_values,
    writes_table,
)
from streamydb.key_processor.memory import put_state
from streamydb.key_processor.process_cache import ProcessCache
from streamydb.key_processor.progress import ShardDigests
from streamydb.key_processor.state import ShardOutput, load_or_begin
from streamydb.key_processor.value_store import ValueStore
from streamydb.key_processor.values import ShardValues
from streamydb.records.expiry import end_of, is_over
from streamydb.sorter.core import KeyedEventTimeSorter
from streamydb.sorter.state import LogEnd, require_ends


@dataclass(slots=True)
class _Outbox:
    """The payloads and grants for one executing partition."""

    payloads: list[Payload] = field(default_factory=list)
    grants: list[Granted] = field(default_factory=list)


class SingleShard:
    """One shard within one micro-batch."""

    def __init__(
        self,
        config: ShardConfig,
        shard: int,
        blobs: BlobStore,
        store: ValueStore,
        tables: IdTables,
        life: Life,
        *,
        cache: ProcessCache | None = None,
    ) -> None:
        """Load the state from ``blobs``, or begin a new database.

        ``cache``: of the process, for its shards.
        Raises ConfigurationError: the state was made with another configuration.
        """
        self._cache = cache or ProcessCache()
        self._meta = load_or_begin(SingleMeta, blobs, config, life.shape)
        self._shard = shard
        self._blobs = blobs
        self._life = life
        self._sorter = KeyedEventTimeSorter(self._meta.sorter, blobs)
        self._values = ShardValues(self._meta.values, blobs, store)
        self._locks = LockTable(self._meta.locks, self._meta.behind, self._meta.ranges)
        self._repeats = Repeats(IdWindow(self._meta.ids, blobs, tables))
        meta = self._meta
        self._digests = ShardDigests(
            meta.digests, config.digest_interval, shard, self._values, meta.seq, config.shards
        )
        self._digest_times: dict[int, int] = {}
        self._out: dict[int, _Outbox] = {}
        self._left_out: dict[tuple[int, bytes], int] = {}
        self._answers: dict[int, bytes] = {}
        self._found: ValueRows | None = None
        self._ends: dict[bytes, int] | None = None

    def require_log(self, ends: Mapping[int, LogEnd]) -> None:
        """Refuse a log whose end is not what this state has read of it; see `LogEnd`.
        Raises InvariantViolation: the tail of the log was lost, and it has grown anew.
        """
        require_ends(ends, self._meta.sorter)

    def step(self, messages: Iterable[ToSingleShard]) -> list[ShardOutput[ToGatherer]]:
        """Process the messages of one micro-batch; return what the executing partitions get."""
        meta = self._meta
        meta.history.begin(self._life.name)
        inbox = LockInbox.of(messages, meta)
        for proc in inbox.going_on:
            self._box(proc)
        came = inbox.parts or inbox.swept
        meta.waits = 0 if came or not meta.unresolved else meta.waits + 1
        refuse_to_wait(meta.waits, meta.resolved)
        self._sorter.add(self._cache.records.of(inbox.records, meta.config.shards))
        self._sorter.note_last(last for records in inbox.records for last in records.last)
        if meta.role.hear(inbox.roles):
            meta.shown = (0, {})
        self._apply(inbox.released)
        self._conclude(inbox.parts)
        for audit in inbox.audits:
            self._digests.audit(audit.reason)
        self._release()
        checks.counted(meta)
        bound = self._shape().values_bytes_max // meta.config.shards
        sweep = Sweep.of(meta, self._values, self._locks, bound)
        self._grant()
        self._sorter.save()
        meta.behind = self._locks.behind
        emitted: list[ShardOutput[ToGatherer]] = []
        for proc, box in sorted(self._out.items()):
            checks.sent(box.payloads, box.grants, meta)
            emitted += (
                ShardOutput(proc, locks, meta.seq, meta.ignored) for locks in self._locks_for(box)
            )
        emitted += self._sweep(sweep)
        emitted += self._digest()
        emitted += self._resolve()
        meta.digests = self._digests.state
        meta.shape = self._life.shape
        put_state(self._blobs, meta)
        return emitted

    def _sweep(self, sweep: Sweep) -> Iterator[ShardOutput[ToGatherer]]:
        """Tell what is removed, and, when that goes on, up to which seq everything is."""
        meta = self._meta
        if not meta.expires:
            return
        meta.removing = [(k, at.seq) for k, at in zip(sweep.keys, sweep.places, strict=True)]
        bound = swept(meta, self._locks, sweep)
        messages: list[ToGatherer] = [*sweep.removals(self._values, meta.role.covered)]
        if bound > meta.told or sweep.keys:
            meta.told = max(meta.told, bound)
            notice = Swept(
                meta.config.incarnation, self._shard, self._life.name, meta.history.steps, meta.told
            )
            messages.append(notice)
        for message in messages:
            yield ShardOutput(self._shard, message, meta.seq, meta.ignored)

    def _locks_for(self, box: _Outbox) -> Iterator[Locks]:
        """Yield what an executing partition gets; at least one, which tells it to go on."""
        shape = self._shape()
        sizes = np.array([len(grant.value or b"") for grant in box.grants], np.int64)
        cuts = chunk_bounds(sizes, limits.BLOCK_BYTES_MAX, len(sizes)) or [(0, 0)]
        for number, (start, end) in enumerate(cuts):
            yield Locks(
                life=self._life.name,
                step=self._meta.history.steps,
                feedback_bytes_max=shape.feedback_bytes_max,
                values_bytes_max=shape.values_bytes_max,
                payloads=box.payloads if number == 0 else [],
                grants=box.grants[start:end],
            )

    def _shape(self) -> PlanShape:
        """Return the bounds of this batch, which are part of the state before it."""
        return self._meta.shape

    def _apply(self, released: list[Released]) -> None:
        """Free the locks that come back, and apply the writes made under them.

        A lock is granted again only afterwards, so no key is written twice.
        """
        checks.addressed(released, self._shard, self._meta.config.shards)
        writes: list[Released] = []
        verdicts: list[Released] = []
        for row in sorted(released, key=lambda row: (row.seq, row.lock)):
            self._must_be_released(row.seq)
            if self._locks.release(row.lock, row.seq) and row.wrote:
                (verdicts if is_id_lock(row.lock) else writes).append(row)
        results = [(row.seq, row.value or b"") for row in verdicts]
        after, concluded = writes_table(writes), Verdicts.of(results)
        seqs = [row.seq for row in writes]
        if self._meta.removing:
            swept_keys, places = zip(*self._meta.removing, strict=True)
            deletes = WrittenValues.deletes(swept_keys)
            after, seqs = WrittenValues.concat([after, deletes]), [*seqs, *places]
            self._meta.removing = []
        checks.released(self._meta, self._shard, after, concluded)
        written = split_removals(self._meta, self._before(after), after, seqs)
        self._digests.add_writes(*written, concluded)
        self._values.apply(after)
        self._ends = None
        self._repeats.conclude(results)

    def _before(self, after: WrittenValues) -> WrittenValues:
        return self._values.read(after.key).of_keys(after.key) if len(after) else after

    def _digest(self) -> Iterator[ShardOutput[ToGatherer]]:
        incarnation = self._meta.config.incarnation
        digests = self._digests.over(self._meta.resolved, incarnation, self._digest_times)
        if digests is not None:
            yield ShardOutput(self._shard, digests, self._meta.seq, self._meta.ignored)

    def _must_be_released(self, seq: int) -> None:
        if seq > self._meta.seq:
            raise InvariantViolation(f"feedback of transaction {seq} before it was released")

    def _conclude(self, parts: list[tuple[int, MessagePart]]) -> None:
        meta = self._meta
        for shard, part in sorted(parts, key=lambda item: (item[1].seq, item[0], item[1].chunk)):
            self._must_be_released(part.seq)
            if part.seq <= meta.resolved:
                continue
            txn = meta.unresolved[part.seq - meta.resolved - 1]
            name = (shard, part.chunk)
            if part.chunks > 1 and name not in txn.chunks:
                txn.chunks = [*txn.chunks, name]
            if part.chunks == 1 or sum(s == shard for s, _ in txn.chunks) == part.chunks:
                txn.missing &= ~(1 << shard)
        done, limit = 0, len(meta.unresolved)
        if meta.expires:
            swept = min(meta.swept.get(shard, 0) for shard in range(meta.config.shards))
            limit = max(0, min(limit, swept - meta.resolved))
        while done < limit and not meta.unresolved[done].missing:
            meta.resolved_ts = meta.unresolved[done].ts
            done += 1
            if (meta.resolved + done) % meta.config.digest_interval == 0:
                self._digest_times[meta.resolved + done] = meta.resolved_ts
        meta.resolved += done
        del meta.unresolved[:done]

    def _release(self) -> None:
        """Release records and enqueue them, unless too much is under way."""
        meta, shape = self._meta, self._shape()
        limit = min(shape.records_max, shape.in_flight_max - len(meta.unresolved))
        limit = meta.role.may_release(meta.seq, limit)
        if limit <= 0 or len(self._locks) >= shape.lock_queue_max:
            return
        ready = self._sorter.release(limit, shape.bytes_max)
        if ready is None:
            return
        checks.ordered(ready, meta)
        released = ready.released(np.arange(meta.seq + 1, meta.seq + 1 + len(ready)))
        at_home = np.flatnonzero(released.home.counts == 1)
        payloads = self._payloads(released, at_home)
        self._enqueue(released, payloads)
        self._box(self._shard).payloads += payloads.values()
        meta.seq += len(released)

    def _payloads(
        self, released: ReleasedRecords, at_home: npt.NDArray[np.int64]
    ) -> dict[int, Payload]:
        """The records whose ids live here, by seq, without their keys; ids are remembered."""
        home = released.home.rows
        own = HomeIds.of(released, at_home)
        resolved = (self._meta.resolved, self._meta.resolved_ts)
        repeats = self._repeats.find(own, self._meta.seq, resolved)
        self._meta.repeats.update(repeats.original)
        places = own.seq, own.ts_ms, own.partition, own.offset, own.kind
        columns = (column.tolist() for column in places)
        rows = zip(*columns, home.code.tolist(), home.id.tolist(), home.raw.tolist(), strict=True)
        silent = self._meta.role.is_silent(self._meta.seq)
        return {
            seq: Payload(
                seq, ts, part, off, kind, code, repeats.kind.get(seq, 0), id_, raw, [], silent
            )
            for seq, ts, part, off, kind, code, id_, raw in rows
        }

    def _enqueue(self, released: ReleasedRecords, payloads: dict[int, Payload]) -> None:
        """Let every transaction wait for the locks that live here, in seq order."""
        shards = np.uint64(self._meta.config.shards)
        counts, keys = released.keys
        touched = zip(
            keys.key.tolist(),
            keys.write.astype(bool).tolist(),
            (keys.hash % shards).tolist(),
            strict=True,
        )
        places = released.seq, released.ts_ms, released.partition, released.offset
        columns = (column.tolist() for column in places)
        homes = (released.id0 % shards).tolist()
        owns = [[next(touched) for _ in range(count)] for count in counts.tolist()]
        ranged = range_locks(released, self._shard, owns)
        rows = zip(*columns, homes, owns, strict=True)
        for i, (seq, ts, part, off, home, own) in enumerate(rows):
            missing = 1 << home
            if i in ranged:
                self._locks.enqueue_range(ranged[i])
            for key, write, owner in own:
                if write:
                    missing |= 1 << owner
                if owner == self._shard:
                    self._locks.enqueue(key_lock(key), seq, write=write)
            payload = payloads.get(seq)
            if payload is not None:
                payload.keys = own
                payload.ranges = [range_lock(s) for s in range(int(shards)) if i in ranged]
                if payload.kind != p.REJECTED:
                    self._locks.enqueue(id_lock(payload.id), seq, write=True)
            self._meta.unresolved.append(Unresolved(ts, part, off, home, missing))

    def _grant(self) -> None:
        """Send every lock that is granted now, with what lies under it, to its transaction."""
        granted = self._locks.grant(self._fits)
        left_out = self._left_out
        keys = [each for each in granted if is_key_lock(each[1]) and each not in left_out]
        names = Ragged.of([locked_name(lock) for _, lock in keys])
        values, self._found = self._found or self._values.read(names), None
        for (seq, lock), (value, version) in zip(keys, canonical_values(values), strict=True):
            self._send(self._granted(seq, lock, value, version))
        for (seq, lock), size in left_out.items():
            self._send(Granted(seq, lock, None, 0, size))
        for seq, lock in granted:
            if is_range_lock(lock):
                self._send(Granted(seq, lock, self._answers.pop(seq), 0))
            elif is_id_lock(lock):
                original = self._meta.repeats.pop(seq, None)
                verdict = None
                if original is not None:
                    verdict = self._repeats.verdict(locked_name(lock), original)
                self._send(Granted(seq, lock, verdict, 0))

    def _granted(self, seq: int, lock: bytes, value: bytes | None, version: int) -> Granted:
        """Return a granted lock; if its value has ended,
        a writer gets it with where to remove it.
        """
        if not is_over(value, self._txn(seq).ts):
            return Granted(seq, lock, packed(value), version)
        held = self._locks.state.get(lock)
        if held is None or held.holder != seq:
            return Granted(seq, lock, None, 0)
        return Granted(seq, lock, packed(value, place_of(self._meta, end_of(value) or 0)), version)

    def _txn(self, seq: int) -> Unresolved:
        return self._meta.unresolved[seq - self._meta.resolved - 1]

    def _over(self, seq: int) -> EndedKeys:
        """Return the keys that have ended before a transaction; looks for all once in a step."""
        if self._ends is None:
            due = self._values.due(self._meta.unresolved[-1].ts) if self._meta.expires else ()
            self._ends = {key: end for part in due for end, key in part}
        return EndedKeys(self._ends, self._txn(seq).ts)

    def _fits(self, free: list[tuple[int, bytes]]) -> int:
        """Return how many locks are granted now: those of one transaction, and as many more as the
        bytes under them allow, so that an executing partition can hold what all shards send it.

        Whoever is first of all that are unfinished is first here, so somebody always goes on.
        """
        bound = self._shape().values_bytes_max // self._meta.config.shards
        at = [i for i, (_, lock) in enumerate(free) if is_key_lock(lock)]
        names = Ragged.of([locked_name(free[i][1]) for i in at])
        ranged = any(is_range_lock(lock) for _, lock in free)
        if not self._meta.repeats and not ranged:
            values = self._values.read_within(names, bound)  # not to the byte
            if values is not None and int(values.text.lengths().sum()) <= bound:
                self._found = values
                return len(free)
        sizes = np.array([limits.RESULT_BYTES_MAX * (seq in self._meta.repeats) for seq, _ in free])
        sizes[at] = self._values.sizes(names)
        of_first = sum(seq == free[0][0] for seq, _ in free)
        self._leave_out(free[:of_first], sizes[:of_first].tolist())
        self._answer_ranges(free, sizes, max(of_first, 1), bound)
        return max(of_first, int(np.searchsorted(np.cumsum(sizes), bound, "right")))

    def _answer_ranges(
        self, free: list[tuple[int, bytes]], sizes: npt.NDArray[np.int64], first: int, bound: int
    ) -> None:
        """Look for the ranges that may be granted now, and put into ``sizes`` how large they are.

        ``first``: so many locks are granted whatever is under them.
        """
        waiting, total = {lock.seq: lock for lock in self._locks.ranges}, 0
        for i, (seq, lock) in enumerate(free):
            if i >= first and total > bound:
                return
            if is_range_lock(lock):
                self._answers[seq] = answer(self._values, waiting[seq], self._over(seq))
                sizes[i] = len(self._answers[seq])
            total += int(sizes[i])

    def _leave_out(self, own: list[tuple[int, bytes]], sizes: list[int]) -> None:
        """Skip reading the values under the locks of a transaction that touches too many bytes."""
        if sum(sizes) > limits.TRANSACTION_VALUES_BYTES_MAX:
            over = self._over(own[0][0])
            there = [not is_key_lock(lock) or locked_name(lock) not in over for _, lock in own]
            sizes = [size * is_there for size, is_there in zip(sizes, there, strict=True)]
        if sum(sizes) > limits.TRANSACTION_VALUES_BYTES_MAX:
            for each, size in zip(own, sizes, strict=True):
                if size and is_key_lock(each[1]) and not locked_name(each[1]).startswith(b"$"):
                    self._left_out[each] = size

    def _send(self, grant: Granted) -> None:
        self._box(self._txn(grant.seq).home).grants.append(grant)

    def _box(self, proc: int) -> _Outbox:
        return self._out.setdefault(proc, _Outbox())

    def _resolve(self) -> Iterator[ShardOutput[ToGatherer]]:
        """Publish the seq up to which everything is written and applied, when it has changed."""
        meta = self._meta
        offsets = self._sorter.covered()
        for txn in meta.unresolved:
            offsets[txn.part] = min(offsets[txn.part], txn.off)
        if not meta.resolved or (meta.resolved, offsets) == meta.shown:
            return
        meta.shown = (meta.resolved, offsets)
        if self._shard == 0:
            value = resolved_value(meta.resolved, meta.resolved_ts, offsets)
            record = ResolvedRecord.of(value, silent=not meta.role.leads)
            yield ShardOutput(0, record, -meta.resolved, meta.ignored)
