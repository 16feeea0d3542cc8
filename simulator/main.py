"""`streamydb sim`: run seeds in parallel, show progress, report failing seeds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import partial
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from simulator.election import ELECTION, run_election
from simulator.election_mutations import ELECTION_MUTATIONS, mutated_election
from simulator.gear_mutations import GEAR_MUTATIONS
from simulator.mutations import MUTATIONS, mutated
from simulator.run import SeedOutcome, run_seed
from streamydb.local.processes import end_with_parent
from streamydb.pipeline.warmup import warm_up

__all__ = ["Grouping", "app", "run_seeds", "sim"]

app = typer.Typer(add_completion=False)
_CHUNK = 10
_MUTATIONS = [*MUTATIONS, *GEAR_MUTATIONS, *ELECTION_MUTATIONS]


class Grouping(StrEnum):
    """The groupings with which the seeds run."""

    BOTH = "both"
    PLANNER = "planner"
    SINGLE = "single"


def _run_elections(seeds: list[int], mutation: str | None) -> list[SeedOutcome]:
    with nullcontext() if mutation is None else mutated_election(mutation):
        return [run_election(seed) for seed in seeds]


def _run_chunk(
    seeds: list[int],
    records: int,
    mutation: str | None,
    grouping: str | None,
    *,
    pair: bool,
    gears: bool,
) -> list[SeedOutcome]:
    with _mutated(mutation):
        return [run_seed(seed, records, grouping, pair=pair, gears=gears) for seed in seeds]


def _mutated(mutation: str | None) -> AbstractContextManager[object]:
    if mutation is None:
        return nullcontext()
    return GEAR_MUTATIONS[mutation]() if mutation in GEAR_MUTATIONS else mutated(mutation)


def run_seeds(
    first: int,
    count: int,
    *,
    records: int = 300,
    jobs: int | None = None,
    mutation: str | None = None,
    grouping: str | None = None,
    pair: bool = False,
    election: bool = False,
    gears: bool = False,
) -> Iterator[SeedOutcome]:
    """Run ``count`` seeds from ``first`` on in ``jobs`` processes; outcomes in seed order.

    ``grouping``, ``pair`` and ``gears`` as in `run_seed`. ``election``: `run_election` instead.
    """
    size = _CHUNK * 10 if election else _CHUNK
    seeds = list(range(first, first + count))
    chunks = [seeds[i : i + size] for i in range(0, count, size)]
    jobs = min(jobs or os.cpu_count() or 1, len(chunks))
    run: Callable[[list[int]], list[SeedOutcome]]
    if election:
        run = partial(_run_elections, mutation=mutation)
    else:
        warm_up()
        run = partial(
            _run_chunk,
            records=records,
            mutation=mutation,
            grouping=grouping,
            pair=pair,
            gears=gears,
        )
    if jobs <= 1:
        for chunk in chunks:
            yield from run(chunk)
        return
    with ProcessPoolExecutor(jobs, initializer=end_with_parent) as pool:
        for future in [pool.submit(run, chunk) for chunk in chunks]:
            yield from future.result()


@app.command()
def sim(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds.")] = 100,
    first: Annotated[int, typer.Option("--first", min=0, help="The first seed.")] = 1,
    records: Annotated[int, typer.Option("--records", min=1, help="Records a seed, about.")] = 300,
    jobs: Annotated[int, typer.Option("--jobs", help="Processes; 0: one a core.")] = 0,
    mutation: Annotated[
        str | None, typer.Option("--mutation", help=f"Break the engine: {', '.join(_MUTATIONS)}.")
    ] = None,
    grouping: Annotated[
        Grouping, typer.Option("--grouping", help="both: odd seeds single, even ones planner.")
    ] = Grouping.BOTH,
    pair: Annotated[
        bool, typer.Option("--pair", help="Two pipelines over the log: kills and take-overs.")
    ] = False,
    gears: Annotated[bool, typer.Option("--gears", help="Two gears over the log.")] = False,
    election: Annotated[
        bool, typer.Option("--election", help="The election alone: who leads, and who is ready.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
) -> None:
    """Attack the pure classes: crashes, lost caches, late feedback, skewed clocks, odd records.

    Every seed is compared with the serial oracle byte for byte. With --election a seed is a control
    topic whose members are killed, paused and cut off, and a judge. Exit code 3 if one fails.
    """
    _require(mutation, ELECTION_MUTATIONS if election else GEAR_MUTATIONS if gears else MUTATIONS)
    console = Console(stderr=True, highlight=False)
    begun = time.monotonic()
    failed: list[SeedOutcome] = []
    transactions = repeated = 0
    columns = TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("seeds", total=seeds)
        outcomes = run_seeds(
            first,
            seeds,
            records=records,
            jobs=jobs or None,
            mutation=mutation,
            grouping=None if grouping is Grouping.BOTH else grouping.value,
            pair=pair,
            election=election,
            gears=gears,
        )
        for outcome in outcomes:
            progress.advance(bar)
            transactions += outcome.transactions
            repeated += outcome.repeated
            if outcome.problems:
                failed.append(outcome)
                _tell(console.print, outcome)
    seconds = time.monotonic() - begun
    if json:
        summary = {
            "seeds": seeds,
            "first": first,
            "failed": [o.seed for o in failed],
            "transactions": transactions,
            "repeated": repeated,
            "seconds": round(seconds, 1),
        }
        sys.stdout.write(msgspec.json.encode(summary).decode() + "\n")
    else:
        what = "control records" if election else f"transactions, {repeated:,} outputs again"
        what = f"{seeds} seeds, {transactions:,} {what}"
        console.print(f"{what}, {len(failed)} failed, {seconds:.1f} s")
    if failed:
        raise typer.Exit(3)


def _require(mutation: str | None, known: Iterable[str]) -> None:
    if mutation is not None and mutation not in known:
        raise typer.BadParameter(f"{mutation} is none of {', '.join(known)}")


def _tell(say: Callable[[str], None], outcome: SeedOutcome) -> None:
    say(f"seed {outcome.seed} ({outcome.config}):")
    for problem in outcome.problems:
        say(f"  {problem}")
    alone = f"streamydb sim --seeds 1 --first {outcome.seed}"
    if outcome.grouping == ELECTION:
        alone += " --election"
    else:
        alone += f" --grouping {outcome.grouping}"
        alone += " --pair" if "pair=True" in outcome.config else ""
        alone += " --gears" if "gears=True" in outcome.config else ""
    say(f"  alone: {alone}")
