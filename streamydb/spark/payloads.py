"""Turn rows into transactions, or into reasons why they are none (no Spark)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from streamydb.errors import REJECTED_CODES, StreamyError
from streamydb.limits import DEAD_LETTER_PAYLOAD_BYTES_MAX
from streamydb.records import Marker, Rejection, decode

CHECKED: Final = "id string, payload string, code string, meaning string"
"""The schema that `check` gives, as Spark writes it."""

RECORDS: Final = "key binary, value binary, topic string"
"""The schema that a router gives: records for Spark's Kafka sink."""

_NO_MARKER: Final = "invalid-transaction"
_SHOWN_CHARACTERS: Final = 200
_TOO_LATE: Final = (
    "the deadline of this batch has passed (deadline_s=), and not all of its rows are in the log: "
    "compare the ids with the results topic, and submit the rows that have no verdict; write long "
    "batches in parts"
)


class BadRowError(StreamyError):
    """A row is no transaction; nothing of its task was written after it."""


class BatchTooLateError(StreamyError):
    """The deadline of a batch has passed before all of its rows were appended."""


def fault_of(payload: str | None) -> str | None:
    """The reason code that a transaction would be rejected with; None if it is one."""
    decoded = decode(None if payload is None else payload.encode("utf-8", "surrogatepass"))
    if isinstance(decoded, Rejection):
        return decoded.code
    return _NO_MARKER if isinstance(decoded, Marker) else None


def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of (id, payload) with the reason code of those that are no transactions."""
    for batch in batches:
        ids, payloads = (_texts(batch.column(name)) for name in ("id", "payload"))
        codes = list(map(fault_of, payloads))
        meanings = [None if code is None else REJECTED_CODES.get(code, code) for code in codes]
        arrays = [pa.array(column, pa.string()) for column in (ids, payloads, codes, meanings)]
        yield pa.record_batch(arrays, names=["id", "payload", "code", "meaning"])


def router(
    log: str, rejected: str | None, deadline_ms: int | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that makes records of batches of (id, payload, key).

    Args:
        log: the topic of transactions.
        rejected: the topic of rows that are none; None: such a row is an error.
        deadline_ms: of all rows, if that is known; after it a task fails, as what it appends would
            be rejected one by one where nobody may look.
    """

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if deadline_ms is not None and time.time_ns() // 1_000_000 > deadline_ms:
                raise BatchTooLateError(_TOO_LATE)
            ids, payloads = (_texts(batch.column(name)) for name in ("id", "payload"))
            given = batch.column("key").cast(pa.binary()).to_pylist()
            records = [
                _record(txn_id, payload, key, log, rejected)
                for txn_id, payload, key in zip(ids, payloads, given, strict=True)
            ]
            keys, values, topics = zip(*records, strict=True) if records else ((), (), ())
            yield pa.record_batch(
                [pa.array(keys, pa.binary()), pa.array(values, pa.binary()),
                 pa.array(topics, pa.string())],
                names=["key", "value", "topic"],
            )  # fmt: skip

    return route


def _texts(column: pa.Array) -> list[str | None]:
    """Texts of Spark's, which may have bytes that are no UTF-8: U+FFFD, as in Spark's JSON."""
    values = column.cast(pa.binary()).to_pylist()
    return [None if data is None else data.decode("utf-8", "replace") for data in values]


def _record(
    txn_id: str | None, payload: str | None, key: bytes | None, log: str, rejected: str | None
) -> tuple[bytes | None, bytes, str]:
    code = fault_of(payload)
    if code is None and payload is not None:
        return key, payload.encode(), log
    code = code or _NO_MARKER
    meaning = REJECTED_CODES.get(code, code)
    if rejected is None:
        name = None if txn_id is None else txn_id[:_SHOWN_CHARACTERS]
        raise BadRowError(
            f"the row with id {name!r} is no transaction ({code}: {meaning}): "
            f"{(payload or 'null')[:_SHOWN_CHARACTERS]} - mend the expressions, filter such rows, "
            "or name a topic for them (rejected_topic=)"
        )
    # Cut, so that Kafka takes the record whatever is wrong with the row.
    shown_id, shown = (
        None if text is None else text[:DEAD_LETTER_PAYLOAD_BYTES_MAX] for text in (txn_id, payload)
    )
    fields = {"id": shown_id, "code": code, "meaning": meaning, "payload": shown}
    return None if shown_id is None else shown_id.encode(), msgspec.json.encode(fields), rejected
