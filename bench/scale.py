"""`streamydb bench scale`: what more shards cost, and what they would bring on more cores.

Processor time of a transfer by stage, for several numbers of shards. The stages of our own code run
in one thread, without Kafka and Spark; a pipeline, if it is asked for, adds what the JVM, the
Python around our stages, and the broker take. Two lines through the figures of each stage say which
part of it all shards share (divided), which part each of them does again (repeated), and which part
its longest task has however many there are (serial). Processor time is measured, so other work on
the machine disturbs little; the capacities are computed from it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.errors import BenchError
from bench.in_memory import STAGES, InMemory
from bench.machine import machine
from bench.pairs import ratios_of, spread
from bench.scale_pipeline import AROUND, around_us, rounds_of
from bench.workload import BALANCE, Bank, funding
from streamydb import __version__
from streamydb.cli.phases import Phases
from streamydb.pipeline.warmup import warm_up

__all__ = ["MODEL", "ScaleOptions", "capacity", "line", "scale", "show"]

MODEL: Final = (
    "Computed, not measured: with as many shards as cores, a transfer takes of each stage what the "
    "stage's longest task spends on it, one stage after the other, and of what is not ours (the "
    "JVM, Python around our stages, the broker) its processor time divided by the cores."
)
CORES: Final = (4, 16, 64)

Figures = dict[int, float]
"""By number of shards, µs of processor time a transfer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions:
    """What to measure; see `streamydb bench scale --help`."""

    shards: tuple[int, ...] = (1, 2, 4, 8)
    transactions: int = 200_000
    batches: int = 5
    accounts: int = 100_000
    distribution: str = "uniform"
    pipeline: bool = False
    backlog: int | None = None
    seed: int = 1
    parent: Path | None = None


def line(points: Figures, *, inverse: bool = False) -> tuple[float, float]:
    """Fit ``a + b * shards`` (or ``a + b / shards``) to points; neither is below 0.

    A single shard plans and spreads nothing, so it does not count when there are two others.
    """
    chosen = [n for n in points if n > 1]
    chosen = chosen if len(chosen) > 1 else list(points)
    at = np.array([1 / n if inverse else n for n in chosen])
    values = np.array([points[n] for n in chosen])
    slope, base = np.polyfit(at, values, 1) if len(chosen) > 1 else (0.0, values[0])
    if base < 0:
        slope, base = np.mean(values / at), 0.0
    return (float(base), float(slope)) if slope > 0 else (float(np.mean(values)), 0.0)


def capacity(rows: list[dict[str, Any]], cores: int) -> float:
    """Transfers a second on so many cores, with as many shards; see MODEL."""
    spent = 0.0
    for row in rows:
        if row["ours"]:
            spent += row["serial_us"] + row["shared_us"] / cores
        else:
            spent += row["divided_us"] / cores + row["repeated_us"]
    return 1e6 / spent


def scale(options: ScaleOptions, phases: Phases) -> dict[str, Any]:
    """Measure each number of shards.

    Raises:
        BenchError: the pipeline failed, or a transfer was not committed.
        BrokerError: the broker did not start.
    """
    with phases.phase("Compiling"):
        warm_up()
    totals: dict[str, Figures] = {stage: {} for stage in STAGES}
    longest: dict[str, Figures] = {stage: {} for stage in STAGES}
    for shards in options.shards:
        with phases.phase(f"{shards} shards, our stages") as phase:
            for stage, (total, most) in _measured(options, shards).items():
                totals[stage][shards], longest[stage][shards] = total, most
            spent = sum(totals[stage][shards] for stage in STAGES)
            phase.outcome = f"{spent:.2f} µs a transfer"
    rows = [_row(stage, totals[stage], longest[stage]) for stage in STAGES]
    ours = {n: sum(totals[stage][n] for stage in STAGES) for n in options.shards}
    if not options.pipeline:
        return _answer(options, rows)
    rounds = rounds_of(options, phases)
    usual = {shards: around_us(rounds[shards], ours[shards]) for shards in options.shards}
    rows += [_row(name, {n: usual[n][name] for n in usual}, None) for name in AROUND]
    sums = {shards: [sum(each.values()) for each in rounds[shards]] for shards in rounds}
    pairs = ratios_of(sums[max(options.shards)], sums[min(options.shards)])
    return _answer(options, rows) | pairs


