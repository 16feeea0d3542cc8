"""Transactions as they are built and sent, and the outcome of a committed one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from streamydb.client.forks import process_span
from streamydb.client.problems import InvalidParameterError, refusal
from streamydb.client.requests import Entry
from streamydb.errors import INVALID_TRANSACTION, ValueRejected
from streamydb.records import Rejection, Result, canonical, decode, decode_value
from streamydb.records.ranges import Range

Fields: TypeAlias = Mapping[str, Any]
ReadItem: TypeAlias = str | Range | Fields
"""A key, or a range; also as docs/semantics.md has it: `{"range": {...}}`."""
_ALONE: Final = (str, Mapping)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RangeEntry:
    """A key in a range that a transaction has read, with its value and version after it."""

    key: str
    value: Any
    version: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A verdict: the transaction is committed.

    Attributes:
        id: the transaction's id.
        seq: its place in the order, and the version of all that it wrote.
        ts_ms: its commit timestamp.
        reads: the values it read, after its own updates; None for absent keys.
        repeated: whether it was sent before, and this is the verdict of then.
        returned: what its call returned; None without a call.
        ranges: the ranges it read, after its own updates, in the order of the keys' bytes.
    """

    id: str
    seq: int
    ts_ms: int
    reads: dict[str, Any]
    repeated: bool
    returned: Any = None
    ranges: dict[Range, list[RangeEntry]] = field(default_factory=dict)


class Prepared(NamedTuple):
    """A transaction's id and bytes, which stay the same however often it is sent."""

    id: str
    payload: bytes


def committed(result: Result) -> Committed:
    reads = {key: decode_value(bytes(value)) for key, value in result.reads.items()}
    repeated = result.duplicate is not UNSET
    returned = None if result.returned is UNSET else decode_value(bytes(result.returned))
    ranges = {
        range_read.range: [
            RangeEntry(each.key, decode_value(bytes(each.value)), each.version)
            for each in range_read.entries
        ]
        for range_read in result.ranges or ()
    }
    return Committed(result.id or "", result.seq, result.ts_ms, reads, repeated, returned, ranges)


def as_list(items: Iterable[_T], alone: type | tuple[type, ...] = str) -> list[_T]:
    """Return items as a list. Raises InvalidParameterError: it is one thing ``alone``, such as a
    text.
    """
    if isinstance(items, alone):
        raise InvalidParameterError(f"Several are given as a list, here [{items!r}].")
    return list(items)


def prepare(
    txn_id: str,
    *,
    asserts: Fields | None = None,
    checks: Iterable[Fields] = (),
    reads: Iterable[ReadItem] = (),
    updates: Iterable[Fields] = (),
    call: Fields | None = None,
    deploy: Fields | None = None,
    constrain: Fields | None = None,
    locks: Iterable[ReadItem] = (),
    deadline_ms: int | None = None,
) -> Prepared:
    """Return a transaction's bytes, checked as the log's readers will.

    ``deadline_ms``: the last commit time (ms since 1970) at which it may be executed.
    Raises InvalidTransactionError, InvalidKeyError, InvalidJsonError, TooLargeError: it would be
    rejected.
    """
    parts = {
        "asserts": dict(asserts or {}),
        "checks": [dict(check) for check in as_list(checks, _ALONE)],
        "reads": [_read(each) for each in as_list(reads, _ALONE)],
        "updates": [dict(update) for update in as_list(updates, _ALONE)],
        "call": dict(call or {}),
        "deploy": dict(deploy or {}),
        "constrain": dict(constrain or {}),
        "locks": [_read(each) for each in as_list(locks, _ALONE)],
    }
    fields: dict[str, Any] = {"id": txn_id, **{name: part for name, part in parts.items() if part}}
    if deadline_ms is not None:
        fields["deadline_ms"] = deadline_ms
    try:
        payload = canonical(fields)
    except ValueRejected as fault:
        raise refusal(fault.code, str(fault), txn_id) from None
    decoded = decode(payload)
    if isinstance(decoded, Rejection):
        detail = _misfit(fields) if decoded.code == INVALID_TRANSACTION else None
        raise refusal(decoded.code, detail, txn_id)
    return Prepared(txn_id, payload)


def _misfit(fields: Fields) -> str | None:
    """Name the first update, check, read or lock that is none; None if they are well each alone."""
    for part in ("updates", "checks", "reads", "locks"):
        for number, item in enumerate(fields.get(part, ())):
            alone = decode(canonical({"id": "alone", part: [item]}))
            if isinstance(alone, Rejection):
                return f"{part}[{number}] is not as it must be: {repr(item)[:200]}"
    return None


def _read(item: ReadItem) -> str | Fields:
    return {"range": msgspec.to_builtins(item)} if isinstance(item, Range) else item


