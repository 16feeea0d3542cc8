"""The decoder of a record of the log: a transaction in canonical form, or the reason why not.

``decode`` is the hot path. A record that msgspec's typed decoder takes, and that passes the few
checks here, is valid; anything else goes to ``records.rejection``, which finds out in plain
Python which reason code it gets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from streamydb.errors import ValueRejected
from streamydb.limits import (
    DEPTH_MAX,
    ID_BYTES_MAX,
    KEY_BYTES_MAX,
    KEYS_PER_TRANSACTION_MAX,
    TRANSACTION_BYTES_MAX,
    VALUE_BYTES_MAX,
)
from streamydb.records.marker import Marker
from streamydb.records.names import (
    CONSTRAINTS_KEY,
    FLOWS_PREFIX,
    FOLLOW_UP_ID,
    FOLLOW_UP_PREFIX,
    MODULES_PREFIX,
    RESERVED,
)
from streamydb.records.ranges import RangeRead
from streamydb.records.rejection import Rejection, constrain_fits, explain, lent_to
from streamydb.records.transaction import Add, Append, Check, Max, Min, Put, Transaction, Update
from streamydb.records.values import canonical, canonical_number, deeper_than

_decode = msgspec.json.Decoder(Transaction).decode
_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BACKSLASH: Final = 0x5C
_COMPARATORS: Final = ("lt", "le", "gt", "ge")


def decode(raw: bytes | None) -> Transaction | Marker | Rejection:
    """Decode a record of the log. Never raises, whatever the bytes.

    Args:
        raw: the record's value; None for a tombstone.

    Returns:
        a valid transaction, an epoch marker, or the reason code why it is neither.
    """
    txn = _valid(raw)
    return explain(raw) if txn is None else txn


def _valid(raw: bytes | None) -> Transaction | None:
    """Return the transaction in a record; None if it is no valid one."""
    if not raw or len(raw) > TRANSACTION_BYTES_MAX:
        return None
    try:
        txn = _decode(raw)
    except _REFUSALS:
        return None
    updates = txn.updates
    plain = raw.isascii() and _BACKSLASH not in raw
    if not plain and not _texts_fit(txn):
        return None
    try:
        canonicalised = _canonicalise_updates(updates)
        if txn.asserts or txn.checks or txn.reads:
            canonicalised = _canonicalise_rest(txn) or canonicalised
        if txn.locks and not all(lock_range.fits for lock_range in txn.lock_ranges):
            return None
        if txn.call is not UNSET or txn.deploy is not UNSET or txn.constrain is not UNSET:
            canonicalised = True
            _canonicalise_procedures(txn)
    except ValueRejected:
        return None
    if txn.id[0] == RESERVED and not _id_fits(txn):
        return None
    if canonicalised and deeper_than(raw, DEPTH_MAX):
        return None
    count = len(updates)
    if count == 2:
        if updates[0].key == updates[1].key:
            return None
    elif count > 2 and len({update.key for update in updates}) != count:
        return None
    lock_range = count + len(txn.asserts) + len(txn.checks) + len(txn.reads)
    lock_range += len(txn.locks)
    if txn.call is not UNSET:
        lock_range += len(txn.call.keys) + len(txn.call.reads) + len(txn.call.ranges) + 1
    if lock_range > KEYS_PER_TRANSACTION_MAX:
        different = len(keys(txn)) + len(txn.ranges)
        return txn if different <= KEYS_PER_TRANSACTION_MAX else None
    return txn


def keys(txn: Transaction) -> dict[str, bool]:
    """Every key that a transaction touches, in first-touch order: asserts, checks, reads, call,
    updates, constrain, locks.

    A call reads the key that says which code of its module is current.

    Returns:
        key -> whether the transaction may write it.
    """
    if txn.asserts or txn.checks or txn.reads or txn.call is not UNSET or txn.locks:
        touched = dict.fromkeys(txn.asserts, False)
        touched.update([(check.key, False) for check in txn.checks if check.key])
        touched.update(dict.fromkeys(txn.read_keys, False))
        if txn.call is not UNSET:
            touched[module_key(txn.call.module)] = False
            touched.update(dict.fromkeys(txn.call.reads, False))
            touched.update(dict.fromkeys(txn.call.keys, True))
        touched.update([(update.key, True) for update in txn.updates])
        if txn.constrain is not UNSET:
            touched[CONSTRAINTS_KEY] = True
        touched.update(dict.fromkeys(txn.lock_keys, True))
        return touched
    if txn.constrain is not UNSET:
        return {CONSTRAINTS_KEY: True}
    return {update.key: True for update in txn.updates}


def module_key(module: str) -> str:
    """The key under which the deployed version of a module lies."""
    return MODULES_PREFIX + module


def _canonicalise_updates(updates: tuple[Update, ...]) -> bool:
    """Put canonical forms into the updates; whether one has a value that may be nested."""
    nested = False
    for update in updates:
        if update.key[0] == RESERVED:
            raise _Unfit
        if type(update) is Add:
            if type(update.by) is float:
                update.by = canonical_number(update.by)
            if type(update.min) is float:
                update.min = canonical_number(update.min)
            if type(update.max) is float:
                update.max = canonical_number(update.max)
        elif type(update) is Put or type(update) is Append:
            update.value = _canonical_value(update.value, null_allowed=type(update) is Append)
            nested = True
        elif (type(update) is Max or type(update) is Min) and type(update.value) is float:
            update.value = canonical_number(update.value)
    return nested


def _canonicalise_rest(txn: Transaction) -> bool:
    """Put canonical forms into asserts and checks; True, as their values may be nested."""
    for key, value in txn.asserts.items():
        if value is not None:
            txn.asserts[key] = _canonical_value(value)
    for check in txn.checks:
        if not check.ranged:
            _canonicalise_check(check)
        elif not _compares_range(check):
            raise _Unfit
    for read in txn.reads:
        if type(read) is RangeRead and not read.range.fits:
            raise _Unfit
    return True


def _compares_range(check: Check) -> bool:
    """Return True if a check compares something of a range, and nothing of a key."""
    of_key = (check.version, check.eq, check.ne, check.lt, check.le, check.gt, check.ge)
    of_range = (check.exists, check.count, check.count_le, check.count_ge, check.version_le)
    if check.range is UNSET or not check.range.fits or check.key:
        return False
    return all(each is UNSET for each in of_key) and any(each is not UNSET for each in of_range)


def _canonicalise_procedures(txn: Transaction) -> None:
    """Put canonical forms into a call or constrain; turn a deploy into the write that it is."""
    parts = (txn.call is not UNSET, txn.deploy is not UNSET, txn.constrain is not UNSET)
    if txn.updates or sum(parts) > 1:
        raise _Unfit
    if txn.constrain is not UNSET:
        if not constrain_fits(txn.constrain):
            raise _Unfit
        txn.constrain = _canonical_value(txn.constrain)
    if txn.call is not UNSET:
        txn.call.args = canonical(txn.call.args)
        if not all(call_range.fits for call_range in txn.call.ranges):
            raise _Unfit
        if any(key[0] == RESERVED and not lent_to(txn.call.module, key) for key in txn.call.keys):
            raise _Unfit
        if txn.call.batch is not UNSET and txn.id[0] != RESERVED:
            raise _Unfit
    if txn.deploy is not UNSET:
        value = {"hash": txn.deploy.hash, "procedures": txn.deploy.procedures}
        txn.updates = (Put(module_key(txn.deploy.module), _canonical_value(value)),)


def _id_fits(txn: Transaction) -> bool:
    """Return True if an id that is a follow-up's stands on one, and on nothing else."""
    call = txn.call
    if call is UNSET or call.batch is UNSET:
        return not txn.id.startswith(FOLLOW_UP_PREFIX)
    others = txn.asserts or txn.checks or txn.reads or txn.updates or txn.locks or txn.deadline
    fits = re.fullmatch(FOLLOW_UP_ID, txn.id) is not None and not others
    return fits and FLOWS_PREFIX + call.module in call.keys


