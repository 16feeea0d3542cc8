"""The worker of the real-time gear: a function of Spark's that lasts as long as its query.

One thread reads what Spark hands over, one reads what the driver says, and the function itself
executes what has come meanwhile, gives the outputs to Spark, and tells the driver about them.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from streamydb.columns.plans import Life
from streamydb.columns.shards import ShardConfig
from streamydb.errors import ConfigurationError, StreamyError
from streamydb.pipeline.arrow_batches import arrow_records
from streamydb.pipeline.realtime.confirmations import output_hashes
from streamydb.pipeline.realtime.core import (
    Group,
    NotForThisGear,
    OpenBase,
    RealTimeShard,
    Surroundings,
    TailRecord,
)
from streamydb.pipeline.realtime.files import opened_base
from streamydb.pipeline.realtime.messages import Began, Channel, Executed, Left, Play
from streamydb.procedures.modules import Modules
from streamydb.records.rulings import Rulings, UnruledFaults
from streamydb.txn_processor.outputs import DIGESTS, Records

__all__ = ["INPUT_COLUMNS", "GearLeft", "RealTimeHost"]

log = logging.getLogger("streamydb.realtime")

INPUT_COLUMNS: Final = ("offset", "append_ms", "value")
"""Of a row that Spark hands over; a row of nulls only pushes the one before it out."""

GROUP_RECORDS_MAX: Final = 4_000
_BASE_S_MAX: Final = 20.0
_BASE_POLL_S: Final = 0.05
_REBASE_S: Final = 1.0
_REBASE_RECORDS_MIN: Final = 50


class GearLeft(RuntimeError):  # noqa: N818 - ends the query; the driver knows why
    """The worker has told the driver why it ends."""


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the driver, or of Spark's batch; ``error``: why that has ended."""

    of_driver: bool
    error: BaseException | None = None


_Item: TypeAlias = pa.RecordBatch | Play | _End


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
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(self.socket_path)
        channel = Channel(connected)
        try:
            yield from _Worker(self, channel, batches).run()
        finally:
            channel.close()


class _Worker:
    """One run of the function."""

    def __init__(
        self, host: RealTimeHost, channel: Channel, batches: Iterable[pa.RecordBatch]
    ) -> None:
        self._host = host
        self._channel = channel
        self._batches = batches
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._leads = False
        self._rebased_s = time.monotonic()

    def run(self) -> Iterator[pa.RecordBatch]:
        """Open a base, then execute what comes.

        Raises:
            GearLeft: it does not go on; the driver was told why.
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
        for work in (self._read_input, self._read_driver):
            threading.Thread(target=work, daemon=True).start()
        self._channel.send(Began(shard.base_seq, shard.position, os.getpid()))
        return shard

    def _first_base(self) -> OpenBase:
        ends_s = time.monotonic() + _BASE_S_MAX
        while time.monotonic() < ends_s:
            opened = opened_base(Path(self._host.local), self._host.base)
            if opened is not None and opened.base.position >= self._host.first:
                return opened
            if opened is not None:
                opened.values.close()
            time.sleep(_BASE_POLL_S)
        raise ConfigurationError("the micro-batch gear has left no base to begin with")

    def _read_input(self) -> None:
        error: BaseException | None = None
        try:
            for batch in self._batches:
                self._inbox.put(batch)
        except BaseException as raised:  # noqa: BLE001 - raised where it is waited for
            error = raised
        self._inbox.put(_End(of_driver=False, error=error))

    def _read_driver(self) -> None:
        while isinstance(message := self._channel.receive(), Play):
            self._inbox.put(message)
        self._inbox.put(_End(of_driver=True))

    def _execute(self, shard: RealTimeShard) -> Iterator[pa.RecordBatch]:
        while True:
            records: list[TailRecord] = []
            for item in self._news():
                if isinstance(item, pa.RecordBatch):
                    records += _records(item)
                    continue
                if records:
                    yield from self._given(shard, shard.take(records))
                    records = []
                if isinstance(item, _End):
                    if item.of_driver:
                        return
                    raise NotForThisGear("ended", "Spark's batch has ended") from item.error
                self._leads = item.leads
                yield from self._given(shard, shard.play(leads=item.leads, covered=item.covered))
            if records:
                yield from self._given(shard, shard.take(records))
            self._rebase(shard)

    def _news(self) -> list[_Item]:
        """Wait for what has come, and return all of it, up to a bound."""
        try:
            found: list[_Item] = [self._inbox.get(timeout=_REBASE_S)]
        except queue.Empty:
            return []
        while len(found) < GROUP_RECORDS_MAX:
            try:
                found.append(self._inbox.get_nowait())
            except queue.Empty:
                break
        return found

    def _given(self, shard: RealTimeShard, group: Group) -> Iterator[pa.RecordBatch]:
        """Give the outputs of a group to Spark, then tell the driver."""
        outputs = [records for records in group.outputs if len(records.values)]
        if outputs:
            yield _one_batch(outputs, self._host.config)
        hashes = [
            output_hashes(records.topic, records.keys, records.values)
            for records in outputs
            if records.topic != DIGESTS
        ]
        told = np.concatenate(hashes).tobytes() if hashes else b""
        self._channel.send(
            Executed(group.seq, shard.position, shard.base_seq, told, group.resolved)
        )

    def _rebase(self, shard: RealTimeShard) -> None:
        """Begin with a newer base, when there is nothing else to do and it is worth it."""
        now_s = time.monotonic()
        if now_s - self._rebased_s < _REBASE_S or not self._inbox.empty():
            return
        self._rebased_s = now_s
        if len(shard.tail.records) < _REBASE_RECORDS_MIN:
            return
        opened = opened_base(Path(self._host.local), self._host.base)
        if opened is None:
            return
        newer = shard.base_seq < opened.base.state.seq <= shard.seq
        if not newer or not shard.rebase(opened):
            opened.values.close()


def _records(batch: pa.RecordBatch) -> list[TailRecord]:
    """Return the records of a batch, without the rows that only push others out."""
    offsets, times, values = (batch.column(i).to_pylist() for i in range(3))
    rows = zip(offsets, times, values, strict=True)
    return [TailRecord(*row) for row in rows if row[0] is not None]


def _one_batch(outputs: list[Records], config: ShardConfig) -> pa.RecordBatch:
    batches = [arrow_records(records, config) for records in outputs]
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
