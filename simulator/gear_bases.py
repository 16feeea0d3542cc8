"""The base with which a simulated real-time gear begins: copies of what the local files say."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster
from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import KeyScan, end_name, ends_at
from streamydb.key_processor.base import Base, decode_base
from streamydb.key_processor.id_rows import probe
from streamydb.key_processor.memory import MemoryValues
from streamydb.local.id_files import FileIdTables
from streamydb.local.shard_files import LmdbValues
from streamydb.parser.last_reads import mark_of
from streamydb.pipeline.realtime.core import OpenBase
from streamydb.sorter.state import LogEnd

__all__ = ["copied_base"]

_ALL = KeyScan(b"", b"\xff" * 600, (), 1 << 30, 1 << 40)


@dataclass(frozen=True, slots=True)
class _Values:
    """A copy of a file of values (`pipeline.realtime.overlay.ValuesSnapshot`)."""

    data: dict[bytes, bytes]

    def load(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.data.get(key) for key in keys]

    def items(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(item for item in self.data.items() if item[0] >= start))

    def ends(self, after: bytes) -> Iterator[bytes]:
        names = (end_name(k, v) for k, v in self.data.items() if ends_at(v) is not None)
        return iter(sorted(name for name in names if name > after))

    def close(self) -> None:
        self.data.clear()


@dataclass(frozen=True, slots=True)
class _Ids:
    """Copies of the tables of ids (`pipeline.realtime.core.KnownIds`)."""

    tables: list[npt.NDArray[np.void]]

    def used(
        self, id0: npt.NDArray[np.uint64], id1: npt.NDArray[np.uint64], upto: int
    ) -> npt.NDArray[np.int64]:
        found = np.zeros(len(id0), np.int64)
        for table in self.tables:
            probe(table, id0, id1, found, upto)
        return found


def copied_base(cluster: Cluster) -> OpenBase | None:
    """Return what a cluster's caches say; None if they are on their way elsewhere, or gone."""
    caches = cluster.nodes[0].caches
    values, tables = caches.values(), caches.tables()
    try:
        data = values.base if isinstance(values, MemoryValues) else _base_of(values)
        if data is None:
            return None
        base = decode_base(data)
        at = (base.state.values.applied, base.state.values.digest)
        items = values.scan(at, _ALL)
        found = [tables.get(name) for name in base.id_tables]
    finally:
        if isinstance(tables, FileIdTables):
            tables.close()
    there = [copy.copy(table) for table in found if table is not None]
    same = base.state.config.incarnation == cluster.config.incarnation
    if items is None or len(there) < len(found) or not same:
        return None
    _require_same_log(cluster, base)
    return OpenBase(base, _Values(dict(items)), _Ids(there))


def _require_same_log(cluster: Cluster, base: Base) -> None:
    """Require of a base what a start of the pipeline looks at before it begins with it."""
    read = base.read
    if read is None or read.position < base.position:
        raise InvariantViolation("a base does not say which log it has executed")
    last = [each for each in cluster.log.partitions[0] if each.offset < read.position][-1]
    end = LogEnd(read.position, last.offset, last.append_ms, mark_of(last.value))
    end.require(0, read)


def _base_of(values: object) -> bytes | None:
    return values.described() if isinstance(values, LmdbValues) else None
