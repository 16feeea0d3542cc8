"""The manifest of a snapshot describes it, and says where the changes go on after it."""

from __future__ import annotations

import hashlib
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streamydb.errors import SnapshotError
from streamydb.records.formats import UNREADABLE

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

FORMAT: Final = 2  # version of the layout; raised when an older program would misread it
MANIFEST: Final = "manifest.json"

_SEAL: Final = "seal"  # the field with the digest of all others


class SnapshotTail(msgspec.Struct, frozen=True):
    """The offset at which a reader of a partition of the changes goes on.

    Attributes:
        position: everything before this offset is in the snapshot, or older than it.
        seq: the last resolved seq up to the snapshot's that lies before `position`.
        offsets: per partition of the log, the first offset which that seq does not cover.
    """

    position: int
    seq: int
    offsets: dict[int, int]


class SnapshotManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a snapshot.

    Attributes:
        format: of this folder.
        cluster: Kafka's id of its cluster, if it tells.
        topic: Kafka's id of the changes topic.
        seq: the last transaction whose writes it has.
        ts_ms: the commit timestamp up to there.
        rows: how many keys.
        digest: of all rows, see `RowsDigest`.
        changes: per partition of the changes, where a reader goes on.
        files: the data files, relative, in the order of the keys.
    """

    format: int
    database: str
    cluster: str | None
    topic: str
    seq: int
    ts_ms: int
    rows: int
    digest: str
    changes: dict[int, SnapshotTail]
    files: list[str]

    def paths(self, folder: Path | str) -> list[str]:
        return [posixpath.join(str(folder).removeprefix("file:"), name) for name in self.files]


def encode_manifest(manifest: SnapshotManifest) -> bytes:
    """The content of the file: the manifest, and a digest of it.

    The rows have a digest; without one of its own, a manifest whose seq or positions are damaged
    would make a read model that misses changes.
    """
    fields: dict[str, Any] = msgspec.to_builtins(manifest, str_keys=True)
    sealed = {**fields, _SEAL: _seal(fields)}
    return msgspec.json.format(msgspec.json.encode(sealed)) + b"\n"


def decode_manifest(data: bytes, folder: str) -> SnapshotManifest:
    """The manifest in a file.
    Raises SnapshotError: it is none, a damaged one, or of another format.
    """
    try:
        fields = msgspec.json.decode(data, type=dict[str, Any])
        if fields.get("format", FORMAT) != FORMAT:
            raise SnapshotError(
                f"the snapshot in {folder} has format {fields['format']}, this program reads "
                f"{FORMAT}: use the release that wrote it"
            )
        if fields.pop(_SEAL, None) != _seal(fields):
            raise msgspec.ValidationError("its digest is of another content")
        return msgspec.convert(fields, SnapshotManifest, strict=False)
    except UNREADABLE as fault:
        raise SnapshotError(
            f"{folder}/{MANIFEST} is damaged ({fault}); take another snapshot"
        ) from fault


def _seal(fields: dict[str, Any]) -> str:
    return hashlib.blake2b(msgspec.json.encode(fields), digest_size=16).hexdigest()


def read_manifest(folder: Path | str) -> SnapshotManifest:
    """The manifest of the snapshot in a folder: a path, or a URI that pyarrow knows (s3, hdfs).
    Raises SnapshotError: there is no snapshot.
    """
    system, path = file_system(folder)
    try:
        with system.open_input_stream(posixpath.join(path, MANIFEST)) as stream:
            data: Any = stream.read()
    except FileNotFoundError:
        raise SnapshotError(
            f"{folder} is no snapshot (it has no {MANIFEST}): name a folder that "
            "`streamydb snapshot` wrote"
        ) from None
    except OSError as fault:
        raise SnapshotError(f"{folder} cannot be read: {fault}") from fault
    return decode_manifest(bytes(data), str(folder))


def file_system(folder: Path | str) -> tuple[FileSystem, str]:
    """The file system of a folder, and its path there."""
    from pyarrow import fs

    text = str(folder)
    if "://" in text:
        system, path = fs.FileSystem.from_uri(re.sub("^s3[an]://", "s3://", text))
        return system, path
    return fs.LocalFileSystem(), str(Path(text.removeprefix("file:")).resolve())
