"""Run the real-time gear beside the micro-batch gear, in a thread of the driver.

It starts the gear when the log is calm, hands it the lead, and hands the lead back when the log is
too fast for it or when the gear ends. The micro-batch gear leads whenever this one is not there.

A start of the pipeline does not wait for calm: an earlier run has left a base, mostly, with which
the real-time gear answers before the micro-batch gear has run its first batch. Such a base is right
if the log still is the one that was executed (`key_processor.base`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamydb.errors import StreamyError
from streamydb.kafka.errors import KafkaException, KafkaUnavailableError
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import ReadingError
from streamydb.kafka.receiving import TopicEnds
from streamydb.kafka.shared_topics import SharedTopics
from streamydb.key_processor.base import Base
from streamydb.local.shard_files import shard_folder
from streamydb.pipeline.background import Background
from streamydb.pipeline.preparation import require_rest
from streamydb.pipeline.reads import Reads
from streamydb.pipeline.realtime.core import TAIL_BYTES_MAX
from streamydb.pipeline.realtime.files import base_behind
from streamydb.pipeline.realtime.lead import FAULT, GearLead, GearRoles
from streamydb.pipeline.realtime.life import GearEnded, GearLife, GearStart
from streamydb.pipeline.realtime.pace import Pace
from streamydb.pipeline.realtime.report import GearReports, Reach
from streamydb.pipeline.realtime.shifting import LogSample, Shifting
from streamydb.records.control import Handover
from streamydb.records.gears import MICRO_BATCH, REAL_TIME, GearStatus

__all__ = ["ELSEWHERE", "RealTimeGear"]

log = logging.getLogger("streamydb.realtime")

ELSEWHERE: Final = "another pipeline leads"

_SAMPLE_S: Final = 0.1
_TURN_S: Final = 0.05
_QUIET_TURN_S: Final = 0.25  # while nothing comes; a turn asks Kafka and the JVM
_RESTS: Final = 4  # so many of these waits make one while the gear leads and no record waits
_BASE_S: Final = 1.0
_AGAIN_S: Final = (0.0, 1.0, 5.0, 15.0, 60.0)
"""How long to wait after a gear that failed before it had led for long, once and again."""
_BEHIND_MAX: Final = 40_000
"""Records that the micro-batch gear may be behind; it executes them in a third of a second."""
_HURRY_BYTES: Final = TAIL_BYTES_MAX // 2
_DRAIN_S: Final = 2.0
_END_S: Final = 5.0


class RealTimeGear(Background):
    """Keeps a real-time gear while the body runs.

    Args:
        start: what its starts have in common.
        micro_batch: how far the micro-batch gear is.
        leads: whether the micro-batch gear leads.
        reports: is told which gear leads, how far the real-time gear is, and why one has ended.
        ending: set when the pipeline is told to stop; then the micro-batch gear gets the lead.
        reads: of the micro-batch gear.
    """

    def __init__(
        self,
        start: GearStart,
        micro_batch: Callable[[], Reach],
        leads: Callable[[], bool],
        reports: GearReports,
        ending: threading.Event,
        reads: Reads,
    ) -> None:
        super().__init__("streamydb-gears")
        self._start = start
        self._show, self._note, self._count = reports.show, reports.note, reports.count
        self._ending = ending
        self._micro_batch = micro_batch
        self._other_leads = leads
        self.shifting = Shifting()
        self._lead = GearLead(self.shifting)
        self._life: GearLife | None = None
        self._sampled_s = 0.0
        self._elsewhere = False
        self._position = 0
        self._ends = TopicEnds(start.client)
        self._topics = SharedTopics(start.client, start.shard.database)
        shard = start.shard
        folder = shard_folder(Path(start.config.local), shard.database, shard.incarnation, 0)
        self._pace, self._reads = Pace(folder, reads), reads

    def _run(self) -> None:
        self._tell(MICRO_BATCH, "the real-time gear has not begun")
        failures, may_begin = 0, self._may_begin_at_once()
        try:
            while not self._is_over():
                if not may_begin and not self._wait_for_calm():
                    continue
                may_begin = False
                failed = self._one_life()
                failures = min(failures + 1, len(_AGAIN_S) - 1) if failed else 0
                self._stop.wait(_AGAIN_S[failures])
        finally:
            self._pace.hurry()
            self._topics.close()
            self._ends.close()

    def __exit__(self, *error: object) -> None:
        """Stop, and wait a moment for the end of the real-time gear."""
        super().__exit__(*error)
        self._thread.join(_END_S)

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._ending.is_set()

    def _base(self) -> Base | None:
        """Return what the local files say of themselves; None if no gear can begin with them.

        A record that has ended the JVM is read by the micro-batch gear alone: there is room for one
        that reads it.
        """
        config = self._start.config
        return base_behind(config.large_offset, Path(config.local), self._start.shard)

    def _may_begin_at_once(self) -> bool:
        """Look at the base that an earlier run has left;
        return True if the gear may begin with it.
        """
        base = self._base()
        if base is None:
            return False
        self._sample(base.position)
        if not self._lead.may_begin_at_once(_now_ms(), leads=self._other_leads()):
            return False
        log.info("the real-time gear begins with the base of an earlier run")
        return True

    def _is_of_this_log(self, base: Base) -> bool:
        """Return True if the log still is the one that the base has executed.

        One that lost its end while no pipeline ran may have other records there now.
        """
        if base.read is None or not base.read.mark:
            return self._micro_batch().position > 0  # that one has looked at the log in this run
        topic = TopicNames(self._start.shard.database).transactions
        try:
            require_rest(self._start.client, topic, {0: base.read})
        except (StreamyError, ReadingError) as error:
            log.warning("the base of the real-time gear is not of this log: %s", error)
            return False
        return True

    def _wait_for_calm(self) -> bool:
        """Look at the log; return True if a gear may begin: this pipeline leads, the log is calm.

        Where another pipeline leads, that one has the real-time gear, or two would take turns.
        """
        self._sample(self._micro_batch().position)
        if self.shifting.wants_up(_now_ms()):
            if self._other_leads():
                self._elsewhere = False
                return True
            if not self._elsewhere:
                self._elsewhere = True
                self._tell(MICRO_BATCH, ELSEWHERE)
        self._stop.wait(_SAMPLE_S)
        return False

    def _sample(self, position: int, *, overtaken: bool = False) -> None:
        now_s = time.monotonic()
        if now_s - self._sampled_s < _SAMPLE_S:
            return
        self._sampled_s = now_s
        name = TopicNames(self._start.shard.database).transactions
        try:
            end = self._ends.look(name, (0,))[0]
        except KafkaUnavailableError:
            return
        self.shifting.note(LogSample(_now_ms(), end, position, overtaken))

    def _one_life(self) -> bool:
        """Start a gear, and let it live until it ends or is too slow; return True if it failed.

        A gear fails if it ends of itself before it has led for a while.
        """
        base = self._base()
        if base is None:
            self._stop.wait(_BASE_S)  # the micro-batch gear is about to leave one
            return False
        if not self._is_of_this_log(base):
            return False
        self._lead.begin(_now_ms())
        self._position, failed = base.position, False
        try:
            self._life = GearLife(self._start, base)
            while not self._is_over() and self._turn(self._life):
                pass
        except GearEnded as error:
            log.info("the real-time gear has ended (%s): %s", error.reason, error)
            failed = self._end(error.reason, str(error))
        except (StreamyError, ReadingError, KafkaException, PySparkException, Py4JError) as error:
            why = (str(error) or type(error).__name__).splitlines()[0]
            log.warning("the real-time gear could not go on: %s", why)
            failed = self._end(FAULT, why)
        finally:
            self._wake()
            if self._ending.is_set() and self._life is not None and self._life.leads:
                self._life.drain(_DRAIN_S)
            self._give_back()
            life, self._life = self._life, None
            if life is not None:
                life.close()
        return failed

    def _end(self, reason: str, why: str) -> bool:
        """Report the end of a gear; return True if it failed before it had led for long."""
        self._count(reason)
        self._tell(MICRO_BATCH, why)
        return self._lead.fail(reason, _now_ms())

    def _tell(self, gear: str, why: str, worker: int | None = None) -> None:
        self._show(GearStatus(gear, time.time_ns() // 1_000_000, why, worker))

    def _turn(self, life: GearLife) -> bool:
        """Do what is due; return False if the other gear has the lead and is to keep it."""
        self._await_turn(life)
        life.require()
        life.note()
        self._look(life)
        decision = self._lead.decide(self._roles())
        if decision.led:
            log.info("the real-time gear leads")
            self._tell(REAL_TIME, decision.why, life.worker)
            self._reads.few()
        if decision.leave:
            log.info("%s; the other one is to lead", decision.why)
            self._pace.hurry()
        if decision.counts is not None:
            self._wake()  # the other gear may have taken the lead unasked
            self._count(decision.counts)
            self._tell(MICRO_BATCH, decision.why)
        self._ask(decision.ask)
        return not decision.ends

    def _await_turn(self, life: GearLife) -> None:
        """Wait until a turn is due, or something asks for one: that the worker executes after a
        quiet time, or that a role changes.
        """
        if not life.is_quiet():
            life.wait(_TURN_S)
            return
        rests = self._lead.stage == "leading" and self.shifting.is_done()
        for _ in range(_RESTS if rests else 1):
            if life.wait(_QUIET_TURN_S) or self._is_over():
                return

    def _roles(self) -> GearRoles:
        life, now_ms, other_leads = self._life, _now_ms(), self._other_leads()
        if life is None:
            return GearRoles(now_ms, other_leads)
        return GearRoles(now_ms, other_leads, life.leads, life.ready, life.writes_on, life.expires)

    def _look(self, life: GearLife) -> None:
        """See how far both gears are."""
        other, confirmed = self._micro_batch(), life.confirmed
        if confirmed is None:
            self._sample(max(other.position, self._position))
            return
        leads = self._lead.stage == "leading"
        self._sample(confirmed.position, overtaken=leads and other.seq > confirmed.seq)
        if leads:
            behind = confirmed.position - other.position
            far = behind > _BEHIND_MAX or confirmed.tail_bytes > _HURRY_BYTES
            self._keep_pace(hurry=far or life.nearly_expires)
        self._note(Reach(confirmed.seq, confirmed.position))

    def _keep_pace(self, *, hurry: bool) -> None:
        """Have the micro-batch gear follow in few batches.

        Unless it is to say what it knows, or is too far behind to take the lead soon.
        """
        if hurry or self.shifting.is_doubtful(_now_ms()):
            self._pace.hurry()
        else:
            self._pace.slow_down()

    def _wake(self) -> None:
        """Have the micro-batch gear answer as fast as it can."""
        self._pace.hurry()
        self._reads.many()

    def _ask(self, gear: str | None) -> None:
        """Ask a gear of this pipeline to take the lead; it does when it is ready."""
        if gear is None:
            return
        life, target = self._life, self._start.shard.incarnation
        if gear == REAL_TIME and life is not None:
            target = life.incarnation
        self._topics.say(Handover(log=self._start.log_id, pipeline="", target=target))

    def _give_back(self) -> None:
        """Have the micro-batch gear lead."""
        try:
            self._ask(self._lead.give_back(self._roles()))
        except StreamyError as error:
            log.warning("the micro-batch gear is not asked to lead: %s", error)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
