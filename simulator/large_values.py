"""Large values in a simulation: with limits that are small, so that what is large costs little.

For a share of the seeds, transactions write and touch values that are many bytes beside the limits:
some meet more than one transaction may, plans are cut by what they touch, grants and results come
in blocks. What is granted is held against the bound of its plan.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import msgspec

from simulator.log import SimulatedLog
from simulator.workflows import Divergence
from streamydb import errors, limits
from streamydb.columns import sizes
from streamydb.columns.lock_messages import Granted, Locks
from streamydb.columns.messages import Grant, KnownResults
from streamydb.columns.plans import FIRST_SHAPE, PlanShape
from streamydb.columns.protocol import Message
from streamydb.key_processor import values, weights
from streamydb.key_processor.locking.messages import is_id_lock, unpacked
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.key_processor.state import ShardState
from streamydb.records.begins import EVERYWHERE, NOWHERE, RULES, Begins
from streamydb.txn_processor import outputs as o

__all__ = [
    "VALUES_BYTES",
    "GrantedBytes",
    "LargeValues",
    "draw_begins",
    "forget_sizes",
    "small_limits",
]

_TRANSACTION_BYTES: Final = 600
_BLOCK_BYTES: Final = 200
_BLOCK_ROWS: Final = 5
_DIGITS_MAX: Final = 20
_AS_INTEGERS: Final = 8
"""Bytes of a text that a shard takes for an integer when it weighs a plan."""

VALUES_BYTES: Final = (0, 150, 1_000, 1 << 26)
"""Bytes of the values that a plan may touch."""


@contextmanager
def small_limits() -> Iterator[None]:
    """Run the body with small limits."""
    patches = (
        mock.patch.object(limits, "TRANSACTION_VALUES_BYTES_MAX", _TRANSACTION_BYTES),
        mock.patch.object(limits, "BLOCK_BYTES_MAX", _BLOCK_BYTES),
        mock.patch.object(o, "ROWS_MAX", _BLOCK_ROWS),
        mock.patch.object(weights, "COPIED_BYTES", 40),
        mock.patch.object(values, "_DUE_KEYS", 3),
        mock.patch.object(sizes, "SMALL_BYTES", 16),
        mock.patch.object(sizes, "SMALL_COUNTS", 4),
        mock.patch.multiple(sizes, _BUCKETS=1 << 10, _PAGE=1 << 7),
    )
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def draw_begins(rng: random.Random, records: int) -> Begins:
    """Draw where rules begin: mostly with the log, as in new databases, or somewhere in it, or
    never.
    """
    if rng.random() < 0.7:
        return EVERYWHERE
    if rng.random() < 0.1:
        return NOWHERE
    places = {partition: rng.randint(0, records) for partition in range(rng.choice([1, 3]))}
    return Begins(dict.fromkeys(RULES, places))


@dataclass
class LargeValues:
    """Draws transactions that write large values, or touch many; ``rate``: how often."""

    random: random.Random
    keys: list[str]
    rate: float

    def wanted(self) -> bool:
        """Return True if the next transaction is one of these."""
        return self.rate > 0 and self.random.random() < self.rate

    def parts(self) -> dict[str, Any]:
        """A transaction without its id."""
        rng = self.random
        found: dict[str, Any] = {}
        if rng.random() < 0.5:
            chosen = rng.sample(self.keys, rng.randint(1, len(self.keys)))
            found["checks"] = [{"key": key, "version": 0} for key in chosen if rng.random() < 0.02]
            found["reads"] = chosen
        chosen = rng.sample(self.keys, rng.randint(0, min(4, len(self.keys))))
        found["updates"] = [self._update(key) for key in chosen]
        return found

    def _update(self, key: str) -> dict[str, Any]:
        rng = self.random
        if rng.random() < 0.3:
            return {"op": "append", "key": key, "value": "y" * rng.choice([1, 30])}
        if rng.random() < 0.2:
            return {"op": "delete", "key": key}
        return {"op": "put", "key": key, "value": "x" * rng.choice([1, 10, 50, 120, 250])}


class GrantedBytes:
    """Adds up what the shards grant in one batch, to hold it against the bound of the plan.

    The system's own values (few, each of bounded size) are granted even to a transaction that meets
    too much; they do not count. Nor do those that have ended, if a transaction is alone: they do
    not decide its verdict, and its changes have them as the values before.
    """

    def __init__(self, blobs: MemoryBlobs, *, single: bool = False) -> None:
        """``blobs``: of a shard before the batch; ``single``: with one lock at a time."""
        data = blobs.get("meta")
        shape = None if data is None else msgspec.msgpack.decode(data, type=_Shaped).shape
        self._single = single
        self._parts: dict[int, list[Granted]] = {}
        self._bound: int | None = None if data is None else (shape or FIRST_SHAPE).values_bytes_max
        self._total = 0
        self._alone = False
        self._made: dict[int, dict[tuple[int, int], int]] = {}
        self._bounded = True
        self._first = 0
        self._told: dict[int, list[int]] = {}
        self._turns = 1
        if data is not None and not single:
            plan = msgspec.msgpack.decode(data, type=ShardState).open
            self._turns = 1 if plan is None else plan.turns

    def add(self, shard: int, message: Message) -> None:
        """A message that a shard sends."""
        if isinstance(message, Locks):
            grants = message.grants
            self._parts.setdefault(shard, []).extend(grants)
            given = sum(len(unpacked(grant.value)[0] or b"") for grant in grants)
            if len(grants) > 1 and given > limits.BLOCK_BYTES_MAX:
                raise Divergence(f"a block grants {given} bytes of values")
        if isinstance(message, KnownResults):
            told = message.records.value.lengths().tolist()
            if len(told) > 1 and sum(told) > limits.BLOCK_BYTES_MAX:
                raise Divergence(f"a block tells {sum(told)} bytes of results")
            self._told.setdefault(shard, []).extend(told)
        if not isinstance(message, Grant):
            return
        grant = message
        self._first = grant.plan.first
        slots = grant.slots
        lengths = slots.text.lengths().copy()
        if len(lengths) > 1 and int(lengths.sum()) > limits.BLOCK_BYTES_MAX:
            raise Divergence(f"a block grants {lengths.sum()} bytes of values")
        users = [not key.startswith(b"$") for key in slots.key.tolist()]
        lengths[lengths == _AS_INTEGERS] = 0
        if grant.alone and (timeline := grant.timeline) is not None:
            lengths[sizes.over_by(slots, int(timeline.ts[-1]))] = 0
        self._total += int(lengths[users].sum()) if users else 0
        self._alone |= grant.alone
        self._bounded &= grant.bounded

    def judge(self, shards: int) -> None:
        """Compare: several shards know small values by their class only."""
        if self._single and self._bound is not None:
            for grants in self._parts.values():
                self._judge_locks(grants, self._bound // shards)
            return
        for told in self._told.values() if self._turns == 1 and self._bound is not None else ():
            if len(told) > 1 and sum(told) > (self._bound or 0):
                raise Divergence(f"a shard tells {sum(told)} bytes of results, of {self._bound}")
        if self._bound is None or (self._alone and not self._bounded):
            return
        bound = self._bound * (1 if shards == 1 else sizes.SMALL_BYTES // sizes.SMALL_COUNTS)
        if self._alone:
            bound = max(bound, shards * limits.TRANSACTION_VALUES_BYTES_MAX)
        if self._total > bound:
            raise Divergence(f"a plan was granted {self._total} bytes of values, of {bound}")

    def make(self, proc: int, records: o.Records, log: SimulatedLog) -> None:
        """Outputs of an executing partition: what they tell of values."""
        if records.topic not in (o.CHANGES, o.RESULTS):
            return
        made = self._made.setdefault(proc, {})
        for value in records.values.tolist():
            if value and not value.startswith(b'{"resolved"') and _EXPIRY not in value:
                found = msgspec.json.decode(value, type=_Output)
                if found.duplicate and (self._single or found.seq < self._first):
                    continue  # it was executed before; the shards count what they tell of those
                if made and (found.status == "rejected" or found.code == errors.INTERNAL):
                    continue  # it was not executed: it is told beside one that makes what it likes
                if self._single or _is_generic(found.source, log):
                    at = found.duplicate or found.source
                    seq, size = (at.partition, at.offset), len(found.before) + len(found.after)
                    size += len(value) if records.topic == o.RESULTS else 0
                    size -= _AGAIN * (found.duplicate is not None)
                    made[seq] = made.get(seq, 0) + size

    def judge_made(self) -> None:
        """Compare: one transaction may make what it likes, and nothing counts that puts made."""
        for made in self._made.values() if self._bound is not None else ():
            rest = sum(made.values()) - max(made.values(), default=0)
            if rest > max(self._bound or 0, 1) + _NULLS * len(made):
                raise Divergence(f"a partition makes {rest} bytes beside one transaction's")

    @staticmethod
    def _judge_locks(grants: list[Granted], bound: int) -> None:
        """Compare what one shard sends; integers count nothing."""
        found = [
            (g.seq, len(unpacked(g.value)[0] or b"")) for g in grants if not is_id_lock(g.lock)
        ]
        total = sum(size for _, size in found if size > _DIGITS_MAX)
        if total > bound and len({grant.seq for grant in grants}) > 1:
            raise Divergence(f"a shard grants {total} bytes of values at once, of {bound}")


class _Place(msgspec.Struct):
    partition: int
    offset: int


class _Output(msgspec.Struct):
    """Of a result, its place, status and code, and if it is told again; of a change record, its
    values, too.
    """

    source: _Place
    seq: int = 0
    status: str = ""
    code: str | None = None
    duplicate: _Place | None = None
    before: msgspec.Raw = msgspec.Raw()
    after: msgspec.Raw = msgspec.Raw()


_EXPIRY: Final = b'"transaction":{"id":"$expiry"'
"""In removals, which have a bound of their own."""

_NULLS: Final = 64
"""Bytes of a transaction's absent values."""

_AGAIN: Final = 100
"""Bytes, at most, by which a repeated result tells where it lies; they do not count."""


def _is_generic(at: _Place, log: SimulatedLog) -> bool:
    """Return True if a record of the log appends or calls."""
    records = log.partitions[at.partition]
    place = bisect_left(records, at.offset, key=lambda record: record.offset)
    value = records[place].value or b""
    return b'"append"' in value or b'"call"' in value


class _Shaped(msgspec.Struct):
    """Of what either grouping remembers, the shape."""

    shape: PlanShape | None = None


def forget_sizes(stores: Iterable[MemoryBlobs]) -> None:
    """Make of the states what an earlier release would have left, which knew no sizes."""
    for store in stores:
        data = store.get("meta")
        if data is None:
            continue
        meta = msgspec.msgpack.decode(data, type=ShardState)
        for page in [] if meta.sizes is None else meta.sizes.pages:
            store.delete(f"sizes/{page}")
        meta.sizes = None
        store.put("meta", msgspec.msgpack.encode(meta))
