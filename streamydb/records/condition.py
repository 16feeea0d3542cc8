"""Conditions: a check of a transaction without its key, on a value that something else names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamydb.errors import ValueRejected
from streamydb.records.decoder import decode
from streamydb.records.transaction import Transaction
from streamydb.records.values import canonical

_COMPARATORS: Final = ("eq", "ne", "lt", "le", "gt", "ge", "exists")
_VERSIONED: Final = (*_COMPARATORS, "version")
"""What a condition has, at least one of them."""

_KEY: Final = "k"


def condition(text: object, *, versioned: bool = True) -> Transaction | None:
    """Return a transaction whose one check is a condition; None: it is none.

    ``versioned``: whether it may be one on the version, too.
    """
    if not isinstance(text, Mapping) or not set(text) <= set(_known(versioned=versioned)):
        return None
    try:
        payload = canonical({"id": "condition", "checks": [{"key": _KEY, **text}]})
    except ValueRejected:
        return None
    record = decode(payload)
    return record if isinstance(record, Transaction) else None


def condition_form(name: str, *, versioned: bool) -> str:
    """Say what a condition looks like, which was given as ``name``."""
    forms = ", ".join(_known(versioned=versioned))
    return f'{name} is a check without its key, such as {{"ge": 100}}: {forms}.'


def _known(*, versioned: bool) -> tuple[str, ...]:
    return _VERSIONED if versioned else _COMPARATORS
