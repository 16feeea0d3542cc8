"""Histories: what concurrent clients did and saw through REST, and whether the contract allows it.

In: the lines that clients record while they use a database (`streamydb.verify.histories.records`),
also while its parts are killed. Out: violations, each with the operations that contradict one
another.

Invariants: the checkers are pure; they judge from outside, by values that are unique and by one
clock, and trust no number of the database; what the contract says about numbers is checked beside
that. An operation whose outcome is unknown may have happened, at any time since, or not.

`linearizability` judges single keys, `serializability` (with `lists`, `graph`) transactions and
read-only transactions over lists, `versions` the numbers, sessions and scans, `watches` the change
streams. `workload` says what clients do, `recording` does it over HTTP, `campaign` runs many
clients.
"""

from __future__ import annotations

from streamydb.verify.histories.checking import CHECKERS, Report, check_history
from streamydb.verify.histories.records import (
    Answer,
    Append,
    Delivered,
    Delivery,
    Get,
    History,
    HistoryError,
    Operation,
    Read,
    Scan,
    Seen,
    Watch,
    Write,
    read_history,
    write_history,
)
from streamydb.verify.histories.violations import Violation

__all__ = [
    "CHECKERS",
    "Answer",
    "Append",
    "Delivered",
    "Delivery",
    "Get",
    "History",
    "HistoryError",
    "Operation",
    "Read",
    "Report",
    "Scan",
    "Seen",
    "Violation",
    "Watch",
    "Write",
    "check_history",
    "read_history",
    "write_history",
]
