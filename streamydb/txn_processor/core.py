"""The TransactionProcessor: from the grants of the shards to results, changes and feedback."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

import numpy as np

from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.digest import write_deltas
from streamydb.frames.grant_rows import GrantedTransactions, SlotRows
from streamydb.frames.messages import (
    Deltas,
    DigestRecords,
    Feedback,
    Grant,
    KeyRemovals,
    KnownResults,
    Notice,
    ResolvedRecord,
)
from streamydb.frames.plans import Timeline
from streamydb.frames.readers import ToExecutor, ToGatherer
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records.rulings import NO_RULINGS, Fault, Rulings, UnruledFaults, require_ruled
from streamydb.txn_processor import checks
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.enforce import Rules
from streamydb.txn_processor.execution import (
    Calls,
    PartGrants,
    PlanPart,
    conclude,
    executed_in_time,
    meets_too_much,
    outcome_of,
    part_of,
    refuse,
    send_ruled,
    size_by_bytes,
    to_be_weighed,
)
from streamydb.txn_processor.expiry import Ending
from streamydb.txn_processor.feedback import feedback_chunks
from streamydb.txn_processor.kernel import BY_KERNEL, BY_PYTHON
from streamydb.txn_processor.outcome import ExecutionOutcome, OutputBudget, Places
from streamydb.txn_processor.plain_calls import PlainCalls
from streamydb.txn_processor.ranges import NO_PARTS, GrantedRanges, RangeParts
from streamydb.txn_processor.run import Kernel, prepared

_ANY_BYTES: Final = OutputBudget()

_PART_CALLS: Final = 4_096
"""The outputs of so many calls are given out before the next ones are executed: meanwhile another
processor hands them to Kafka, which takes less time.
"""


class TransactionProcessor:
    """Executes partitions of a plan: from the grants of the shards to the outputs.

    In: grants to one partition, or to all of them, one or more from every shard for each
    partition, in any order: transactions from the shards of their ids, values from the shards of
    the keys. Also resolved records, digests and known results, which have nothing to
    execute.

    Out: results, changes, dead letters and what workflows emit, as rows still to be formatted; then
    feedback to every shard: the last value of each key that was written, and the results that it
    cannot make up itself. If a plan makes too much, only feedback that says so; outputs of its
    first calls may have been given before, and are given again, to the byte, when they are planned
    anew.

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
        Raises UnruledFaults: our own code failed on transactions that nobody has ruled on. Raises
        InvariantViolation: the same, on transactions that another pipeline has executed.
        """
        parts: dict[PlanPart, PartGrants] = {}
        for grant in messages:
            if not isinstance(grant, Grant):
                yield from passed_on(grant, self._changes_partitions, self._spreads)
                continue
            parts.setdefault(PlanPart.of(grant), PartGrants()).add(grant)
        checks.one_plan(part.plan for part in parts)
        unruled: list[Fault] = []
        for part, grants in sorted(parts.items(), key=itemgetter(0)):
            try:
                yield from self._executed(part, grants)
            except UnruledFaults as stop:  # of the other parts, too, before anybody rules
                unruled += stop.faults
        require_ruled(unruled)

    def _executed(self, part: PlanPart, part_grants: PartGrants) -> Iterator[o.Output]:
        grants, budget = part_grants.in_order(), OutputBudget(part.plan.first, part.makes_max)
        checks.granted(part.plan, grants, part_grants.parts, part_grants.members)
        config = self._config
        more = tuple(sorted(part_grants.more))
        if part_grants.left_out:
            yield from self._withdrawn(part, more, 0, part_grants.left_out - part.plan.first)
            return
        outcomes = execute_in_parts(
            grants,
            self._modules,
            self._rulings,
            over=part_grants.over,
            budget=budget,
            ranges=RangeParts(part_grants.ranges, config.shards),
            timeline=part_grants.timeline,
            size=0 if part.silent or self._spreads > 1 else _PART_CALLS,
        )
        progress = o.OutputProgress(self._spreads)
        outcome = next(outcomes)
        while outcome.executed < len(outcome.txns) and not outcome.fits:
            checks.executed(part.plan, outcome, grants)
            yield from progress.part(outcome)
            outcome = next(outcomes)
        require_ruled(outcome.unruled, executed=part.silent)
        made = outcome.made if part.makes_max else None
        if outcome.fits:
            yield from self._withdrawn(part, more, made, outcome.fits)
            return
        checks.executed(part.plan, outcome, grants)
        if not part.silent:
            yield from progress.rest(outcome)
        deltas = _deltas(outcome, grants, config)
        ends = bool((outcome.slots["tag"][outcome.slots["dirty"] != 0] == p.EXPIRING).any())
        chunked = feedback_chunks(outcome, config.shards, part.feedback_bytes_max)
        for each in checks.fed(part.plan, outcome, chunked):
            feedback = Feedback(
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
            yield o.ShardMessage(feedback)

    def _withdrawn(
        self, part: PlanPart, more: tuple[int, ...], made: int | None, fits: int
    ) -> Iterator[o.ShardMessage]:
        """Return the feedback of a partition that has stopped: its plan produces too much."""
        for shard in range(self._config.shards):
            feedback = Feedback(
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
            yield o.ShardMessage(feedback)


def execute_in_parts(
    parts: Sequence[tuple[int, GrantedTransactions, SlotRows]],
    modules: Modules = NO_MODULES,
    rulings: Rulings = NO_RULINGS,
    *,
    over: bool = False,
    budget: OutputBudget = _ANY_BYTES,
    ranges: RangeParts = NO_PARTS,
    timeline: Timeline | None = None,
    size: int = 0,
) -> Iterator[ExecutionOutcome]:
    """Execute the transactions of one partition of a plan, serially in seq order.

    They run against *slots*, one for each key. Most run in the kernel, a stretch of them at a time;
    calls of procedures run in Python, as long as they follow each other; the rest runs in Python
    one by one.

    Args:
        parts: (shard, transactions, slots) from every shard.
        modules: where the code of procedures is.
        rulings: which transactions are aborted, whatever they would do.
        over: there is one transaction, whose keys hold too many bytes; their values were not sent.
        budget: how much it may make; more, and execution stops.
        ranges: those that the transactions name, as each shard holds them.
        timeline: of the plan, where keys may end.
        size: after so many calls that follow each other, yield what has come of all up to there, to
            be used before more is asked for; 0: never. The last outcome is that of all.

    Raises InvariantViolation: a transaction's key was not granted by any shard. Raises
    ModuleMissing: the code that a transaction calls is not on this machine.
    """
    run = prepared(parts, rulings, timeline)
    txns, program = run.txns, run.program
    refuse(run)
    send_ruled(run)
    shown, rules = GrantedRanges(run, ranges), Rules.of(run)
    kernel = Kernel.of(run, shown.compiled())
    rules.send(0)
    ending = None if timeline is None else Ending.of(run, in_ranges=shown.end)
    weighed = to_be_weighed(run, over=over)
    n, at, spent, plan_size = len(txns), 0, 0, 0
    made = np.zeros(n, np.int64)
    careful = range(n) if over else run.ruled.keys() | weighed
    plain = PlainCalls(run, modules, ending, rules.slot, careful)
    calls = Calls(modules, rules.slot, shown.see)
    while at < n and not plan_size:
        if program.route[at] == BY_PYTHON:
            until = at + size if size else n
            at, spent, plan_size = plain.executed(at, made, spent, budget, until)
            if until == at < n and not plan_size:
                yield from part_of(run, ending, spent, at)
                continue
        if not plan_size:
            at = kernel.execute(at)
        if at == n or plan_size:
            break
        too_much = over or meets_too_much(run, at)
        python = at in run.ruled or rules.concern(at) or (ending and ending.concerns(at))
        if at in weighed and not (too_much or python):
            weighed.remove(at)
            program.route[at] = BY_KERNEL
            continue
        made[at] = executed_in_time(run, at, calls, ending, too_much=too_much)
        spent += int(made[at])
        plan_size = budget.fits(spent, int(txns.seq[at]))
        at += 1
        rules.send(at)
    plan_size = size_by_bytes(run, made, budget) or plan_size
    plan_size = plan_size or conclude(run, int(made.sum()), budget)
    places = Places(txns.places()) if ending is None else ending.places()
    yield outcome_of(run, places, int(made.sum()), plan_size, executed=n)


def passed_on(
    message: ToExecutor | ToGatherer, changes_partitions: int, spreads: int = 1
) -> Iterator[o.Output]:
    """The outputs of a message that has nothing to execute."""
    if isinstance(message, DigestRecords):
        yield o.OutputRecords(o.DIGESTS, message.records.key, message.records.value)
    elif isinstance(message, KnownResults):
        yield o.OutputRecords(o.RESULTS, message.records.key, message.records.value)
    elif isinstance(message, KeyRemovals):
        yield from o.removals(message.changes, spreads)
    elif isinstance(message, ResolvedRecord):
        value = Ragged.of([message.value])
        for partition in range(0 if message.silent else changes_partitions):
            yield o.OutputRecords(o.CHANGES, Ragged.empty(1), value, 0, partition)
    elif isinstance(message, o.ToShards):  # shards tell each other something
        yield o.ShardMessage(message)
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
