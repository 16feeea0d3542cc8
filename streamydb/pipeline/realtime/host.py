"""The worker of the real-time gear: a function of Spark's that lasts as long as its query.

In one thread it executes what Spark and the driver have sent meanwhile, gives the outputs to Spark,
and tells the driver about them.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from streamydb.errors import ConfigurationError, StreamyError
from streamydb.frames.plans import Life
from streamydb.frames.shards import ShardConfig
from streamydb.local.own_process import trim_when_idle
from streamydb.pipeline.arrow_batches import arrow_records
from streamydb.pipeline.realtime.confirmations import group_hashes
from streamydb.pipeline.realtime.core import (
    TAIL_BYTES_MAX,
    Group,
    NotForThisGear,
    OpenBase,
    RealTimeShard,
    Surroundings,
    TailRecord,
)
from streamydb.pipeline.realtime.files import opened_base
from streamydb.pipeline.realtime.lead import ENDED
from streamydb.pipeline.realtime.messages import Began, Channel, Executed, Left, Play
from streamydb.pipeline.realtime.rebase import Rebases
from streamydb.pipeline.realtime.rows import records_of
from streamydb.pipeline.realtime.wire import Wire, of_this_worker
from streamydb.procedures.modules import Modules
from streamydb.records.rulings import Rulings, UnruledFaults
from streamydb.txn_processor.outputs import FOLLOW_UPS

__all__ = ["GearLeft", "RealTimeHost", "records_again", "rest_s"]

log = logging.getLogger("streamydb.realtime")

_BASE_S_MAX: Final = 20.0
_BASE_POLL_S: Final = 0.05
_LOOK_S: Final = 1.0  # for a newer base, while nothing comes
_REST_S_MAX: Final = 0.004
_LONG_REST_S_MAX: Final = 0.012
_MANY: Final = 50
"""Records of a group after which the rest is long."""

_AGAIN: Final = 300
_MANY_AGAIN: Final = 1_200
_FLOOD: Final = 1_000
"""Records of a group after which a rebase waits: the gear is behind."""

_GROUP_RECORDS_MAX: Final = 4_000
_GROUP_BYTES_MAX: Final = 16 << 20


class GearLeft(RuntimeError):  # noqa: N818 - ends the query; the driver knows why
    """The worker has told the driver why it ends."""


@dataclass(frozen=True)
class RealTimeHost:
    """mapInArrow: records of the log to records of all output topics, as they come.

    ``base``: the configuration of the micro-batch gear; ``config``: that of this one. ``local``:
    the folder of the other gear's caches. ``socket_path``: where the driver listens. ``first``: the
    offset at which Spark begins to read.
    """

    base: ShardConfig
    config: ShardConfig
    local: str
    socket_path: str
    first: int
    life: Life
    changes_partitions: int
    modules: Modules
    rulings: Rulings

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Execute until the driver goes away, or something is not for this gear."""
        trim_when_idle()
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(self.socket_path)
        channel = Channel(connected)
        try:
            yield from _Worker(self, channel, of_this_worker(), batches).run()
        finally:
            channel.close()