def _canonicalise_check(check: Check) -> None:
    """Put canonical forms into a check that has at least one comparator."""
    some = check.version is not UNSET or check.exists is not UNSET
    if check.eq is not UNSET:
        some = True
        if check.eq is not None:
            check.eq = _canonical_value(check.eq)
    if check.ne is not UNSET:
        some = True
        if check.ne is not None:
            check.ne = _canonical_value(check.ne)
    for name in _COMPARATORS:
        operand = getattr(check, name)
        if operand is not UNSET:
            some = True
            if type(operand) is float:
                setattr(check, name, canonical_number(operand))
    if not some or not check.key:
        raise _Unfit


def _canonical_value(value: Any, *, null_allowed: bool = False) -> bytes:
    """Canonical bytes within the limit; null only where it is allowed."""
    data = canonical(value)
    if len(data) > VALUE_BYTES_MAX or (value is None and not null_allowed):
        raise _Unfit
    return data


def _texts_fit(txn: Transaction) -> bool:
    """The rules of ids and keys beyond a count of characters: bytes and control characters."""
    if len(txn.id.encode()) > ID_BYTES_MAX or min(txn.id) < " ":
        return False
    bounds = [name for named_range in txn.named_ranges for name in named_range.names()]
    return all(len(key.encode()) <= KEY_BYTES_MAX for key in (*keys(txn), *bounds))


class _Unfit(ValueRejected):
    """The record is no transaction; `explain` says why."""

    def __init__(self) -> None:
        super().__init__("invalid-transaction", "The record needs an explanation.")


_CONDITION_COMPARATORS: Final = ("eq", "ne", "lt", "le", "gt", "ge", "exists")
_VERSIONED: Final = (*_CONDITION_COMPARATORS, "version")
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
    return _VERSIONED if versioned else _CONDITION_COMPARATORS
