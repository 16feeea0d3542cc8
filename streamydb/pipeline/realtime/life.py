"""One start of the real-time gear: its query, its worker, its part among the pipelines."""

from __future__ import annotations

import logging
import math
import shutil
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from streamydb.errors import StreamyError
from streamydb.frames.messages import Role
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.readers import FEEDBACK
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.names import TopicNames
from streamydb.kafka.rulings import RulingTopic
from streamydb.kafka.shared_topics import SharedTopics, SharedTopicsError
from streamydb.key_processor.base import Base
from streamydb.local.module_folder import FolderModules
from streamydb.pipeline.announcer import Announcer
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.realtime.confirmations import Announcements, ResolvedGroups
from streamydb.pipeline.realtime.host import RealTimeHost
from streamydb.pipeline.realtime.messages import Began, Channel, Executed, Left, Play
from streamydb.pipeline.realtime.output_tables import Hashes
from streamydb.pipeline.realtime.packing import Packing
from streamydb.pipeline.realtime.query import batch_seconds, start_query
from streamydb.pipeline.realtime.readback import OutputReader
from streamydb.pipeline.run import RunningQuery
from streamydb.pipeline.standby.coordinator import Coordinator, StandbyReport
from streamydb.pipeline.standby.core import ElectionMember
from streamydb.pipeline.standby.position import PipelinePosition
from streamydb.records.control import gear_of
from streamydb.txn_processor import outputs as o

__all__ = ["GEAR_NAME", "GearEnded", "GearLife", "GearStart", "output_topics"]

log = logging.getLogger("streamydb.realtime")

GEAR_NAME: Final = "real-time"  # the name under which the real-time gear speaks in `<db>.control`
_DRAIN_TURN_S: Final = 0.005
_BEGIN_S: Final = 60.0
_NOTE_S: Final = 0.1
_QUIET_S: Final = 2.0
_EXPIRES_S: Final = 5.0
"""So long before Spark ends the batch of the gear's query the gear is to leave the lead."""

_NEARLY_S: Final = 10.0
"""So long before it the other gear begins to follow in small micro-batches, as it is to lead."""


class GearEnded(StreamyError):  # noqa: N818 - what happened
    """The real-time gear has ended.

    Attributes:
        reason: a word for metrics.
    """

    def __init__(self, reason: str, what: str) -> None:
        """``what``: a sentence for people."""
        super().__init__(what)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class GearStart:
    """The part that all starts of the gear in one run of the pipeline have in common.

    ``shard``: the configuration of the micro-batch gear. ``packing``: of the real-time session.
    ``topics``: the output topics with their numbers. ``written``: up to this seq earlier runs of
    pipelines have written everything.
    """

    config: PipelineConfig
    shard: ShardConfig
    log_id: str
    rulings: RulingTopic
    packing: Packing
    changes_partitions: int
    topics: Mapping[str, int]
    written: int = 0

    @property
    def client(self) -> Mapping[str, str]:
        """Settings of confluent-kafka."""
        return self.config.settings.client_config()


class _GearTopics(SharedTopics):
    """The shared topics; what the shards are told goes over the socket."""

    def __init__(
        self, connection: Mapping[str, str], database: str, channel: Channel, written: int
    ) -> None:
        """``written``: up to this seq everything is written, whatever a role says."""
        super().__init__(connection, database)
        self._channel = channel
        self._written = written
        self._plays = 0

    def tell(self, topic: str, block: bytes) -> int:  # noqa: ARG002 - it has no feedback topic
        """Tell the worker its role; return how many roles it was told."""
        role = FEEDBACK.read(block)
        if not isinstance(role, Role):
            raise SharedTopicsError("the real-time gear has no state to audit")
        return self.play(leads=role.leads, covered=max(role.covered, self._written))

    def play(self, *, leads: bool, covered: int) -> int:
        """Tell the worker its role, as `tell` does.
        Raises SharedTopicsError: the worker is gone.
        """
        try:
            self._channel.send(Play(leads, covered))
        except OSError as error:
            raise SharedTopicsError(f"the worker of the real-time gear is gone: {error}") from error
        self._plays += 1
        return self._plays


