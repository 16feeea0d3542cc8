"""Transactions: the structs of a valid one, and the decoder of a record of the log.

``decode`` is the hot path. A record that msgspec's typed decoder takes, and that passes the few
checks here, is valid; anything else goes to ``records.rejection``, which finds out in plain
Python which reason code it gets. Values inside a ``Transaction`` are canonical bytes (see
``records.values``), and numbers are canonical too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from streamydb.errors import ValueRejected
from streamydb.limits import (
    DEPTH_MAX,
    ID_BYTES_MAX,
    INTEGER_MAX,
    INTEGER_MIN,
    KEY_BYTES_MAX,
    KEYS_PER_TRANSACTION_MAX,
    TRANSACTION_BYTES_MAX,
    VALUE_BYTES_MAX,
)
from streamydb.records.depth import deeper_than
from streamydb.records.marker import Marker
from streamydb.records.rejection import (
    CONSTRAINTS_KEY,
    FLOWS_PREFIX,
    FOLLOW_UP_ID,
    FOLLOW_UP_PREFIX,
    HASH,
    MODULES_PREFIX,
    NAME,
    RESERVED,
    UNIQUE_PREFIX,
    Rejection,
    constrain_fits,
    explain,
    lent_to,
)
from streamydb.records.values import canonical, canonical_number

if TYPE_CHECKING:
    Canonical: TypeAlias = bytes
    OptionalCanonical: TypeAlias = bytes | None
    CanonicalObject: TypeAlias = bytes
else:  # decoded as any JSON, then replaced by its canonical bytes
    Canonical = OptionalCanonical = Any
    CanonicalObject = dict[str, Any]

Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=ID_BYTES_MAX)]
Key: TypeAlias = Annotated[str, Meta(min_length=1, max_length=KEY_BYTES_MAX)]
Integer: TypeAlias = Annotated[int, Meta(ge=INTEGER_MIN, le=INTEGER_MAX)]
Version: TypeAlias = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
Number: TypeAlias = Integer | float
ProcedureName: TypeAlias = Annotated[str, Meta(pattern=rf"^{NAME}\.{NAME}\Z")]
ModuleName: TypeAlias = Annotated[str, Meta(pattern=rf"^{NAME}\Z")]
Counting: TypeAlias = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
ModuleHash: TypeAlias = Annotated[str, Meta(pattern=rf"^{HASH}\Z")]


Lock: TypeAlias = Annotated[
    str, Meta(pattern=rf"^{re.escape(UNIQUE_PREFIX)}", max_length=KEY_BYTES_MAX)
]


class Put(msgspec.Struct, tag_field="op", tag="put", gc=False, forbid_unknown_fields=True):
    """Store ``value`` (canonical bytes, never null) under ``key``."""

    key: Key
    value: Canonical


class Delete(msgspec.Struct, tag_field="op", tag="delete", gc=False, forbid_unknown_fields=True):
    """Remove ``key``; nothing happens when it is absent."""

    key: Key


class Add(msgspec.Struct, tag_field="op", tag="add", gc=False, forbid_unknown_fields=True):
    """Add ``by`` to the number under ``key`` (absent = 0); the result must lie in [min, max]."""

    key: Key
    by: Number
    min: Number | UnsetType = UNSET
    max: Number | UnsetType = UNSET


class Max(msgspec.Struct, tag_field="op", tag="max", gc=False, forbid_unknown_fields=True):
    """Keep the larger of ``value`` and the number under ``key`` (absent = take ``value``)."""

    key: Key
    value: Number


class Min(msgspec.Struct, tag_field="op", tag="min", gc=False, forbid_unknown_fields=True):
    """Keep the smaller of ``value`` and the number under ``key`` (absent = take ``value``)."""

    key: Key
    value: Number


class Append(msgspec.Struct, tag_field="op", tag="append", gc=False, forbid_unknown_fields=True):
    """Append ``value`` (canonical bytes, null allowed) to the list under ``key`` (absent = [])."""

    key: Key
    value: Canonical


class NextId(msgspec.Struct, tag_field="op", tag="next_id", gc=False, forbid_unknown_fields=True):
    """Take the next integer of the counter under ``key`` (the first is 1); it is read too."""

    key: Key


Update: TypeAlias = Put | Delete | Add | Max | Min | Append | NextId


class Check(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A condition on ``key``: all its comparators hold. ``eq`` and ``ne``: None = absent."""

    key: Key
    version: Version | UnsetType = UNSET
    exists: bool | UnsetType = UNSET
    eq: OptionalCanonical | UnsetType = UNSET
    ne: OptionalCanonical | UnsetType = UNSET
    lt: Number | str | UnsetType = UNSET
    le: Number | str | UnsetType = UNSET
    gt: Number | str | UnsetType = UNSET
    ge: Number | str | UnsetType = UNSET


