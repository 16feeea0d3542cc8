"""`streamydb histories`: record what concurrent clients see through REST, and judge it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from histories.campaign import Campaign, files
from histories.campaign import run as run_campaign
from histories.judge import check_history
from histories.records import History, read_history
from histories.workload import Shape

__all__ = ["app", "check", "run"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True,
    help="Record what concurrent clients see through REST, and judge it.",
)  # fmt: skip
_EXIT_NO: Final = 3

Folder = Annotated[Path, typer.Argument(help="Folder of the history (files *.jsonl).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command()
def run(
    folder: Folder,
    url: Annotated[list[str] | None, typer.Option(help="A facade; repeat it for several.")] = None,
    seconds: Annotated[float, typer.Option(help="How long clients run.", min=0)] = 60.0,
    clients: Annotated[int, typer.Option(help="Clients in each process.", min=1)] = 16,
    processes: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    watchers: Annotated[int, typer.Option(help="Event streams.", min=0)] = 3,
    operations: Annotated[
        int | None, typer.Option(help="How many at the most (default: as time allows).", min=1)
    ] = None,
    library: Annotated[
        bool, typer.Option("--library", help="Use `run` of the Python client.")
    ] = False,
    kafka: Annotated[
        list[str] | None,
        typer.Option(help="kafka://… for writes and reads of the Python client; repeat it."),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Of all keys.")] = "",
    registers: Annotated[
        int, typer.Option(help="Keys with one value; fewer collide more.", min=1)
    ] = Shape().registers,
    lists: Annotated[int, typer.Option(help="Keys with lists at a time.", min=4)] = Shape().lists,
    seed: Annotated[int, typer.Option(help="Of the clients' choices.")] = 1,
    json: Json = False,
) -> None:
    """Run clients on a database that nobody else writes, record and judge what they see.

    It writes the keys r/…, l/… and s/…, which must be absent before; a prefix
    lets one database have several histories. A file `stop` in the folder ends it
    early. Exit code 3 if there is a violation.
    """
    campaign = Campaign(
        urls=url or ["http://127.0.0.1:8080"], folder=folder, seconds=seconds, clients=clients,
        processes=processes, watchers=watchers, seed=seed, operations=operations,
        library=library, kafka=kafka or [],
        shape=Shape(prefix=prefix, registers=registers, lists=lists),
    )  # fmt: skip
    _judge(run_campaign(campaign), json=json)


@app.command()
def check(folder: Folder, json: Json = False) -> None:
    """Judge a recorded history. Exit code 3 if there is a violation."""
    _judge(read_history(files(folder)), json=json)


def _judge(history: History, *, json: bool) -> None:
    report = check_history(history)
    typer.echo(msgspec.json.encode(report).decode() if json else report.text())
    if not report.ok:
        raise typer.Exit(_EXIT_NO)