class _Worker:
    """One run of the function."""

    def __init__(
        self, host: RealTimeHost, channel: Channel, wire: Wire, batches: Iterable[pa.RecordBatch]
    ) -> None:
        self._host = host
        self._channel = channel
        self._wire = wire
        self._batches = iter(batches)
        self._sources = select.poll()
        for source in (channel, wire):
            self._sources.register(source, select.POLLIN)
        self._rebases = Rebases(self._newest_base, time.monotonic())
        self._begun_s = self._ended_s = 0.0
        self._records = 0
        self._roles = 0

    def run(self) -> Iterator[pa.RecordBatch]:
        """Open a base, then execute what comes.
        Raises GearLeft: it does not go on; the driver was told why.
        """
        try:
            yield from self._execute(self._begun())
        except OSError as error:
            log.info("the driver of the real-time gear has gone: %s", error)
        except NotForThisGear as error:
            self._leave(error.reason, str(error))
        except UnruledFaults as error:
            self._leave("fault", str(error))
        except StreamyError as error:
            self._leave("fault", f"{type(error).__name__}: {error}")

    def _leave(self, reason: str, what: str) -> None:
        self._channel.send(Left(reason, what))
        raise GearLeft(f"{reason}: {what}")

    def _begun(self) -> RealTimeShard:
        host = self._host
        opened = self._first_base()
        around = Surroundings(
            host.config, host.life, host.changes_partitions, host.modules, host.rulings
        )
        shard = RealTimeShard(around, opened)
        gc.collect()
        gc.freeze()  # what was imported is not searched for cycles again
        self._channel.send(Began(shard.base_seq, shard.position, os.getpid()))
        return shard

    def _first_base(self) -> OpenBase:
        ends_s = time.monotonic() + _BASE_S_MAX
        while time.monotonic() < ends_s:
            opened = self._newest_base()
            if opened is not None and opened.base.position >= self._host.first:
                return opened
            if opened is not None:
                opened.values.close()
            time.sleep(_BASE_POLL_S)
        raise ConfigurationError("the micro-batch gear has left no base to begin with")

    def _execute(self, shard: RealTimeShard) -> Iterator[pa.RecordBatch]:
        """Obey messages before executing the records beside them: a lead is lost at once."""
        while True:
            again = records_again(self._records, shard.tail.bytes)
            if again:
                shard = self._rebases.advance(shard, again, time.monotonic())
            self._rest()
            if not self._wire.ready():
                self._sources.poll(0 if self._rebases.under_way else 1000 * _LOOK_S)
            while self._channel.ready():
                message = self._channel.receive()
                if not isinstance(message, Play):
                    return  # the driver has gone
                self._roles += 1
                group = shard.play(leads=message.leads, covered=message.covered)
                yield from self._given(shard, group)
            self._begun_s = time.monotonic()
            records, end = self._read()
            self._records = len(records)
            if records:
                yield from self._given(shard, shard.take(records))
                self._ended_s = time.monotonic()
            if end is not None:
                raise NotForThisGear(ENDED, "Spark's batch has ended") from end

    def _read(self) -> tuple[list[TailRecord], Exception | None]:
        """Read the records that Spark has sent, without waiting; and what tells of the end."""
        records: list[TailRecord] = []
        size = 0
        while len(records) < _GROUP_RECORDS_MAX and size < _GROUP_BYTES_MAX and self._wire.ready():
            try:
                batch = next(self._batches)
            except (StopIteration, OSError, ValueError, pa.ArrowException) as error:
                return records, error
            records += records_of(batch)
            size += batch.nbytes
        return records, None

    def _rest(self) -> None:
        """Rest after a group, see `rest_s`."""
        group_s, since_s = self._ended_s - self._begun_s, time.monotonic() - self._ended_s
        time.sleep(rest_s(group_s, since_s, self._records))

    def _given(self, shard: RealTimeShard, group: Group) -> Iterator[pa.RecordBatch]:
        """Give the outputs of a group to Spark, then tell the driver."""
        outputs = [records for records in group.outputs if len(records.values)]
        if outputs:
            yield arrow_records(outputs, self._host.config)
            self._wire.flush()
        told = group_hashes(outputs).tobytes()
        self._channel.send(
            Executed(
                group.seq,
                shard.position,
                shard.base_seq,
                told,
                group.resolved,
                shard.tail.bytes,
                any(records.topic == FOLLOW_UPS for records in outputs),
                self._roles,
            )
        )

    def _newest_base(self) -> OpenBase | None:
        return opened_base(Path(self._host.local), self._host.base)


def rest_s(group_s: float, since_s: float, records: int) -> float:
    """Return for how many seconds to rest after a group, so that the next one is larger.

    A group costs Spark, Kafka and the worker as much as many records do, so many small ones delay
    each other. So the worker rests as long as the group took, some milliseconds at most. After a
    group of many records it rests three times as long: little of what comes waits only for that. A
    record that comes alone does not wait.

    Args:
        group_s: how long the group took.
        since_s: how long ago it ended.
        records: its records.
    """
    times, most_s = (1, _REST_S_MAX) if records < _MANY else (3, _LONG_REST_S_MAX)
    return max(0.0, min(most_s, times * group_s) - since_s)


def records_again(records: int, tail_bytes: int) -> int:
    """Return how many records of the tail a rebase executes after a group, in its rest.

    These take about as long as the rest, see `rest_s`. While the gear is behind they are none, but
    the tail must not become so long that the gear ends: while it is long, they are twice as many as
    the group has, so that each group brings the rebase nearer to its end.

    Args:
        records: of the group.
        tail_bytes: of the payloads of the tail.
    """
    if tail_bytes >= TAIL_BYTES_MAX // 2:
        return max(_MANY_AGAIN, 2 * records)
    if records > _FLOOD:
        return 0
    return _AGAIN if records < _MANY else _MANY_AGAIN
