"""Read changes straight from their bytes: the fast half of `core.plan`.

A kernel reads records as the pipeline writes them: the fields of a change in their order and with
no blanks, ASCII text, no escapes in the id, integers of at most 18 digits. It takes nothing that
`core` would not take one by one, and makes the same rows; all else, good or bad, it leaves to that.
A test holds the two against each other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames import characters as c
from streamydb.frames.addresses import SPARE_BYTES, copy_at, start_of
from streamydb.frames.jit import kernel, leaf
from streamydb.frames.json_tokens import integer, text_end
from streamydb.frames.table import Bytes, Ragged, Texts
from streamydb.limits import ID_BYTES_MAX, KEY_BYTES_MAX
from streamydb.read_model.json_values import value_end
from streamydb.read_model.rows import HEAD_BYTES, Ints, compare, key_of, put_head, value_of

UNRECOGNISED: Final = 0  # in place of a row
_ASCII_LAST: Final = 127
_NULL_BYTES: Final = 4

# The pieces between the parts of a change, by number.
_OP, _BEFORE, _AFTER, _TS, _DB, _OFFSET, _SEQ, _ID, _ORDER, _NUMBER, _END, _EXPIRES = range(12)


class _ChangePositions(NamedTuple):
    """Positions of a change's parts in the buffer, and its numbers."""

    seq: int
    ts_ms: int
    id_start: int
    id_end: int
    value_start: int
    value_end: int
    expires_ms: int


_NOT = _ChangePositions(-1, 0, 0, 0, 0, 0, 0)


def _pieces(database: str) -> Ragged:
    """The texts between the parts of a change; see `txn_processor.format`."""
    origin = f',"source":{{"connector":"streamydb","db":"{database}","partition":'
    texts = [
        '{"op":"', '","before":', ',"after":', ',"ts_ms":', origin, ',"offset":', ',"seq":',
        '},"transaction":{"id":', ',"total_order":', ',"data_collection_order":', "}}",
        '},"expires_ms":',
    ]  # fmt: skip
    return Ragged.of([text.encode() for text in texts] + [bytes(SPARE_BYTES)])


@leaf
def behind(data: Bytes, at: int, end: int, pieces: Texts, i: int) -> int:
    """The position behind a piece, or -1."""
    start = pieces.offsets[i]
    length = pieces.offsets[i + 1] - start
    if at < 0 or end - at < length:
        return -1
    base = start_of(data)
    if compare(base + at, length, start_of(pieces.data) + start, length) != 0:
        return -1
    return at + length  # type: ignore[no-any-return]


@leaf
def counted(data: Bytes, at: int, end: int, pieces: Texts, i: int) -> tuple[int, int]:
    """The position behind a piece and an integer after it, and the integer; or (-1, 0)."""
    at = behind(data, at, end, pieces, i)
    return integer(data, at, end) if at >= 0 else (-1, 0)


@leaf
def _change(data: Bytes, at: int, end: int, pieces: Texts) -> _ChangePositions:
    """Read a change; a negative seq: it is not as the pipeline writes it."""
    at = behind(data, at, end, pieces, _OP)
    if at < 0 or at >= end:
        return _NOT
    op = data[at]
    at = value_end(data, behind(data, at + 1, end, pieces, _BEFORE), end)
    value_start = behind(data, at, end, pieces, _AFTER)
    value_stop = value_end(data, value_start, end)
    null = value_stop - value_start == _NULL_BYTES and data[value_start] == c.LOWER_N
    if op == c.LOWER_D:
        if not null:
            return _NOT
    elif null or (op != c.LOWER_C and op != c.LOWER_U):
        return _NOT
    at, ts_ms = counted(data, value_stop, end, pieces, _TS)
    at, _ = counted(data, at, end, pieces, _DB)
    at, _ = counted(data, at, end, pieces, _OFFSET)
    at, seq = counted(data, at, end, pieces, _SEQ)
    at = behind(data, at, end, pieces, _ID)
    if at < 0 or seq < 1 or ts_ms < 0:
        return _NOT
    id_end = text_end(data, at, end)
    if id_end < 0 or id_end - at - 1 > ID_BYTES_MAX:
        return _NOT
    id_start = at + 1
    at, _ = counted(data, id_end + 1, end, pieces, _ORDER)
    at, _ = counted(data, at, end, pieces, _NUMBER)
    expires_ms = 0
    if behind(data, at, end, pieces, _END) != end:
        at, expires_ms = counted(data, at, end, pieces, _EXPIRES)
        if at < 0 or at + 1 != end or data[at] != c.CLOSE_BRACE or expires_ms < 1 or null:
            return _NOT
    value_stop = value_start if null else value_stop
    return _ChangePositions(seq, ts_ms, id_start, id_end, value_start, value_stop, expires_ms)


@leaf
def _is_key(data: Bytes, start: int, end: int) -> bool:
    """Return True for a key of ASCII characters."""
    if start == end or end - start > KEY_BYTES_MAX:
        return False
    for at in range(start, end):
        if data[at] > _ASCII_LAST:
            return False
    return True


@leaf
def _put_row(row: int, keys: Texts, i: int, data: Bytes, change: _ChangePositions) -> int:
    """Write a row, see `rows`; the position behind it."""
    key_bytes = keys.offsets[i + 1] - keys.offsets[i]
    id_bytes = change.id_end - change.id_start
    value_bytes = change.value_end - change.value_start
    version = change.seq, change.ts_ms, change.expires_ms
    put_head(row, version, (value_bytes, key_bytes, id_bytes))
    copy_at(key_of(row), start_of(keys.data) + keys.offsets[i], key_bytes)
    copy_at(key_of(row) + key_bytes, start_of(data) + change.id_start, id_bytes)
    copy_at(value_of(row), start_of(data) + change.value_start, value_bytes)
    return value_of(row) + value_bytes


@kernel
def _recognised(keys: Texts, values: Texts, pieces: Texts) -> tuple[Bytes, Ints]:
    n = len(values.offsets) - 1
    size = HEAD_BYTES * n + keys.offsets[n] + values.offsets[n] + SPARE_BYTES
    buffer = np.empty(size, np.uint8)
    rows = np.zeros(n, np.int64)
    at = start_of(buffer)
    for i in range(n):
        if not _is_key(keys.data, keys.offsets[i], keys.offsets[i + 1]):
            continue
        change = _change(values.data, values.offsets[i], values.offsets[i + 1], pieces)
        if change.seq > 0:
            rows[i] = at
            at = _put_row(at, keys, i, values.data, change)
    return buffer, rows


def recognised(keys: Ragged, values: Ragged, database: str) -> tuple[npt.NDArray[np.uint8], Ints]:
    """A buffer of rows, and where each record's begins: an address, or `UNRECOGNISED`.

    Behind the last key, and behind the last value, lie `SPARE_BYTES`.
    """
    return _recognised(keys.texts(), values.texts(), _pieces(database).texts())
