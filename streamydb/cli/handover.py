"""`streamydb handover`: let a standby take the lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streamydb.cli.common import fail, print_json, say
from streamydb.cli.options import Json, Named, time_span
from streamydb.cli.target import find_target

if TYPE_CHECKING:
    from streamydb.pipeline.standby.handover import HandoverResult


def handover(
    named: Named,
    to: Annotated[
        str, typer.Option("--to", help="Name of the standby; by default the furthest ready one.")
    ] = "",
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds the hand-over may take.", callback=time_span)
    ] = 30.0,
    json: Json = False,
) -> None:
    """Have a standby take over from the active pipeline, which goes on as a standby.

    One that is not ready is refused. Prints for how long clients got no verdict.
    """
    from streamydb.pipeline.standby.handover import HandoverError, hand_over

    target = find_target(named)
    target.must_exist()
    try:
        done = hand_over(target.connection, target.database, to, timeout)
    except HandoverError as error:
        fail(str(error))
    if json:
        print_json(done)
        return
    say(
        f"Pipeline {done.leader} leads {target.database} since epoch {done.epoch}; all outputs up "
        f"to seq {done.resolved} were written before. It took {done.seconds:.2f} s. {_pause(done)}"
    )


def _pause(done: HandoverResult) -> str:
    """Describe the pause that clients saw."""
    if done.pause_s is not None:
        return f"Clients waited for verdicts for {done.pause_s:.2f} s at the longest."
    if done.pause_unknown is not None:
        return f"How long clients waited is not known: {done.pause_unknown}."
    return "No verdict was written meanwhile, so nobody waited for one."
