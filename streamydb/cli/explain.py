"""`streamydb explain`: the life of one transaction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamydb.cli.common import EXIT_USAGE, fail, plain, print_raw
from streamydb.cli.options import DatabaseOptions, Json, Procedures, backup_option
from streamydb.cli.target import Target, find_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamydb.facade.explanation import TransactionHistory
    from streamydb.facade.explanation.core import CheckOutcome, ExplainedPlan, LogAppend, MetValue
    from streamydb.facade.ports import LogPosition
    from streamydb.verify.whatif import History

_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")
"""Partition and offset, no larger than Kafka has them."""


def explain(
    txn_id: Annotated[str, typer.Argument(metavar="ID", help="The transaction's id.")],
    options: DatabaseOptions,
    record: Annotated[
        str | None, typer.Option(metavar="PARTITION:OFFSET", help="Where its record is, if known.")
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay/--no-replay",
            help="Execute the log up to it, for the values that it met (default: yes).",
        ),
    ] = True,
    backup: Annotated[
        Path | None, backup_option("Execute this backup, from its nearest state.")
    ] = None,
    procedures: Procedures = None,
    json: Json = False,
) -> None:
    """Tell the life of a transaction: appends, order, plan, values met, checks, verdict, writes.

    What the log alone decides is computed; plans and times are shown as they were recorded. What
    is not known any more is said, with the reason.
    """
    import msgspec

    from streamydb.cli.backup_options import noting
    from streamydb.cli.phases import Phases
    from streamydb.facade.explanation import explain as explained
    from streamydb.facade.explanation.core import MetValue
    from streamydb.facade.explanation.kafka import collect
    from streamydb.facade.kafka_search import search_result
    from streamydb.facade.ports import NoResult
    from streamydb.verify.whatif.run import executed_before

    txn_id.encode()  # what is no text is told before Kafka is asked
    position = _place(record)
    target = find_target(options, procedures=procedures)
    target.must_exist()
    with Phases().phase(f"The life of {txn_id}") as phase:
        settings = target.settings.model_copy(update={"bootstrap": target.bootstrap})
        result = search_result(settings, txn_id, position)
        if isinstance(result, NoResult) or result.id != txn_id:
            fail(
                f"no verdict of {txn_id} was found in {target.database}: it was not appended, is "
                "not decided yet, or its result was deleted since"
            )
        result = msgspec.structs.replace(result, duplicate=msgspec.UNSET)
        history = _history(target, backup) if replay else None
        progress = noting(phase)

        def look(keys: Sequence[str]) -> Mapping[str, MetValue] | None:
            if history is None:
                return None
            state = executed_before(history, result.seq, progress)
            return {key: MetValue(*state[key]) for key in keys if key in state}

        history_of_transaction = explained(
            result, collect(target.connection, target.database, result), look
        )
        phase.outcome = f"seq {history_of_transaction.order.seq:,}"
    if json:
        print_raw(msgspec.json.encode(history_of_transaction))
    else:
        for line in lines(history_of_transaction):
            typer.echo(line)


def _place(record: str | None) -> LogPosition | None:
    """The place in the log that is named. Raises Failure: it is none."""
    from streamydb.facade.ports import LogPosition

    if record is None:
        return None
    match = _PLACE.fullmatch(record)
    if match is None:
        fail(f"--record {record}: give it as PARTITION:OFFSET, like 0:41", EXIT_USAGE)
    return LogPosition(int(match[1]), int(match[2]))


def _history(target: Target, backup: Path | None) -> History | None:
    """The log to execute; None: it is not all there."""
    from streamydb.backup.kafka import BackupLog
    from streamydb.cli.past import backup_history, live_history, of_this_log

    if backup is not None:
        of_this_log(target, backup)  # values of another one would be told as those that it met
        return backup_history(target, backup)
    spans = BackupLog(target.connection, target.database).spans()
    return None if any(span.low for span in spans.values()) else live_history(target)


_SHOWN_CHARACTERS = 120
_NEAREST = 5


def lines(life: TransactionHistory) -> Iterator[str]:
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
        states = sorted({state.state for state in digest.told})
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
    operands = ", ".join(f"{name} {_shown(value)}" for name, value in each.wanted.items())
    return f"{each.check} {each.index} on {plain(each.key)}: {operands}: {outcome}"


def _shown(value: object) -> str:
    import msgspec

    return _cut(msgspec.json.encode(value))


def _cut(value: bytes) -> str:
    text = plain(value.decode())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def shown(ts_ms: int) -> str:
    """Return a time for people; the room of backups, which shows it, is large to import."""
    from streamydb.backup import restore

    return restore.shown(ts_ms)