class TakenBatch(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The batch that a follow-up takes; it makes a call a follow-up.

    ``id``: the seq of the transaction with which the batch entered the workflow. ``stream``: where
    it was emitted. ``number``: its place among all follow-ups of the module. ``depth``: how many
    follow-ups led to it, itself included.
    """

    id: Counting
    stream: ModuleName
    number: Counting
    depth: Counting


class Call(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A call of a stored procedure, ``module.name``, with ``args`` (canonical bytes of an object).

    It may read and write ``keys``, and read ``reads``. ``batch`` is there in a follow-up.
    """

    procedure: ProcedureName
    args: CanonicalObject = cast("CanonicalObject", {})
    keys: tuple[Key, ...] = ()
    reads: tuple[Key, ...] = ()
    batch: TakenBatch | UnsetType = UNSET

    @property
    def module(self) -> str:
        """The module's name."""
        return self.procedure.partition(".")[0]

    @property
    def name(self) -> str:
        """The procedure's name in its module."""
        return self.procedure.partition(".")[2]


class Deploy(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """From here on, calls of ``module`` run the code with this ``hash`` (of its file).

    ``procedures``: those that it has, each with the names of its arguments.
    """

    module: ModuleName
    hash: ModuleHash
    procedures: dict[ModuleName, tuple[str, ...]]


class Transaction(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A valid transaction. The collections are read-only; their order is the payload's.

    ``constrain``: canonical bytes. ``locks``: keys of the index behind uniqueness that the
    transaction may write, as far as constraints make it. ``deadline_ms``: the last commit time
    (ms since 1970) at which it may be executed.
    """

    id: Id
    asserts: dict[Key, OptionalCanonical] = {}
    checks: tuple[Check, ...] = ()
    reads: tuple[Key, ...] = ()
    updates: tuple[Update, ...] = ()
    call: Call | UnsetType = UNSET
    deploy: Deploy | UnsetType = UNSET
    constrain: CanonicalObject | UnsetType = UNSET
    locks: tuple[Lock, ...] = ()
    deadline_ms: Counting | UnsetType = UNSET

    @property
    def deadline(self) -> int:
        """The deadline, 0 if there is none."""
        return 0 if self.deadline_ms is UNSET else self.deadline_ms


_decode = msgspec.json.Decoder(Transaction).decode
_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BACKSLASH: Final = 0x5C
_COMPARATORS: Final = ("lt", "le", "gt", "ge")


def decode(raw: bytes | None) -> Transaction | Marker | Rejection:
    """Decode a record of the log. Never raises, whatever the bytes.

    Never raises, whatever the bytes.

    Args:
        raw: the record's value; None for a tombstone.

    Returns:
        a valid transaction, an epoch marker, or the reason code why it is neither.
    """
    if not raw or len(raw) > TRANSACTION_BYTES_MAX:
        return explain(raw)
    try:
        txn = _decode(raw)
    except _REFUSALS:
        return explain(raw)
    updates = txn.updates
    plain = raw.isascii() and _BACKSLASH not in raw
    if not plain and not _texts_fit(txn):
        return explain(raw)
    try:
        canonicalised = _canonicalise_updates(updates)
        if txn.asserts or txn.checks or txn.reads:
            canonicalised = _canonicalise_rest(txn) or canonicalised
        if txn.call is not UNSET or txn.deploy is not UNSET or txn.constrain is not UNSET:
            canonicalised = True
            _canonicalise_procedures(txn)
    except ValueRejected:
        return explain(raw)
    if txn.id[0] == RESERVED and not _id_fits(txn):
        return explain(raw)
    if canonicalised and deeper_than(raw, DEPTH_MAX):
        return explain(raw)
    count = len(updates)
    if count == 2:
        if updates[0].key == updates[1].key:
            return explain(raw)
    elif count > 2 and len({update.key for update in updates}) != count:
        return explain(raw)
    named = count + len(txn.asserts) + len(txn.checks) + len(txn.reads)
    named += len(txn.locks)
    if txn.call is not UNSET:
        named += len(txn.call.keys) + len(txn.call.reads) + 1
    if named > KEYS_PER_TRANSACTION_MAX and len(keys(txn)) > KEYS_PER_TRANSACTION_MAX:
        return explain(raw)
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
        touched.update([(check.key, False) for check in txn.checks])
        touched.update(dict.fromkeys(txn.reads, False))
        if txn.call is not UNSET:
            touched[module_key(txn.call.module)] = False
            touched.update(dict.fromkeys(txn.call.reads, False))
            touched.update(dict.fromkeys(txn.call.keys, True))
        touched.update([(update.key, True) for update in txn.updates])
        if txn.constrain is not UNSET:
            touched[CONSTRAINTS_KEY] = True
        touched.update(dict.fromkeys(txn.locks, True))
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
        _canonicalise_check(check)
    return True


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
    if not some:
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
    return all(len(key.encode()) <= KEY_BYTES_MAX for key in keys(txn))


_Unfit: Final = ValueRejected("invalid-transaction", "The record needs an explanation.")
