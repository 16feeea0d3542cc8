"""The feedback of the plan in flight, until all of it has come."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from streamydb.columns.blobs import BlobStore
from streamydb.columns.messages import Feedback, Token
from streamydb.columns.plans import OpenPlan
from streamydb.columns.protocol import BlockReader
from streamydb.columns.sizes import Sizes
from streamydb.errors import InvariantViolation
from streamydb.key_processor import checks
from streamydb.key_processor.state import ShardState

__all__ = ["PlanFeedback"]

_KEPT: Final = BlockReader(Feedback)


class PlanFeedback:
    """The feedback that has come for one shard; its tokens in the state are every shard's."""

    def __init__(self, meta: ShardState, blobs: BlobStore, shard: int, sizes: Sizes | None) -> None:
        """Note tokens in ``meta``, and what they tell of sizes; keep blocks in ``blobs``."""
        self._meta = meta
        self._blobs = blobs
        self._shard = shard
        self._sizes = sizes
        self._fresh: list[Feedback] = []

    def collect(self, told: Feedback | Token) -> None:
        """Note feedback of the plan in flight, or a token of it, and count what is of no use.

        That is a repetition, or belongs to an attempt that was given up, perhaps long ago.

        Raises:
            InvariantViolation: one life made two plans of one number.

        """
        meta, found = self._meta, told.plan
        wanted = None if meta.open is None else meta.open.name()
        if wanted is None or found[:2] != wanted[:2]:
            meta.ignored += 1
            return
        if found != wanted:
            raise InvariantViolation(f"feedback is of {found}, but the plan in flight is {wanted}")
        if meta.open is not None:
            checks.addressed(told, meta.open, self._shard, meta.config.shards)
        name = f"{told.shard}/{told.proc}/{told.chunk}"
        if name in meta.tokens:
            meta.ignored += 1
            return
        meta.tokens[name] = told.chunks
        if meta.open is not None:
            meta.open.procs = sorted({*meta.open.procs, *told.more})
        meta.made = max(meta.made, told.made or 0)
        meta.ends = meta.ends or told.ends
        if told.fits:
            meta.fits = min(meta.fits or told.fits, told.fits)
        if self._sizes is not None:
            self._sizes.hear(told.sizes)
        if isinstance(told, Feedback) and told.shard == self._shard:
            self._fresh.append(told)

    def is_complete(self, plan: OpenPlan) -> bool:
        """Tell whether every chunk for every shard from every partition of the plan has come."""
        tokens = self._meta.tokens
        for shard in range(self._meta.config.shards):
            for proc in plan.procs:
                chunks = tokens.get(f"{shard}/{proc}/0")
                if chunks is None:
                    return False
                if any(f"{shard}/{proc}/{chunk}" not in tokens for chunk in range(1, chunks)):
                    return False
        return True

    def keep(self) -> None:
        """Keep the feedback of this batch until the rest has come."""
        for told in self._fresh:
            name = f"feedback/{told.proc}/{told.chunk}"
            self._meta.feedback.append(name)
            self._blobs.put(name, told.block())
        self._fresh = []

    def take(self) -> list[Feedback]:
        """All feedback, by partition and chunk; the plan is in flight no more."""
        meta = self._meta
        kept = [self._kept(name) for name in meta.feedback]
        for name in meta.feedback:
            self._blobs.delete(name)
        meta.open, meta.tokens, meta.feedback = None, {}, []
        return sorted([*kept, *self._fresh], key=attrgetter("proc", "chunk"))

    def _kept(self, name: str) -> Feedback:
        block = self._blobs.get(name)
        if block is None:
            raise InvariantViolation(f"the feedback block {name} is missing from the state")
        return _KEPT.read(block)
