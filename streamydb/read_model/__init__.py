"""The read model: a database's data in a local LMDB file, at any seq of the recent past.

In goes `<db>.changes`; out come snapshots. One process follows the topic and writes (`Follower`,
`streamydb read-model`), any number of processes read (`ReadModel`). A read model is a
pure function of the topic, so any number of them agree at every seq, and none needs the others.

Invariants:

- A snapshot shows the writes of all transactions up to its seq and of none after it. It can be
  taken at every seq from the oldest one that is kept up to the last one that is resolved in every
  partition of the topic.
- Every version is kept under (key, seq). Reading a record again changes nothing, and never brings
  back what was deleted and collected.
- Data and position are committed together; a crash loses nothing and repeats nothing.
- Nothing in the topic is ever skipped: what has expired before it was read is an error, and the way
  out is a copy of another read model (`copy_to`) or a Parquet snapshot (`load`), and the tail.

`core` decides what a batch of records means (`recognise` reads most of them), `store` commits it,
`runs` merges what is stored and leaves out what no snapshot can show, `snapshot` reads. `rows` says
how bytes lie, `merging`, `lookup` and `scanning` are the kernels, `environment` shares the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamydb.errors import ReadModelError
from streamydb.kafka.changes import ChangesExpiredError, SourceError
from streamydb.read_model.core import ResolvedPoint
from streamydb.read_model.errors import (
    SnapshotAhead,
    SnapshotGone,
    StoreBusyError,
    StoreFailedError,
    StoreMismatchError,
    StoreMissingError,
    WriterRunningError,
)
from streamydb.read_model.load import copy_to, load
from streamydb.read_model.model import ReadModel
from streamydb.read_model.snapshot import Entry, Snapshot, Version
from streamydb.read_model.verify import ModelComparison, verify

if TYPE_CHECKING:
    from streamydb.read_model.follower import Follower

__all__ = [
    "ChangesExpiredError",
    "Entry",
    "Follower",
    "ModelComparison",
    "ReadModel",
    "ReadModelError",
    "ResolvedPoint",
    "Snapshot",
    "SnapshotAhead",
    "SnapshotGone",
    "SourceError",
    "StoreBusyError",
    "StoreFailedError",
    "StoreMismatchError",
    "StoreMissingError",
    "Version",
    "WriterRunningError",
    "copy_to",
    "load",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import the follower on its first use: who only reads needs no Kafka."""
    if name != "Follower":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from streamydb.read_model.follower import Follower

    return Follower
