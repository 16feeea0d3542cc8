"""The manifest `backup.json` describes a backup (pure)."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from streamydb.errors import StreamyError
from streamydb.records.formats import UNREADABLE


class BackupError(StreamyError):
    """A folder is no backup, a damaged one or another database's; or something still needs it."""


_About = TypeVar("_About", bound=msgspec.Struct)

FORMAT: Final = 1  # version of the folder; raised when an older program would misread it
MANIFEST: Final = "backup.json"


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a backup.

    Attributes:
        format: of the folder.
        log: Kafka's id of the log.
        shards: of the database when the backup was taken.
        grouping: of the same.
        partitions: of the log when the database was created.
        id_window: for how many seqs an id is remembered.
        digest_interval: transactions from digest to digest.
        seq: the last transaction that can be restored.
        ts_ms: its commit timestamp.
        ends: per partition, one past the last offset that the backup has; it has all before.
        states: the seqs of the states, ascending.
    """

    format: int
    database: str
    log: str
    shards: int
    grouping: str
    partitions: int
    id_window: int
    digest_interval: int
    seq: int
    ts_ms: int
    ends: dict[int, int]
    states: list[int]


def encode_json(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def decode_manifest(data: bytes, name: str) -> BackupManifest:
    """The manifest in the file called ``name``."""
    return decode_about(data, name, BackupManifest, FORMAT)


def decode_about(data: bytes, name: str, kind: type[_About], version: int) -> _About:
    """Decode a JSON file with a field ``format``, which is looked at first.
    Raises BackupError: it is damaged, or of another format than ``version``.
    """
    try:
        fields = msgspec.json.decode(data)
        if isinstance(fields, dict) and fields.get("format", version) != version:
            raise BackupError(
                f"{name} has format {fields['format']}, this release reads {version}: use the "
                "release that wrote it"
            )
        return msgspec.convert(fields, kind, strict=False)
    except UNREADABLE as fault:
        raise BackupError(
            f"{name} is damaged ({fault}); take it from another copy of the backup"
        ) from fault
