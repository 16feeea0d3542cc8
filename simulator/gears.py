"""Two gears over one log in the simulator: shifts, kills, bases that lag or are rolled back.

The micro-batch gear is a `Cluster`; the real-time gear begins with what that one's local files say,
keeps nothing, and is lost again and again, between any two of its outputs. One leads; the other is
told, late or twice or never, how far the outputs are known to be whole. What the real-time gear
cannot do it leaves to the other one. Everything must be as if there had been one pipeline.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from simulator.cluster import Cluster, WrittenRecord
from simulator.log import SimulatedLog
from simulator.procedures import MODULES
from streamydb.columns.blocks import role_block
from streamydb.columns.plans import Life
from streamydb.columns.scans import Scan, end_name, ends_at
from streamydb.columns.shards import ShardConfig
from streamydb.key_processor.base import decode_base
from streamydb.key_processor.idtable import probe
from streamydb.key_processor.memory import MemoryValues
from streamydb.local.shard_files import FileIdTables, LmdbValues
from streamydb.pipeline.realtime.core import (
    Group,
    NotForThisGear,
    OpenBase,
    RealTimeShard,
    Surroundings,
    TailRecord,
)
from streamydb.records.rulings import UnruledFaults
from streamydb.txn_processor import outputs as o

__all__ = ["Gears"]

_SAID = 0.7
"""How often the real-time gear says what is resolved before its next group."""

_ALL = Scan(b"", b"\xff" * 600, (), 1 << 30, 1 << 40)


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


class Gears:
    """A cluster, and now and then a real-time gear beside it."""

    def __init__(
        self, config: ShardConfig, log: SimulatedLog, rng: random.Random, *, crashes: float,
        large: bool = False,
    ) -> None:
        """The cluster leads, alone."""
        self.cluster = Cluster(config, log, rng, crashes=crashes, large=large)
        self.members = [self.cluster]
        self.plan_limit = self.cluster.plan_limit
        self.log = log
        self.shifts = self.begun = self.rebased = self.groups = 0
        self.left: dict[str, int] = {}
        self._random = rng
        self._gear: RealTimeShard | None = None
        self._gear_leads = False
        self._written = self._covered = 0
        self._calm = False

    def behind(self) -> bool:
        """Return True if the cluster has not read or not been told something."""
        return self.cluster.behind() or self._resolved() > self._covered or self._waits()

    def news(self) -> bool:
        """Return True if the cluster has not read something that is not a marker."""
        return self.cluster.news()

    def batch(self, *, all_of_it: bool = False) -> None:
        """Some micro-batches and groups, and what else may happen between them."""
        if all_of_it:
            self._settle()
            return
        rng = self._random
        for _ in range(rng.randint(1, 4)):
            self._happens()
            if rng.random() < 0.5:
                self._group(rng.choice([1, 1, 2, 5, 40]))
            else:
                self.cluster.batch(gives_up=True)

    def _happens(self) -> None:
        rng = self._random
        if rng.random() < 0.5:
            self._tell()
        if self._gear is None:
            if rng.random() < 0.5:
                self._begin()
            return
        draw = rng.random()
        if draw < 0.15:
            self._rebase()
        elif draw < 0.2:
            self._lose()
        elif draw < 0.4:
            self._shift()

    def _resolved(self) -> int:
        """Return up to which seq all outputs are known to be written."""
        return max(self.cluster.resolved, self._written)

    def _waits(self) -> bool:
        return self._gear is not None and self._gear_leads and bool(self._unread(self._gear))

    def _tell(self) -> None:
        """Tell the gear that does not lead how far the outputs are."""
        self._covered = max(self._covered, self._resolved())
        if self._gear_leads:
            self._tell_cluster(leads=False)
        elif self._gear is not None:
            self._write(self._gear.play(leads=False, covered=self._covered).outputs)

    def _tell_cluster(self, *, leads: bool) -> None:
        cluster = self.cluster
        cluster.leads = leads
        if leads:
            cluster.epoch += 1
            cluster.topic.fence(cluster.epoch)
        block = role_block(cluster.config.incarnation, leads=leads, covered=self._covered)
        cluster.feedback[0].append(block)

    def _shift(self) -> None:
        """Have the other gear lead; the cluster hears it in one of its next batches."""
        self.shifts += 1
        self._covered = max(self._covered, self._resolved())
        self._gear_leads = not self._gear_leads
        gear = self._gear
        if gear is not None:
            self._guarded(lambda: gear.play(leads=self._gear_leads, covered=self._covered))
        if self._gear is not None or not self._gear_leads:
            self._tell_cluster(leads=not self._gear_leads)

    def _begin(self) -> None:
        opened = self._open()
        if opened is None:
            return
        self.begun += 1
        cluster = self.cluster
        config = msgspec.structs.replace(
            opened.base.state.config, incarnation=f"{cluster.config.incarnation}-{self.begun}"
        )
        life = Life(f"gear-{self.begun}", cluster.life.shape, self.log.begins)
        around = Surroundings(config, life, 2, MODULES, cluster.rulings)
        self._gear, self._gear_leads = RealTimeShard(around, opened), False
        self._tell_cluster(leads=True)

    def _open(self) -> OpenBase | None:
        """Open what the cluster's caches say; None if they are on their way elsewhere."""
        caches = self.cluster.nodes[0].caches
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
        same = base.state.config.incarnation == self.cluster.config.incarnation
        if items is None or len(there) < len(found) or not same:
            return None
        return OpenBase(base, _Values(dict(items)), _Ids(there))

    def _rebase(self) -> None:
        opened, gear = self._open(), self._gear
        if opened is None or gear is None or opened.base.state.seq < gear.base_seq:
            return
        if opened.base.state.seq <= gear.seq:
            self.rebased += gear.rebase(opened)

    def _unread(self, gear: RealTimeShard) -> list[TailRecord]:
        records = self.log.partitions[0]
        return [TailRecord(*r) for r in records if r.offset >= gear.position]

    def _group(self, count: int) -> None:
        gear = self._gear
        if gear is None:
            return
        records = self._unread(gear)[:count]
        if records:
            self._guarded(lambda: gear.take(records))

    def _guarded(self, work: Callable[[], Group]) -> None:
        """Do work of the gear; what it leaves to the other one ends it."""
        try:
            self.groups += 1
            group = work()
        except NotForThisGear as error:
            self.left[error.reason] = self.left.get(error.reason, 0) + 1
            self._lose()
            return
        except UnruledFaults:
            self._lose()
            return
        rng, crashes = self._random, 0.0 if self._calm else self.cluster.crashes
        if rng.random() < crashes:
            self._write(group.outputs, rng.random())
            self._lose()
            return
        self._write(group.outputs)
        if self._gear_leads:
            self._written = max(self._written, group.seq)
        if rng.random() < crashes:
            self._lose()
        elif self._calm or rng.random() < _SAID:
            self._write(group.resolved_records(2))

    def _write(self, outputs: list[o.Records], share: float = 1.0) -> None:
        """Write outputs, or only the first of them."""
        cluster = self.cluster
        rows = [
            (records, key, value) for records in outputs
            for key, value in zip(records.keys.tolist(), records.values.tolist(), strict=True)
        ]
        batch = next(cluster.clock)
        for records, key, value in rows[: int(share * len(rows))]:
            if records.topic == o.FOLLOW_UPS:
                self.log.append(value or b"", records.partition)
            record = WrittenRecord(records.topic, key or None, value or None, batch)
            cluster.written.append(record)

    def _lose(self) -> None:
        """The real-time gear is gone; the cluster leads, with what is known to be written."""
        self._gear = None
        self._covered = max(self._covered, self._resolved())
        if self._gear_leads:
            self._gear_leads = False
            self._tell_cluster(leads=True)

    def _settle(self) -> None:
        """Let who leads go on to the end; that may be the real-time gear."""
        self._calm = True
        self._group(1 << 30)
        gear = self._gear
        if gear is not None and self._gear_leads:
            self._guarded(lambda: gear.play(leads=True, covered=self._covered))
        if self._resolved() > self._covered or self._gear_leads:
            self._tell()
        self.cluster.batch(all_of_it=True)


def _base_of(values: object) -> bytes | None:
    return values.described() if isinstance(values, LmdbValues) else None
