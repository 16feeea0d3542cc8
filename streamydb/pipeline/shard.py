"""One shard: the sorter and the key processor in one step per micro-batch.

The step is a pure function of the shard's state and the blocks of the batch (records, feedback,
tokens): it applies the feedback of the plan in flight, orders and releases records, plans them when
no plan is in flight, and grants. Everything it must remember is in the blob store, under ``meta``
and the names that meta lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from streamydb.columns import Table
from streamydb.errors import ConfigurationError, InvariantViolation
from streamydb.key_processor.blobs import BlobStore
from streamydb.key_processor.digest import DigestState
from streamydb.key_processor.grants import Granter
from streamydb.key_processor.idwindow import IdTables, IdWindow, IdWindowState
from streamydb.key_processor.values import ShardValues, ValuesState, ValueStore, empty_writes
from streamydb.limits import DIGEST_INTERVAL_DEFAULT
from streamydb.pipeline.blocks import (
    FORMAT,
    empty_verdicts,
    grant_block,
    open_block,
    open_records,
    resolved_block,
)
from streamydb.pipeline.digesting import ShardDigests
from streamydb.pipeline.role import Role
from streamydb.sorter.core import KeyedEventTimeSorter, SorterState
from streamydb.sorter.planner import earlier_with_same_id, plan_transactions
from streamydb.txn_processor import program as p

__all__ = ["Emitted", "Meta", "OpenPlan", "Shard", "ShardConfig", "mismatch"]


class ShardConfig(msgspec.Struct, frozen=True):
    """What is fixed when a database is created, recorded in its state, and must never change.

    ``name``: of the pipeline, empty unless there are several over one log.
    """

    database: str
    incarnation: str
    shards: int
    partitions: int
    id_window: int
    grouping: str = "planner"
    format: int = FORMAT
    constraints: bool = False
    digest_interval: int = DIGEST_INTERVAL_DEFAULT
    name: str = ""

    @property
    def terms(self) -> str:
        """What pipelines over one log must agree on, lest they execute differently."""
        named = ("shards", "partitions", "id_window", "digest_interval", "constraints")
        return " ".join(f"{name}={getattr(self, name)}" for name in named)


class OpenPlan(msgspec.Struct):
    """The plan in flight: who executes it, what its completion resolves, which seq is before it."""

    number: int
    procs: list[int]
    seq: int
    ts: int
    offsets: dict[int, int]
    after: int = 0


class Meta(msgspec.Struct):
    """Everything small that a shard remembers."""

    config: ShardConfig
    sorter: SorterState
    values: ValuesState
    ids: IdWindowState
    seq: int = 0
    ts: int = 0
    plan: int = 0
    open: OpenPlan | None = None
    tokens: dict[str, int] = {}
    feedback: list[str] = []
    resolved_offsets: dict[int, int] = {}
    role: Role = msgspec.field(default_factory=Role)
    digests: DigestState | None = None

    def applied(self) -> int:
        """The last seq whose writes are in the values."""
        return self.seq if self.open is None else self.open.after


_decode_meta = msgspec.msgpack.Decoder(Meta).decode


@dataclass(slots=True, frozen=True)
class Emitted:
    """A block for executing partition ``proc``; ``seq`` is the last released, negative: resolved.
    """

    proc: int
    block: bytes
    seq: int


class Shard:
    """One shard within one micro-batch."""

    def __init__(
        self,
        config: ShardConfig,
        shard: int,
        blobs: BlobStore,
        store: ValueStore,
        tables: IdTables,
        plan_limit: int,
    ) -> None:
        """Load the state from ``blobs``, or begin a new database.

        Raises:
            ConfigurationError: the state was made with another configuration.

        """
        self._shard = shard
        self._blobs = blobs
        self._limit = plan_limit
        data = blobs.get("meta")
        if data is None:
            sorter, values = SorterState(config.partitions), ValuesState()
            self._meta = Meta(config, sorter, values, IdWindowState(config.id_window))
        else:
            self._meta = _decode_meta(data)
            if self._meta.config != config:
                raise ConfigurationError(mismatch(self._meta.config, config))
        self._sorter = KeyedEventTimeSorter(self._meta.sorter, blobs)
        self._values = ShardValues(self._meta.values, blobs, store)
        self._ids = IdWindow(self._meta.ids, blobs, tables)
        self._digests = ShardDigests(
            self._meta.digests, config.digest_interval, shard, self._values, self._meta.applied()
        )

    def step(self, blocks: Iterable[bytes]) -> Iterator[Emitted]:
        """Process the blocks of one micro-batch; yields what the executing partitions get."""
        feedback: list[tuple[int, int, bytes]] = []
        told: dict[str, list[dict[str, Any]]] = {"role": [], "audit": []}
        pieces: list[Table] = []
        for block in blocks:
            header, arrays = open_block(block)
            if header["kind"] == "records":
                pieces.append(open_records(arrays))
            elif header["kind"] in told:
                told[header["kind"]].append(header)
            elif header["incarnation"] == self._meta.config.incarnation:
                self._collect(header, block, feedback)
        self._sorter.add(pieces)
        if self._meta.role.hear(told["role"]):
            self._meta.resolved_offsets = {}
        yield from self._complete(feedback)
        for header in told["audit"]:
            self._digests.audit(header["reason"])
        if self._meta.open is None:
            yield from self._plan()
        self._sorter.save()
        self._meta.digests = self._digests.state
        self._blobs.put("meta", msgspec.msgpack.encode(self._meta))

    def _collect(
        self, header: dict[str, Any], block: bytes, feedback: list[tuple[int, int, bytes]]
    ) -> None:
        """Note a feedback block or token of the plan in flight; an older one is a repetition."""
        meta = self._meta
        if header["plan"] > meta.plan:
            raise InvariantViolation(f"feedback of plan {header['plan']} before it was made")
        if meta.open is None or header["plan"] != meta.open.number:
            return
        name = f"{header['shard']}/{header['proc']}/{header['chunk']}"
        if name not in meta.tokens:
            meta.tokens[name] = header["chunks"]
            if header["kind"] == "feedback" and header["shard"] == self._shard:
                feedback.append((header["proc"], header["chunk"], block))

    def _is_complete(self, plan: OpenPlan) -> bool:
        """Whether every chunk for every shard from every partition of the plan has come."""
        tokens = self._meta.tokens
        for shard in range(self._meta.config.shards):
            for proc in plan.procs:
                chunks = tokens.get(f"{shard}/{proc}/0")
                if chunks is None:
                    return False
                if any(f"{shard}/{proc}/{chunk}" not in tokens for chunk in range(1, chunks)):
                    return False
        return True

    def _complete(self, fresh: list[tuple[int, int, bytes]]) -> Iterator[Emitted]:
        """Apply the feedback of the plan in flight once it is all there; until then keep it."""
        meta, plan = self._meta, self._meta.open
        if plan is None:
            return
        if not self._is_complete(plan):
            for proc, chunk, block in fresh:
                name = f"feedback/{proc}/{chunk}"
                meta.feedback.append(name)
                self._blobs.put(name, block)
            return
        kept = [self._kept(name) for name in meta.feedback]
        for name in meta.feedback:
            self._blobs.delete(name)
        writes, verdicts = [empty_writes()], [empty_verdicts()]
        headers = []
        for _, _, block in sorted([*kept, *fresh], key=lambda item: item[:2]):
            header, arrays = open_block(block)
            headers.append(header)
            writes.append(Table.unflatten(arrays, "writes."))
            verdicts.append(Table.unflatten(arrays, "verdicts."))
        self._values.apply(Table.concat(writes))
        concluded = Table.concat(verdicts)
        self._ids.conclude(concluded)
        meta.open, meta.tokens, meta.feedback = None, {}, []
        yield from self._digest(headers, concluded)
        yield from self._resolve(plan.seq, plan.ts, plan.offsets)

    def _digest(self, headers: list[dict[str, Any]], verdicts: Table) -> Iterator[Emitted]:
        """Tell the digests of the intervals that the plan has ended."""
        if any("deltas" not in header for header in headers):
            self._digests.restart(self._meta.seq)  # an earlier release executed this plan
            return
        self._digests.add_plan(headers, verdicts)
        block = self._digests.over(self._meta.seq, self._meta.config.incarnation)
        if block is not None:
            yield Emitted(self._shard, block, self._meta.seq)

    def _kept(self, name: str) -> tuple[int, int, bytes]:
        block = self._blobs.get(name)
        if block is None:
            raise InvariantViolation(f"the feedback block {name} is missing from the state")
        _, proc, chunk = name.split("/")
        return int(proc), int(chunk), block

    def _resolve(self, seq: int, ts: int, offsets: dict[int, int]) -> Iterator[Emitted]:
        """Say that everything up to ``seq`` has been written."""
        self._meta.resolved_offsets = offsets
        if self._shard == 0:
            shown = {str(q): offset for q, offset in sorted(offsets.items())}
            value = msgspec.json.encode({"resolved": seq, "ts_ms": ts, "offsets": shown})
            yield Emitted(0, resolved_block(value, silent=not self._meta.role.leads), -seq)

    def _plan(self) -> Iterator[Emitted]:
        """Release records, plan them, and grant."""
        meta = self._meta
        most = meta.role.may_release(meta.seq, self._limit)
        silent, before = meta.role.is_silent(meta.seq), meta.seq
        released = self._sorter.release(most) if most else None
        if released is None:
            covered = self._sorter.covered()
            if covered != meta.resolved_offsets and meta.seq:
                yield from self._resolve(meta.seq, meta.ts, covered)
            return
        n = len(released)
        released.cols["seq"] = np.arange(meta.seq + 1, meta.seq + n + 1)
        meta.seq += n
        meta.ts = int(released.cols["ts"][-1])
        meta.plan += 1
        valid = released.cols["kind"] != p.REJECTED
        earlier = earlier_with_same_id(released.cols["id0"], released.cols["id1"], valid)
        plan = plan_transactions(released, earlier, meta.config.shards)
        procs = plan.procs()
        covered = self._sorter.covered()
        meta.open = OpenPlan(meta.plan, procs, meta.seq, meta.ts, covered, before)
        granter = Granter(self._shard, meta.config.shards, self._values, self._ids)
        for proc, txns, slots in granter.grants(released, plan, earlier):
            block = grant_block(self._shard, meta.plan, proc, txns, slots, silent=silent)
            yield Emitted(proc, block, meta.seq)


def mismatch(recorded: ShardConfig, given: ShardConfig) -> str:
    """What to tell a user whose configuration is not that of the state."""
    differing = [
        f"{name}: recorded {getattr(recorded, name)!r}, given {getattr(given, name)!r}"
        for name in ShardConfig.__struct_fields__
        if getattr(recorded, name) != getattr(given, name)
    ]
    fix = "start with the recorded values, or use a new checkpoint folder to rebuild from the log"
    return f"the state of this database was made otherwise ({'; '.join(differing)}); {fix}"
