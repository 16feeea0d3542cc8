"""`streamydb down`: the end of what `up` started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamydb.cli.common import print_json, say
from streamydb.cli.options import Database, DatabaseOptions, Home, Json, seconds_option
from streamydb.cli.target import Target, find_target

if TYPE_CHECKING:
    from streamydb.cli.phases import Phases

ENDING_S_MAX = 35.0
"""How long a pipeline takes to end when the time for its batch is over: the sum of the bounds of
`streamydb.pipeline.shutdown`, and some.
"""


def down(
    database: Database = None,
    home: Home = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Stop every database of this home, and the broker.")
    ] = False,
    grace: Annotated[
        float | None, seconds_option("Seconds to end by itself before it is killed (default: 65).")
    ] = None,
    json: Json = False,
) -> None:
    """Stop what `up` started: facade, pipeline, and the broker if nothing else uses it."""
    from streamydb.cli.front import stop_front
    from streamydb.cli.phases import Phases
    from streamydb.local.folder import databases

    target = find_target(DatabaseOptions(database, home))
    phases = Phases()
    grace_s = grace_of(target) if grace is None else grace
    names = databases(target.settings.home) if everything else [target.database]
    fronts = [name for name in names if stop_front(target.settings.home, name, phases)]
    base = target.settings.home
    stopped = [name for name in names if _stop_pipeline(base, name, grace_s, phases)]
    folder = base / "databases" if everything else target.files.folder
    strays = stop_strays(folder, grace_s, phases)
    others = [] if everything else _others_running(target)
    broker = False if others else _stop_broker(target.settings.home, grace_s, phases)
    if json:
        print_json({"stopped": stopped, "broker_stopped": broker, "still_running": others})
        return
    if not stopped and not fronts and not broker and not strays:
        say(f"Nothing was running for database {target.database} in {target.settings.home}.")
    if others:
        say(f"The broker goes on for {', '.join(others)}; `streamydb down --all` stops them too.")


def grace_of(target: Target) -> float:
    """Return how long a pipeline may take to end by itself, in seconds."""
    return target.settings.finish_batch_s + ENDING_S_MAX


def _stop_pipeline(home: Path, name: str, grace_s: float, phases: Phases) -> bool:
    from streamydb.local import processes
    from streamydb.local.folder import PIPELINE, DatabaseFolder

    folder = DatabaseFolder(home, name)
    if folder.pipeline() is None:
        return False
    with phases.phase(f"Stopping the pipeline of {name}") as phase:
        phase.note("it finishes its batch")
        stopped = processes.stop(
            folder.folder, PIPELINE, grace_s, lambda: phase.note("it finishes its batch")
        )
        phase.outcome = folder.status().error or ""
        return stopped


def stop_strays(folder: Path, grace_s: float, phases: Phases) -> list[str]:
    """Stop what runs on although its folder was deleted; return the names of these processes."""
    from streamydb.local import processes
    from streamydb.local.launcher import end

    strays = processes.strays(folder)
    for each in strays:
        with phases.phase(f"Stopping the {each.name}, whose folder was deleted") as phase:
            phase.outcome = f"process {each.pid}"
            end(each.name, each.pid, each.birth, grace_s)
    return [each.name for each in strays]


def _stop_broker(home: Path, grace_s: float, phases: Phases) -> bool:
    from streamydb.local.broker import find_broker, stop_detached

    if find_broker(home) is None:
        return False
    with phases.phase("Stopping the Kafka broker"):
        return stop_detached(home, timeout_s=grace_s)


def _others_running(target: Target) -> list[str]:
    """Other databases of this home whose pipelines run on the embedded broker."""
    from streamydb.local.folder import DatabaseFolder, databases

    home = target.settings.home
    return [
        name
        for name in databases(home)
        if name != target.database and DatabaseFolder(home, name).pipeline() is not None
    ]
