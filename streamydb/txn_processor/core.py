"""The TransactionProcessor: from what the shards grant to results, changes and feedback."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamydb import limits
from streamydb.columns import program as p
from streamydb.columns.digest import write_deltas
from streamydb.columns.grant_rows import GrantedTransactions, RangeRows, SlotRows
from streamydb.columns.messages import (
    Deltas,
    DigestRecords,
    Feedback,
    Grant,
    KeyRemovals,
    KnownResults,
    Notice,
    ResolvedRecord,
)
from streamydb.columns.plans import PlanName
from streamydb.columns.readers import ToExecutor, ToGatherer
from streamydb.columns.shards import ShardConfig
from streamydb.columns.sizes import only_system, over_by, text_bytes
from streamydb.columns.table import Array, Ragged
from streamydb.columns.timeline import Timeline
from streamydb.columns.value_rows import ValueRows, Verdicts, WrittenValues
from streamydb.errors import InvariantViolation
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records.rulings import NO_RULINGS, Fault, Rulings, UnruledFaults, require_ruled
from streamydb.txn_processor import checks
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.execution import execute_grants
from streamydb.txn_processor.feedback import feedback_chunks
from streamydb.txn_processor.granted_ranges import RangeParts
from streamydb.txn_processor.outcome import ExecutionOutcome, Most

__all__ = ["TransactionProcessor", "passed_on"]


class TransactionProcessor:
    """An executing task of the plans: executes what partitions were granted, says what came of it.

    In: grants to one partition, or to all of them, one or more from every shard for each
    partition, in any order: transactions from the shards of their ids, values from the shards of
    the keys. Resolved records, digests and results that are known, too, which have nothing to
    execute.

    Out: results, changes, dead letters and what workflows emit, as rows still to be formatted; then
    feedback to every shard: the last value of each key that was written, and the results that it
    cannot make up itself. If a plan makes too much, only feedback that says so.

    State: none. What it is made with does not change: the configuration, into how many tasks
    formatting is spread, the code of procedures, and the rulings. So any task can be any
    partition, and a batch that is repeated gives the same bytes.

    Invariants: transactions of a plan run serially in seq order; all checks of a transaction see
    the state before it, and its reads the state after it; an aborted one writes nothing; an output
    is named by its seq, and by its number within the transaction; a silent plan gives feedback and
    nothing else.

    A transfer: the grant has ``t1`` with seq 7 and its steps, the value 100 and version 3 of
    ``alice``, and the value 20 and version 5 of ``bob``. The kernel adds -30 and 30, and no bound
    is violated. So there come out a result (``t1`` committed), two changes (100 to 70, 20 to 50),
    and feedback: ``alice`` is 70 and ``bob`` 50, both of version 7.
    """

    def __init__(
        self,
        config: ShardConfig,
        spreads: int,
        changes_partitions: int,
        modules: Modules = NO_MODULES,
        rulings: Rulings = NO_RULINGS,
    ) -> None:
        """Execute for the shards of ``config``.

        Args:
            config: the division into shards.
            spreads: how many tasks format the outputs.
            changes_partitions: partitions of the changes topic; each gets the resolved records.
            modules: where the code of procedures is.
            rulings: which transactions are aborted, because our own code failed on them.

        """
        self._config = config
        self._spreads = spreads
        self._changes_partitions = changes_partitions
        self._modules = modules
        self._rulings = rulings

    def step(self, messages: Iterable[ToExecutor]) -> Iterator[o.Output]:
        """Execute what one micro-batch brings; yields outputs to be formatted, feedback last.

        Raises:
            UnruledFaults: our own code failed on transactions that nobody has ruled on.
            InvariantViolation: the same, on transactions that another pipeline has executed.

        """
        parts: dict[_Part, _Grants] = {}
        for grant in messages:
            if not isinstance(grant, Grant):
                yield from passed_on(grant, self._changes_partitions, self._spreads)
                continue
            found = parts.setdefault(_Part.of(grant), _Grants())
            found.add(grant)
            found.add_ranges(grant)
        checks.one_plan(part.plan for part in parts)
        unruled: list[Fault] = []
        for part, found in sorted(parts.items(), key=_first):
            try:
                yield from self._executed(part, found)
            except UnruledFaults as stop:  # of the other parts, too, before anybody rules
                unruled += stop.faults
        require_ruled(unruled)

    def _executed(self, part: _Part, found: _Grants) -> Iterator[o.Output]:
        """Execute the partition's part of one plan."""
        grants, most = found.in_order(), Most(part.plan.first, part.makes_max)
        checks.granted(part.plan, grants, found.parts, found.members)
        config = self._config
        more = tuple(sorted(found.more))
        if found.left_out:
            yield from self._withdrawn(part, more, 0, found.left_out - part.plan.first)
            return
        outcome = execute_grants(
            grants,
            self._modules,
            self._rulings,
            over=found.over,
            most=most,
            ranges=RangeParts(found.ranges, config.shards),
            timeline=found.timeline,
        )
        require_ruled(outcome.unruled, executed=part.silent)
        made = outcome.made if part.makes_max else None
        if outcome.fits:
            yield from self._withdrawn(part, more, made, outcome.fits)
            return
        checks.executed(part.plan, outcome, grants)
        if not part.silent:
            yield from o.outputs_of(outcome, self._spreads)
        deltas = _deltas(outcome, grants, config)
        ends = bool((outcome.slots["tag"][outcome.slots["dirty"] != 0] == p.EXPIRING).any())
        chunked = feedback_chunks(outcome, config.shards, part.feedback_bytes_max)
        for each in checks.fed(part.plan, outcome, chunked):
            told = Feedback(
                plan=part.plan,
                incarnation=config.incarnation,
                proc=part.proc,
                more=more,
                made=made,
                shard=each.shard,
                chunk=each.chunk,
                chunks=each.chunks,
                deltas=[] if each.chunk else deltas[each.shard],
                ends=ends,
                sizes=each.sizes,
                writes=each.writes,
                verdicts=each.verdicts,
            )
            yield o.Told(told)

    def _withdrawn(
        self, part: _Part, more: tuple[int, ...], made: int | None, fits: int
    ) -> Iterator[o.Told]:
        """Return the feedback of a partition that has stopped: its plan produces too much."""
        for shard in range(self._config.shards):
            told = Feedback(
                plan=part.plan,
                incarnation=self._config.incarnation,
                proc=part.proc,
                more=more,
                made=made,
                fits=fits,
                shard=shard,
                chunk=0,
                chunks=1,
                deltas=[],
                writes=WrittenValues.none(),
                verdicts=Verdicts.none(),
            )
            yield o.Told(told)


