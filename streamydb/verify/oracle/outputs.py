"""The outputs of one record of the log: results, dead letters and changes, at its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Raw

from streamydb import errors
from streamydb.records import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    Duplicate,
    Failed,
    Rejection,
    Result,
    Source,
    dead_letter,
    dead_letter_key,
    decode_result,
    encode_change,
    encode_dead_letter,
    encode_result,
    end_of,
)
from streamydb.records.change import CONNECTOR
from streamydb.records.result import NULL

Topic: TypeAlias = Literal["results", "changes", "deadletters", "streams", "transactions"]


class OutputRecord(NamedTuple):
    """A record that the pipeline writes: topic (without the database's name), key and value.

    Those of transactions are follow-ups.
    """

    topic: Topic
    key: bytes | None
    value: bytes | None


class UsedId(NamedTuple):
    """Seen ids: the seq, the deadline (0: none), a hash of the payload, and the encoded result."""

    seq: int
    deadline: int
    payload_hash: bytes
    result: bytes


class Place(NamedTuple):
    """A record's place: the fields that all its outputs repeat."""

    database: str
    seq: int
    ts_ms: int
    source: Source

    def result(
        self,
        name: str | None,
        status: Literal["committed", "aborted", "rejected"],
        *,
        code: str | None = None,
        reads: Mapping[str, bytes | None] | None = None,
        failed: Sequence[Failed] = (),
        returned: bytes | None = None,
        reason: str | None = None,
    ) -> Result:
        return Result(
            id=name,
            seq=self.seq,
            ts_ms=self.ts_ms,
            status=status,
            reads={key: raw_value(value) for key, value in (reads or {}).items()},
            failed=list(failed),
            code=code,
            source=self.source,
            returned=UNSET if returned is None else Raw(returned),
            reason=UNSET if reason is None else reason,
        )

    def change(self, name: str, index: int, before: bytes | None, after: bytes | None) -> bytes:
        """The encoded change number ``index`` of the transaction at this place."""
        source = self.source
        return encode_change(
            Change(
                op="d" if after is None else "c" if before is None else "u",
                before=raw_value(before),
                after=raw_value(after),
                ts_ms=self.ts_ms,
                source=ChangeOrigin(
                    CONNECTOR, self.database, source.partition, source.offset, self.seq
                ),
                transaction=ChangeTransaction(name, index, index),
                expires_ms=UNSET if (end := end_of(after)) is None else end,
            )
        )


def refuse(rejection: Rejection, raw: bytes | None, place: Place) -> list[OutputRecord]:
    """The result and the dead letter of a record that is no transaction."""
    result = encode_result(place.result(rejection.id, "rejected", code=rejection.code))
    return with_letter(result, rejection.id, rejection.code, raw, place, None)


def with_letter(
    result: bytes, name: str | None, code: str, raw: bytes | None, place: Place, error: str | None
) -> list[OutputRecord]:
    """A result and the dead letter that goes with it."""
    source = place.source
    letter = dead_letter(
        raw, seq=place.seq, ts_ms=place.ts_ms, code=code, id=name, source=source, error=error
    )
    key = None if name is None else name.encode()
    return [
        OutputRecord("results", key, result),
        OutputRecord("deadletters", dead_letter_key(source), encode_dead_letter(letter)),
    ]


def repeat(name: str, use: UsedId, payload_hash: bytes, place: Place) -> list[OutputRecord]:
    """The result of a record whose id was seen: the original's if the payload is the same."""
    if payload_hash == use.payload_hash:
        result = decode_result(use.result)
        source = place.source
        result.duplicate = Duplicate(place.seq, place.ts_ms, source.partition, source.offset)
    else:
        result = place.result(name, "rejected", code=errors.ID_REUSED)
    return [OutputRecord("results", name.encode(), encode_result(result))]


def raw_value(value: bytes | None) -> Raw:
    return NULL if value is None else Raw(value)
