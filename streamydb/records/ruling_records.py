"""The records of `<db>.rulings`: what is aborted for a fault of ours, and who says so."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from streamydb.errors import RecordError
from streamydb.records.formats import FORMAT, UNREADABLE, later_format, not_read


class _RulingFields(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """``log``: Kafka's id of the transactions topic, so that another log's past is not believed."""

    log: str
    format: int = FORMAT


class Ruling(_RulingFields, frozen=True, kw_only=True, tag="ruling"):
    """The record at ``partition`` and ``offset`` of the log is ``aborted: internal``.

    ``error``: the fault's name, as in the dead letter. ``named``: its id could be read, so the
    result has it. ``counted``: its call could be read, so a follow-up has had its turn. ``shown``:
    the dead letter shows its bytes. ``epoch``: of the pipeline that leads and says so; 0: a
    dead letter or a backup says so.
    """

    partition: int
    offset: int
    error: str
    named: bool = True
    counted: bool = True
    shown: bool = True
    epoch: int = 0


class Fence(_RulingFields, frozen=True, kw_only=True, tag="fence"):
    """A pipeline leads from here on: rulings of lower epochs that come later are void."""

    epoch: int
    pipeline: str


class Adopted(_RulingFields, frozen=True, kw_only=True, tag="adopted"):
    """The faults that dead letters or a backup tell of stand before this record as rulings."""


RulingRecord: TypeAlias = Ruling | Fence | Adopted

_decoder = msgspec.json.Decoder(RulingRecord)


class _AnyRuling(msgspec.Struct):
    """The fields that every record has, whatever release wrote it."""

    log: str
    kind: str


def encode_ruling(record: RulingRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_ruling(value: bytes | None) -> RulingRecord:
    """The record in a value.

    Raises:
        RecordError: it is none, or a newer release has written it.

    """
    try:
        record: RulingRecord = _decoder.decode(value or b"")
    except UNREADABLE as error:
        raise not_read(value or b"", "ruling", error) from error
    if record.format != FORMAT:
        raise RecordError(
            f"this ruling has format {record.format}, this release reads {FORMAT}: use the release "
            "that wrote it, or a newer one (docs/upgrading.md)"
        )
    return record


def is_strange_ruling(value: bytes | None) -> bool:
    """Return True if a record that cannot be read is none of any release.

    Who passed over a ruling would give its transaction another verdict.
    """
    if later_format(value or b"") is not None:
        return False
    try:
        msgspec.json.decode(value or b"", type=_AnyRuling)
    except UNREADABLE:
        return True
    return False
