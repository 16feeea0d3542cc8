"""All checkers on one history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from histories.bounds import check_bounds
from histories.ends import check_ends, with_ends
from histories.linearizability import check_registers
from histories.records import History
from histories.serializability import check_lists
from histories.versions import check_numbers, check_pages, check_sessions
from histories.violations import Anomaly
from histories.watches import check_watches

__all__ = ["CHECKERS", "HistoryReport", "check_history"]

CHECKERS: Final[dict[str, Callable[[History], list[Anomaly]]]] = {
    "linearizability": check_registers,
    "strict serializability": check_lists,
    "bounds of ranges": check_bounds,
    "ends of keys": check_ends,
    "sessions": check_sessions,
    "scan pages": check_pages,
    "seqs and versions": check_numbers,
    "watches": check_watches,
}
"""Every checker by what it checks."""


class HistoryReport(msgspec.Struct):
    """The findings of the checkers.

    Attributes:
        operations: how many there are of each kind of request and outcome.
        deliveries: changes that watchers got.
        violations: what each checker found.
    """

    operations: dict[str, int]
    deliveries: int
    violations: dict[str, list[Anomaly]]

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not any(self.violations.values())

    def text(self, most: int = 5) -> str:
        """Return the report for people, the first of the violations of each checker included."""
        counts = ", ".join(f"{n:,} {name}" for name, n in sorted(self.operations.items()))
        lines = [f"{counts}; {self.deliveries:,} changes delivered"]
        for checker, found in self.violations.items():
            lines.append(f"{checker}: {len(found) or 'no'} violations")
            lines += [f"  [{one.anomaly}] {one.message}" for one in found[:most]]
        return "\n".join(lines)


def check_history(history: History) -> HistoryReport:
    """Run all checkers."""
    kinds: Counter[str] = Counter()
    for operation in history.operations:
        name = type(operation.request).__name__.lower()
        kinds[f"{name} {operation.outcome}"] += 1
    delivered = sum(len(d.changes) for all_of in history.deliveries.values() for d in all_of)
    whole = with_ends(history)
    found = {name: checker(whole) for name, checker in CHECKERS.items()}
    return HistoryReport(dict(kinds), delivered, found)
