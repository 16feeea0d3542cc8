"""The files of a backup: a block, compressed, with a format version and a checksum (pure).

Layout: magic number, format (4 bytes), size of the block (8 bytes), all little endian; the block,
compressed by zstd; 16 bytes of BLAKE2b over everything before.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any, Final

import pyarrow as pa

from streamydb.backup.errors import BackupError
from streamydb.columns.encoding import pack, unpack
from streamydb.columns.table import Array
from streamydb.errors import RecordError

FORMAT: Final = 1
"""Version of these files; raised when an older program would misread them."""

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

    Raises:
        BackupError: it is of a newer format, damaged, or no such file.
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
    whole, told = data[:-_SUM_BYTES], data[-_SUM_BYTES:]
    if hashlib.blake2b(whole, digest_size=_SUM_BYTES).digest() != told:
        raise BackupError(f"{name} is damaged (its checksum is another); {_FIX}")
    if size > _BLOCK_BYTES_MAX:
        raise BackupError(f"{name} says that it holds {size} bytes; {_FIX}")
    try:
        return unpack(pa.decompress(whole[_HEAD.size :], size, codec="zstd", asbytes=True))
    except (RecordError, pa.ArrowException) as fault:
        raise BackupError(f"{name} cannot be read ({fault}); {_FIX}") from fault


_FIX: Final = "take it from another copy of the backup, or take a new backup"
