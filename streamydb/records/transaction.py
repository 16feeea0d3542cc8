"""Transactions: the structs of a valid one, made by ``records.decoder``.

Values inside a ``Transaction`` are canonical bytes (see ``records.values``), and numbers are
canonical too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from streamydb.limits import ID_BYTES_MAX, INTEGER_MAX, INTEGER_MIN, KEY_BYTES_MAX, TTL_MS_MAX
from streamydb.records.names import HASH, NAME, UNIQUE_PREFIX
from streamydb.records.ranges import Bounds, Range, RangeRead

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
Ttl: TypeAlias = Annotated[int, Meta(ge=1, le=TTL_MS_MAX)]
ProcedureName: TypeAlias = Annotated[str, Meta(pattern=rf"^{NAME}\.{NAME}\Z")]
ModuleName: TypeAlias = Annotated[str, Meta(pattern=rf"^{NAME}\Z")]
Counting: TypeAlias = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
ModuleHash: TypeAlias = Annotated[str, Meta(pattern=rf"^{HASH}\Z")]


Lock: TypeAlias = Annotated[
    str, Meta(pattern=rf"^{re.escape(UNIQUE_PREFIX)}", max_length=KEY_BYTES_MAX)
]


class Put(msgspec.Struct, tag_field="op", tag="put", gc=False, forbid_unknown_fields=True):
    """Store ``value`` (canonical bytes, never null) under ``key``, for ``ttl_ms`` or for good."""

    key: Key
    value: Canonical
    ttl_ms: Ttl | UnsetType = UNSET


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
    """Append ``value`` (canonical bytes, null allowed) to the list under ``key`` (absent = []).

    With ``ttl_ms`` the whole list ends so long after; without, when it did before.
    """

    key: Key
    value: Canonical
    ttl_ms: Ttl | UnsetType = UNSET


class NextId(msgspec.Struct, tag_field="op", tag="next_id", gc=False, forbid_unknown_fields=True):
    """Take the next integer of the counter under ``key`` (the first is 1); it is read too."""

    key: Key


class Touch(msgspec.Struct, tag_field="op", tag="touch", gc=False, forbid_unknown_fields=True):
    """Let ``key`` end ``ttl_ms`` from now, or never; nothing happens when it is absent."""

    key: Key
    ttl_ms: Ttl | UnsetType = UNSET


Update: TypeAlias = Put | Delete | Add | Max | Min | Append | NextId | Touch


class Check(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A condition on ``key``, or on a ``range`` of keys: all its comparators hold.

    ``eq`` and ``ne``: None = absent. A check of a range has an empty key; its comparators are
    ``exists`` and those after ``range``.
    """

    key: Key = ""
    version: Version | UnsetType = UNSET
    exists: bool | UnsetType = UNSET
    eq: OptionalCanonical | UnsetType = UNSET
    ne: OptionalCanonical | UnsetType = UNSET
    lt: Number | str | UnsetType = UNSET
    le: Number | str | UnsetType = UNSET
    gt: Number | str | UnsetType = UNSET
    ge: Number | str | UnsetType = UNSET
    range: Range | UnsetType = UNSET
    count: Version | UnsetType = UNSET
    count_le: Version | UnsetType = UNSET
    count_ge: Version | UnsetType = UNSET
    version_le: Version | UnsetType = UNSET

    @property
    def ranged(self) -> bool:
        """Return True if it says something of ranges alone."""
        operands = (self.range, self.count, self.count_le, self.count_ge, self.version_le)
        return operands != _NO_RANGE


_NO_RANGE: Final = (UNSET,) * 5


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

    It may read and write ``keys``, read ``reads``, and scan ``ranges``. ``batch`` is there in a
    follow-up.
    """

    procedure: ProcedureName
    args: CanonicalObject = cast("CanonicalObject", {})
    keys: tuple[Key, ...] = ()
    reads: tuple[Key, ...] = ()
    ranges: tuple[Range, ...] = ()
    batch: TakenBatch | UnsetType = UNSET

    @property
    def module(self) -> str:
        return self.procedure.partition(".")[0]

    @property
    def name(self) -> str:
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
    transaction may write, as far as constraints make it, and ranges whose keys constraints count.
    ``deadline_ms``: the last commit time (ms since 1970) at which it may be executed.
    """

    id: Id
    asserts: dict[Key, OptionalCanonical] = {}
    checks: tuple[Check, ...] = ()
    reads: tuple[Key | RangeRead, ...] = ()
    updates: tuple[Update, ...] = ()
    call: Call | UnsetType = UNSET
    deploy: Deploy | UnsetType = UNSET
    constrain: CanonicalObject | UnsetType = UNSET
    locks: tuple[Lock | RangeRead, ...] = ()
    deadline_ms: Counting | UnsetType = UNSET

    @property
    def deadline(self) -> int:
        return 0 if self.deadline_ms is UNSET else self.deadline_ms

    @property
    def read_keys(self) -> list[str]:
        """The keys among the reads, as they are named."""
        return [read for read in self.reads if type(read) is str]

    @property
    def lock_keys(self) -> list[str]:
        """The keys among the locks, as they are named."""
        return [lock for lock in self.locks if type(lock) is str]

    @property
    def lock_ranges(self) -> list[Range]:
        """The ranges among the locks, as they are named."""
        return [lock.range for lock in self.locks if type(lock) is RangeRead]

    @property
    def read_ranges(self) -> list[Range]:
        """The ranges among the reads, each once; two with the same bounds are one."""
        ranges: dict[Bounds, Range] = {}
        for read in self.reads:
            if type(read) is RangeRead:
                ranges.setdefault(read.range.bounds(), read.range)
        return list(ranges.values())

    @property
    def named_ranges(self) -> list[Range]:
        """All ranges, as they are named: of checks, locks, reads, then those of its call."""
        checked = [check.range for check in self.checks if check.range is not UNSET]
        read = [read.range for read in self.reads if type(read) is RangeRead]
        called = () if self.call is UNSET else self.call.ranges
        return [*checked, *self.lock_ranges, *read, *called]

    @property
    def ranges(self) -> dict[Bounds, bool]:
        """The different ranges that it names: checks, locks, reads, then those of its call; and
        whether their entries are read.
        """
        ranges = {check.range.bounds(): False for check in self.checks if check.range is not UNSET}
        ranges.update({named.bounds(): False for named in self.lock_ranges})
        ranges.update({read.range.bounds(): True for read in self.reads if type(read) is RangeRead})
        if self.call is not UNSET:
            ranges.update({named.bounds(): True for named in self.call.ranges})
        return ranges
