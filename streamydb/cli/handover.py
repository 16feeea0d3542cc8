"""`streamydb handover`: let a standby take the lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streamydb.cli.common import fail, print_json, say
from streamydb.cli.options import DatabaseOptions, Json, seconds_option
from streamydb.cli.target import find_target

if TYPE_CHECKING:
    from streamydb.pipeline.standby.handover import HandoverResult


def handover(
    options: DatabaseOptions,
    to: Annotated[
        str, typer.Option(help="Name of the standby; by default the furthest ready one.")
    ] = "",
    timeout: Annotated[float, seconds_option("Seconds the hand-over may take.")] = 30.0,
    json: Json = False,
) -> None:
    """Have a standby take over from the active pipeline, which goes on as a standby.

    One that is not ready is refused. Prints for how long clients got no verdict.
    """
    from streamydb.pipeline.standby.handover import HandoverError, hand_over

    target = find_target(options)
    target.must_exist()
    try:
        outcome = hand_over(target.connection, target.database, to, timeout)
    except HandoverError as error:
        fail(str(error))
    if json:
        print_json(outcome)
        return
    say(
        f"Pipeline {outcome.leader} leads {target.database} since epoch {outcome.epoch}; "
        f"all outputs up to seq {outcome.resolved} were written before. "
        f"It took {outcome.seconds:.2f} s. {_pause(outcome)}"
    )


def _pause(outcome: HandoverResult) -> str:
    if outcome.pause_s is not None:
        return f"Clients waited for verdicts for {outcome.pause_s:.2f} s at the longest."
    if outcome.pause_unknown is not None:
        return f"How long clients waited is not known: {outcome.pause_unknown}."
    return "No verdict was written meanwhile, so nobody waited for one."
