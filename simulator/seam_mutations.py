"""Damage on the way from one room to another: each must be stopped by an invariant.

What a room hands on is right, and what arrives is not: only whoever is handed it can notice. Some
faults of a room itself stand beside them, which must be noticed before anything leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec
import numpy as np

from streamydb.frames import invariants
from streamydb.frames.lock_messages import Locks
from streamydb.frames.messages import Feedback, Grant
from streamydb.frames.table import Ragged
from streamydb.key_processor import grants
from streamydb.key_processor.locking import core as single
from streamydb.planner.plan import Plan
from streamydb.sorter import core as sorter
from streamydb.txn_processor import core, feedback
from streamydb.txn_processor.gathering import core as gathering
from streamydb.txn_processor.run import Run

__all__ = ["SEAM_MUTATIONS", "SeamMutation", "silenced"]


def _arriving(room: Any, message: str, damage: Callable[[Any], dict[str, Any]]) -> Any:
    """Damage fields of a message after they were checked; ``damage``: returns them."""
    original = getattr(room, message)

    def made(**fields: Any) -> Any:
        sent = original(**fields)
        return msgspec.structs.replace(sent, **damage(sent))

    return mock.patch.object(room, message, made)


def _key_twice() -> Any:
    """A key is twice in feedback."""

    def damage(told: Feedback) -> dict[str, Any]:
        count = len(told.writes)
        rows = [*([0] if count else []), *range(count)]
        return {"writes": told.writes.take(np.array(rows, np.int64))}

    return _arriving(core, "Feedback", damage)


def _versions_ahead() -> Any:
    """Written values have versions of a later plan."""

    def damage(told: Feedback) -> dict[str, Any]:
        told.writes.version[told.writes.tag > 0] += 1_000_000
        return {}

    return _arriving(core, "Feedback", damage)


def _feedback_elsewhere() -> Any:
    """Feedback has keys that live on another shard."""

    def damage(told: Feedback) -> dict[str, Any]:
        count, place = len(told.writes) if told.shard == 1 else 0, (told.proc, told.chunk)
        names = [b"elsewhere/%d/%d/%d" % (*place, i) for i in range(count)]
        if not names:
            return {}
        return {"writes": msgspec.structs.replace(told.writes, key=Ragged.of(names))}

    return _arriving(core, "Feedback", damage)


def _lost_grants() -> Any:
    """A transaction is missing from a grant."""
    return _arriving(
        grants, "Grant", lambda grant: {"txns": grant.txns.part(0, len(grant.txns) - 1)}
    )


def _swapped_grants() -> Any:
    """Two transactions of a grant have changed places."""

    def damage(grant: Grant) -> dict[str, Any]:
        order = np.arange(len(grant.txns))
        order[:2] = order[:2][::-1]
        return {"txns": grant.txns.take(order)}

    return _arriving(grants, "Grant", damage)


def _values_ahead() -> Any:
    """Values are granted with versions that are still to come."""

    def damage(grant: Grant) -> dict[str, Any]:
        grant.slots.version[grant.slots.tag > 0] += 1_000_000
        return {}

    return _arriving(grants, "Grant", damage)


def _plans_differ() -> Any:
    """A shard plans otherwise than the others."""
    original = Plan.layout
    calls = iter(range(1 << 62))

    def layout(plan: Plan, feedback_bytes_max: int) -> str:
        return f"{original(plan, feedback_bytes_max)}{next(calls)}"

    return mock.patch.object(Plan, "layout", layout)


def _released_twice() -> Any:
    """The sorter releases a record twice."""
    original = sorter.first_in_order

    def first(merged: Any, watermark: int, limit: int) -> Any:
        found = original(merged, watermark, limit - 1)
        return np.concatenate([found[:1], found])

    return mock.patch.object(sorter, "first_in_order", first)


def _stale_slots() -> Any:
    """The slot does not keep what Python writes, so the next one does not find it."""
    original = Run.write

    def write(run: Run, i: int, slot: int, after: Any) -> None:
        kept = run.values.slots[slot].copy()
        original(run, i, slot, after)
        run.values.slots[slot] = kept

    return mock.patch.object(Run, "write", write)


def _untold_writes() -> Any:
    """The shard of a written key is not told."""
    original = feedback.feedback_chunks

    def chunks(*args: Any) -> Any:
        for chunk in original(*args):
            yield chunk._replace(writes=chunk.writes.part(0, max(len(chunk.writes) - 1, 0)))

    return mock.patch.object(core, "feedback_chunks", chunks)


def _locks_twice() -> Any:
    """A lock is granted twice."""
    return _arriving(single, "Locks", lambda told: {"grants": [*told.grants[:1], *told.grants]})


def _grants_ahead() -> Any:
    """Locks are granted with versions that are still to come."""

    def damage(told: Locks) -> dict[str, Any]:
        for grant in told.grants:
            grant.version += 1_000_000 * (grant.value is not None)
        return {}

    return _arriving(single, "Locks", damage)


def _seqs_lost() -> Any:
    """Transactions are resolved, and nobody counts them."""
    original = single.SingleShard._conclude  # noqa: SLF001 - as above

    def conclude(self: Any, parts: Any) -> None:
        before = self._meta.resolved
        original(self, parts)
        self._meta.resolved = before

    return mock.patch.object(single.SingleShard, "_conclude", conclude)


def _released_elsewhere() -> Any:
    """Values are released for keys of another shard."""
    return _arriving(gathering, "ReleasedLocks", lambda _: {"shard": 0})


class SeamMutation(NamedTuple):
    """A damage (its docstring says which), in which grouping, and who must notice what."""

    patch: Callable[[], Any]
    grouping: str
    noticed: str


_FEEDBACK = "key_processor is handed the feedback of a plan"
_GRANTS = "txn_processor is handed grants"
_SINGLE = "txn_processor/gathering is handed payloads and grants"
_RELEASED = "key_processor/locking is handed released locks"
SEAM_MUTATIONS: Final[Mapping[str, SeamMutation]] = {
    "key-twice": SeamMutation(_key_twice, "planner", f"{_FEEDBACK}.*each key is there once"),
    "versions-ahead": SeamMutation(_versions_ahead, "planner", f"{_FEEDBACK}.*versions are"),
    "feedback-elsewhere": SeamMutation(_feedback_elsewhere, "planner", f"{_FEEDBACK}.*lives here"),
    "lost-grants": SeamMutation(_lost_grants, "planner", _GRANTS),
    "swapped-grants": SeamMutation(_swapped_grants, "planner", f"{_GRANTS}.*in order"),
    "values-ahead": SeamMutation(_values_ahead, "planner", f"{_GRANTS}.*versions are"),
    "plans-differ": SeamMutation(_plans_differ, "planner", f"{_GRANTS}.*make one plan"),
    "released-twice": SeamMutation(
        _released_twice, "planner", "sorter hands on an order.*total order"
    ),
    "stale-slots": SeamMutation(_stale_slots, "planner", "txn_processor hands on an outcome"),
    "untold-writes": SeamMutation(
        _untold_writes, "planner", "txn_processor hands on feedback.*is told"
    ),
    "locks-twice": SeamMutation(_locks_twice, "single", f"{_SINGLE}.*granted once"),
    "grants-ahead": SeamMutation(_grants_ahead, "single", f"{_SINGLE}.*from before"),
    "seqs-lost": SeamMutation(_seqs_lost, "single", "key_processor/locking hands on a state"),
    "released-elsewhere": SeamMutation(
        _released_elsewhere, "single", f"{_RELEASED}.*they live here"
    ),
}
"""Damage by name."""


@contextmanager
def silenced() -> Iterator[None]:
    """Run the body as if no invariant were checked: so that others show that they notice, too."""
    with mock.patch.object(invariants, "stop"):
        yield
