"""Puts the life of a transaction together (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from streamydb import errors, limits
from streamydb.facade.life.evidence import Evidence, Passing, ResolvedRecord, ResultRecord
from streamydb.facade.life.group import ConflictGroup, group_of
from streamydb.kafka.digests import ShardDigests
from streamydb.records import CONSTRAINTS_KEY, Check, Result, Transaction, decode, keys
from streamydb.records.expiry import is_over
from streamydb.records.result import NULL

_EARLIER_THAN_CHECKS: Final = frozenset(
    {errors.VALUES_TOO_LARGE, errors.RANGE_TOO_LARGE, errors.INTERNAL}
)
_COMPARATORS: Final = (
    "version",
    "exists",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "range",
    "count",
    "count_le",
    "count_ge",
    "version_le",
)


class MetValue(NamedTuple):
    """A value right before the transaction (None: absent), and its version (then 0).

    It has its end (`records.expiry`), which may have passed by the transaction's time.
    """

    value: bytes | None
    version: int


Look = Callable[[Sequence[str]], Mapping[str, MetValue] | None]
"""Shows keys right before the transaction; None: that state is not known here."""


class LogAppend(msgspec.Struct, kw_only=True):
    """One record of the log with the transaction's id.

    ``executed``: it is the record that was executed. Copies are not, nor is a record that was
    rejected, or aborted by a ruling. ``times``: how often its result was written: more than once
    after a crash, with the same bytes.
    """

    partition: int
    offset: int
    seq: int
    ts_ms: int
    appended_ms: int | None
    executed: bool
    code: str | None
    result_written_ms: int
    times: int


class Order(msgspec.Struct, kw_only=True):
    """The place in the order; ``released_ms``: when all partitions had passed its time."""

    seq: int
    ts_ms: int
    released_ms: int | None
    passed: list[Passing] | None


class ExplainedPlan(msgspec.Struct, kw_only=True):
    """The plan as feedback has it, and the group that follows from it."""

    number: int
    first: int
    last: int
    group: ConflictGroup | None


class ExplainedKey(msgspec.Struct, kw_only=True):
    """A key that it touches, as it was; ``hidden``: the client may not read it."""

    key: str
    value: Raw
    version: int | None
    known: str
    hidden: bool = False


class CheckOutcome(msgspec.Struct, kw_only=True):
    """A check; ``wanted``: its comparators; ``holds``: None if it was not reached or not told.

    Of a range, ``key`` is a prefix that all its keys have, and ``wanted`` tells the range, too.
    """

    check: str
    index: int
    key: str
    wanted: dict[str, Any]
    holds: bool | None
    hidden: bool = False


class ExplainedWrite(msgspec.Struct, kw_only=True):
    """A change that it made, and where it lies in the changes."""

    key: str
    op: str
    before: Raw
    after: Raw
    partition: int
    offset: int
    written_ms: int
    hidden: bool = False


class TransactionHistory(msgspec.Struct, kw_only=True):
    """The life of a transaction. ``unknown``: part -> why it, or some of it, is not known."""

    id: str | None
    appends: list[LogAppend]
    order: Order
    transaction: Raw
    plan: ExplainedPlan | None
    met: list[ExplainedKey]
    checks: list[CheckOutcome]
    verdict: Result
    writes: list[ExplainedWrite]
    resolved: ResolvedRecord | None
    digests: list[ShardDigests]
    unknown: dict[str, str]


def explain(
    result: Result, evidence: Evidence, look: Look, may_read: Callable[[str], bool] | None = None
) -> TransactionHistory:
    """Put together what is known of the transaction that has a verdict (not that of a repetition).

    ``look``: shows the state right before it. ``may_read``: tells which keys may show its group;
    None: all.
    """
    unknown = dict(evidence.missing)
    record = decode(evidence.raw) if evidence.raw is not None else None
    txn = record if isinstance(record, Transaction) else None
    touched = [] if txn is None else list(keys(txn))
    state = _without_expired(result, look([*touched, CONSTRAINTS_KEY]))
    return TransactionHistory(
        id=result.id, appends=list(_appends(result, evidence)), order=_order(result, evidence),
        transaction=Raw(evidence.raw) if txn is not None and evidence.raw else NULL,
        plan=_plan(result, evidence, state, may_read),
        met=_explained_keys(result, touched, evidence, state, unknown),
        checks=[] if txn is None else list(_checks(result, txn)), verdict=result,
        writes=[
            ExplainedWrite(
                key=change.key, op=change.change.op, before=change.change.before,
                after=change.change.after, partition=change.partition, offset=change.offset,
                written_ms=change.written_ms,
            )
            for change in evidence.changes
        ],
        resolved=evidence.resolved, digests=evidence.digests, unknown=unknown,
    )  # fmt: skip


def _without_expired(
    result: Result, before: Mapping[str, MetValue] | None
) -> Mapping[str, MetValue] | None:
    """Leave out what had ended by its time: the removal counts as right before it."""
    if before is None:
        return None
    return {key: met for key, met in before.items() if not is_over(met.value, result.ts_ms)}


def _appends(result: Result, evidence: Evidence) -> Iterator[LogAppend]:
    """The records with this id, as far as their results are there; each once, in order."""
    by_place: dict[tuple[int, int], list[ResultRecord]] = {}
    for record in evidence.results:
        source = record.result.duplicate or record.result.source
        by_place.setdefault((source.partition, source.offset), []).append(record)
    own = result.source.partition, result.source.offset
    executed = result.status != "rejected" and result.code != errors.INTERNAL
    for (partition, offset), copies in by_place.items():
        first = copies[0].result
        place = first.duplicate or first
        yield LogAppend(
            partition=partition,
            offset=offset,
            seq=place.seq,
            ts_ms=place.ts_ms,
            appended_ms=evidence.append_ms if (partition, offset) == own else None,
            executed=executed and (partition, offset) == own,
            code=first.code,
            result_written_ms=copies[0].written_ms,
            times=len(copies),
        )


def _order(result: Result, evidence: Evidence) -> Order:
    """Return the place in the order; the only partition's records are released as they are read."""
    times = [evidence.append_ms, *(each.append_ms for each in evidence.passed or ())]
    known = [time for time in times if time is not None]
    complete = evidence.partitions == 1 or evidence.passed is not None
    return Order(
        seq=result.seq,
        ts_ms=result.ts_ms,
        passed=evidence.passed,
        released_ms=max(known) if known and complete else None,
    )


