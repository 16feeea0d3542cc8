"""`streamydb explain`: the life of one transaction."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamydb.cli.common import EXIT_USAGE, fail, print_raw
from streamydb.cli.options import Json, Named, Procedures
from streamydb.cli.target import Target, find_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamydb.facade.life import TransactionHistory
    from streamydb.facade.life.core import MetValue
    from streamydb.facade.ports import LogPosition
    from streamydb.records import Result
    from streamydb.verify.whatif import History
    from streamydb.verify.whatif.stretch import Progress


_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")
"""Partition and offset, no larger than Kafka has them."""


def explain(
    txn_id: Annotated[str, typer.Argument(metavar="ID", help="The transaction's id.")],
    named: Named,
    record: Annotated[
        str | None,
        typer.Option("--record", metavar="PARTITION:OFFSET", help="Where its record is, if known."),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay/--no-replay",
            help="Execute the log up to it, for the values that it met (default: yes).",
        ),
    ] = True,
    backup: Annotated[
        Path | None,
        typer.Option(
            "--backup", metavar="FOLDER", help="Execute this backup, from its nearest state."
        ),
    ] = None,
    procedures: Procedures = None,
    json: Json = False,
) -> None:
    """Tell the life of a transaction: appends, order, plan, values met, checks, verdict, writes.

    What the log alone decides is computed; plans and times are shown as they were recorded. What
    is not known any more is said, with the reason.
    """
    from streamydb.cli.backup_options import noting
    from streamydb.cli.life import lines
    from streamydb.cli.phases import Phases

    txn_id.encode()  # what is no text is told before Kafka is asked
    place = _place(record)
    target = find_target(named, procedures=procedures)
    target.must_exist()
    with Phases().phase(f"The life of {txn_id}") as phase:
        result = _verdict(target, txn_id, place)
        history = _history(target, backup) if replay else None
        life = _life(target, result, history, noting(phase))
        phase.outcome = f"seq {life.order.seq:,}"
    if json:
        import msgspec

        print_raw(msgspec.json.encode(life))
    else:
        for line in lines(life):
            typer.echo(line)


def _place(record: str | None) -> LogPosition | None:
    """The place in the log that is named.

    Raises:
        Failure: it is none.
    """
    from streamydb.facade.ports import LogPosition

    if record is None:
        return None
    found = _PLACE.fullmatch(record)
    if found is None:
        fail(f"--record {record}: give it as PARTITION:OFFSET, like 0:41", EXIT_USAGE)
    return LogPosition(int(found[1]), int(found[2]))


def _verdict(target: Target, txn_id: str, place: LogPosition | None) -> Result:
    """The verdict of the transaction itself.

    Raises:
        Failure: there is none.
    """
    import msgspec

    from streamydb.facade.kafka_search import search_result
    from streamydb.facade.ports import NoResult

    settings = target.settings.model_copy(update={"bootstrap": target.bootstrap})
    told = search_result(settings, txn_id, place)
    if isinstance(told, NoResult) or told.id != txn_id:
        fail(
            f"no verdict of {txn_id} was found in {target.database}: it was not appended, is not "
            "decided yet, or its result was deleted since"
        )
    return msgspec.structs.replace(told, duplicate=msgspec.UNSET)


def _history(target: Target, backup: Path | None) -> History | None:
    """The log to execute; None: it is not all there."""
    from streamydb.backup.kafka import BackupLog
    from streamydb.cli.past import backup_history, live_history, of_this_log

    if backup is not None:
        of_this_log(target, backup)  # values of another one would be told as those that it met
        return backup_history(target, backup)
    spans = BackupLog(target.connection, target.database).spans()
    return None if any(span.low for span in spans.values()) else live_history(target)


def _life(
    target: Target, result: Result, history: History | None, progress: Progress
) -> TransactionHistory:
    """Put it together; without a log to execute, some of the values that it met are not known."""
    from streamydb.facade.life import explain as told
    from streamydb.facade.life.core import MetValue
    from streamydb.facade.life.kafka import collect
    from streamydb.verify.whatif.run import executed_before

    def look(keys: Sequence[str]) -> Mapping[str, MetValue] | None:
        if history is None:
            return None
        state = executed_before(history, result.seq, progress)
        return {key: MetValue(*state[key]) for key in keys if key in state}

    return told(result, collect(target.connection, target.database, result), look)
