"""A digest of rows that does not depend on their order, so that any number of tasks can make it.

The sum, modulo 2^128, of a hash of each row: equal rows give equal digests, in whatever order and
division they are added (an incremental multiset hash: Bellare and Micciancio, A New Paradigm for
Collision-free Hashing, 1997, AdHash). It finds damage and mistakes; it is no defence against
somebody who makes rows up to fit.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

_MODULUS = 1 << 128
_head = struct.Struct("<QQqq").pack
_end = struct.Struct("<q").pack


class RowsDigest:
    """The digest of some rows.

    Attributes:
        rows: how many.
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