def _plan(
    result: Result,
    evidence: Evidence,
    state: Mapping[str, MetValue] | None,
    may_read: Callable[[str], bool] | None,
) -> ExplainedPlan | None:
    plan = evidence.plan
    if plan is None:
        return None
    rules = None if state is None else state.get(CONSTRAINTS_KEY)
    declared = rules is not None and rules.version < plan.first
    group = None
    if plan.members:
        group = group_of(plan.members, result.seq, declared=declared, may_read=may_read)
    return ExplainedPlan(number=plan.number, first=plan.first, last=plan.last, group=group)


def _explained_keys(
    result: Result,
    touched: Sequence[str],
    evidence: Evidence,
    state: Mapping[str, MetValue] | None,
    unknown: dict[str, str],
) -> list[ExplainedKey]:
    """The keys that it names, as they were: by a state, else by what its outputs tell."""
    if not touched:
        unknown["met"] = "the record is no transaction, or is not in the log any more"
        return []
    outputs = _values_in_outputs(result, evidence)
    explained = []
    for key in touched:
        if state is not None:
            value, version = state.get(key, MetValue(None, 0))
            explained.append(
                ExplainedKey(key=key, value=_raw(value), version=version, known="state")
            )
        elif key in outputs:
            explained.append(outputs[key])
        else:
            explained.append(ExplainedKey(key=key, value=NULL, version=None, known="no"))
    if state is None:
        unknown["met"] = (
            "the state right before it is not kept here; some values are told by its outputs (of "
            "a key that had just ended, the value that ended), the others have known: no"
        )
    return explained


