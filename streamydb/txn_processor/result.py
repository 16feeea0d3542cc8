"""Result records made one at a time: rejections, aborts, copies of an original."""

from __future__ import annotations

import msgspec

from streamydb.columns import Table
from streamydb.txn_processor.core import Failed

__all__ = ["Position", "as_duplicate", "copy_of", "encode", "plain_result", "result_bytes"]

Position = tuple[int, int, int, int]
"""Where a record lies: seq, effective time in ms, partition, offset."""


def encode(
    id_: bytes, position: Position, status: str, code: str | None,
    failed: list[Failed], reads: dict[str, bytes | None],
) -> bytes:
    """A result record: the only place that knows its fields in this package."""
    seq, ts, part, off = position
    shown = {key: None if value is None else msgspec.Raw(value) for key, value in reads.items()}
    return msgspec.json.encode(
        {
            "id": id_.decode() or None,
            "seq": seq,
            "ts_ms": ts,
            "status": status,
            "reads": shown,
            "failed": failed,
            "code": code,
            "source": {"partition": part, "offset": off},
        }
    )


def plain_result(id_: bytes, seq: int, ts: int, part: int, off: int) -> bytes:
    """The result of a transaction that committed and read nothing."""
    return encode(id_, (seq, ts, part, off), "committed", None, [], {})


def result_bytes(
    txns: Table,
    i: int,
    status: str,
    code: str | None,
    failed: list[Failed] | None = None,
    reads: dict[str, bytes | None] | None = None,
) -> bytes:
    """The result of transaction ``i`` of a table with columns seq, ts, part, off and text id."""
    position = (
        int(txns.cols["seq"][i]), int(txns.cols["ts"][i]),
        int(txns.cols["part"][i]), int(txns.cols["off"][i]),
    )
    return encode(txns.texts["id"][i], position, status, code, failed or [], reads or {})


def as_duplicate(txns: Table, i: int, original: bytes) -> bytes:
    """The original's result with the position of its copy, transaction ``i``."""
    cols = txns.cols
    return copy_of(original, (cols["seq"][i], cols["ts"][i], cols["part"][i], cols["off"][i]))


def copy_of(original: bytes, position: Position) -> bytes:
    """The original's result with the position of its copy."""
    copy = b',"duplicate":{"seq":%d,"ts_ms":%d,"partition":%d,"offset":%d}}' % position
    return original[:-1] + copy
