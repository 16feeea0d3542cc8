"""The comparisons of a transaction, asserts and checks, on Python values."""

from __future__ import annotations

import operator as op
from collections.abc import Callable
from typing import Any, Final

import msgspec

from streamydb import records as r
from streamydb.errors import InvariantViolation
from streamydb.limits import FAILED_ENTRIES_MAX, FAILED_VALUE_BYTES_MAX
from streamydb.records.values import is_number

Value = tuple[bytes | None, int]
"""A key's canonical value (None when absent) and its version (0 when absent)."""

Failed = dict[str, Any]
"""An entry of ``failed``: check, index, key, value, version, and truncated when the value is left
out.
"""


def failed_entry(check: str, index: int, key: str, value: bytes | None, version: int) -> Failed:
    """One entry of ``failed``; a value over the limit is left out and the entry says so."""
    if value is not None and len(value) > FAILED_VALUE_BYTES_MAX:
        entry = failed_entry(check, index, key, None, version)
        entry["truncated"] = True
        return entry
    shown = None if value is None else msgspec.Raw(value)
    return {"check": check, "index": index, "key": key, "value": shown, "version": version}


def _no_range(index: int, _: r.Check) -> Failed | None:
    raise InvariantViolation(f"check {index} is of a range, where there are none")


def failed_checks(
    txn: r.Transaction,
    look: Callable[[str], Value],
    of_range: Callable[[int, r.Check], Failed | None] = _no_range,
) -> list[Failed]:
    """Entries of the asserts and checks of a transaction that do not hold, as many as are shown.

    ``of_range``: the entry of a check of a range.
    """
    failed = []
    for index, (key, expected) in enumerate(txn.asserts.items()):
        value, version = look(key)
        if value != expected:
            failed.append(failed_entry("assert", index, key, value, version))
    for index, check in enumerate(txn.checks):
        if not check.key:
            entry = of_range(index, check)
            failed += [] if entry is None else [entry]
            continue
        value, version = look(check.key)
        if not _holds(check, value, version):
            failed.append(failed_entry("check", index, check.key, value, version))
    return failed[:FAILED_ENTRIES_MAX]


def _holds(check: r.Check, value: bytes | None, version: int) -> bool:
    unset = msgspec.UNSET
    if check.version is not unset and version != check.version:
        return False
    if check.exists is not unset and (value is not None) != check.exists:
        return False
    if check.eq is not unset and value != check.eq:
        return False
    if check.ne is not unset and value == check.ne:
        return False
    bounds = (check.lt, check.le, check.gt, check.ge)
    if all(bound is unset for bound in bounds):
        return True
    actual = None if value is None else r.decode_value(value)
    tests = zip(bounds, _COMPARE, strict=True)
    return all(_compare(actual, bound, test) for bound, test in tests if bound is not unset)


_COMPARE: Final[tuple[Callable[[Any, Any], bool], ...]] = (op.lt, op.le, op.gt, op.ge)


def _compare(actual: Any, bound: Any, test: Callable[[Any, Any], bool]) -> bool:
    both_numbers = is_number(actual) and is_number(bound)
    both_texts = isinstance(actual, str) and isinstance(bound, str)
    return (both_numbers or both_texts) and test(actual, bound)
