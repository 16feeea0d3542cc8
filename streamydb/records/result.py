"""Results: one verdict for every record of the log, on ``<db>.results`` with the id as key.

Field order is the wire order. Values are embedded as the canonical bytes that they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from streamydb.records.formats import decoded, later_format, record_decoder
from streamydb.records.ranges import Range

Status: TypeAlias = Literal["committed", "aborted", "rejected"]
NULL = Raw(b"null")


class Source(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The place of a record in the transactions topic."""

    partition: int
    offset: int


class Failed(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A check that does not hold, or the update that could not be made.

    ``check`` names the list of the transaction and ``index`` the place in it; ``value`` and
    ``version`` are the actual ones before the transaction (null and 0 when absent). ``truncated``
    is there, and true, when the value was too long to list. For a constraint, ``value`` is what the
    key would have got (null: a delete), ``constraint`` its name and ``violated`` the rule; a
    ``lock`` is a key that the transaction must name in its locks. For the check of a ``range``,
    ``key`` is its prefix or start, ``version`` the highest in it, and ``count`` how many keys it
    has.
    """

    check: Literal["assert", "check", "update", "constraint", "lock", "range"]
    index: int
    key: str
    value: Raw
    version: int
    truncated: bool | UnsetType = UNSET
    constraint: str | UnsetType = UNSET
    violated: str | UnsetType = UNSET
    count: int | UnsetType = UNSET


class RangeEntry(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A key in a range that was read, with its value and version after the transaction."""

    key: str
    value: Raw
    version: int


class ReadRange(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A range that was read, and its entries in the order of the keys' bytes."""

    range: Range
    entries: list[RangeEntry]


class Duplicate(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The record that repeated a transaction whose verdict the result gives again."""

    seq: int
    ts_ms: int
    partition: int
    offset: int


class Result(msgspec.Struct, gc=False, forbid_unknown_fields=True, kw_only=True):
    """A verdict. ``reads`` maps a key to its value after the transaction (null when absent).
    ``ranges``: those that it read, if it names some and committed.

    ``returned``: what a stored procedure returned; there when a call committed. ``reason``: why a
    call aborted, as its ``code`` has it.
    """

    id: str | None
    seq: int
    ts_ms: int
    status: Status
    reads: dict[str, Raw]
    ranges: list[ReadRange] | UnsetType = UNSET
    returned: Raw | UnsetType = UNSET
    failed: list[Failed]
    code: str | None
    reason: str | UnsetType = UNSET
    source: Source
    duplicate: Duplicate | UnsetType = UNSET


class _AnyResult(msgspec.Struct, gc=False):
    """The field that every result has, whatever release wrote it."""

    seq: int


encode_result: Final[Callable[[Result], bytes]] = msgspec.json.Encoder().encode
decode_result: Final[Callable[[bytes], Result]] = record_decoder(Result, "result")
"""Return the result in a record value. Raises RecordError: the bytes are not a result record."""

_decode_any = msgspec.json.Decoder(_AnyResult).decode


def is_strange_result(value: bytes) -> bool:
    """Return True if a record that cannot be read is no result of any release.

    Who passed over a result would not know how far the results go.
    """
    return later_format(value) is None and seq_in(value) is None


def seq_in(value: bytes) -> int | None:
    """The seq of a result of any release; None: something else has written the record."""
    record = decoded(_decode_any, value)
    return None if record is None else record.seq


Position = tuple[int, int, int, int]
"""Where a record lies: seq, effective time in ms, partition, offset."""

_text = msgspec.json.Encoder().encode


def plain_result(id_: bytes, position: Position) -> bytes:
    """Return the result of a transaction that committed and read nothing."""
    seq, ts, part, off = position
    return (
        b'{"id":%b,"seq":%d,"ts_ms":%d,"status":"committed","reads":{},"failed":[],"code":null,'
        b'"source":{"partition":%d,"offset":%d}}'
        % (_text(id_.decode() or None), seq, ts, part, off)
    )


def copy_of(original: bytes, position: Position) -> bytes:
    """Return the original's result with the position of its copy."""
    copy = b',"duplicate":{"seq":%d,"ts_ms":%d,"partition":%d,"offset":%d}}' % position
    return original[:-1] + copy