def _values_in_outputs(result: Result, evidence: Evidence) -> dict[str, ExplainedKey]:
    """The values that changes and failed checks tell; a change does not tell the version."""
    values = {
        each.key: ExplainedKey(
            key=each.key, value=each.change.before, version=None, known="changes"
        )
        for each in evidence.changes
    }
    for failed in result.failed:
        if failed.check in ("assert", "check", "update") and failed.truncated is UNSET:
            values[failed.key] = ExplainedKey(
                key=failed.key, value=failed.value, version=failed.version, known="result"
            )
    return values


def _checks(result: Result, txn: Transaction) -> Iterator[CheckOutcome]:
    """The asserts and checks with their outcomes, as the verdict tells them."""
    reached = result.status != "rejected" and result.code not in _EARLIER_THAN_CHECKS
    failed = {(each.check, each.index) for each in result.failed}
    stopped = result.code == errors.CHECK_FAILED
    last = len(result.failed) >= limits.FAILED_ENTRIES_MAX
    rows: list[tuple[str, int, str, dict[str, Any]]] = [
        ("assert", index, key, {"eq": _raw(wanted)})
        for index, (key, wanted) in enumerate(txn.asserts.items())
    ]
    rows += [
        ("check", i, check.key, _comparators(check))
        if check.range is UNSET
        else ("range", i, check.range.shared, _comparators(check))
        for i, check in enumerate(txn.checks)
    ]
    told_last = max((rows.index(row) for row in rows if row[:2] in failed), default=-1)
    for place, (kind, index, key, wanted) in enumerate(rows):
        holds: bool | None = not (stopped and (kind, index) in failed)
        if not reached or (stopped and last and place > told_last):
            holds = None
        yield CheckOutcome(check=kind, index=index, key=key, wanted=wanted, holds=holds)


def _comparators(check: Check) -> dict[str, Any]:
    comparators = {}
    for name in _COMPARATORS:
        value = getattr(check, name)
        if value is not UNSET:
            comparators[name] = _raw(value) if name in ("eq", "ne") else value
    return comparators


def _raw(value: bytes | None) -> Raw:
    return NULL if value is None else Raw(value)


def visible_history(
    life: TransactionHistory, may_read: Callable[[str], bool]
) -> TransactionHistory:
    """Hide what a client may not read: values, what was compared with them, other ids, digests.

    A digest is of the whole state, so that it tells when a guess of a value is right.
    """
    if may_read(""):
        return life
    life.digests, hidden = [], False
    life.unknown["digests"] = "they are of the whole state, and the token may not read all of it"
    parts: list[ExplainedKey | CheckOutcome | ExplainedWrite] = [
        *life.met,
        *life.checks,
        *life.writes,
    ]
    for each in parts:
        if may_read(each.key):
            continue
        each.hidden = hidden = True
        if isinstance(each, ExplainedKey):
            each.value, each.version = NULL, None
        elif isinstance(each, CheckOutcome):
            each.wanted = {}
        else:
            each.before = each.after = NULL
    if hidden or (life.plan is not None and life.plan.group is not None):
        life.unknown["scopes"] = "the token may not read all that this concerns"
    if hidden or not _names_only(bytes(life.transaction), may_read):
        life.transaction = NULL
    if life.plan is not None and life.plan.group is not None:
        for member in life.plan.group.members:
            member.id, member.keys = None, [key for key in member.keys if may_read(key)]
    return life


def _names_only(text: bytes, may_read: Callable[[str], bool]) -> bool:
    txn = decode(text)
    if not isinstance(txn, Transaction):
        return False
    names = [*keys(txn), *(each.shared for each in txn.named_ranges)]
    return bool(names) and all(map(may_read, names))
