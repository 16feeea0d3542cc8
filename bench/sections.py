"""Tables of kept answers that need no more than a few lines each; see `bench.table`.

Each function takes one answer of `streamydb bench` and returns the lines of its section.
"""

from __future__ import annotations

from statistics import mean
from typing import Any

from bench.recovery import figures_of

__all__ = ["keys_lines", "markdown", "recovery_lines", "serving_lines"]


def markdown(head: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a table."""
    return ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]


def _where(answer: dict[str, Any]) -> str:
    machine = answer["machine"]
    return f"{machine['cores']} cores ({machine['processor']}), load {machine['load']} at the end"


def recovery_lines(answer: dict[str, Any]) -> list[str]:
    """The kinds of recovery: seconds at least, in the middle, at most."""
    rows = [
        [title, what, *(f"{row[name][at]:.2f}" for at in ("min", "median", "max"))]
        for row in answer["rows"]
        for title, what, name in figures_of(row["kind"])
    ]
    told = (
        f"{answer['turns']} turns of each at {answer['rate_per_s']:g} transactions/s, "
        f"{answer['shards']} shard(s), {_where(answer)}. Seconds:"
    )
    return [told, "", *markdown(["", "", "least", "median", "most"], rows)]


def serving_lines(answer: dict[str, Any]) -> list[str]:
    """A facade on a pipeline under load."""
    ages, quiet, beside = answer["snapshots"], answer["quiet"], answer["beside_load"]
    late = {
        "strong reads of the quiet database, ms": (quiet["p50"], quiet["p99"]),
        "strong reads beside the load, ms": (beside["p50"], beside["p99"]),
        "age of snapshots, s": (ages["age_p50_s"], ages["age_p99_s"]),
        "time since the last commit that they show, s": (
            ages["since_commit_p50_s"], ages["since_commit_p99_s"],
        ),
    }  # fmt: skip
    minutes = answer["sustained"]["intervals"][-1]["to_s"] / 60
    told = (
        f"{answer['load']:.0%} of {answer['txn_per_s']:,.0f} transfers/s for {minutes:.0f} "
        f"minutes, {answer['read_rate']:g} strong reads a second, {_where(answer)}:"
    )
    rows = [[what, *(f"{value:,g}" for value in figures)] for what, figures in late.items()]
    return [told, "", *markdown(["", "p50", "p99"], rows)]


def keys_lines(answer: dict[str, Any]) -> list[str]:
    """Rates against the number of accounts."""
    rows = [
        [
            f"{row['accounts']:,}", ", ".join(f"{rate:,.0f}" for rate in row["runs"]),
            f"{row['state_mb']:,.0f}", f"{row['rss_mb']:,.0f}", f"{row['start_s']:.1f}",
        ]
        for row in answer["series"]
    ]  # fmt: skip
    told = (
        f"Uniform transfers, {answer['shards']} shard(s), plans of {answer['max_offsets']:,}, "
        f"{_where(answer)}. Memory counts the pages of the values' file that are in memory, in "
        "each process that maps them. A start ends with the next result:"
    )
    head = ["accounts", "transactions/s of the repetitions", "state, MB", "memory, MB", "start, s"]
    lines = [told, "", *markdown(head, rows)]
    return lines if "sustained" not in answer else [*lines, "", *_flat(answer)]


def _flat(answer: dict[str, Any]) -> list[str]:
    """Minute by minute, how the load at the largest size went."""
    found = answer["sustained"]
    accounts, rate = answer["series"][-1]["accounts"], found["offered_per_s"]
    minutes: dict[int, list[dict[str, Any]]] = {}
    for row in found["intervals"]:
        minutes.setdefault(int(row["from_s"] // 60), []).append(row)
    rows = [
        [
            str(minute + 1), f"{mean(row['done_per_s'] for row in some):,.0f}",
            f"{max(row['p99_ms'] or 0 for row in some):,.0f}", f"{some[-1]['rss_mb']:,.0f}",
            f"{some[-1]['state_mb']:,.0f}",
        ]
        for minute, some in sorted(minutes.items())
    ]  # fmt: skip
    told = f"Then {rate:,.0f} transfers/s between {accounts:,} accounts, minute by minute:"
    head = ["minute", "done a second", "worst p99 of 10 s, ms", "memory, MB", "state, MB"]
    return [told, "", *markdown(head, rows)]
