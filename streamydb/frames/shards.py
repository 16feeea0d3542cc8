"""The configuration of a database's shards, which is recorded in their states."""

from __future__ import annotations

import msgspec

from streamydb.frames.protocol import FORMAT
from streamydb.limits import DIGEST_INTERVAL_DEFAULT
from streamydb.records.formats import UNREADABLE


class ShardConfig(msgspec.Struct, frozen=True):
    """The facts that are fixed when a database is created, and are recorded in its state.

    ``name``: of the pipeline, empty unless there are several over one log.
    """

    database: str
    incarnation: str
    shards: int
    partitions: int
    id_window: int
    grouping: str = "planner"
    format: int = FORMAT
    digest_interval: int = DIGEST_INTERVAL_DEFAULT
    name: str = ""

    @property
    def terms(self) -> str:
        """Return the settings on which pipelines over one log must agree, or they execute
        differently.
        """
        names = ("shards", "partitions", "id_window", "digest_interval")
        return " ".join(f"{name}={getattr(self, name)}" for name in names)


class _Fixed(msgspec.Struct):
    format: int


class _Head(msgspec.Struct):
    config: _Fixed


def unreadable(data: bytes, error: Exception) -> str:
    """Why the state of a shard cannot be read, from its blob "meta"."""
    try:
        number = msgspec.msgpack.decode(data, type=_Head).config.format
    except UNREADABLE:
        number = FORMAT
    if number == FORMAT:
        return f"the state of this database cannot be read ({error}); rebuild it from the log"
    fix = "run the release that wrote it, or rebuild from the log (docs/upgrading.md)"
    return f"the state of this database has format {number}, this release reads {FORMAT}; {fix}"


def mismatch(recorded: ShardConfig, config: ShardConfig) -> str:
    """Return a message for a user whose configuration is not that of the state."""
    if recorded.format != config.format:
        what = f"the state of this database has format {recorded.format}, this release reads"
        fix = "run the release that wrote it, or rebuild from the log (docs/upgrading.md)"
        return f"{what} {config.format}; {fix}"
    differing = [
        f"{name}: recorded {getattr(recorded, name)!r}, given {getattr(config, name)!r}"
        for name in ShardConfig.__struct_fields__
        if getattr(recorded, name) != getattr(config, name)
    ]
    fix = "start with the recorded values, or use a new checkpoint folder to rebuild from the log"
    return f"the state of this database was made otherwise ({'; '.join(differing)}); {fix}"
