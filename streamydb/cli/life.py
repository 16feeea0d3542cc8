"""The life of a transaction as lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamydb.backup.restore import shown
from streamydb.cli.common import plain

if TYPE_CHECKING:
    from streamydb.facade.life import TransactionHistory
    from streamydb.facade.life.core import CheckOutcome, ExplainedPlan, LogAppend

__all__ = ["lines"]

_SHOWN_CHARACTERS = 120
_NEAREST = 5


def lines(life: TransactionHistory) -> Iterator[str]:
    """Yield them in the order of what happened."""
    yield f"{plain(str(life.id))}  seq {life.order.seq}, committed at {shown(life.order.ts_ms)}"
    yield "append"
    yield from (f"  {_append(each, life.order.seq)}" for each in life.appends)
    if life.order.released_ms is not None:
        released = shown(life.order.released_ms)
        yield f"order\n  released when all partitions had passed it: {released}"
    if life.plan is not None:
        yield "plan"
        yield from _plan(life.plan)
    if life.met:
        yield "met"
    for met in life.met:
        version = "" if met.version is None else f"  version {met.version}"
        value = "not known" if met.known == "no" else _cut(bytes(met.value))
        yield f"  {plain(met.key)} = {value}{version}"
    if life.checks:
        yield "checks"
    yield from (f"  {_check(each)}" for each in life.checks)
    verdict = life.verdict
    yield f"verdict\n  {verdict.status}{f' {verdict.code}' if verdict.code else ''}"
    if life.writes:
        yield "writes"
    for write in life.writes:
        yield (
            f"  {plain(write.key)}: {_cut(bytes(write.before))} -> {_cut(bytes(write.after))}  "
            f"({write.partition}:{write.offset}, {shown(write.written_ms)})"
        )
    if life.resolved is not None:
        yield f"resolved\n  up to {life.resolved.seq} at {shown(life.resolved.written_ms)}"
    for digest in life.digests:
        states = sorted({told.state for told in digest.told})
        agreed = "alike" if len(states) == 1 else "THEY DIFFER"
        yield f"digest\n  seq {digest.seq}, shard {digest.shard}: {', '.join(states)} ({agreed})"
    if life.unknown:
        yield "not known"
    yield from (f"  {part}: {why}" for part, why in life.unknown.items())


def _append(each: LogAppend, own: int) -> str:
    """A record with its fate; ``own``: the seq of the transaction itself."""
    done = "executed"
    if not each.executed:
        done = "not executed" if each.seq == own else f"a copy, seq {each.seq}"
    code = f" ({each.code})" if each.code and not each.executed else ""
    appended = "" if each.appended_ms is None else f", appended {shown(each.appended_ms)}"
    times = "" if each.times == 1 else f", {each.times} times"
    written = f", result written {shown(each.result_written_ms)}{times}"
    return f"{each.partition}:{each.offset}  {done}{code}{appended}{written}"


def _plan(plan: ExplainedPlan) -> Iterator[str]:
    yield f"  {plan.number}: seq {plan.first} to {plan.last}"
    group = plan.group
    if group is None:
        return
    yield (
        f"  conflict group of {group.transactions}: {group.waited_for} were executed before it, "
        f"{group.waited} after it"
    )
    for member in group.members[:_NEAREST]:
        keys = ", ".join(member.keys) or "through others"
        yield f"    seq {member.seq}  {plain(f'{member.id}  ({keys})')}"
    if len(group.members) > _NEAREST:
        yield f"    and {group.transactions - 1 - _NEAREST} others (--json lists the nearest)"


def _check(each: CheckOutcome) -> str:
    outcome = {True: "holds", False: "does not hold", None: "not known"}[each.holds]
    wanted = ", ".join(f"{name} {_shown(value)}" for name, value in each.wanted.items())
    return f"{each.check} {each.index} on {plain(each.key)}: {wanted}: {outcome}"


def _shown(value: object) -> str:
    import msgspec

    return _cut(msgspec.json.encode(value))


def _cut(value: bytes) -> str:
    text = plain(value.decode())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
