"""The simulated pipeline: the real pure classes, and everything around them that can go wrong.

A micro-batch is what Spark makes of it: offsets are logged; each shard takes its step on a copy of
its state; partitions execute; records are written; the batch is committed. A crash anywhere loses
the copies and begins the same batch again; what was written stays written, and local caches stay,
vanish, or are old ones. The driver that repeats it has other limits, and perhaps is of another
release, which packs conflict groups otherwise.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, pairwise
from typing import Final, TypeVar
from unittest import mock

import msgspec
import numpy as np

from simulator.caches import Caches, FolderCaches, LateWorkers, MemoryCaches, Step
from simulator.faults import Release, SimulatedRulings, packed_otherwise, running
from simulator.large_values import VALUES_BYTES, GrantedBytes, forget_sizes
from simulator.log import SimulatedLog
from simulator.procedures import MODULES
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.protocol import Message
from streamydb.frames.readers import TO_EXECUTOR, TO_GATHERER, TO_SHARD, TO_SINGLE_SHARD
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.id_rows import IdTables
from streamydb.key_processor.locking.core import SingleShard
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.key_processor.process_cache import ProcessCache
from streamydb.key_processor.state import NOT_YET, ShardOutput
from streamydb.key_processor.value_store import ValueStore
from streamydb.parser.core import Routed, parse_feedback, parse_transactions
from streamydb.planner import core as planning
from streamydb.records import decode_marker, decode_result
from streamydb.records.rulings import Fault, ReadBefore, Suspects, TooLate, UnruledFaults
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.gathering.core import Gatherer
from streamydb.txn_processor.outputs import open_output, output_block
from streamydb.verify.oracle.order import LogRecord

__all__ = ["Checkpoint", "Cluster", "WrittenRecord"]

_Block = TypeVar("_Block")
_CACHES = (*[MemoryCaches] * 5, FolderCaches)
_LATE = (0.0, 0.02, 0.1, 0.3)
"""Whether the caches are the real ones, and how often a late worker is in the way."""


_PLAN_LIMITS: Final = (10, 60, 100_000)
_FEEDBACK_BYTES: Final = (150, 1_000, 800_000, 800_000)


class _Crash(Exception):  # noqa: N818 - what the simulation throws at itself
    """The driver dies here."""


@dataclass(slots=True, frozen=True)
class WrittenRecord:
    """A record in an output topic; ``batch`` wrote it.

    ``announced``: the driver did, when that batch had ended. ``after``: of a tombstone, the change
    that it follows, where that is not the record before it.
    """

    topic: int
    key: bytes | None
    value: bytes | None
    batch: int
    announced: bool = False
    after: bytes = b""

    def at(self, batch: int) -> WrittenRecord:
        """Return the record as ``batch`` writes it."""
        return WrittenRecord(self.topic, self.key, self.value, batch, self.announced, self.after)


@dataclass(slots=True)
class _Node:
    """One shard and executing partition: their durable states, and the shard's local caches."""

    caches: Caches
    late: LateWorkers
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    gathered: MemoryBlobs = field(default_factory=MemoryBlobs)


def _nodes(config: ShardConfig) -> list[_Node]:
    """Empty ones."""
    dice = random.Random(f"caches {config.incarnation}")  # noqa: S311 - to be repeatable
    kind, chance = dice.choice(_CACHES), dice.choice(_LATE)
    return [_Node(kind(), LateWorkers(dice, chance)) for _ in range(config.shards)]


@dataclass(slots=True)
class _Batch:
    """The input of a micro-batch: per partition of the log, and per partition of the feedback."""

    number: int
    log: dict[int, tuple[int, int]]
    feedback: dict[int, tuple[int, int]]


@dataclass(slots=True)
class Checkpoint:
    """A copy of a checkpoint folder: states, what they had read, and the batch that was begun."""

    states: list[tuple[dict[str, bytes], dict[str, bytes]]]
    log: dict[int, int]
    feedback: dict[int, int]
    interrupted: _Batch | None


