"""Histories of what concurrent clients did and saw through REST, and checkers of the contract.

In: the lines that clients record while they use a database (`histories.records`),
also while its parts are killed. Out: violations, each with the operations that contradict one
another.

Invariants: the checkers are pure; they judge from outside, by values that are unique and by one
clock, and trust no number of the database; what the contract says about numbers is checked beside
that. An operation whose outcome is unknown may have happened, at any time since, or not.

`linearizability` judges single keys, `serializability` (with `lists`, `views`, `graph`)
transactions and read-only transactions over lists and ranges of them, `bounds` how many keys ranges
have, `ends` keys that end, `versions` the numbers, sessions and scans, `watches` the change
streams. `workload` chooses
the operations, `recorder` does them over HTTP, `campaign` runs many clients.
"""

from __future__ import annotations

from histories.judge import CHECKERS, HistoryReport, check_history
from histories.records import (
    Answer,
    AppendOperation,
    Delivered,
    Delivery,
    Get,
    History,
    HistoryError,
    Operation,
    RangeSeen,
    ReadOperation,
    ScanOperation,
    Seen,
    WatchOperation,
    WriteOperation,
    read_history,
    write_history,
)
from histories.violations import Anomaly

__all__ = [
    "CHECKERS",
    "Anomaly",
    "Answer",
    "AppendOperation",
    "Delivered",
    "Delivery",
    "Get",
    "History",
    "HistoryError",
    "HistoryReport",
    "Operation",
    "RangeSeen",
    "ReadOperation",
    "ScanOperation",
    "Seen",
    "WatchOperation",
    "WriteOperation",
    "check_history",
    "read_history",
    "write_history",
]
