"""Break what ranges rest on: the planner, what is granted, its execution, and the locks."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import numpy as np

from streamydb.frames.blobs import KeyScan
from streamydb.key_processor.locking.locks import FirstWriters, SpanSeqs
from streamydb.planner import conflicts
from streamydb.txn_processor import enforce, interpreter, ranges
from streamydb.txn_processor.ranges import GrantedRanges

__all__ = [
    "compile_ranges_apart", "count_anything", "crowd_ranges", "forget_own_writes",
    "forget_the_members", "make_keys_anywhere", "miss_a_key", "overtake_ranges",
    "plan_without_ranges", "ranges_overtake", "scan_too_little",
]  # fmt: skip


def plan_without_ranges() -> Any:
    """Ranges: the planner ignores them."""
    return mock.patch.object(conflicts, "links_of", return_value=np.empty((0, 2), np.int64))


def miss_a_key() -> Any:
    """Ranges: a shard does not see the last key of a range."""
    original = KeyScan.taken

    def taken(self: Any, items: Any) -> Any:
        return original(self, items)[:-1]

    return mock.patch.object(KeyScan, "taken", taken)


def forget_the_members() -> Any:
    """Ranges: nobody adds what earlier members of the conflict group have changed."""
    original = GrantedRanges.__init__

    def begun(self: Any, run: Any, parts: Any) -> None:
        before = run.values._replace(slots=run.values.slots.copy())
        original(self, dataclasses.replace(run, values=before), parts)

    return mock.patch.object(GrantedRanges, "__init__", begun)


def forget_own_writes() -> Any:
    """Ranges: a transaction does not read its own writes in them."""
    original = ranges.entries_after
    return mock.patch.object(
        interpreter, "entries_after", lambda txn, see, _, seq: original(txn, see, {}, seq)
    )


def scan_too_little() -> Any:
    """Ranges: a procedure does not see the last key of a range that it scans."""
    original = interpreter._Declared.entries  # noqa: SLF001

    def entries(self: Any, declared: Any) -> Any:
        return original(self, declared)[:-1]

    return mock.patch.object(interpreter._Declared, "entries", entries)  # noqa: SLF001


def compile_ranges_apart() -> Any:
    """Ranges: compiled checks do not see what earlier members of the conflict group have
    written.
    """
    original = GrantedRanges.compiled

    def compiled(self: Any) -> Any:
        table = original(self)
        return table._replace(starts=np.zeros_like(table.starts))

    return mock.patch.object(GrantedRanges, "compiled", compiled)


def crowd_ranges() -> Any:
    """Ranges: a constraint does not count what the transaction itself makes and removes."""
    original = enforce._crowded  # noqa: SLF001

    def crowded(grouped: Any, named: Any) -> Any:
        return original(grouped[:1], named)

    return mock.patch.object(enforce, "_crowded", crowded)


def make_keys_anywhere() -> Any:
    """Ranges: who makes a key need not name the range whose keys a constraint counts."""

    class Everything:
        def __contains__(self, bounds: object) -> bool:
            return True

    original = enforce.NamedRanges

    def named(_bounds: Any, count: Any) -> Any:
        def seen(bounds: Any) -> int:
            return count(bounds) if bounds in _bounds else 0

        return original(Everything(), seen)  # type: ignore[arg-type]

    return mock.patch.object(interpreter, "NamedRanges", named)


def count_anything() -> Any:
    """Ranges: they may have as many keys as they like."""
    return mock.patch.object(interpreter, "too_many", return_value=False)


def ranges_overtake() -> Any:
    """Ranges: a range lock does not wait for earlier writers."""
    return mock.patch.object(FirstWriters, "earlier", return_value=False)


def overtake_ranges() -> Any:
    """Ranges: later writers do not wait for a range lock."""
    return mock.patch.object(SpanSeqs, "earlier", return_value=False)
