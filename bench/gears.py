"""`streamydb bench bank --beside micro-batch`: bulk of a pipeline with two gears and with one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.bank import BankOptions
from bench.common import GEARS, running
from bench.copies import copies_text, kept_copies
from bench.engine import cores
from bench.errors import BenchError
from bench.machine import machine
from bench.pairs import by_turns, ratios_of, spread
from streamydb import __version__
from streamydb.cli.phases import Phases
from streamydb.records.gears import MICRO_BATCH

__all__ = ["beside_one_gear", "show"]

_BACKLOGS_MIN: Final = 2


def beside_one_gear(options: BankOptions, turns: int, phases: Phases) -> dict[str, Any]:
    """Measure backlogs of a pipeline with both gears and of one with the micro-batch gear alone.

    Both are there all the time, each with a broker of its own, and take turns (`bench.pairs`). A
    turn is one backlog after the other (`repetitions`): before the first one the gears shift, as
    the log was calm, and the caches are the other pipeline's, so that one is told apart. Memory is
    that of the pipeline after a turn.

    Raises:
        BenchError: as `bank`; or a turn has one backlog only.
    """
    if not options.gears or options.repetitions < _BACKLOGS_MIN:
        raise BenchError(f"--beside {MICRO_BATCH} needs --gear both, and two repetitions at least")
    name, *_ = options.distributions
    workload, sides = options.workload(name), tuple(GEARS)
    first: dict[bool, list[float]] = {gears: [] for gears in sides}
    later: dict[bool, list[float]] = {gears: [] for gears in sides}
    memory: dict[bool, list[float]] = {gears: [] for gears in sides}
    with ExitStack() as stack:
        runs = {gears: stack.enter_context(running(replace(options, gears=gears), phases))
                for gears in sides}  # fmt: skip
        for run in runs.values():
            run.load_accounts(options.accounts)
            run.warm_up(workload)
        for _, gears in by_turns(sides, turns):
            rates = runs[gears].throughput({f"{name}, {GEARS[gears]}": workload})
            begun, *others = [rate.per_s for found in rates.values() for rate in found]
            first[gears].append(begun)
            later[gears].append(median(others))
            memory[gears].append(runs[gears].memory_mb()["pipeline"])
        proofs = {}
        for gears, run in runs.items():
            run.stop()
            proofs[gears] = {**run.answered(), **run.balances()}
    return {
        "benchmark": "bank-gears",
        "rows": [
            {
                "gears": GEARS[gears],
                "txn_per_s": round(median(later[gears]), 1),
                "first_txn_per_s": round(median(first[gears]), 1),
                "turns_txn_per_s": [round(rate) for rate in later[gears]],
                "memory_mb": round(median(memory[gears])),
                "turns_memory_mb": [round(mb) for mb in memory[gears]],
                "proof": proofs[gears],
            }
            for gears in sides
        ],
        **ratios_of(later[True], later[False]),
        "first_ratio": ratios_of(first[True], first[False])["ratio"],
        "turns": turns,
        "repetitions": options.repetitions,
        "transactions": options.transactions,
        "accounts": options.accounts,
        "distribution": name,
        **options.copies.facts(),
        "cores": cores(),
        "seed": options.seed,
        "version": __version__,
        "machine": machine(),
    }


def show(answer: dict[str, Any], console: Console) -> None:
    """Print both, and the ratio."""
    columns = ("gears", "transactions/s", "first of a turn", "memory, MB")
    table = Table(*columns, box=None, padding=(0, 2, 0, 0))
    for row in answer["rows"]:
        rates = f"{row['txn_per_s']:,.0f}", f"{row['first_txn_per_s']:,.0f}"
        table.add_row(row["gears"], *rates, f"{row['memory_mb']:,}")
    console.print(table)
    console.print(
        f"Both gears give {answer['ratio']:.2f} of the bulk of one{spread(answer, 'turns')}; "
        f"{answer['first_ratio']:.2f} in the first backlog of a turn, before which they shift."
    )
    console.print(f"{copies_text(kept_copies(answer))}; {answer['machine']['processor']}.")
