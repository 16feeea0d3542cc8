"""Mutations of local caches and of the bounds on values; see `mutations`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import msgspec

from streamydb.frames.messages import Feedback, Token
from streamydb.key_processor import core, duplicates, grants, inbox, progress, values, withdrawals
from streamydb.key_processor.locking import core as single
from streamydb.key_processor.memory import MemoryValues
from streamydb.local.shard_files import LmdbValues
from streamydb.planner import core as planning
from streamydb.txn_processor import core as executing
from streamydb.txn_processor import outcome
from streamydb.txn_processor.gathering import core as gathering
from streamydb.txn_processor.gathering import execution as alone

__all__ = [
    "announce_all_turns",
    "announce_what_is_withdrawn",
    "cut_otherwise",
    "grant_everything",
    "make_anything",
    "meet_anything",
    "read_the_cache_blindly",
    "remember_what_is_withdrawn",
    "repeats_at_once",
    "repeats_untold",
    "sizes_untold",
    "together",
    "uncut_plans",
    "write_the_cache_blindly",
]


@contextmanager
def together(*patches: Any) -> Iterator[None]:
    """Several patches as one."""
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def write_the_cache_blindly() -> Any:
    """Recovery: whoever writes the local file does not look where it stands."""

    def patched(store: Any) -> Any:
        original = store.apply

        def apply(self: Any, _expected: Any, *rest: Any) -> Any:
            return original(self, self.position(), *rest)

        return mock.patch.object(store, "apply", apply)

    return together(patched(LmdbValues), patched(MemoryValues))


def read_the_cache_blindly() -> Any:
    """Recovery: the local file's position is read apart from what is read."""

    def loaded(self: Any, keys: Any) -> Any:
        if self._store.position() != self._at:
            self._catch_up(0)
        self._store.position()
        return self._store.load(self._store.position(), keys)

    return mock.patch.object(values.ShardValues, "_loaded", loaded)


def uncut_plans() -> Any:
    """Large values: plans take whatever their values are."""
    return mock.patch.object(planning, "affordable", lambda released, *_: len(released))


def cut_otherwise() -> Any:
    """Large values: each shard cuts plans by a bound of its own."""
    made, original = core.KeyTransactionProcessor.__init__, planning.Planner.plan

    def make(self: Any, *rest: Any, **more: Any) -> None:
        made(self, *rest, **more)
        self._planner.shard = self._shard

    def plan(self: Any, candidates: Any, sizes: Any, bytes_max: int) -> Any:
        return original(self, candidates, sizes, bytes_max // (1 + self.shard))

    return together(
        mock.patch.object(core.KeyTransactionProcessor, "__init__", make),
        mock.patch.object(planning.Planner, "plan", plan),
    )


def meet_anything() -> Any:
    """Large values: a transaction may meet as many bytes as it likes."""
    alone_too = mock.patch.object(alone, "_met", return_value=0)
    within = mock.patch.object(grants.Granter, "_is_too_much", return_value=False)
    among = mock.patch.object(executing, "meets_too_much", return_value=False)
    return together(alone_too, within, among)


def grant_everything() -> Any:
    """Large values: one at a time, all that is free is granted at once."""
    return mock.patch.object(single.SingleShard, "_fits", lambda _, free: len(free))


def make_anything() -> Any:
    """Large values: a plan, or what is complete, makes as many bytes as it likes."""
    executed = gathering.Gatherer._executed  # noqa: SLF001 - as above
    return together(
        mock.patch.object(outcome.OutputBudget, "fits", return_value=0),
        mock.patch.object(
            gathering.Gatherer, "_executed", lambda self, some, _: executed(self, some, 1 << 62)
        ),
    )


def remember_what_is_withdrawn() -> Any:
    """Large values: the ids of a plan that is withdrawn count as used."""
    original = withdrawals.Withdrawals.stands

    def stands(self: Any, plan: Any) -> bool:
        if self._meta.fits:
            self._ids.remember(self._kept.ids(), plan.after + 1, plan.seq, plan.ts)
        return bool(original(self, plan))

    return mock.patch.object(withdrawals.Withdrawals, "stands", stands)


def repeats_at_once() -> Any:
    """Large values: all repeated results are told in one micro-batch."""
    original = duplicates.RepeatedResults.first

    def first(self: Any, rows: Any, _: int) -> Any:
        return original(self, rows, 1 << 62)

    return mock.patch.object(duplicates.RepeatedResults, "first", first)


def repeats_untold() -> Any:
    """Large values: nobody waits for a shard that is still telling repeated results."""
    original = inbox.PlanFeedback.add

    def add(self: Any, told: Feedback | Token) -> None:
        original(self, msgspec.structs.replace(told, more=()))

    return mock.patch.object(inbox.PlanFeedback, "add", add)


def announce_all_turns() -> Any:
    """Progress: a plan is announced though a shard is still telling repeated results."""
    return mock.patch.object(duplicates, "NOT_YET", "")


def announce_what_is_withdrawn() -> Any:
    """Progress: a plan is announced though it may be withdrawn."""
    return mock.patch.object(progress.ShardProgress, "_may_change", return_value=False)


def sizes_untold() -> Any:
    """Large values: the other shards are not told which values have grown."""
    original = Token.of

    def of(told: Feedback) -> Token:
        return msgspec.structs.replace(original(told), sizes=b"")

    return mock.patch.object(Token, "of", of)
