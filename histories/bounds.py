"""Ranges that never may have more than so many keys, as every transaction asks that makes one."""

from __future__ import annotations

from collections.abc import Iterator

from histories.records import AppendOperation, History, Operation, ScanOperation
from histories.violations import Anomaly, shown

__all__ = ["check_bounds"]


def check_bounds(history: History) -> list[Anomaly]:
    """Find ranges that were seen with more keys than anybody may have made."""
    bounds = _bounds(history)
    found = []
    for operation in history.operations:
        for prefix, keys in _scanned(operation):
            for range_, most in bounds.items():
                within = range_.startswith(prefix)
                count = sum(key.startswith(range_) for key in keys) if within else 0
                if count > most:
                    what = f"{range_}* has {count} keys, and may have {most}"
                    text = f"{what}\n  {shown(operation)}"
                    found.append(Anomaly("too-many-keys", text, (operation.index,)))
    return found


def _bounds(history: History) -> dict[str, int]:
    """Return how many keys ranges may have: those in which each key was made under a condition."""
    bounds: dict[str, int] = {}
    free: set[str] = set()
    requests = [op.request for op in history.operations if isinstance(op.request, AppendOperation)]
    for request in requests:
        for prefix, most in request.most.items():
            made = sum(key.startswith(prefix) for key in request.appends)
            bounds[prefix] = max(bounds.get(prefix, 0), most + made)
    for request in requests:
        free.update(
            prefix for prefix in bounds if prefix not in request.most
            and any(key.startswith(prefix) for key in request.appends)
        )  # fmt: skip
    return {prefix: most for prefix, most in bounds.items() if prefix not in free}


def _scanned(operation: Operation) -> Iterator[tuple[str, list[str]]]:
    """Walk over the ranges that an operation saw, each with the keys that are there."""
    answer = operation.told
    if answer is None or not answer.committed:
        return
    ranges = dict(answer.ranges)
    if isinstance(operation.request, ScanOperation):
        ranges[operation.request.prefix] = answer.seen
    for prefix, entries in ranges.items():
        yield prefix, list(entries)