class GearLife:
    """A start of the gear, from its query to its end.

    Attributes:
        worker: the worker's process; 0: it has not begun.
        ready: it could take over at once.
    """

    def __init__(self, start: GearStart, base: Base) -> None:
        """Start the query and wait for its worker; the gear follows then.
        Raises GearEnded: it could not begin.
        """
        self._start = start
        self.worker = 0
        self.ready = False
        self._ended: GearEnded | None = None
        self._changed = threading.Event()
        self._groups = ResolvedGroups()
        self._announcements = Announcements()
        self._lock = threading.Lock()
        self._noted_s = self._executed_s = 0.0
        self._ends_s = math.inf
        self._folder = Path(tempfile.mkdtemp(prefix="sdb-gear-"))
        named = gear_of(start.shard.incarnation, uuid.uuid4().hex[:16])
        self._config = msgspec.structs.replace(start.shard, incarnation=named, name=GEAR_NAME)
        self._channel: Channel | None = None
        self._coordinator: Coordinator | None = None
        self._topics: _GearTopics | None = None
        self._query: RunningQuery | None = None
        self._reader: OutputReader | None = None
        self._announcer = Announcer(
            start.client, TopicNames(start.shard.database).changes, start.changes_partitions
        )
        try:
            self._begin(base)
        except BaseException:
            self.close()
            raise

    @property
    def confirmed(self) -> Executed | None:
        """The last group whose outputs are all in Kafka."""
        return self._groups.last

    @property
    def leads(self) -> bool:
        return self._coordinator is not None and self._coordinator.leads

    @property
    def expires(self) -> bool:
        """True if Spark is about to end the batch of the query."""
        return time.monotonic() >= self._ends_s - _EXPIRES_S

    @property
    def nearly_expires(self) -> bool:
        """True if the other gear is to lead soon, and has to catch up for that."""
        return time.monotonic() >= self._ends_s - _NEARLY_S

    @property
    def writes_on(self) -> bool:
        """True if the gear led a moment ago, and the one that leads now has not written yet."""
        return self._coordinator is not None and self._coordinator.writes_on

    @property
    def incarnation(self) -> str:
        """The name of this start."""
        return self._config.incarnation

    def _begin(self, base: Base) -> None:
        start, config = self._start, self._start.config
        start.rulings.refresh()
        rulings = start.rulings.rulings()
        path = self._folder / "socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen(1)
            host = RealTimeHost(
                start.shard,
                self._config,
                str(config.local),
                str(path),
                base.position,
                Life(self._config.incarnation[-16:], PlanShape()),
                start.changes_partitions,
                FolderModules(config.procedures),
                rulings,
            )
            names = TopicNames(start.shard.database)
            batch_s = batch_seconds(start.packing.session)
            self._ends_s = time.monotonic() + batch_s
            self._query = RunningQuery(
                start_query(
                    start.packing,
                    host,
                    names.transactions,
                    config.settings.spark_options(),
                    self._folder / "checkpoint",
                )
            )
            self._channel = self._accepted(listener)
        began = self._channel.receive()
        if isinstance(began, Left):
            raise GearEnded(began.reason, began.what)
        if not isinstance(began, Began):
            raise GearEnded("fault", "the worker of the real-time gear ended at its start")
        self.worker = began.pid
        log.info("the real-time gear begins at seq %d, offset %d", began.seq, began.position)
        self._reader = OutputReader(start.client, start.topics, names.transactions, self._see)
        self._reader.start()
        threading.Thread(target=self._listen, name="streamydb-gear", daemon=True).start()
        self._coordinator = self._joined(self._channel)

    def _accepted(self, listener: socket.socket) -> Channel:
        """Wait for the worker to connect."""
        listener.settimeout(0.2)
        ends_s = time.monotonic() + _BEGIN_S
        while time.monotonic() < ends_s:
            with suppress(TimeoutError):
                return Channel(listener.accept()[0])
            if self._query is None or not self._query.beats():
                raise GearEnded("fault", f"the real-time query ended at its start: {self._why()}")
        raise GearEnded("fault", "the worker of the real-time gear did not connect")

    def _why(self) -> str:
        error = None if self._query is None else self._query.query.exception()
        return "it says nothing" if error is None else str(error).strip().splitlines()[0]

    def _joined(self, channel: Channel) -> Coordinator:
        """Join the other pipelines, as one that follows."""
        start, me = self._start, self._config
        member = ElectionMember(
            start.log_id, me.incarnation, GEAR_NAME, standby=True, terms=start.shard.terms
        )
        topics = self._topics = _GearTopics(
            start.client, start.shard.database, channel, start.written
        )
        coordinator = Coordinator(topics, me, member, self._show, start.rulings)
        coordinator.load_rulings()
        coordinator.begin()
        coordinator.start(lambda: self._ended is None)
        return coordinator

    def _show(self, view: StandbyReport) -> None:
        self.ready = view.ready
        self._changed.set()

    def _listen(self) -> None:
        channel = self._channel
        while channel is not None:
            said = channel.receive()
            if isinstance(said, Executed):
                self._add(said)
            else:
                what = said.what if isinstance(said, Left) else "its worker is gone"
                reason = said.reason if isinstance(said, Left) else "fault"
                self._ended = GearEnded(reason, what)
                self._changed.set()
                return

    def is_quiet(self) -> bool:
        """Return True if the worker has executed nothing lately."""
        return time.monotonic() - self._executed_s > _QUIET_S

    def _add(self, said: Executed) -> None:
        was_quiet, self._executed_s = self.is_quiet(), time.monotonic()
        if said.follow_ups and self._reader is not None:
            self._reader.read_log(said.position)
        with self._lock:
            self._announce(self._groups.add(said))
        if was_quiet:
            self._changed.set()

    def _see(self, hashes: Hashes) -> float:
        """Note outputs that are in Kafka; return in how many seconds to ask again."""
        with self._lock:
            self._announce(self._groups.see(hashes))
            return self._announcements.wait_s(time.monotonic())

    def _announce(self, group: Executed | None) -> None:
        """Append the resolved record of a group, if it is time for one."""
        self._append(self._announcements.due(group, time.monotonic()))

    def _append(self, resolved: bytes | None) -> None:
        if resolved is not None:
            self._announcer.announce(resolved.decode())

    def note(self) -> None:
        """Tell the coordinator how far this gear is."""
        confirmed, coordinator = self._groups.last, self._coordinator
        now_s = time.monotonic()
        if confirmed is None or coordinator is None or now_s - self._noted_s < _NOTE_S:
            return
        self._noted_s = now_s
        coordinator.note(
            PipelinePosition(confirmed.seq, confirmed.position, 1 << 40, confirmed.seq)
        )

    def require(self) -> None:
        """Require that the gear goes on. Raises GearEnded: it does not."""
        if self._ended is not None:
            raise self._ended
        coordinator = self._coordinator
        if coordinator is not None and coordinator.failure is not None:
            raise GearEnded("fault", coordinator.failure)
        if coordinator is not None and coordinator.stale:
            raise GearEnded("rulings", "there are new rulings on faults of ours")
        if self._query is None or not self._query.beats():
            raise GearEnded("fault", f"the real-time query has ended: {self._why()}")

    def wait(self, timeout_s: float) -> bool:
        """Wait for a change; return True if there is one."""
        changed = self._changed.wait(timeout_s)
        self._changed.clear()
        return changed

    def drain(self, timeout_s: float) -> None:
        """Have the worker execute no more, and wait until all its outputs are there and resolved.

        So whoever leads next writes nothing twice. When the time is up, or the worker is gone, it
        does: the same bytes.
        """
        if self._topics is None:
            return
        ends_s, last = time.monotonic() + timeout_s, self._groups.last
        try:
            told = self._topics.play(leads=False, covered=-1 if last is None else last.seq)
        except SharedTopicsError:
            return
        while self._ended is None and time.monotonic() < ends_s:
            with self._lock:  # what is confirmed is announced by whoever holds it
                last = self._groups.last
            if last is not None and last.roles >= told:
                break
            self.wait(_DRAIN_TURN_S)
        with self._lock:
            self._append(self._announcements.rest(time.monotonic()))
        self._announcer.flush()
        self._noted_s = 0.0
        self.note()

    def close(self) -> None:
        """End the query and all that belongs to it; never raises."""
        if self._coordinator is not None:
            self._coordinator.stop()  # it tells the worker its role
        if self._channel is not None:
            self._channel.close()
        if self._query is not None:
            with suppress(Exception):
                self._query.give_up()
        if self._reader is not None:
            self._reader.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def output_topics(names: TopicNames) -> dict[str, int]:
    """Return the numbers of the topics in which outputs are read back, by name."""
    return {
        names.results: o.RESULTS,
        names.changes: o.CHANGES,
        names.deadletters: o.DEAD_LETTERS,
        names.streams: o.STREAMS,
        names.transactions: o.FOLLOW_UPS,
    }
