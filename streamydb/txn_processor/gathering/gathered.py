"""The TransactionGatherer collects the payload and locks of transactions over several batches.

A transaction is complete when its payload has come and every lock that it needs has been granted:
one per key, and that of its id when it is valid. What waits is kept in blobs of a few transactions
each, written once when it arrives and read once when the transaction is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from streamydb import limits
from streamydb import records as r
from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.blobs import BlobStore
from streamydb.frames.lock_messages import Granted, Payload
from streamydb.frames.table import chunk_bounds
from streamydb.key_processor.locking.locks import RangePart
from streamydb.key_processor.locking.messages import (
    Arrived,
    decode_list,
    id_lock,
    key_lock,
    unpacked,
)
from streamydb.limits import IN_FLIGHT_MAX
from streamydb.records.ranges import Bounds
from streamydb.txn_processor.comparisons import Value
from streamydb.txn_processor.ranges import Entries, FixedPart, See, Seen, joined, nothing_seen

_INDEX = "gather"
_BLOB_TRANSACTIONS = 64
_UNKNOWN = -1


class PartialTransaction(msgspec.Struct, array_like=True, gc=False):
    """A transaction of which not everything has come.

    ``wanted``: how many locks it needs, -1 before its payload has come. ``got``: how many it has.
    ``blobs``: the numbers of the blobs that hold what came in earlier batches.
    """

    wanted: int
    got: int
    blobs: list[int]


class GatherState(msgspec.Struct):
    """The index: waiting transactions by seq, and how many of them each blob holds things of.

    ``complete``: those that lack nothing, and are executed later because others were too large; the
    last one first.
    """

    waiting: dict[int, PartialTransaction] = {}
    blobs: dict[int, int] = {}
    next_blob: int = 0
    complete: list[int] = []


@dataclass(slots=True)
class Gathered:
    """A complete transaction: its payload, and what lies under each of its locks."""

    payload: Payload
    grants: dict[bytes, Granted]

    @property
    def size(self) -> int:
        """The number of bytes it takes, about."""
        return len(self.payload.raw) + sum(len(g.value or b"") for g in self.grants.values())


def needed_locks(payload: Payload) -> list[bytes]:
    """The locks that a transaction waits for."""
    locks = [*(key_lock(key) for key, _, _ in payload.keys), *payload.ranges]
    return locks if payload.kind == p.REJECTED else [*locks, id_lock(payload.id)]


class TransactionGatherer:
    """Gathers for one executing partition within one step: add, then complete, then save."""

    def __init__(self, blobs: BlobStore) -> None:
        """Continue from the index and the blobs in ``blobs``."""
        data = blobs.get(_INDEX)
        self.state = GatherState() if data is None else _decode_index(data)
        self._blobs = blobs
        self._fresh: dict[int, Arrived] = {}
        self._loaded: dict[int, dict[int, Arrived]] = {}
        self._loaded_bytes = 0

    def add(self, payloads: Iterable[Payload], grants: Iterable[Granted]) -> None:
        """Take what has arrived, in any order."""
        for payload in payloads:
            self._waiting(payload.seq).wanted = len(needed_locks(payload))
            self._fresh[payload.seq].payloads.append(payload)
        for grant in grants:
            self._waiting(grant.seq).got += 1
            self._fresh[grant.seq].grants.append(grant)

    def complete(self) -> Iterator[Gathered]:
        """The transactions that are complete now, in seq order; each that is taken waits no longer.
        Raises InvariantViolation: a transaction was granted what it does not need.
        """
        waiting, known = self.state.waiting, {*self.state.complete, *self._fresh}
        ready = [s for s in sorted(known) if waiting[s].wanted == waiting[s].got]
        self.state.complete = ready[::-1]
        while self.state.complete:
            seq = self.state.complete.pop()
            yield self._take(seq, waiting[seq])

    def save(self) -> None:
        """Put what still waits into blobs.
        Raises InvariantViolation: more waits than shards may release.
        """
        if len(self.state.waiting) > IN_FLIGHT_MAX:
            raise InvariantViolation(f"{len(self.state.waiting)} transactions wait for grants")
        rest = sorted(self._fresh)
        sizes = np.array([_size(self._fresh[seq]) for seq in rest], np.int64)
        for start, end in chunk_bounds(sizes, limits.BLOCK_BYTES_MAX, _BLOB_TRANSACTIONS):
            self._put(rest[start:end])
        self._fresh = {}
        self._blobs.put(_INDEX, msgspec.msgpack.encode(self.state))

    def _waiting(self, seq: int) -> PartialTransaction:
        if seq not in self._fresh:
            self._fresh[seq] = Arrived([], [])
        return self.state.waiting.setdefault(seq, PartialTransaction(_UNKNOWN, 0, []))

    def _take(self, seq: int, waiting: PartialTransaction) -> Gathered:
        """Everything that has come for a transaction, which is then forgotten."""
        parts = [self._load(number)[seq] for number in waiting.blobs]
        if seq in self._fresh:
            parts.append(self._fresh.pop(seq))
        for number in waiting.blobs:
            self.state.blobs[number] -= 1
            if not self.state.blobs[number]:
                del self.state.blobs[number]
                self._blobs.delete(_name(number))
        del self.state.waiting[seq]
        payloads = [payload for part in parts for payload in part.payloads]
        grants = {grant.lock: grant for part in parts for grant in part.grants}
        if len(payloads) != 1 or grants.keys() != set(needed_locks(payloads[0])):
            raise InvariantViolation(f"the grants of transaction {seq} are not what it needs")
        return Gathered(payloads[0], grants)

    def _load(self, number: int) -> dict[int, Arrived]:
        if number not in self._loaded:
            data = self._blobs.get(_name(number))
            if data is None:
                raise InvariantViolation(f"the blob {_name(number)} is missing from the state")
            if self._loaded_bytes > limits.BLOCK_BYTES_MAX:
                self._loaded, self._loaded_bytes = {}, 0
            self._loaded[number], size = _decode_arrived(data), len(data)
            self._loaded_bytes += size
        return self._loaded[number]

    def _put(self, seqs: list[int]) -> None:
        number = self.state.next_blob
        self.state.next_blob += 1
        data = msgspec.msgpack.encode({seq: self._fresh[seq] for seq in seqs})
        self._blobs.put(_name(number), data)
        self.state.blobs[number] = len(seqs)
        for seq in seqs:
            self.state.waiting[seq].blobs.append(number)


def _size(arrived: Arrived) -> int:
    values = sum(len(grant.value or b"") for grant in arrived.grants)
    return values + sum(len(payload.raw) for payload in arrived.payloads)


def _name(number: int) -> str:
    return f"gather/{number}"


_decode_index = msgspec.msgpack.Decoder(GatherState).decode
_decode_arrived = msgspec.msgpack.Decoder(dict[int, Arrived]).decode


def see_of(gathered: Gathered, txn: r.Transaction) -> See:
    """Return the ranges of a gathered transaction: what the shards found, and its own keys."""
    payload, grants = gathered.payload, gathered.grants
    if not payload.ranges:
        return nothing_seen
    answers = [decode_list(grants[name].value or b"", RangePart) for name in payload.ranges]
    fixed: dict[Bounds, FixedPart] = {
        bounds: joined([_fixed(part) for part in parts])
        for bounds, *parts in zip(txn.ranges, *answers, strict=True)
    }
    values = {key: looked(grants[key_lock(key)]) for key, write, _ in payload.keys if write}
    own: dict[bytes, Value] = {key: seen for key, seen in values.items() if seen[0] is not None}

    def here(bounds: Bounds) -> Entries:
        return {key.decode(): value for key, value in own.items() if bounds[0] <= key < bounds[1]}

    def seen(bounds: Bounds) -> Seen:
        before, more = fixed[bounds], here(bounds)
        versions = (version for _, version in more.values())
        return Seen(before.keys + len(more), max([before.version, *versions]))

    def entries(bounds: Bounds) -> Entries | None:
        known = fixed[bounds].entries
        return None if known is None else {**known, **here(bounds)}

    return See(seen, entries)


def looked(grant: Granted) -> Value:
    """Return what a transaction sees under a lock: nothing of what has ended."""
    value, removed = unpacked(grant.value)
    return (value, grant.version) if removed is None else (None, 0)


def _fixed(part: RangePart) -> FixedPart:
    entries: Entries | None = None
    if part.entries is not None:
        entries = {key.decode(): (value, version) for key, value, version in part.entries}
    return FixedPart(part.count, part.version, entries)
