"""The worker of the real-time gear: a function of Spark's that lasts as long as its query.

One thread reads what Spark hands over, one reads what the driver says, and the function itself
executes what has come meanwhile, gives the outputs to Spark, and tells the driver about them.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from streamydb.columns.plans import Life
from streamydb.columns.shards import ShardConfig
from streamydb.errors import ConfigurationError, StreamyError
from streamydb.local.trimming import trim_when_idle
from streamydb.pipeline.arrow_batches import arrow_records
from streamydb.pipeline.realtime.confirmations import group_hashes
from streamydb.pipeline.realtime.core import (
    Group,
    NotForThisGear,
    OpenBase,
    RealTimeShard,
    Surroundings,
    TailRecord,
)
from streamydb.pipeline.realtime.files import opened_base
from streamydb.pipeline.realtime.inbox import Inbox, LogColumns
from streamydb.pipeline.realtime.messages import Began, Channel, Executed, Left, Play
from streamydb.pipeline.realtime.rows import record_columns
from streamydb.procedures.modules import Modules
from streamydb.records.rulings import Rulings, UnruledFaults
from streamydb.txn_processor.outputs import FOLLOW_UPS, Records

__all__ = ["GearLeft", "RealTimeHost", "rest_s"]

log = logging.getLogger("streamydb.realtime")

_BASE_S_MAX: Final = 20.0
_BASE_POLL_S: Final = 0.05
_REBASE_S: Final = 1.0
_REST_S_MAX: Final = 0.004
_REBASE_RECORDS_MIN: Final = 50


class GearLeft(RuntimeError):  # noqa: N818 - ends the query; the driver knows why
    """The worker has told the driver why it ends."""


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the driver, or of Spark's batch; ``error``: why that has ended."""

    of_driver: bool
    error: BaseException | None = None


_Message: TypeAlias = Play | _End


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
        self._inbox: Inbox[_Message] = Inbox()
        self._rebased_s = time.monotonic()
        self._begun_s = self._ended_s = 0.0

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
        finally:
            self._inbox.close()

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
                columns = LogColumns(*record_columns(batch))
                if len(columns) and not self._inbox.put(columns):
                    return
        except BaseException as raised:  # noqa: BLE001 - raised where it is waited for
            error = raised
        self._inbox.say(_End(of_driver=False, error=error))

    def _read_driver(self) -> None:
        while isinstance(message := self._channel.receive(), Play):
            self._inbox.say(message)
        self._inbox.say(_End(of_driver=True))

    def _execute(self, shard: RealTimeShard) -> Iterator[pa.RecordBatch]:
        """Obey messages before executing the records beside them: a lead is lost at once."""
        while True:
            self._rest()
            records: list[TailRecord] = []
            end: _End | None = None
            for item in self._inbox.take(_REBASE_S):
                if isinstance(item, LogColumns):
                    records += _records(item)
                elif isinstance(item, Play):
                    group = shard.play(leads=item.leads, covered=item.covered)
                    yield from self._given(shard, group)
                elif item.of_driver:
                    return
                else:
                    end = item
            self._begun_s = time.monotonic()
            if records:
                yield from self._given(shard, shard.take(records))
            if end is not None:
                raise NotForThisGear("ended", "Spark's batch has ended") from end.error
            self._ended_s = time.monotonic()
            self._rebase(shard)

    def _rest(self) -> None:
        """Rest after a group, see `rest_s`."""
        time.sleep(rest_s(self._ended_s - self._begun_s, time.monotonic() - self._ended_s))

    def _given(self, shard: RealTimeShard, group: Group) -> Iterator[pa.RecordBatch]:
        """Give the outputs of a group to Spark, then tell the driver."""
        outputs = [records for records in group.outputs if len(records.values)]
        if outputs:
            yield _one_batch(outputs, self._host.config)
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
            )
        )

    def _rebase(self, shard: RealTimeShard) -> None:
        """Begin with a newer base, when there is nothing else to do and it is worth it."""
        now_s = time.monotonic()
        if now_s - self._rebased_s < _REBASE_S or not self._inbox.is_empty():
            return
        self._rebased_s = now_s
        if len(shard.tail.records) < _REBASE_RECORDS_MIN:
            return
        opened = opened_base(Path(self._host.local), self._host.base)
        if opened is None:
            return
        if not shard.is_newer(opened) or not shard.rebase(opened):
            opened.values.close()


def rest_s(group_s: float, since_s: float) -> float:
    """Return for how many seconds to rest after a group, so that the next one is larger.

    A group costs Spark, Kafka and the worker as much as many records do, so many small ones delay
    each other. So the worker rests as long as the group took, some milliseconds at most. A record
    that comes alone does not wait.

    Args:
        group_s: how long the group took.
        since_s: how long ago it ended.
    """
    return max(0.0, min(_REST_S_MAX, group_s) - since_s)


def _records(columns: LogColumns) -> list[TailRecord]:
    offsets, times = columns.offsets.to_pylist(), columns.append_ms.to_pylist()
    rows = zip(offsets, times, columns.values.to_pylist(), strict=True)
    return [TailRecord(*row) for row in rows]


def _one_batch(outputs: list[Records], config: ShardConfig) -> pa.RecordBatch:
    batches = [arrow_records(records, config) for records in outputs]
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
