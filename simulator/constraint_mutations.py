"""Break what the first declaration of a constraint rests on, in a database not created for them."""

from __future__ import annotations

from typing import Any
from unittest import mock

from streamydb import records
from streamydb.records import decoder
from streamydb.sorter import core as sorter
from streamydb.txn_processor import enforce as enforcing

__all__ = [
    "constraints_after_the_plan", "constraints_unread",
    "keep_the_index", "unlocked_index",
]  # fmt: skip


def constraints_unread() -> Any:
    """Constraints: nothing reads them after the first declaration of a log."""
    return mock.patch.object(sorter, "reading_constraints", lambda records, **_: records)


def constraints_after_the_plan() -> Any:
    """Constraints: what is released together with the first declaration does not read them."""
    original = sorter.reading_constraints

    def reading(records: Any, *, all_of_them: bool) -> Any:
        return original(records, all_of_them=True) if all_of_them else records

    return mock.patch.object(sorter, "reading_constraints", reading)


def unlocked_index() -> Any:
    """Uniqueness: index keys are not locked, only looked at."""
    original = decoder.keys

    def keys(txn: Any) -> dict[str, bool]:
        return original(txn) | dict.fromkeys(txn.locks, False)

    return mock.patch.object(records, "keys", keys)


def keep_the_index() -> Any:
    """Uniqueness: a value that goes away keeps its place in the index."""
    original = enforcing._index_keys  # noqa: SLF001 - the point

    def index_keys(rules: Any, writes: Any) -> Any:
        return [], original(rules, writes)[1]

    return mock.patch.object(enforcing, "_index_keys", index_keys)