class _Part(NamedTuple):
    """The part of a plan that some grants are, and what they say of it."""

    plan: PlanName
    proc: int
    silent: bool
    feedback_bytes_max: int
    makes_max: int

    @classmethod
    def of(cls, grant: Grant) -> _Part:
        """The part of which a grant is."""
        return cls(grant.plan, grant.proc, grant.silent, grant.feedback_bytes_max, grant.makes_max)


@dataclass(slots=True)
class _Grants:
    """The grants of all shards to one partition: by shard and number, transactions and slots.

    ``over``: the plan is one transaction, whose keys hold too many bytes. Then their values are not
    kept, whoever sent them. ``ranges``: of each block. ``left_out``: the seq from which on ranges
    did not fit into the plan; 0: all did. ``more``: partitions of the plan beside those that
    execute. ``timeline``: where keys may end.
    """

    parts: dict[tuple[int, int], tuple[GrantedTransactions, SlotRows]] = field(default_factory=dict)
    ranges: list[RangeRows] = field(default_factory=list)
    left_out: int = 0
    timeline: Timeline | None = None
    over: bool = False
    met: int = 0
    members: int = 0
    more: set[int] = field(default_factory=set)

    def add(self, grant: Grant) -> None:
        """Take one."""
        self.members = grant.members
        if grant.more is not None:
            self.more.add(grant.more)
        self.parts[grant.shard, grant.chunk] = grant.txns, grant.slots
        self.timeline = grant.timeline or self.timeline
        now = 0 if self.timeline is None else int(self.timeline.ts[-1])
        if grant.alone:
            self.met += text_bytes(grant.slots, now)
            self.over |= grant.over or self.met > limits.TRANSACTION_VALUES_BYTES_MAX
        if self.over:
            self.parts = {
                at: (txns, _emptied(rows, now)) for at, (txns, rows) in self.parts.items()
            }

    def add_ranges(self, grant: Grant) -> None:
        """Take the ranges of a grant, if it has some."""
        left_out = grant.left_out or 0
        self.left_out = min(self.left_out or left_out, left_out or self.left_out)
        if grant.ranges is not None and len(grant.ranges):
            self.ranges.append(grant.ranges)

    def in_order(self) -> list[tuple[int, GrantedTransactions, SlotRows]]:
        """(shard, transactions, slots), the same whatever order they came in."""
        return [(shard, *grant) for (shard, _), grant in sorted(self.parts.items(), key=_first)]


def _first(item: tuple[Any, Any]) -> Any:
    return item[0]


def _emptied(slots: SlotRows, now: int) -> SlotRows:
    """Drop the values of all slots but those of the database's own keys,
    and those that have ended.
    """

    def values(chosen: Array) -> ValueRows:
        found = slots.take(chosen)
        return ValueRows(found.tag, found.number, found.version, found.text)

    left = only_system(slots.key, values, over_by(slots, now))
    return SlotRows(
        left.tag,
        left.number,
        left.version,
        slots.slot,
        slots.covered,
        slots.written,
        left.text,
        slots.key,
    )


def passed_on(
    message: ToExecutor | ToGatherer, changes_partitions: int, spreads: int = 1
) -> Iterator[o.Output]:
    """The outputs of a message that has nothing to execute."""
    if isinstance(message, DigestRecords):
        yield o.Records(o.DIGESTS, message.records.key, message.records.value)
    elif isinstance(message, KnownResults):
        yield o.Records(o.RESULTS, message.records.key, message.records.value)
    elif isinstance(message, KeyRemovals):
        yield from o.removals(message.changes, spreads)
    elif isinstance(message, ResolvedRecord):
        value = Ragged.of([message.value])
        for partition in range(0 if message.silent else changes_partitions):
            yield o.Records(o.CHANGES, Ragged.empty(1), value, 0, partition)
    elif isinstance(message, o.ToShards):  # shards tell each other something
        yield o.Told(message)
    elif not isinstance(message, Notice):  # that is for the driver
        raise InvariantViolation(f"{type(message).__name__} came to who has nothing to execute")


def _deltas(
    outcome: ExecutionOutcome,
    grants: list[tuple[int, GrantedTransactions, SlotRows]],
    config: ShardConfig,
) -> list[Deltas]:
    """Return, per shard, the change of its digest by the writes: (interval, low, high)."""
    met = np.concatenate([slots.version for _, _, slots in grants]).astype(np.int64)
    first, sums = write_deltas(
        outcome.writes,
        outcome.places.table.seq,
        outcome.slot_keys,
        met,
        outcome.slot_home,
        outcome.pool,
        config.digest_interval,
        config.shards,
    )
    return [
        [(first + i, low, high) for i, (low, high) in enumerate(rows) if low or high]
        for rows in sums.tolist()
    ]
