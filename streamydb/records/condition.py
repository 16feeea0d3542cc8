"""Conditions: a check of a transaction without its key, on a value that something else names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamydb.errors import ValueRejected
from streamydb.records.decoder import decode
from streamydb.records.transaction import Transaction
from streamydb.records.values import canonical

__all__ = ["COMPARATORS", "condition"]

COMPARATORS: Final = ("eq", "ne", "lt", "le", "gt", "ge", "exists", "version")
"""What a condition has, at least one of them."""

_KEY: Final = "k"


def condition(given: object, *, versioned: bool = True) -> Transaction | None:
    """Return a transaction whose one check is a condition; None: it is none.

    ``versioned``: whether it may be one on the version, too.
    """
    known = COMPARATORS if versioned else COMPARATORS[:-1]
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        return None
    try:
        payload = canonical({"id": "condition", "checks": [{"key": _KEY, **given}]})
    except ValueRejected:
        return None
    found = decode(payload)
    return found if isinstance(found, Transaction) else None
