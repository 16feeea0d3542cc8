"""What the commands of `streamydb bench` share: their options, and how an answer is delivered."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from bench.common import GEARS
from bench.ending import ending_in_order
from bench.keeping import keep, require_place
from bench.rest.cases import POSTGRESQL
from bench.workload import DISTRIBUTIONS
from streamydb.cli.common import EXIT_NO, stdout
from streamydb.cli.phases import Phases
from streamydb.local.broker import CLUSTER_BROKERS
from streamydb.records.gears import MICRO_BATCH

__all__ = ["deliver", "has_gears", "named", "numbers"]

Shards = Annotated[int, typer.Option("--shards", min=1, max=64, help="Slices of the keys.")]
Transactions = Annotated[
    int, typer.Option("--transactions", min=1, help="Transactions of one measured backlog.")
]
WarmUp = Annotated[
    int | None,
    typer.Option("--warm-up-transactions", min=2, help="Before it; else as many as measured."),
]
Repetitions = Annotated[int, typer.Option("--repetitions", min=1, help="The median counts.")]
Accounts = Annotated[int, typer.Option("--accounts", min=2, help="Accounts of the bank.")]
Distribution = Annotated[
    str, typer.Option("--distribution", help=f"{', '.join(DISTRIBUTIONS)}, a,b or all.")
]
Plan = Annotated[int | None, typer.Option("--plan", min=1, help="Most transactions in one plan.")]
MaxOffsets = Annotated[
    int | None,
    typer.Option("--max-offsets", min=1, help="Most transactions read in one micro-batch."),
]
Rate = Annotated[float, typer.Option("--rate", min=1, help="Transactions/s for the latency.")]
LatencySeconds = Annotated[
    float, typer.Option("--seconds", min=0, help="Seconds that latency is measured; 0: not.")
]
WarmUpSeconds = Annotated[
    float, typer.Option("--warm-up", min=0, help="Seconds of load before it counts.")
]
CountedSeconds = Annotated[float, typer.Option("--seconds", min=1, help="Seconds that count.")]
Theta = Annotated[float, typer.Option("--theta", min=0, help="Exponent of the Zipf distribution.")]
Gear = Annotated[
    str, typer.Option("--gear", help="micro-batch, or both: of a pipeline with two gears.")
]
CopyLimit = Annotated[bool, typer.Option("--copy-limit/--no-copy-limit", help="Measure it too.")]
Replication = Annotated[
    int,
    typer.Option(
        "--replication", help=f"Copies of each topic: 1, or {CLUSTER_BROKERS} on as many brokers."
    ),
]
Synced = Annotated[
    bool, typer.Option("--sync", help="Brokers flush each append to the disk before they answer.")
]
Sustain = Annotated[
    float | None, typer.Option("--sustain", min=1, help="Offer a constant load for so long.")
]
SustainedLoad = Annotated[
    float, typer.Option("--load", min=0.01, help="That load, as a multiple of the capacity.")
]
SustainedInterval = Annotated[
    float, typer.Option("--interval", min=1, help="Seconds of one row of its report.")
]
KeysSeries = Annotated[
    str | None,
    typer.Option(
        "--keys-series",
        help="Cost of a transfer at each size: 1000,100000,3000000. With --sustain that load "
        "comes last, at the largest.",
    ),
]
BesidePeer = Annotated[
    str | None,
    typer.Option(
        "--beside",
        help=f"{POSTGRESQL}: then the same transfers there, on this machine. {MICRO_BATCH}: by "
        "turns with a pipeline of that gear alone.",
    ),
]
BulkTurns = Annotated[
    int, typer.Option("--turns", min=1, help=f"Of each, with --beside {MICRO_BATCH}.")
]
Connections = Annotated[str, typer.Option("--connections", help="Clients of both, with --beside.")]
BesideSeconds = Annotated[
    float, typer.Option("--beside-seconds", min=0.5, help="Of each number of clients.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the transactions.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        exists=True,
        file_okay=False,
        writable=True,
        help="Where to put the run's folder (default: temporary)",
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Also write the JSON object to this file.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]

Show = Callable[[dict[str, Any], Console], None]


def numbers(text: str, what: str, least: int) -> list[int]:
    """Return the numbers that a text names, divided by commas.

    Raises:
        typer.BadParameter: it names something else, or a number below the least.
    """
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < least:
        raise typer.BadParameter(f"{text!r} is not a list of {what}")
    return found


def named(text: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that an option lists, or all of them.

    Raises:
        BadParameter: one of them is unknown.
    """
    found = names if text == "all" else tuple(text.split(","))
    for name in found:
        if name not in names:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(names)}, all")
    return found


def deliver(
    measure: Callable[[Phases], dict[str, Any]], show: Show, output: Path | None, *, json: bool
) -> None:
    """Measure, then print the answer; also keep it in a file, if there is one.

    Raises:
        BenchError: the file cannot be written; nothing was measured.
        OSError: it can no more after the measurement; the answer was printed.
        Exit: with code 3: an invariant does not hold.
    """
    if output is not None:
        require_place(output)
    with ending_in_order():
        answer = measure(Phases())
    if json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        sys.stdout.flush()
    else:
        show(answer, stdout())
    if output is not None:  # behind the printing: the disk may have become full
        keep(answer, output)
    if not answer.get("invariants_ok", True):
        raise typer.Exit(EXIT_NO)


def has_gears(gear: str, shards: int) -> bool:
    """Return True if a pipeline is to have both gears.

    Raises:
        typer.BadParameter: there is no such gear, or there are several shards.
    """
    both = named(gear, tuple(GEARS.values())) == (GEARS[True],)
    if both and shards > 1:
        raise typer.BadParameter("--gear both needs one shard")
    return both