def _measured(options: ScaleOptions, shards: int) -> dict[str, tuple[float, float]]:
    """By stage, µs a transfer of all tasks and of the longest one.

    The least of some batches counts: other work makes processor time longer, too, never shorter.
    """
    bank = Bank(options.accounts, options.distribution, seed=options.seed)
    best = dict.fromkeys(STAGES, (np.inf, np.inf))
    with tempfile.TemporaryDirectory(dir=options.parent) as folder:
        database = InMemory(shards, Path(folder))
        database.run(list(funding(0, options.accounts, b"%d" % BALANCE)))
        for _ in range(options.batches):
            times = database.run(bank.payloads(database.offset, options.transactions))
            if database.committed() != options.transactions:
                raise BenchError("not every transfer was committed")
            for stage, tasks in times.items():
                found = np.array([sum(tasks), max(tasks)]) * 1e6 / options.transactions
                best[stage] = tuple(np.minimum(best[stage], found).tolist())
        database.close()
    return best


def _row(name: str, totals: Figures, longest: Figures | None) -> dict[str, Any]:
    """A stage's figures, and the lines through them."""
    divided, repeated = line(totals)
    serial, shared = line(longest, inverse=True) if longest else (0.0, 0.0)
    found: dict[str, Any] = {
        "stage": name, "ours": longest is not None,
        "total_us": {str(n): round(us, 3) for n, us in totals.items()},
        "longest_us": {str(n): round(us, 3) for n, us in (longest or {}).items()},
    }  # fmt: skip
    parts = {
        "divided_us": divided, "repeated_us": repeated, "serial_us": serial, "shared_us": shared,
    }  # fmt: skip
    return {**found, **{part: round(us, 3) for part, us in parts.items()}}


def _answer(options: ScaleOptions, rows: list[dict[str, Any]]) -> dict[str, Any]:
    sums = {str(n): round(sum(row["total_us"][str(n)] for row in rows), 3) for n in options.shards}
    least, most = str(min(options.shards)), str(max(options.shards))
    ours = [row for row in rows if row["ours"]]
    return {
        "benchmark": "scale", "rows": rows, "total_us": sums,
        "ratio": round(sums[most] / sums[least], 3),
        "serial_us": round(sum(row["serial_us"] for row in ours), 3),
        "repeated_us": round(sum(row["repeated_us"] for row in ours), 3),
        "capacity": {str(cores): round(capacity(rows, cores)) for cores in CORES},
        "model": MODEL, "shards": list(options.shards), "transactions": options.transactions,
        "batches": options.batches, "accounts": options.accounts,
        "distribution": options.distribution, "pipeline": options.pipeline, "seed": options.seed,
        "version": __version__, "machine": machine(),
    }  # fmt: skip


def show(answer: dict[str, Any], console: Console) -> None:
    """Print the table and what follows from it."""
    shards = [str(n) for n in answer["shards"]]
    parts = {"divided_us": "divided", "repeated_us": "repeated", "serial_us": "serial"}
    titles = [f"{n} shards" if n != "1" else "1 shard" for n in shards]
    table = Table("µs a transfer", *titles, *parts.values(), box=None, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in answer["rows"]:
        figures = [row["total_us"][n] for n in shards] + [row[name] for name in parts]
        table.add_row(row["stage"], *(f"{figure:.2f}" for figure in figures))
    ends = (answer["repeated_us"], answer["serial_us"])
    sums = [*(f"{answer['total_us'][n]:.2f}" for n in shards), ""]
    table.add_row("all", *sums, *(f"{figure:.2f}" for figure in ends))
    console.print(table)
    console.print(f"{titles[-1]} take {answer['ratio']:.2f} of {titles[0]}{spread(answer)}.")
    for cores, rate in answer["capacity"].items():
        console.print(f"{cores} cores: {rate:,} transfers/s")
    console.print(answer["model"])
    if not answer["pipeline"]:
        console.print("Without the JVM and the broker, which --pipeline measures.")
