"""Open the base that the micro-batch gear has left in the local files of its shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.base import Base, decode_base
from streamydb.key_processor.id_rows import probe
from streamydb.local.id_files import mapped_tables
from streamydb.local.shard_files import LmdbSnapshot, shard_folder
from streamydb.pipeline.realtime.core import Ids, Ints, OpenBase

__all__ = ["FileIds", "base_behind", "opened_base"]


@dataclass(frozen=True, slots=True)
class FileIds:
    """The tables of ids as files (`core.KnownIds`).

    The worker of the shard goes on to add ids while these are read. What was there before stays
    where it is, and no chain of entries has a gap, so an id up to the base is always found.
    """

    tables: Sequence[npt.NDArray[Any]]

    def used(self, id0: Ids, id1: Ids, upto: int) -> Ints:
        """Return at which seq, at most ``upto``, each id was used last; 0: it was not; (n,)."""
        found = np.zeros(len(id0), np.int64)
        for table in self.tables:
            probe(table, id0, id1, found, upto)
        return found


def opened_base(local: Path, config: ShardConfig) -> OpenBase | None:
    """Open the base of a database under ``local``, the folder of its pipeline's caches.

    Return None if there is none now: nothing was executed yet, the files are on their way to
    another state, or they were removed. It may be there a moment later.

    ``config``: of the micro-batch gear, whose incarnation names its files.
    """
    folder = shard_folder(local, config.database, config.incarnation, 0)
    snapshot = LmdbSnapshot.of(folder)
    if snapshot is None:
        return None
    base = _base(snapshot, config)
    tables = None if base is None else mapped_tables(folder, base.id_tables)
    if base is None or tables is None:
        snapshot.close()
        return None
    return OpenBase(base, snapshot, FileIds(tables))


def base_behind(offset: int, local: Path, config: ShardConfig) -> Base | None:
    """Return what a base says of itself; None if there is none that has executed what lies at an
    offset of the log, and all before it.

    ``offset``: -1: any will do. ``local``, ``config``: as for `opened_base`.
    """
    opened = opened_base(local, config)
    if opened is None:
        return None
    opened.values.close()
    return opened.base if opened.base.position > offset else None


def _base(snapshot: LmdbSnapshot, config: ShardConfig) -> Base | None:
    data = snapshot.described()
    if data is None:
        return None
    base = decode_base(data)
    values = base.state.values
    same = base.state.config == config and snapshot.position() == (values.applied, values.digest)
    return base if same else None
