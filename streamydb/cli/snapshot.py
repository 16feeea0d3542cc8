"""`streamydb snapshot` and jobs/snapshot.py: a database's data right after a seq, as Parquet."""

from __future__ import annotations

from typing import Annotated

import typer

from streamydb.cli.options import DatabaseOptions, Json, point_option
from streamydb.cli.phases import Phases
from streamydb.cli.target import find_target


def snapshot(
    to: Annotated[
        str, typer.Option(help="Folder, or URI of one, in which the snapshot gets its own.")
    ],
    options: DatabaseOptions,
    at: Annotated[str | None, point_option("the newest resolved")] = None,
    base: Annotated[
        str | None, typer.Option(help="An older snapshot, so that only what came after it is read.")
    ] = None,
    master: Annotated[
        str, typer.Option(help="Spark's master; '': the one that spark-submit has.")
    ] = "local[*]",
    json: Json = False,
) -> None:
    """Write a consistent snapshot as Parquet; one that is there already is left as it is."""
    from streamydb.spark.snapshot import run, shown

    target = find_target(options)
    target.must_listen()
    settings = target.settings.model_copy(update={"bootstrap": target.bootstrap})
    with Phases().phase(f"Snapshot of {target.database}") as phase:
        written = run(settings, to, at=at, base=base, master=master or None)
        phase.outcome = f"seq {written.manifest.seq:,}, {written.manifest.rows:,} keys"
    typer.echo(shown(written, as_json=json))
