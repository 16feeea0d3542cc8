"""`streamydb bench latency --beside`: two pipelines under the same little load, by turns."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.common import Run, running
from bench.copies import copies_text, kept_copies
from bench.engine import cores
from bench.errors import BenchError
from bench.latency import Floats, summary
from bench.machine import machine
from bench.others import LatencyOptions
from bench.pairs import by_turns, ratios_of, spread
from streamydb import __version__
from streamydb.cli.phases import Phases
from streamydb.limits import max_offsets

__all__ = ["BesideOptions", "beside", "show"]

_LEAD_S: Final = 2.0
"""Seconds of load before each turn counts: a pipeline that was idle needs a micro-batch or two."""

_SHOWN: Final = ("p50", "p90", "p99", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideOptions(LatencyOptions):
    """What to measure; see `streamydb bench latency --help`.

    ``max_offsets``: 0: what the number of shards makes of it.
    """

    max_offsets: int = 0
    beside: int = 1
    turns: int = 6


def beside(options: BesideOptions, phases: Phases) -> dict[str, Any]:
    """Measure latency of two pipelines at a rate; how much longer one takes than the other.

    Both are there all the time, each with a broker of its own, and take turns (`bench.pairs`).

    Raises:
        BenchError: as `bank`; or both have the same number of shards.
    """
    if options.beside == options.shards:
        raise BenchError("--beside names another number of shards than --shards")
    numbers = (options.shards, options.beside)
    latencies: dict[int, list[Floats]] = {number: [] for number in numbers}
    with ExitStack() as stack:
        runs = {}
        for number in numbers:
            own = replace(
                options, shards=number, max_offsets=options.max_offsets or max_offsets(number)
            )
            runs[number] = stack.enter_context(running(own, phases))
            runs[number].load_accounts(options.accounts)
        for number in numbers:
            _offer(runs[number], options, f"shards {number}: warming up", options.warm_up_s)
        seconds = options.latency_s / options.turns
        for turn, number in by_turns(numbers, options.turns):
            title = f"shards {number}: turn {turn + 1} of {options.turns}"
            latencies[number].append(_offer(runs[number], options, title, seconds))
    return _answer(options, latencies)


def _offer(run: Run, options: BesideOptions, title: str, seconds: float) -> Floats:
    workload = options.workload(options.distributions[0])
    return run.latencies(workload, options.latency_rate, _LEAD_S, seconds, title)


def _answer(options: BesideOptions, latencies: dict[int, list[Floats]]) -> dict[str, Any]:
    p50 = {number: [1000 * float(np.median(each)) for each in turns]
           for number, turns in latencies.items()}  # fmt: skip
    rows = [
        {"shards": number, "latency_ms": summary(np.concatenate(turns)),
         "turns_p50_ms": [round(each, 1) for each in p50[number]]}
        for number, turns in latencies.items()
    ]  # fmt: skip
    return {
        "benchmark": "latency-beside", "rows": rows,
        **ratios_of(p50[options.shards], p50[options.beside]),
        "offered_per_s": options.latency_rate,
        "warm_up_s": options.warm_up_s, "seconds": options.latency_s, "turns": options.turns,
        "accounts": options.accounts, "distribution": options.distributions[0],
        **options.copies.facts(),
        "cores": cores(), "seed": options.seed, "version": __version__, "machine": machine(),
    }  # fmt: skip


def show(answer: dict[str, Any], console: Console) -> None:
    """Print both, and the ratio."""
    table = Table("shards", *(f"{name}, ms" for name in _SHOWN), box=None, padding=(0, 2, 0, 0))
    for row in answer["rows"]:
        late = row["latency_ms"]
        table.add_row(str(row["shards"]), *(f"{late[name]:,.0f}" for name in _SHOWN))
    console.print(table)
    one, other = (row["shards"] for row in answer["rows"])
    console.print(
        f"p50 with {one} shards is {answer['ratio']:.2f} times that with {other}"
        f"{spread(answer, 'turns')}."
    )
    machine = answer["machine"]
    console.print(f"{copies_text(kept_copies(answer))}; {machine['processor']}.")
