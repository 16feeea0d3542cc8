"""Result records made one at a time: rejections, aborts, copies of an original."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.frames.grant_rows import PlanTransactions
from streamydb.records.result import Position, copy_of
from streamydb.txn_processor.interpreter import Verdict

_NOTHING = Verdict()


def encode(
    id_: bytes, position: Position, status: str, code: str | None, verdict: Verdict = _NOTHING
) -> bytes:
    """A result record; `format` writes those of plain commits, with the same fields."""
    if not (verdict.ranges or verdict.failed or verdict.reads):
        return _short(id_, position, status, code, verdict)
    seq, ts, part, off = position
    reads = verdict.reads.items()
    shown = {key: None if value is None else msgspec.Raw(value) for key, value in reads}
    record: dict[str, Any] = {
        "id": id_.decode() or None,
        "seq": seq,
        "ts_ms": ts,
        "status": status,
        "reads": shown,
    }
    if verdict.ranges:
        record["ranges"] = [
            {"range": named, "entries": [_entry(key, *entry) for key, entry in entries.items()]}
            for named, entries in verdict.ranges
        ]
    if verdict.returned is not None:
        record["returned"] = msgspec.Raw(verdict.returned)
    record["failed"] = verdict.failed
    record["code"] = code
    if verdict.reason is not None:
        record["reason"] = verdict.reason
    record["source"] = {"partition": part, "offset": off}
    return msgspec.json.encode(record)


def committed_call(id_: bytes, position: Position, returned: bytes) -> bytes:
    """The result of a call that committed, with nothing read; the same bytes as of others."""
    seq, ts, part, off = position
    return (
        b'{"id":%b,"seq":%d,"ts_ms":%d,"status":"committed","reads":{},"returned":%b,"failed":[],'
        b'"code":null,"source":{"partition":%d,"offset":%d}}'
        % (_text(id_.decode() or None), seq, ts, returned, part, off)
    )


def _short(
    id_: bytes, position: Position, status: str, code: str | None, verdict: Verdict
) -> bytes:
    """A result record that tells nothing read and no failed check; the same bytes as of others."""
    seq, ts, part, off = position
    name = _text(id_.decode() or None)
    returned, reason = verdict.returned, verdict.reason
    returned_field = b"" if returned is None else b',"returned":' + returned
    why = b"" if reason is None else b',"reason":' + _text(reason)
    return (
        b'{"id":%b,"seq":%d,"ts_ms":%d,"status":%b,"reads":{}%b,"failed":[],"code":%b%b,'
        b'"source":{"partition":%d,"offset":%d}}'
        % (name, seq, ts, _text(status), returned_field, _text(code), why, part, off)
    )


_text = msgspec.json.Encoder().encode


def _entry(key: str, value: bytes | None, version: int) -> dict[str, Any]:
    return {"key": key, "value": msgspec.Raw(value or b"null"), "version": version}


def encode_verdict(id_: bytes, position: Position, verdict: Verdict) -> bytes:
    """The result of a transaction that was executed."""
    status = "committed" if verdict.code is None else "aborted"
    return encode(id_, position, status, verdict.code, verdict)


def result_bytes(txns: PlanTransactions, i: int, status: str, code: str) -> bytes:
    """The result of transaction ``i``, which was not executed."""
    return encode(txns.id[i], _position(txns, i), status, code)


def verdict_bytes(txns: PlanTransactions, i: int, verdict: Verdict) -> bytes:
    """The result of transaction ``i``, which was executed."""
    return encode_verdict(txns.id[i], _position(txns, i), verdict)


def _position(txns: PlanTransactions, i: int) -> Position:
    return (int(txns.seq[i]), int(txns.ts_ms[i]), int(txns.partition[i]), int(txns.offset[i]))


def as_duplicate(txns: PlanTransactions, i: int, original: bytes) -> bytes:
    """The original's result with the position of its copy, transaction ``i``."""
    return copy_of(original, _position(txns, i))


def originals(txns: PlanTransactions, copies: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The positions of the transactions of one plan that those at ``copies`` repeat; shape (n,)."""
    return np.searchsorted(txns.seq, txns.original[copies])
