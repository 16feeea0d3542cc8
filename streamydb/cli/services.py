"""`streamydb pipeline`, `sequencer` and `connect`: long-running parts in the foreground."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from streamydb.cli.common import EXIT_USAGE, fail, say
from streamydb.cli.options import MASTER, DatabaseOptions, Master, Procedures
from streamydb.cli.target import find_target


def pipeline(
    options: DatabaseOptions,
    master: Master = MASTER,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Follow silently; take over when the active one stops."),
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Tells pipelines apart; a standby is called standby.")
    ] = None,
    procedures: Procedures = None,
    from_state: Annotated[
        Path | None, typer.Option(help="A backup that a new checkpoint begins with.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="An option of `python -m streamydb.pipeline`: --option=--max-offsets=50000."
        ),
    ] = None,
) -> None:
    """Run the pipeline of a database in the foreground, until Ctrl-C."""
    from streamydb.cli.launch import pipeline_command
    from streamydb.limits import PIPELINE_NAME, PIPELINE_NAME_RULE, STANDBY

    target = find_target(options, procedures=procedures)
    called = name if name is not None else STANDBY if standby else ""
    extra = [*(["--standby"] if standby else []), *(option or ())]
    if from_state is not None:
        extra += ["--from-state", str(from_state)]
    if called and not PIPELINE_NAME.fullmatch(called):
        fail(f"--name {called!r}: {PIPELINE_NAME_RULE}", EXIT_USAGE)
    command = pipeline_command(target, master, extra, called)
    os.environ["STREAMYDB_HOME"] = str(target.settings.home)
    os.execv(command[0], command)  # noqa: S606 - our own interpreter and module


def sequencer(options: DatabaseOptions) -> None:
    """Write epoch markers in the foreground, until Ctrl-C; several at once are harmless.

    The pipeline runs one itself. With one partition there is nothing to do.
    """
    from streamydb.pipeline.markers import run

    code = run(find_target(options).settings, say)
    if code:
        raise typer.Exit(code)


def connect(options: DatabaseOptions) -> None:
    """Copy the changes for Kafka Connect in the foreground, until Ctrl-C; one at a time writes.

    `streamydb create --connect` makes the topic. A second one takes over from the first, which
    ends.
    """
    from streamydb.kafka import TopicNames
    from streamydb.kafka.changes import KafkaSource
    from streamydb.kafka.connect import Copier
    from streamydb.kafka.connect.copier import KafkaCopy, registry_of
    from streamydb.local.exposition import serve
    from streamydb.local.own_process import keep_all
    from streamydb.local.signals import stop_event

    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = find_target(options).settings
    connection = settings.client_config()
    source = KafkaSource(connection, TopicNames(settings.database).changes)
    copier = Copier(settings.database, source, KafkaCopy(connection, settings.database))
    end_metrics = serve(registry_of(copier), settings)
    try:
        keep_all()
        with stop_event() as stop:
            copier.run(stop, settings.bootstrap_servers)
    finally:
        end_metrics()