class Builder:
    """A transaction that is put together call by call; all methods return the builder itself.

    Its id is made when it is asked for or sent first, and its deadline then, so that committing it
    again after an unknown outcome is safe: it is one transaction, however often it is sent. After a
    fork in between, parent and child send two.
    """

    def __init__(self, txn_id: str | Callable[[], str], deadline_ms: int | None = None) -> None:
        self._given_id = txn_id
        self._is_own = callable(txn_id)
        self._made_in: tuple[int, int] | None = None
        self.deadline_ms = deadline_ms
        self._checks: list[Fields] = []
        self._reads: list[ReadItem] = []
        self._updates: list[Fields] = []

    @property
    def id(self) -> str:
        """The id, from now on the same."""
        if callable(self._given_id):
            self._made_in = process_span()
            self._given_id = self._given_id()
        return self._given_id

    @property
    def is_fresh(self) -> bool:
        """True while nobody can have sent it: not the other process of a fork, if there was one."""
        unmade = callable(self._given_id)
        return self._is_own and (unmade or self._made_in == process_span())

    def check(
        self,
        key: str | Entry | Range,
        *,
        version: int | UnsetType = UNSET,
        exists: bool | UnsetType = UNSET,
        eq: Any = UNSET,
        ne: Any = UNSET,
        lt: float | str | UnsetType = UNSET,
        le: float | str | UnsetType = UNSET,
        gt: float | str | UnsetType = UNSET,
        ge: float | str | UnsetType = UNSET,
        count: int | UnsetType = UNSET,
        count_le: int | UnsetType = UNSET,
        count_ge: int | UnsetType = UNSET,
        version_le: int | UnsetType = UNSET,
    ) -> Self:
        """Commit only if all these hold; an `Entry` means that the key still has its version.

        Of a `Range`, `exists` and what follows `ge` can be checked: how many keys it has, and that
        none has a higher version.
        """
        if isinstance(key, Entry):
            version = key.version if version is UNSET else version
            key = key.key
        comparators = {"version": version, "exists": exists, "eq": eq, "ne": ne,
                 "lt": lt, "le": le, "gt": gt, "ge": ge, "count": count, "count_le": count_le,
                 "count_ge": count_ge, "version_le": version_le}  # fmt: skip
        about = {"range": msgspec.to_builtins(key)} if isinstance(key, Range) else {"key": key}
        self._checks.append({**about, **{n: v for n, v in comparators.items() if v is not UNSET}})
        return self

    def read(self, *keys: str | Range) -> Self:
        """Have the verdict give the values of keys, and the entries of ranges, after the
        transaction.
        """
        self._reads += keys
        return self

    def put(self, key: str, value: Any, *, ttl_ms: int | UnsetType = UNSET) -> Self:
        """Store a value, until ``ttl_ms`` after the commit, or for good."""
        return self._update("put", key, value=value, ttl_ms=ttl_ms)

    def delete(self, key: str) -> Self:
        """Remove a key."""
        return self._update("delete", key)

    def add(
        self,
        key: str,
        by: float,
        *,
        min: float | UnsetType = UNSET,  # noqa: A002 - the name on the wire
        max: float | UnsetType = UNSET,  # noqa: A002 - the name on the wire
    ) -> Self:
        """Add to a number, absent is 0; abort if the sum is not within the bounds."""
        return self._update("add", key, by=by, min=min, max=max)

    def max(self, key: str, value: float) -> Self:
        """Keep the larger number."""
        return self._update("max", key, value=value)

    def min(self, key: str, value: float) -> Self:
        """Keep the smaller number."""
        return self._update("min", key, value=value)

    def append(self, key: str, value: Any, *, ttl_ms: int | UnsetType = UNSET) -> Self:
        """Append to a list, absent is empty; with ``ttl_ms`` the whole list ends so long after."""
        return self._update("append", key, value=value, ttl_ms=ttl_ms)

    def touch(self, key: str, *, ttl_ms: int | UnsetType = UNSET) -> Self:
        """Let a key end ``ttl_ms`` after the commit, or never; nothing is done if it is absent."""
        return self._update("touch", key, ttl_ms=ttl_ms)

    def next_id(self, key: str) -> Self:
        """Take the next integer of a counter; the verdict's `reads` have it."""
        return self._update("next_id", key)

    def prepare(self) -> Prepared:
        """Return its bytes, which may be sent from now on; raises as the function `prepare`."""
        self._is_own = False
        return prepare(
            self.id,
            checks=self._checks,
            reads=self._reads,
            updates=self._updates,
            deadline_ms=self.deadline_ms,
        )

    def _update(self, op: str, key: str, **operands: Any) -> Self:
        fields = {name: value for name, value in operands.items() if value is not UNSET}
        self._updates.append({"op": op, "key": key, **fields})
        return self