class Cluster:
    """Runs micro-batches over a log until it is told to stop.

    ``events``: how often what has happened.
    """

    def __init__(
        self,
        config: ShardConfig,
        log: SimulatedLog,
        rng: random.Random,
        *,
        crashes: float,
        written: list[WrittenRecord] | None = None,
        clock: Iterator[int] | None = None,
        large: bool = False,
    ) -> None:
        """Begin with empty shards; a step fails with probability ``crashes``.

        Clusters over one log share what is ``written``, and the ``clock`` that numbers batches.
        ``large``: values are large beside the limits; see `large_values`.
        """
        self.config, self.events = config, Counter[str]()
        self.single = config.grouping == "single"
        self.log = log
        self.random = rng
        self.crashes = crashes
        self.large = large
        self.limit_plans(rng.choice(_PLAN_LIMITS))
        self._dice = random.Random(f"lives of {config.incarnation}")  # noqa: S311 - repeatable
        self._other_release = False
        self._cache = ProcessCache()
        self.nodes = _nodes(config)
        self.feedback: list[list[bytes]] = [[] for _ in range(config.shards)]
        self.written: list[WrittenRecord] = [] if written is None else written
        self.resolved = 0
        self.read_log: dict[int, int] = {}
        self._read_feedback = dict.fromkeys(range(config.shards), 0)
        self.topic = SimulatedRulings()
        self.rulings = self.topic.rulings()
        self.code: Release | None = None
        self.epoch, self.leads, self.settled, self.begun = 1, True, True, 0
        self._suspects = Suspects()
        self.clock = count() if clock is None else clock
        self._interrupted: _Batch | None = None
        self._resolving = 0
        self._resolves = ""

    def limit_plans(self, records_max: int) -> None:
        """The driver was started with this plan limit."""
        self.plan_limit = records_max
        shape = PlanShape(records_max=records_max)
        if self.large:
            bound = VALUES_BYTES[len(self.log.partitions) % len(VALUES_BYTES)]
            shape = msgspec.structs.replace(shape, values_bytes_max=bound)
        self.life = Life("first", shape)

    def behind(self) -> bool:
        """Return True if log or feedback has not been read."""
        unread = any(
            self.read_log.get(q, 0) < len(records) for q, records in self.log.partitions.items()
        )
        fed = any(self._read_feedback[s] < len(self.feedback[s]) for s in self._read_feedback)
        return unread or fed

    def has_read(self, feedback: int) -> bool:
        """Return True if so much feedback of shard 0 was read, in batches that have ended."""
        return self._read_feedback[0] >= feedback and self._interrupted is None

    def news(self) -> bool:
        """Return True if anything but markers has not been read."""
        return any(
            decode_marker(record.value or b"") is None
            for q, records in self.log.partitions.items()
            for record in records[self.read_log.get(q, 0) :]
        )

    def batch(self, *, all_of_it: bool = False, gives_up: bool = False) -> None:
        """One micro-batch, crashed and repeated as often as chance has it.

        ``gives_up``: after a crash the same batch is only repeated by the next call.
        """
        batch = self._interrupted or self._choose(all_of_it=all_of_it)
        if not any(a < b for a, b in [*batch.log.values(), *batch.feedback.values()]):
            return
        batch.number = next(self.clock)
        attempts = 0
        while True:
            attempts += 1
            try:
                copies = [
                    (MemoryBlobs(node.blobs.blobs), MemoryBlobs(node.gathered.blobs))
                    for node in self.nodes
                ]
                self._attempt(batch, copies, calm=all_of_it or attempts > 3)
                break
            except _Crash:
                self._lose_caches()
                self.start_anew()
                if gives_up:
                    self._interrupted = batch
                    return
            except UnruledFaults as error:
                self.start_anew()
                if self.leads and not self.settled:
                    self._interrupted = batch
                    return
                self._rule(error.faults)
            except TooLate:
                self._upgrade()
                self.start_anew()
            except ReadBefore:
                self.begin_anew()
                return
            except (MemoryError, OSError):
                self.start_anew()
        self._interrupted, self.resolved = None, max(self.resolved, self._resolving)
        self._announce(batch.number)
        for node, (blobs, gathered) in zip(self.nodes, copies, strict=True):
            node.blobs, node.gathered = blobs, gathered
        self.read_log.update({q: end for q, (_, end) in batch.log.items()})
        self._read_feedback.update({s: end for s, (_, end) in batch.feedback.items()})
        if self.large and not self.single and self._dice.random() < 0.02:
            forget_sizes(node.blobs for node in self.nodes)

    def checkpoint(self) -> Checkpoint:
        """A copy of the checkpoint folder."""
        states = [(dict(node.blobs.blobs), dict(node.gathered.blobs)) for node in self.nodes]
        interrupted = copy.deepcopy(self._interrupted)
        return Checkpoint(states, dict(self.read_log), dict(self._read_feedback), interrupted)

    def put_back(self, kept: Checkpoint) -> None:
        """A copy of the checkpoint folder takes its place; whatever lies elsewhere stays."""
        for node, (blobs, gathered) in zip(self.nodes, kept.states, strict=True):
            node.blobs, node.gathered = MemoryBlobs(dict(blobs)), MemoryBlobs(dict(gathered))
            node.late.end()
        self.read_log, self._read_feedback = dict(kept.log), dict(kept.feedback)
        self._interrupted = copy.deepcopy(kept.interrupted)
        self.start_anew()

    def forget_feedback(self, kept: Sequence[Checkpoint]) -> None:
        """Delete the feedback that all these checkpoints have read."""
        for shard, blocks in enumerate(self.feedback):
            read = min(each.feedback[shard] for each in kept)
            blocks[:read] = [b""] * read

    def start_anew(self) -> None:
        """The driver starts again, with whatever limits, as whatever release, and all rulings."""
        self.take_rulings()
        dice = self._dice
        most = dice.choice((self.plan_limit, *_PLAN_LIMITS))
        shape = PlanShape(
            records_max=most,
            feedback_bytes_max=dice.choice(_FEEDBACK_BYTES),
            bytes_max=dice.choice((2_000, 1 << 27)),
        )
        if self.large:
            bound = dice.choice(VALUES_BYTES)
            shape = msgspec.structs.replace(shape, values_bytes_max=bound)
        self.life = Life(f"{dice.getrandbits(64):016x}", shape)
        self._other_release = dice.random() < 0.3
        self._cache.forget()  # workers of the release before are gone

    def take_rulings(self) -> None:
        """Take in all that was ruled, as a query does that is started."""
        self.rulings = self.topic.rulings()

    def _release(self) -> AbstractContextManager[object]:
        """The planner of the release that runs."""
        if not self._other_release:
            return nullcontext()
        return mock.patch.object(planning, "plan_transactions", packed_otherwise)

    def _rule(self, faults: list[Fault]) -> None:
        """Act as the driver does when our own code has failed; it may die before each step."""
        rng = self.random
        if rng.random() < self.crashes:
            self._suspects = Suspects()
        if self.leads:
            confirmed = self._suspects.confirm(faults)
            known = self._known(confirmed)
            confirmed = [fault for fault in confirmed if fault not in known]
            if rng.random() < self.crashes:
                self._suspects = Suspects()
                confirmed = confirmed[: rng.randint(0, len(confirmed))]
            self.topic.rule(confirmed, self.epoch)
        self.rulings = self.topic.rulings()
        void = self.leads and any(
            self.rulings.get((fault.partition, fault.offset)) is None for fault in confirmed
        )
        if not self.leads or known or void:
            self._upgrade()

    def _known(self, faults: list[Fault]) -> list[Fault]:
        """Those of which somebody has written a result."""
        if not faults:
            return []
        results = [decode_result(r.value or b"") for r in self.written if r.topic == o.RESULTS]
        sources = [result.duplicate or result.source for result in results]
        places = {(source.partition, source.offset) for source in sources}
        return [fault for fault in faults if (fault.partition, fault.offset) in places]

    def begin_anew(self) -> None:
        """A new checkpoint, with which all is executed from the beginning of the log."""
        self.config = msgspec.structs.replace(
            self.config, incarnation=f"{self.config.incarnation}'"
        )
        self.start_anew()
        self.nodes = _nodes(self.config)
        self.read_log, self.resolved, self._resolving, self._interrupted = {}, 0, 0, None
        self.begun += 1

    def _upgrade(self) -> None:
        """Somebody starts the release that can go on."""
        if self.code is not None:
            self.code = self.code.mended()

    def _choose(self, *, all_of_it: bool) -> _Batch:
        rng = self.random
        log, feedback = {}, {}
        for q, records in self.log.partitions.items():
            start = self.read_log.get(q, 0)
            end = len(records)
            if not all_of_it and rng.random() < 0.6:
                end = rng.randint(start, end)
            log[q] = (start, end)
        for s, blocks in enumerate(self.feedback):
            start, end = self._read_feedback[s], len(blocks)
            if not all_of_it and rng.random() < 0.15:
                end = rng.randint(start, end)
            feedback[s] = (start, end)
        return _Batch(0, log, feedback)

    def _attempt(
        self, batch: _Batch, copies: list[tuple[MemoryBlobs, MemoryBlobs]], *, calm: bool
    ) -> None:
        with running(self.code):
            self._run(batch, copies, calm=calm)

    def _run(
        self, batch: _Batch, copies: list[tuple[MemoryBlobs, MemoryBlobs]], *, calm: bool
    ) -> None:
        rng = self.random
        inputs = self._parse(batch)
        self._resolves = ""
        granted: list[list[bytes]] = [[] for _ in self.nodes]
        bytes_granted = None
        if self.large:
            bytes_granted = GrantedBytes(copies[0][0], single=self.single)
        for done, number in enumerate(rng.sample(range(len(self.nodes)), len(self.nodes))):
            node, blobs = self.nodes[number], copies[number][0]
            if not done or (batch.number + number) % 2:  # by another process
                self._cache.forget()
            steps = self._steps(number, blobs, inputs[number])
            with self._release():
                for emitted in node.late.take(*steps, node.caches):
                    granted[emitted.proc].append(emitted.message.block())
                    self._resolving = max(self._resolving, -emitted.seq)
                    self._resolves = max(self._resolves, emitted.resolves)
                    if bytes_granted is not None:
                        bytes_granted.add(number, emitted.message)
            self._maybe_crash(calm=calm)
        if bytes_granted is not None:
            bytes_granted.judge(self.config.shards)
        for number, blocks in self._tasks(granted):
            for records in self._execute(number, blocks, copies[number][1]):
                if bytes_granted is not None:
                    bytes_granted.make(number, records, self.log)
                self._write(records, batch.number)
                self._maybe_crash(calm=calm)
        if bytes_granted is not None:
            bytes_granted.judge_made()
        self._maybe_crash(calm=calm)

    def _tasks(self, granted: list[list[_Block]]) -> Iterator[tuple[int, list[_Block]]]:
        """Executing tasks: the blocks of one partition each, or one task with those of all.

        With large values each partition has its own, because what it makes is judged.
        """
        rng = self.random
        numbers = rng.sample(range(len(granted)), len(granted))
        if not self.single and not self.large and rng.random() < 0.5:
            granted, numbers = [list(chain.from_iterable(granted))], [0]
        for number in numbers:
            rng.shuffle(granted[number])
            yield number, granted[number]

    def _steps(self, number: int, blobs: MemoryBlobs, blocks: list[bytes]) -> tuple[Step, Step]:
        """A shard's step on the state in ``blobs``; and as often as wanted on a copy of it."""
        life, config, cache, before = self.life, self.config, self._cache, dict(blobs.blobs)

        def on(
            own: MemoryBlobs, values: ValueStore, tables: IdTables
        ) -> list[ShardOutput[Message]]:
            rest = config, number, own, values, tables, life
            if self.single:
                return [*SingleShard(*rest, cache=cache).step(TO_SINGLE_SHARD.each(blocks))]
            return [*KeyTransactionProcessor(*rest, cache=cache).step(TO_SHARD.each(blocks))]

        return partial(on, blobs), lambda *caches: on(MemoryBlobs(before), *caches)

    def _execute(
        self, number: int, blocks: list[bytes], gathered: MemoryBlobs
    ) -> Iterator[o.OutputRecords]:
        if not self.single:
            processor = TransactionProcessor(
                self.config, self.config.shards, 2, MODULES, self.rulings
            )
            for item in processor.step(TO_EXECUTOR.each(blocks)):
                yield open_output(output_block(item), self.config.database)
        elif blocks:
            gatherer = Gatherer(self.config, number, gathered, 2, MODULES, self.rulings)
            yield from gatherer.step(TO_GATHERER.each(blocks))

    def _parse(self, batch: _Batch) -> list[list[bytes]]:
        inputs: list[list[bytes]] = [[] for _ in self.nodes]
        for routed in self._routed(batch):
            inputs[routed.shard].append(routed.block)
        for blocks in inputs:
            self.random.shuffle(blocks)
        return inputs

    def _routed(self, batch: _Batch) -> Iterator[Routed[Message]]:
        for q, (start, end) in batch.log.items():
            for records in self._pieces(self.log.partitions[q][start:end]):
                yield from parse_transactions(
                    np.full(len(records), q, np.int32),
                    np.array([r.offset for r in records], np.int64),
                    np.array([r.append_ms for r in records], np.int64),
                    [r.value for r in records],
                    self.config.shards,
                    whole=self.single,
                    rulings=self.rulings,
                )
        for s, (start, end) in batch.feedback.items():
            values = self.feedback[s][start:end]
            yield from parse_feedback(values, self.config, range(start, end))

    def _pieces(self, records: list[LogRecord]) -> Iterator[list[LogRecord]]:
        """Several tasks may read one partition, each a range of its offsets."""
        rng = self.random
        cuts = sorted(rng.choices(range(len(records) + 1), k=rng.choice([0, 0, 0, 0, 1, 3])))
        for start, end in pairwise([0, *cuts, len(records)]):
            if end > start:
                yield records[start:end]

    def _write(self, records: o.OutputRecords, batch: int) -> None:
        if records.topic == o.FEEDBACK:
            self.feedback[records.partition] += records.values.tolist()
            return
        if records.topic == o.FOLLOW_UPS:
            for value in records.values.tolist():
                self.log.append(value or b"", records.partition)
        for key, value in zip(records.keys.tolist(), records.values.tolist(), strict=True):
            self.written.append(WrittenRecord(records.topic, key or None, value or None, batch))

    def _announce(self, batch: int) -> None:
        """As the driver: say what the batch that has just been committed has resolved."""
        if self._resolves and self._resolves != NOT_YET:
            value = self._resolves.encode()
            self.written.append(WrittenRecord(o.CHANGES, None, value, batch, announced=True))

    def _maybe_crash(self, *, calm: bool) -> None:
        if not calm and self.random.random() < self.crashes:
            raise _Crash

    def _lose_caches(self) -> None:
        """Local files after a crash: as they were, gone, or from an older time."""
        for node in self.nodes:
            draw = self.random.random()
            if draw < 0.2:
                node.caches.lose()
            elif draw < 0.3:
                node.caches.revert()
            if self.random.random() < 0.3:
                node.caches.keep()
