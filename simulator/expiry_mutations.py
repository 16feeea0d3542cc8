"""Break what expiry rests on: what is seen, what is told of it and where, and what stays."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np

from streamydb.columns.timeline import Timeline
from streamydb.key_processor import core as planning
from streamydb.key_processor.expiry import Removals
from streamydb.key_processor.grants import Granter
from streamydb.key_processor.locking import core as locking
from streamydb.key_processor.locking.expiry import Sweep
from streamydb.key_processor.locking.locks import LockTable
from streamydb.key_processor.ranges import RangeScanner
from streamydb.records import expiry, updates
from streamydb.txn_processor import compile as compiling
from streamydb.txn_processor import enforce, execution
from streamydb.txn_processor.expiry import Ending

__all__ = [
    "ends_are_lost", "expiry_from_the_start",
    "give_back_to_the_kernel", "index_for_good", "keep_what_is_over", "leave_to_the_kernel",
    "miss_what_ends", "remove_too_late", "resolve_before_the_sweep", "see_what_is_over",
    "sweep_under_locks", "tell_it_twice", "untold_removals",
]  # fmt: skip


def expiry_from_the_start() -> Any:
    """Expiry: nobody asks where in the log it begins."""
    return mock.patch.object(compiling._Care, "may_expire", return_value=True)  # noqa: SLF001


def see_what_is_over() -> Any:
    """Expiry: transactions see what has ended, until it is removed."""
    original = execution._execute_in_python  # noqa: SLF001 - the point

    def executed(run: Any, *rest: Any, **more: Any) -> int:
        run.now = 0
        return original(run, *rest, **more)

    return mock.patch.object(execution, "_execute_in_python", executed)


def remove_too_late() -> Any:
    """Expiry: what ends at a commit time is removed after it."""

    def at(self: Any, ends: Any) -> Any:
        return np.minimum(np.searchsorted(self.ts, ends, "right"), len(self.ts) - 1)

    return mock.patch.object(Timeline, "at", at)


def untold_removals() -> Any:
    """Expiry: nobody tells of what ends and is not touched."""
    return mock.patch.object(Removals, "told", return_value=())


def tell_it_twice() -> Any:
    """Expiry: a shard tells of what the plan may write, too."""
    return mock.patch.object(Granter, "written", return_value=set())


def keep_what_is_over() -> Any:
    """Expiry: what ends untouched stays in the values."""
    return mock.patch.object(planning, "with_removed", lambda _ended, written: [written])


def leave_to_the_kernel() -> Any:
    """Expiry: what comes to have an end in a plan is executed by the kernel."""
    return mock.patch.object(Ending, "after", Ending.before)


def give_back_to_the_kernel() -> Any:
    """Expiry: whoever names a range is executed by the kernel, once it is known not to be large."""

    def concerns(self: Any, i: int) -> bool:
        return bool(self.ends[self.run.slots_of(i)].any())

    return mock.patch.object(Ending, "concerns", concerns)


def miss_what_ends() -> Any:
    """Expiry: ranges lack what ends within the plan."""
    return mock.patch.object(RangeScanner, "_ending", return_value=[])


def ends_are_lost() -> Any:
    """Expiry: an update of a value makes it stay for good."""

    def after_update(update: Any, before: Any, after: Any, ts_ms: int) -> Any:
        return original(update, None if before is None else bytes(before), after, ts_ms)

    original = expiry.after_update
    return mock.patch.object(updates, "after_update", after_update)


def index_for_good() -> Any:
    """Expiry: the index of unique values keeps what its owner has no more."""
    return mock.patch.object(enforce, "ending", lambda value, _end: value)


def sweep_under_locks() -> Any:
    """Expiry: a shard removes what somebody before may still write."""
    original = Sweep.of.__func__  # type: ignore[attr-defined]

    def of(cls: Any, meta: Any, values: Any, _locks: Any, most: int) -> Any:
        return original(cls, meta, values, LockTable({}), most)

    return mock.patch.object(Sweep, "of", classmethod(of))


def resolve_before_the_sweep() -> Any:
    """Expiry: a shard says that it has told all removals, whatever may be written."""
    return mock.patch.object(locking, "swept", lambda meta, _locks, _sweep: meta.seq)
