"""Read the rows of a snapshot: in order, in bounded memory, checked against the manifest."""

from __future__ import annotations

import hashlib
import posixpath
import struct
from collections.abc import Iterable, Iterator
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streamydb.backup.snapshots.manifest import SnapshotManifest, file_system
from streamydb.errors import SnapshotError

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS: Final = 4_096
COLUMNS: Final = ["key", "value", "version", "ts_ms", "txn_id", "expires_ms"]
_ALWAYS: Final = 5  # so many columns, the first ones, have no nulls


class SnapshotRow(NamedTuple):
    """A key that exists; texts as UTF-8; ``expires_ms`` None: it has no end."""

    key: bytes
    value: bytes
    version: int
    ts_ms: int
    txn_id: bytes
    expires_ms: int | None = None


def read_rows(folder: Path | str, manifest: SnapshotManifest) -> Iterator[list[SnapshotRow]]:
    """The rows in the order of the keys, in batches.

    The digest is compared after the last batch: keep what was read only when this has ended.
    Raises SnapshotError: a file is missing or damaged, or the rows are not those of the manifest.
    """
    digest = RowsDigest()
    last = b""
    for batch in _batches(folder, manifest):
        for row in batch:
            digest.add(row.key, row.value, row.version, row.ts_ms, row.expires_ms)
            if row.key <= last:
                raise SnapshotError(f"{folder}: keys are out of order; take another snapshot")
            last = row.key
        yield batch
    if (digest.rows, digest.hex()) != (manifest.rows, manifest.digest):
        raise SnapshotError(
            f"{folder}: {digest.rows} rows with digest {digest.hex()} were read, the manifest "
            f"says {manifest.rows} and {manifest.digest}: files are damaged; take another snapshot"
        )


def require_whole(folder: Path | str, manifest: SnapshotManifest) -> None:
    """Read all rows, and keep none."""
    for _ in read_rows(folder, manifest):
        pass


def _batches(folder: Path | str, manifest: SnapshotManifest) -> Iterator[list[SnapshotRow]]:
    import pyarrow as pa
    from pyarrow import parquet

    system, path = file_system(folder)
    for name in manifest.files:
        try:
            with parquet.ParquetFile(
                posixpath.join(path, name), filesystem=system, page_checksum_verification=True
            ) as file:
                for batch in file.iter_batches(BATCH_ROWS, columns=COLUMNS):
                    yield _rows(batch)
        except (OSError, pa.ArrowException, KeyError, ValueError) as fault:
            raise SnapshotError(
                f"{folder}/{name} cannot be read ({fault}); take another snapshot"
            ) from fault


def _rows(batch: pa.RecordBatch) -> list[SnapshotRow]:
    import pyarrow as pa

    kinds = [pa.binary(), pa.binary(), pa.int64(), pa.int64(), pa.binary(), pa.int64()]
    plain = [batch.column(name).cast(kind) for name, kind in zip(COLUMNS, kinds, strict=True)]
    if any(part.null_count for part in plain[:_ALWAYS]):
        raise ValueError("a column lacks values")
    return list(starmap(SnapshotRow, zip(*(part.to_pylist() for part in plain), strict=True)))


_MODULUS = 1 << 128
_head = struct.Struct("<QQqq").pack
_end = struct.Struct("<q").pack


class RowsDigest:
    """The digest of some rows.

    The sum, modulo 2^128, of a hash of each row: equal rows give equal digests, in whatever order
    and division they are added (an incremental multiset hash: Bellare and Micciancio, A New
    Paradigm for Collision-free Hashing, 1997, AdHash). It finds damage and mistakes; it is no
    defence against somebody who makes rows up to fit.

    Attributes:
        total: the sum of their hashes.
    """

    def __init__(self, rows: int = 0, total: int = 0) -> None:
        self.rows = rows
        self.total = total

    def add(
        self, key: bytes, value: bytes, version: int, ts_ms: int, expires_ms: int | None = None
    ) -> None:
        hashed = hashlib.blake2b(_head(len(key), len(value), version, ts_ms), digest_size=16)
        hashed.update(key)
        hashed.update(value)
        if expires_ms is not None:
            hashed.update(_end(expires_ms))
        self.total = (self.total + int.from_bytes(hashed.digest(), "little")) % _MODULUS
        self.rows += 1

    def merge(self, others: Iterable[RowsDigest]) -> RowsDigest:
        parts = [self, *others]
        total = sum(part.total for part in parts) % _MODULUS
        return RowsDigest(sum(part.rows for part in parts), total)

    def hex(self) -> str:
        return format(self.total, "032x")
