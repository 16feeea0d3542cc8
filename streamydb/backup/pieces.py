"""Pieces of a log, and the sorter's position after each (pure)."""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamydb.backup.manifest import BackupError
from streamydb.errors import RecordError
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.table import Array, Bytes, ColumnTable, Ragged
from streamydb.parser.last_reads import mark_of
from streamydb.records import Marker, decode_marker
from streamydb.records.rulings import Rulings
from streamydb.sorter.state import PartitionState

FORMAT: Final = 1  # version of these files; raised when an older program would misread them
_MAGIC: Final = b"SDBB"
_HEAD: Final = struct.Struct("<4sIQ")
_SUM_BYTES: Final = 16
_BLOCK_BYTES_MAX: Final = 1 << 32


def wrap(arrays: dict[str, Array], **header: Any) -> bytes:
    block = pack(arrays, **header)
    data: bytes = pa.compress(block, codec="zstd", asbytes=True)
    whole: bytes = _HEAD.pack(_MAGIC, FORMAT, len(block)) + data
    return whole + hashlib.blake2b(whole, digest_size=_SUM_BYTES).digest()


def unwrap(data: bytes, name: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of the file called ``name``.
    Raises BackupError: it is of a newer format, damaged, or no such file.
    """
    if len(data) < _HEAD.size + _SUM_BYTES:
        raise BackupError(f"{name} is cut short; {_FIX}")
    magic, version, size = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise BackupError(f"{name} is no file of a backup; {_FIX}")
    if version != FORMAT:
        raise BackupError(
            f"{name} has format {version}, this release reads {FORMAT}: use the release that "
            "wrote it, or a newer one"
        )
    whole, checksum = data[:-_SUM_BYTES], data[-_SUM_BYTES:]
    if hashlib.blake2b(whole, digest_size=_SUM_BYTES).digest() != checksum:
        raise BackupError(f"{name} is damaged (its checksum is another); {_FIX}")
    if size > _BLOCK_BYTES_MAX:
        raise BackupError(f"{name} says that it holds {size} bytes; {_FIX}")
    try:
        return unpack(pa.decompress(whole[_HEAD.size :], size, codec="zstd", asbytes=True))
    except (RecordError, pa.ArrowException) as fault:
        raise BackupError(f"{name} cannot be read ({fault}); {_FIX}") from fault


_FIX: Final = "take it from another copy of the backup, or take a new backup"

_SEGMENT_BYTES: Final = 16 << 20
_SEGMENT_ROWS: Final = 200_000

Ints = npt.NDArray[np.int64]
Row = tuple[int, int, bytes | None, bytes | None]  # a record: offset, append time (ms), key, value


class Piece(NamedTuple):
    """Some records of one partition, by offset: offsets, append times (ms), keys, values."""

    partition: int
    offsets: Ints
    append_ms: Ints
    keys: list[bytes | None]
    values: list[bytes | None]

    @property
    def end(self) -> int:
        return int(self.offsets[-1]) + 1

    @property
    def last(self) -> Row:
        at = len(self.offsets) - 1
        return int(self.offsets[at]), int(self.append_ms[at]), self.keys[at], self.values[at]

    def rows(self) -> Iterator[Row]:
        return zip(
            self.offsets.tolist(), self.append_ms.tolist(), self.keys, self.values, strict=True
        )

    def between(self, start: int, end: int) -> Piece:
        """The records with offsets from ``start`` to before ``end``."""
        low, high = np.searchsorted(self.offsets, [start, end]).tolist()
        return Piece(
            self.partition,
            self.offsets[low:high],
            self.append_ms[low:high],
            self.keys[low:high],
            self.values[low:high],
        )


class LogSource(Protocol):
    """A place from which a log can be read."""

    def pieces(self, partition: int, start: int, end: int) -> Iterator[Piece]:
        """The records of a partition with offsets from ``start`` to before ``end``, in order."""

    def rulings(self) -> Rulings: ...


def joined(pieces: Iterable[Piece]) -> Iterable[Piece]:
    """The same records in pieces of a size for files."""
    waiting: list[Piece] = []
    size = rows = 0
    for piece in pieces:
        waiting.append(piece)
        size += sum(len(value or b"") for value in piece.values)
        rows += len(piece.values)
        if size >= _SEGMENT_BYTES or rows >= _SEGMENT_ROWS:
            yield _join(waiting)
            waiting, size, rows = [], 0, 0
    if waiting:
        yield _join(waiting)


def _join(pieces: list[Piece]) -> Piece:
    return Piece(
        pieces[0].partition,
        np.concatenate([piece.offsets for piece in pieces]),
        np.concatenate([piece.append_ms for piece in pieces]),
        [key for piece in pieces for key in piece.keys],
        [value for piece in pieces for value in piece.values],
    )


class _PieceRows(ColumnTable, frozen=True):
    """The records of a file; ``keyed``, ``valued``: 0 where the key, or the value, is null."""

    offset: Ints
    append_ms: Ints
    keyed: Bytes
    valued: Bytes
    key: Ragged
    value: Ragged


def encode_piece(piece: Piece, end: int) -> bytes:
    """A piece as a file; ``end``: there are no other records before this offset."""
    rows = _PieceRows(
        piece.offsets,
        piece.append_ms,
        np.array([key is not None for key in piece.keys], np.uint8),
        np.array([value is not None for value in piece.values], np.uint8),
        Ragged.of([key or b"" for key in piece.keys]),
        Ragged.of([value or b"" for value in piece.values]),
    )
    return wrap(rows.flatten(), kind="log", partition=piece.partition, end=end)


def decode_piece(data: bytes, name: str) -> Piece:
    """The piece in the file called ``name``.
    Raises BackupError: it is damaged, or something else.
    """
    header, arrays = unwrap(data, name)
    if header.get("kind") != "log":
        raise BackupError(f"{name} is no part of a log; take it from another copy of the backup")
    rows = _PieceRows.unflatten(arrays)
    return Piece(
        header["partition"],
        rows.offset,
        rows.append_ms,
        _texts(rows.key, rows.keyed),
        _texts(rows.value, rows.valued),
    )


def _texts(texts: Ragged, present: Bytes) -> list[bytes | None]:
    pairs = zip(texts.tolist(), present.tolist(), strict=True)
    return [text if known else None for text, known in pairs]


def effective_times(before: PartitionState, piece: Piece) -> tuple[Ints, dict[int, Marker]]:
    """The effective times of a piece's records, shape (n,), and the markers by their rows."""
    times = piece.append_ms.copy()
    decoded = enumerate(map(decode_marker, piece.values))
    markers = {row: marker for row, marker in decoded if marker is not None}
    for row, marker in markers.items():
        times[row] = max(int(times[row]), marker.marker)
    np.maximum.accumulate(times, out=times)
    return np.maximum(times, before.effective), markers


def advance(before: PartitionState, piece: Piece) -> PartitionState:
    """Return the sorter's knowledge of a partition after a piece (see `KeyedEventTimeSorter`)."""
    if not len(piece.offsets):
        return before
    named = list(before.named)
    times, markers = effective_times(before, piece)
    for row, marker in markers.items():
        if not named or marker.partitions > named[-1][0]:
            named.append((marker.partitions, int(times[row])))
    stamp, mark = int(piece.append_ms[-1]), mark_of(piece.values[-1])
    return PartitionState(int(times[-1]), piece.end, named, stamp, mark)


class Positions:
    """The position in each partition, and the sorter's knowledge at each offset that is not covered
    yet.

    Attributes:
        states: per partition, after everything that was noted.
    """

    def __init__(self, states: Mapping[int, PartitionState]) -> None:
        self.states = dict(states)
        self._kept: dict[int, deque[tuple[PartitionState, Piece]]] = {}

    def note(self, piece: Piece) -> None:
        before = self.states.get(piece.partition, PartitionState())
        self.states[piece.partition] = advance(before, piece)
        self._kept.setdefault(piece.partition, deque()).append((before, piece))

    def forget(self, covered: Mapping[int, int]) -> None:
        """Forget what lies before these offsets: nobody will ask `at` for it."""
        for partition, pieces in self._kept.items():
            while pieces and pieces[0][1].end <= covered.get(partition, 0):
                pieces.popleft()

    def at(self, covered: Mapping[int, int]) -> dict[int, PartitionState]:
        """Return the sorter's knowledge of each partition before the record at its offset."""
        return {partition: self._at(partition, offset) for partition, offset in covered.items()}

    def _at(self, partition: int, offset: int) -> PartitionState:
        now = self.states[partition]
        if offset >= now.position:
            return now
        for before, piece in self._kept.get(partition, ()):
            if offset < piece.end:
                state = advance(before, piece.between(0, offset))
                if state.position == offset:
                    return state
                return PartitionState(state.effective, offset, state.named)  # behind a gap
        raise BackupError(f"offset {offset} of partition {partition} was forgotten")
