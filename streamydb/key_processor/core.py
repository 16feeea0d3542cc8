"""One shard: the sorter and the key processor take one step per micro-batch.

The step is a pure function of the shard's state and the blocks of the batch (records, feedback,
tokens): it applies the feedback of the plan in flight, orders and releases records, plans them when
no plan is in flight, and grants. Everything it must remember is in the blob store, under ``meta``
and the names that meta lists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.columns import program as p
from streamydb.columns.blobs import BlobStore
from streamydb.columns.blocks import (
    empty_verdicts,
    empty_writes,
    grant_block,
    open_block,
    open_records,
    resolved_block,
    sizes_block,
)
from streamydb.columns.plans import FIRST_SHAPE, Life, OpenPlan, PlanName, PlanShape
from streamydb.columns.shards import ShardConfig, mismatch
from streamydb.columns.sizes import Sizes, SizesState
from streamydb.columns.table import Columns
from streamydb.errors import ConfigurationError, InvariantViolation
from streamydb.key_processor.digests import ShardDigests
from streamydb.key_processor.grants import Granter, in_blocks
from streamydb.key_processor.idwindow import IdTables, IdWindow, IdWindowState
from streamydb.key_processor.state import EmittedBlock, ShardState, load
from streamydb.key_processor.values import ShardValues, ValuesState, ValueStore
from streamydb.key_processor.waits import refuse_to_wait
from streamydb.key_processor.withdrawals import KeptPlan, may_be_too_much, next_pace
from streamydb.limits import PLAN_RECORDS_MAX
from streamydb.records.begins import VALUES_BOUNDED
from streamydb.sorter.core import KeyedEventTimeSorter, SorterState
from streamydb.sorter.log_end import LogEnd, require_ends
from streamydb.sorter.planner import Plan, earlier_with_same_id, plan_transactions

__all__ = ["KeyTransactionProcessor"]

_PACE_MIN: Final = 16
"""Fewest records that are released again after a plan was cut by its values."""


class KeyTransactionProcessor:
    """One shard within one micro-batch."""

    def __init__(
        self,
        config: ShardConfig,
        shard: int,
        blobs: BlobStore,
        store: ValueStore,
        tables: IdTables,
        life: Life,
    ) -> None:
        """Load the state from ``blobs``, or begin a new database.

        Raises:
            ConfigurationError: the state was made with another configuration.

        """
        self._shard = shard
        self._blobs = blobs
        self._life = life
        data = blobs.get("meta")
        if data is None:
            sorter, values = SorterState(config.partitions), ValuesState()
            ids = IdWindowState(config.id_window)
            self._meta = ShardState(config, sorter, values, ids, shape=life.shape)
        else:
            self._meta = load(data)
            if self._meta.config != config:
                raise ConfigurationError(mismatch(self._meta.config, config))
        self._sorter = KeyedEventTimeSorter(self._meta.sorter, blobs)
        self._values = ShardValues(self._meta.values, blobs, store)
        self._ids = IdWindow(self._meta.ids, blobs, tables)
        self._sizes = None
        if config.shards > 1:
            self._meta.sizes = self._meta.sizes or SizesState(known=data is None)
            self._sizes = Sizes(self._meta.sizes, blobs)
        self._planned: tuple[Plan, npt.NDArray[np.int64], Granter] | None = None
        self._digests = ShardDigests(
            self._meta.digests, config.digest_interval, shard, self._values, self._meta.applied(),
            config.shards,
        )

    def require_log(self, ends: Mapping[int, LogEnd]) -> None:
        """Refuse a log whose end is not what this state has read of it; see `LogEnd`.

        Raises:
            InvariantViolation: the tail of the log was lost, and it has grown anew.

        """
        require_ends(ends, self._meta.sorter)

    def step(self, blocks: Iterable[bytes]) -> Iterator[EmittedBlock]:
        """Process the blocks of one micro-batch; yields what the executing partitions get."""
        feedback: list[tuple[int, int, bytes]] = []
        told: dict[str, list[dict[str, Any]]] = {"role": [], "audit": [], "sizes": []}
        pieces: list[Columns] = []
        last: list[list[Any]] = []
        told_before = len(self._meta.tokens)
        for block in blocks:
            header, arrays = open_block(block)
            if header["kind"] == "records":
                pieces.append(open_records(arrays))
                last += header.get("last", [])
            elif header["kind"] in told:
                told[header["kind"]].append(header)
            elif header["incarnation"] == self._meta.config.incarnation:
                self._collect(header, block, feedback)
        plan, came = self._meta.open, len(self._meta.tokens) > told_before
        self._meta.waits = 0 if came or plan is None else self._meta.waits + 1
        refuse_to_wait(self._meta.waits, self._meta.applied())
        self._sorter.add(pieces)
        self._sorter.note_last(last)
        if self._meta.role.hear(told["role"]):
            self._meta.resolved_offsets = {}
        yield from self._complete(feedback)
        for header in told["audit"]:
            self._digests.audit(header["reason"])
        for header in told["sizes"]:
            if self._sizes is not None:
                self._sizes.hear_from(header, self._meta.config.shards)
        if self._meta.open is None:
            yield from self._plan()
        self._sorter.save()
        if self._sizes is not None:
            self._sizes.save()
        self._meta.digests = self._digests.state
        self._meta.shape = self._life.shape
        self._blobs.put("meta", msgspec.msgpack.encode(self._meta))

    def _collect(
        self, header: dict[str, Any], block: bytes, feedback: list[tuple[int, int, bytes]]
    ) -> None:
        """Note a feedback block or token of the plan in flight; count those that belong to none.

        That is a repetition, or belongs to an attempt that was given up, perhaps long ago.

        Raises:
            InvariantViolation: one life made two plans of one number.
        """
        meta, found = self._meta, PlanName.of(header)
        wanted = None if meta.open is None else meta.open.name()
        if wanted is None or found[:2] != wanted[:2]:
            meta.ignored += 1
            return
        if found != wanted:
            raise InvariantViolation(f"feedback is of {found}, but the plan in flight is {wanted}")
        name = f"{header['shard']}/{header['proc']}/{header['chunk']}"
        if name in meta.tokens:
            meta.ignored += 1
            return
        meta.tokens[name] = header["chunks"]
        meta.made = max(meta.made, header.get("made", 0))
        if (fits := header.get("fits", 0)):
            meta.fits = min(meta.fits or fits, fits)
        if self._sizes is not None:
            self._sizes.hear(header.get("sizes", b""))
        if header["kind"] == "feedback" and header["shard"] == self._shard:
            feedback.append((header["proc"], header["chunk"], block))

    def _is_complete(self, plan: OpenPlan) -> bool:
        """Return True if every chunk for every shard from every partition of the plan has come."""
        tokens = self._meta.tokens
        for shard in range(self._meta.config.shards):
            for proc in plan.procs:
                chunks = tokens.get(f"{shard}/{proc}/0")
                if chunks is None:
                    return False
                if any(f"{shard}/{proc}/{chunk}" not in tokens for chunk in range(1, chunks)):
                    return False
        return True

    def _complete(self, fresh: list[tuple[int, int, bytes]]) -> Iterator[EmittedBlock]:
        """Apply the feedback of the plan in flight when all of it is there; until then keep it."""
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
        meta.open, meta.tokens, meta.feedback = None, {}, []
        if plan.kept and not self._stands(plan):
            return
        writes, verdicts = [empty_writes()], [empty_verdicts()]
        headers = []
        for _, _, block in sorted([*kept, *fresh], key=lambda item: item[:2]):
            header, arrays = open_block(block)
            headers.append(header)
            writes.append(Columns.unflatten(arrays, "writes."))
            verdicts.append(Columns.unflatten(arrays, "verdicts."))
        self._values.apply(Columns.concat(writes))
        concluded = Columns.concat(verdicts)
        self._ids.conclude(concluded)
        yield from self._digest(headers, concluded)
        yield from self._resolve(plan.seq, plan.ts, plan.offsets)

    def _stands(self, plan: OpenPlan) -> bool:
        """Withdraw a plan that has produced too much; otherwise remember the ids that it uses."""
        meta, stands = self._meta, not self._meta.fits
        kept = KeptPlan(self._blobs).end(stands=stands)
        if stands:
            self._ids.remember(kept, plan.after + 1, plan.seq, plan.ts)
        else:
            self._sorter.give_back(kept)
            meta.seq, meta.ts, meta.pace = plan.after, plan.ts_before, meta.fits
        return stands

    def _digest(self, headers: list[dict[str, Any]], verdicts: Columns) -> Iterator[EmittedBlock]:
        """Publish the digests of the intervals that the plan has ended."""
        if any("deltas" not in header for header in headers):
            self._digests.restart(self._meta.seq)  # an earlier release executed this plan
            return
        self._digests.add_plan(headers, verdicts)
        block = self._digests.over(self._meta.seq, self._meta.config.incarnation)
        if block is not None:
            yield EmittedBlock(self._shard, block, self._meta.seq, self._meta.ignored)

    def _kept(self, name: str) -> tuple[int, int, bytes]:
        block = self._blobs.get(name)
        if block is None:
            raise InvariantViolation(f"the feedback block {name} is missing from the state")
        _, proc, chunk = name.split("/")
        return int(proc), int(chunk), block

    def _resolve(self, seq: int, ts: int, offsets: dict[int, int]) -> Iterator[EmittedBlock]:
        """Publish that everything up to ``seq`` has been written."""
        self._meta.resolved_offsets = offsets
        if self._shard == 0:
            shown = {str(q): offset for q, offset in sorted(offsets.items())}
            value = msgspec.json.encode({"resolved": seq, "ts_ms": ts, "offsets": shown})
            block = resolved_block(value, silent=not self._meta.role.leads)
            yield EmittedBlock(0, block, -seq, self._meta.ignored)

    def _plan(self) -> Iterator[EmittedBlock]:
        """Release records, plan them, and grant; the bounds are those of the state before the
        batch.
        """
        meta = self._meta
        if self._sizes is not None and not self._sizes.state.known:
            yield from self._announce(self._sizes)
            return
        shape = meta.shape or FIRST_SHAPE
        limit = min(shape.records_max, meta.pace or shape.records_max)
        most = meta.role.may_release(meta.seq, limit)
        silent, before = meta.role.is_silent(meta.seq), (meta.seq, meta.ts)
        released = self._sorter.release(most, shape.bytes_max, self._fit) if most else None
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
        plan, earlier, granter = self._fitted(released)
        meta.open = OpenPlan(
            meta.plan, plan.procs(), meta.seq, meta.ts, self._sorter.covered(), before[0],
            self._life.name, _layout(plan, shape), before[1], may_be_too_much(released),
        )
        meta.fits = meta.made = 0
        header = {
            **meta.open.name().fields(), "shard": self._shard, "silent": silent,
            "feedback_bytes_max": shape.feedback_bytes_max, "alone": n == 1, "over": granter.over,
            "bounded": granter.bounded, "makes_max": _makes_max(meta.open, shape),
        }
        grants = granter.grants(released, plan, earlier)
        if meta.open.kept:
            KeptPlan(self._blobs).keep(released, granter.used)
        else:
            self._ids.remember(granter.used, before[0] + 1, meta.seq, meta.ts)
        for proc, txns, slots in grants:
            for chunk, parts in enumerate(in_blocks(txns, slots)):
                block = grant_block({**header, "proc": proc, "chunk": chunk}, *parts)
                yield EmittedBlock(proc, block, meta.seq, meta.ignored)

    def _fit(self, records: Columns) -> int:
        """Return how many of the records fit into one plan, by the values they touch.

        The plan is kept if it is of all of them.
        """
        meta, keys = self._meta, records.children["keys"][1]
        valid = records.cols["kind"] != p.REJECTED
        earlier = earlier_with_same_id(records.cols["id0"], records.cols["id1"], valid)
        plan = plan_transactions(records, earlier, meta.config.shards)
        first = int(records.cols["part"][0]), int(records.cols["off"][0])
        bounded = self._life.begins.holds(VALUES_BOUNDED, *first)
        granter = Granter(self._shard, meta.config.shards, self._values, self._ids, bounded)
        sizes = None if self._sizes is None else self._sizes.of(keys.cols["hash"][plan.first])
        bound = (meta.shape or FIRST_SHAPE).values_bytes_max
        most = granter.weigh(records, plan, bound, sizes)
        fits = most == len(records)
        self._planned = (plan, earlier, granter) if fits else None
        if not fits:
            meta.pace = max(2 * most, _PACE_MIN)
        return most

    def _fitted(self, released: Columns) -> tuple[Plan, npt.NDArray[np.int64], Granter]:
        """The plan of what was released.

        What was cut off lies in blobs, and is read again each time; so no more is asked for than
        twice of what fitted, until it fits again.
        """
        planned = self._planned
        if planned is not None:
            meta, bound = self._meta, (self._meta.shape or FIRST_SHAPE).values_bytes_max
            meta.pace = next_pace(meta.pace, meta.made, bound, PLAN_RECORDS_MAX)
            return planned
        if self._fit(released) == len(released) and (planned := self._planned) is not None:
            return planned
        raise InvariantViolation("a part of a plan that fits does not fit")

    def _announce(self, sizes: Sizes) -> Iterator[EmittedBlock]:
        """Tell all shards the sizes of the values here; states of an earlier release lack them."""
        header = {"incarnation": self._meta.config.incarnation, "shard": self._shard}
        for part in sizes.announcement(self._values.pieces()):
            block = sizes_block({**header, **part})
            yield EmittedBlock(self._shard, block, self._meta.seq, self._meta.ignored)


def _makes_max(plan: OpenPlan, shape: PlanShape) -> int:
    """Return the bytes that a partition of a plan may produce; 0: any number."""
    return max(shape.values_bytes_max, 1) if plan.kept else 0


def _layout(plan: Plan, shape: PlanShape) -> str:
    """Hash who executes which transaction of a plan, and how the feedback is cut."""
    digest = hashlib.blake2b(plan.proc.astype(np.uint8).tobytes(), digest_size=8)
    digest.update(b"%d" % shape.feedback_bytes_max)
    return digest.hexdigest()


