"""Break the real classes on purpose: each mutation must be caught, or the rest proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np
from msgspec import UNSET

from simulator import constraint_mutations as declaring
from simulator import expiry_mutations as expiring
from simulator import fault_mutations as rulings
from simulator import range_mutations, value_mutations
from simulator.value_mutations import together
from streamydb import errors, records
from streamydb.frames import plans
from streamydb.key_processor import core as shard
from streamydb.key_processor import duplicates, idwindow, inbox, state, values
from streamydb.key_processor.locking import core, locks, repetitions
from streamydb.key_processor.locking.state import StepHistory
from streamydb.parser import compile as compiling
from streamydb.planner import conflicts
from streamydb.planner import core as planning
from streamydb.procedures import follow_ups
from streamydb.records import decoder
from streamydb.sorter import core as sorter
from streamydb.sorter import state as sorter_state
from streamydb.txn_processor import enforce, interpreter, outputs
from streamydb.txn_processor import enforce as enforcing

__all__ = ["MUTATIONS", "Mutation", "mutated"]


def _plan_on_incomplete_feedback() -> Any:
    """Lock: keys are free as soon as any feedback has come."""
    return mock.patch.object(
        inbox.PlanFeedback, "is_complete", lambda self, _: bool(self._meta.tokens)
    )


def _plan_while_open() -> Any:
    """Lock: the next plan is made though the last one is in flight."""

    def apply(self: Any) -> Any:
        if self._meta.open is not None and not self._feedback.is_complete(self._meta.open):
            self._meta.open, self._meta.tokens, self._meta.feedback = None, {}, []
            return []
        return original(self)

    original = shard.KeyTransactionProcessor._apply  # noqa: SLF001 - the point
    return mock.patch.object(shard.KeyTransactionProcessor, "_apply", apply)


def _feedback_of_any_attempt() -> Any:
    """Recovery: feedback is known by the number of its plan, and limits change at once."""
    number = plans.PlanName
    named = mock.patch.object(
        plans.OpenPlan, "name", lambda self: number(self.number, "", 0, 0, "")
    )
    return together(named, _limits_at_once())


def _feedback_of_any_step() -> Any:
    """Recovery: all feedback counts, and limits change at once."""
    held = mock.patch.object(StepHistory, "holds", return_value=True)
    return together(held, _limits_at_once())


def _limits_at_once() -> Any:
    begun = shard.KeyTransactionProcessor.__init__
    begun_single = core.SingleShard.__init__

    def of_the_start(self: Any, *rest: Any, **more: Any) -> None:
        planned = isinstance(self, shard.KeyTransactionProcessor)
        (begun if planned else begun_single)(self, *rest, **more)
        self._meta.shape = rest[-1].shape

    return together(
        mock.patch.object(shard.KeyTransactionProcessor, "__init__", of_the_start),
        mock.patch.object(core.SingleShard, "__init__", of_the_start),
    )


def _release_at_the_watermark() -> Any:
    """Sorter: what lies at the watermark is released, too."""
    original = sorter.KeyedEventTimeSorter.watermark
    return mock.patch.object(
        sorter.KeyedEventTimeSorter, "watermark", lambda self: original(self) + 1
    )


def _order_by_offset() -> Any:
    """Sorter: partitions are merged by offset instead of by effective time."""

    def first(table: Any, watermark: int, limit: int) -> Any:
        order = np.lexsort((table.partition, table.offset))
        return order[table.ts_ms[order] < watermark][:limit]

    return mock.patch.object(sorter, "first_in_order", first)


def _trust_the_arrival() -> Any:
    """Sorter: pieces of a partition are taken in the order in which they arrive."""
    return mock.patch.object(sorter, "first_position", lambda part: part[0])


def _ignore_read_write_conflicts() -> Any:
    """Planner: transactions are spread without looking at their keys."""
    original = conflicts.plan_transactions

    def plan(released: Any, earlier: Any, procs: int) -> Any:
        found = original(released, earlier, procs)
        found.proc = np.arange(len(found.proc)) % procs
        return found

    return mock.patch.object(planning, "plan_transactions", plan)


def _forget_ids_of_the_plan() -> Any:
    """Dedupe: two records with one id in one plan both execute."""
    return mock.patch.object(
        planning, "earlier_with_same_id", lambda ids, _valid: np.full(len(ids), -1)
    )


def _forget_the_window() -> Any:
    """Dedupe: ids of earlier plans are forgotten."""
    return mock.patch.object(
        idwindow.IdWindow, "last_use", lambda _self, id0, _id1, _upto: np.zeros(len(id0), np.int64)
    )


def _believe_the_cache() -> Any:
    """Recovery: the local file is believed wherever it stands."""

    def catch_up(self: Any, _attempt: int) -> None:
        self._store.apply(self._store.position(), (self.state.applied, self.state.digest), [], [])

    return mock.patch.object(values.ShardValues, "_catch_up", catch_up)


def _grant_while_held() -> Any:
    """Lock: a lock looks free while its holder is open."""
    original = locks.LockTable.grant

    def grant(self: Any, *rest: Any) -> Any:
        for name in self._touched:
            self.state[name].holder = 0
        return original(self, *rest)

    return mock.patch.object(locks.LockTable, "grant", grant)


def _readers_overtake() -> Any:
    """Lock: readers do not wait for the writers ahead of them."""
    original = locks.LockTable.enqueue

    def enqueue(self: Any, name: bytes, seq: int, *, write: bool) -> None:
        original(self, name, seq, write=write)
        waiting = self.state[name].waiting
        if not write:
            waiting.insert(0, waiting.pop())

    return mock.patch.object(locks.LockTable, "enqueue", enqueue)


def _forget_repeats() -> Any:
    """Dedupe: no transaction is taken for a repetition."""
    original = repetitions.Repeats.find

    def find(self: Any, own: Any, before: int, resolved: Any) -> Any:
        original(self, own, before, resolved)
        return repetitions.FoundRepeats()

    return mock.patch.object(repetitions.Repeats, "find", find)


def _latest_module() -> Any:
    """Procedures: calls run the version that was deployed last, not the one of their place."""
    original = interpreter.current_module
    newest: dict[str, Any] = {}

    def current(call: Any, look: Any, modules: Any) -> Any:
        found = original(call, look, modules)
        if found is None:
            return None
        kept = newest.setdefault(call.module, found)
        return kept if call.name in kept.procedures else found

    return mock.patch.object(interpreter, "current_module", current)


def _unlocked_deploys() -> Any:
    """Procedures: a deploy does not lock its module, so calls of it are not ordered with it."""
    original = decoder.keys

    def keys(txn: Any) -> dict[str, bool]:
        found = original(txn)
        if txn.deploy is not UNSET:
            return dict.fromkeys(found, False)
        return found

    return mock.patch.object(records, "keys", keys)


def _copies_count() -> Any:
    """Workflows: a copy of a follow-up is executed again."""
    original = follow_ups.turn_of

    def turn(call: Any, look: Any) -> Any:
        found = original(call, look)
        return None if found is None else found._replace(code=None)

    return mock.patch.object(interpreter, "turn_of", turn)


def _follow_ups_backwards() -> Any:
    """Workflows: the follow-ups of a batch are appended in another order."""
    original = outputs.workflow_records

    def records(given: Any) -> Any:
        return original(given._replace(follow_ups=given.follow_ups[::-1]))

    return mock.patch.object(outputs, "workflow_records", records)


def _follow_ups_lost() -> Any:
    """Workflows: only the first follow-up of a batch is appended."""
    original = outputs.workflow_records

    def records(given: Any) -> Any:
        return original(given._replace(follow_ups=given.follow_ups[:1]))

    return mock.patch.object(outputs, "workflow_records", records)


def _unlocked_flows() -> Any:
    """Workflows: those who emit do not lock the count of their module."""
    original = compiling._compile_with_care  # noqa: SLF001

    def compiled(*given: Any) -> Any:
        found = original(*given)
        rows = found.keys.rows
        rows.write[[key.startswith(b"$flows/") for key in rows.key.tolist()]] = 0
        return found

    return mock.patch.object(compiling, "_compile_with_care", compiled)


def _violations_do_not_count() -> Any:
    """Workflows and constraints: a follow-up that a constraint aborts is not noted as done."""
    original = interpreter._counted  # noqa: SLF001 - the point

    def counted(verdict: Any, turn: Any, look: Any) -> Any:
        violated = verdict.code == errors.CONSTRAINT_VIOLATED
        return original(verdict, None if violated else turn, look)

    return mock.patch.object(interpreter, "_counted", counted)


def _violations_emit() -> Any:
    """Workflows and constraints: what a constraint aborts has emitted nevertheless."""
    original = interpreter._concluded  # noqa: SLF001 - as above

    def concluded(*args: Any) -> Any:
        verdict = original(*args)
        if verdict.code is not None and len(args) > 5:
            verdict.outputs = args[5].outputs
        return verdict

    return mock.patch.object(interpreter, "_concluded", concluded)


def _judge_the_value_before() -> Any:
    """Constraints: values are judged as they were before the transaction."""
    original = enforcing.enforce

    def enforce(rules: Any, writes: Any, *others: Any) -> Any:
        return original(rules, [w._replace(after=w.before) for w in writes], *others)

    return mock.patch.object(interpreter, "enforce", enforce)


def _unlocked_constraints() -> Any:
    """Constraints: a declaration does not lock their key, so writes are not ordered with it."""
    original = decoder.keys

    def keys(txn: Any) -> dict[str, bool]:
        found = original(txn)
        if txn.constrain is not UNSET:
            found[records.CONSTRAINTS_KEY] = False
        return found

    return mock.patch.object(records, "keys", keys)


def _constraints_of_the_plan() -> Any:
    """Constraints: those at the beginning of a plan hold for all of it."""
    original = enforce.Rules.send

    def send(self: Any, start: int) -> None:
        if start == 0:
            original(self, start)

    return mock.patch.object(enforce.Rules, "send", send)


def _run_ahead_in_silence() -> Any:
    """Standby: one that follows executes more than is known to have been written."""
    release = mock.patch.object(state.ShardRole, "may_release", lambda _self, _seq, limit: limit)
    silent = mock.patch.object(state.ShardRole, "is_silent", lambda self, _: not self.leads)
    return together(release, silent)


def _mix_silent_and_loud() -> Any:
    """Standby: a plan that begins with what is covered takes more, and all of it is silent."""

    def release(self: Any, seq: int, limit: int) -> int:
        return limit if self.leads or seq < self.covered else 0

    return mock.patch.object(state.ShardRole, "may_release", release)


def _believe_the_log() -> Any:
    """Recovery: a start goes on wherever the log is, whatever the log was."""
    return mock.patch.object(sorter_state.LogEnd, "require", return_value=None)


def _forget_in_time() -> Any:
    """Deadlines: ids are forgotten at the window, although their deadlines have not passed."""

    def remembers(self: Any, used: tuple[int, int], seq: int, _ts: int) -> bool:
        return bool(used[0] > max(seq - self.state.window, 0))

    def repeated(self: Any, original: int, seq: int, ts: int) -> Any:
        return self.use(original) if self.remembers((original, 0), seq, ts) else None

    return together(
        mock.patch.object(idwindow.IdWindow, "remembers", remembers),
        mock.patch.object(idwindow.IdWindow, "repeated", repeated),
    )


def _drop_in_time() -> Any:
    """Deadlines: the blobs of a span go when it begins, not when it has ended."""

    def passed(self: Any, ts: int) -> list[int]:
        return [number for number in self.state.spans if number * self.state.span_ms <= ts]

    return mock.patch.object(idwindow.IdWindow, "_passed", passed)


def _execute_too_late() -> Any:
    """Deadlines: a record that comes after its deadline is executed."""

    def untimely(deadlines: Any, _times: Any) -> Any:
        return np.zeros(len(deadlines), np.uint8)

    return together(
        mock.patch.object(duplicates, "untimely", untimely),
        mock.patch.object(repetitions, "untimely", untimely),
    )


def _compare_deadlines() -> Any:
    """Deadlines: a transaction that is sent again with a new one counts as another."""

    def identities(texts: Any, home: Any) -> Any:
        original(texts, home)
        return texts

    original = compiling._identities  # noqa: SLF001 - the point
    return mock.patch.object(compiling, "_identities", identities)


class Mutation(NamedTuple):
    """A mutation: its code (whose docstring says what is broken), its groupings, and what it takes
    to notice it.

    ``pair``, ``workflows``, ``constraints``, ``deadlines``, ``large``, ``faults``, ``ranges``,
    ``expiry``: as `run_seed` takes them.
    """

    patch: Callable[[], Any]
    groupings: tuple[str, ...]
    pair: bool = False
    workflows: float | None = None
    constraints: float | None = None
    deadlines: float | None = None
    large: float | None = None
    faults: float = 0.0
    ranges: float = 0.0
    expiry: float = 0.0


_BOTH = ("planner", "single")
_MANY, _HALF, _MOST = 0.2, 0.5, 0.9
_FEW, _SOME, _OFTEN = 0.02, 0.1, 0.15
MUTATIONS: Final[Mapping[str, Mutation]] = {
    "lock-incomplete": Mutation(_plan_on_incomplete_feedback, ("planner",)),
    "lock-open": Mutation(_plan_while_open, ("planner",)),
    "lock-held": Mutation(_grant_while_held, ("single",)),
    "lock-readers": Mutation(_readers_overtake, ("single",)),
    "feedback-attempt": Mutation(_feedback_of_any_attempt, ("planner",)),
    "feedback-step": Mutation(_feedback_of_any_step, ("single",)),
    "sorter-watermark": Mutation(_release_at_the_watermark, _BOTH),
    "sorter-offsets": Mutation(_order_by_offset, _BOTH),
    "sorter-arrival": Mutation(_trust_the_arrival, _BOTH),
    "planner-conflicts": Mutation(_ignore_read_write_conflicts, ("planner",)),
    "dedupe-plan": Mutation(_forget_ids_of_the_plan, ("planner",)),
    "dedupe-window": Mutation(_forget_the_window, _BOTH),
    "dedupe-repeats": Mutation(_forget_repeats, ("single",)),
    "deadlines-window": Mutation(_forget_in_time, _BOTH, deadlines=_MOST),
    "deadlines-blobs": Mutation(_drop_in_time, _BOTH, deadlines=_MOST),
    "deadlines-late": Mutation(_execute_too_late, _BOTH, deadlines=_HALF),
    "deadlines-identity": Mutation(_compare_deadlines, _BOTH, deadlines=_HALF),
    "procedures-version": Mutation(_latest_module, _BOTH),
    "procedures-order": Mutation(_unlocked_deploys, _BOTH),
    "workflows-copies": Mutation(_copies_count, _BOTH, workflows=_MANY),
    "workflows-order": Mutation(_follow_ups_backwards, _BOTH, workflows=_MANY),
    "workflows-lost": Mutation(_follow_ups_lost, _BOTH, workflows=_MANY),
    "workflows-lock": Mutation(_unlocked_flows, _BOTH, workflows=_MANY),
    "workflows-violations": Mutation(_violations_do_not_count, _BOTH, workflows=_MANY),
    "workflows-emissions": Mutation(_violations_emit, _BOTH, workflows=_MANY),
    "constraints-before": Mutation(_judge_the_value_before, _BOTH, constraints=_HALF),
    "constraints-order": Mutation(_unlocked_constraints, _BOTH, constraints=_HALF),
    "constraints-first": Mutation(declaring.constraints_after_the_plan, _BOTH, constraints=_HALF),
    "constraints-late": Mutation(declaring.constraints_unread, _BOTH, constraints=_HALF),
    "constraints-plan": Mutation(_constraints_of_the_plan, ("planner",), constraints=_HALF),
    "unique-locks": Mutation(declaring.unlocked_index, _BOTH, constraints=_HALF),
    "unique-release": Mutation(declaring.keep_the_index, _BOTH),
    "log-tail": Mutation(_believe_the_log, _BOTH),
    "values-uncut": Mutation(value_mutations.uncut_plans, ("planner",), large=_HALF),
    "values-cuts": Mutation(value_mutations.cut_otherwise, ("planner",), large=_HALF),
    "values-limit": Mutation(value_mutations.meet_anything, _BOTH, large=_HALF),
    "values-grants": Mutation(value_mutations.grant_everything, ("single",), large=_HALF),
    "values-made": Mutation(value_mutations.make_anything, _BOTH, large=_HALF),
    "values-withdrawn": Mutation(
        value_mutations.remember_what_is_withdrawn, ("planner",), large=_HALF
    ),
    "repeats-at-once": Mutation(value_mutations.repeats_at_once, ("planner",), large=_HALF),
    "repeats-untold": Mutation(value_mutations.repeats_untold, ("planner",), large=_HALF),
    "announced-turns": Mutation(value_mutations.announce_all_turns, ("planner",), large=_HALF),
    "announced-withdrawn": Mutation(
        value_mutations.announce_what_is_withdrawn, ("planner",), large=_HALF
    ),
    "values-sizes": Mutation(value_mutations.sizes_untold, ("planner",), large=_HALF),
    "ranges-planner": Mutation(range_mutations.plan_without_ranges, ("planner",), ranges=_HALF),
    "ranges-grants": Mutation(range_mutations.miss_a_key, _BOTH, ranges=_HALF),
    "ranges-members": Mutation(range_mutations.forget_the_members, ("planner",), ranges=_HALF),
    "ranges-writes": Mutation(range_mutations.forget_own_writes, _BOTH, ranges=_HALF),
    "ranges-scan": Mutation(range_mutations.scan_too_little, _BOTH, ranges=_HALF),
    "ranges-compiled": Mutation(range_mutations.compile_ranges_apart, ("planner",), ranges=_HALF),
    "ranges-crowds": Mutation(range_mutations.crowd_ranges, _BOTH, constraints=1.0, ranges=_HALF),
    "ranges-locks": Mutation(
        range_mutations.make_keys_anywhere, _BOTH, constraints=1.0, ranges=_HALF
    ),
    "ranges-limit": Mutation(range_mutations.count_anything, _BOTH, ranges=_HALF),
    "ranges-lock": Mutation(range_mutations.ranges_overtake, ("single",), ranges=_HALF),
    "ranges-fence": Mutation(range_mutations.overtake_ranges, ("single",), ranges=_HALF),
    "expiry-seen": Mutation(expiring.see_what_is_over, ("planner",), expiry=_HALF),
    "expiry-late": Mutation(expiring.remove_too_late, ("planner",), expiry=_HALF),
    "expiry-untold": Mutation(expiring.untold_removals, ("planner",), expiry=_HALF),
    "expiry-twice": Mutation(expiring.tell_it_twice, ("planner",), expiry=_HALF),
    "expiry-kept": Mutation(expiring.keep_what_is_over, ("planner",), expiry=_HALF),
    "expiry-kernel": Mutation(expiring.leave_to_the_kernel, ("planner",), expiry=_HALF),
    "expiry-weighed": Mutation(
        expiring.give_back_to_the_kernel, ("planner",), large=_HALF, expiry=_HALF, ranges=_HALF
    ),
    "expiry-ranges": Mutation(expiring.miss_what_ends, ("planner",), expiry=_HALF, ranges=_HALF),
    "expiry-updates": Mutation(expiring.ends_are_lost, _BOTH, expiry=_HALF),
    "expiry-index": Mutation(expiring.index_for_good, _BOTH, expiry=_HALF, constraints=_MOST),
    "expiry-sweep": Mutation(expiring.sweep_under_locks, ("single",), expiry=_HALF),
    "expiry-resolved": Mutation(expiring.resolve_before_the_sweep, ("single",), expiry=_HALF),
    "cache": Mutation(_believe_the_cache, _BOTH),
    "cache-writes": Mutation(value_mutations.write_the_cache_blindly, _BOTH),
    "cache-reads": Mutation(value_mutations.read_the_cache_blindly, _BOTH),
    "standby-ahead": Mutation(_run_ahead_in_silence, _BOTH, pair=True),
    "standby-mixed": Mutation(_mix_silent_and_loud, _BOTH, pair=True),
    "rulings-early": Mutation(rulings.rule_at_once, ("single",), pair=True, faults=_OFTEN),
    "rulings-exceptions": Mutation(rulings.believe_the_exception, _BOTH, faults=_FEW),
    "rulings-fence": Mutation(rulings.rule_without_a_fence, ("planner",), pair=True, faults=_SOME),
    "rulings-known": Mutation(rulings.rule_on_what_is_known, ("planner",), pair=True, faults=_SOME),
    "rulings-standby": Mutation(rulings.follow_without_rulings, _BOTH, pair=True, faults=_SOME),
}
"""Mutations by name."""


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Run the body with the mutation ``name`` in place."""
    with MUTATIONS[name].patch():
        yield
