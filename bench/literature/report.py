"""An answer of a benchmark of the literature as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["show"]


def show(answer: dict[str, Any], console: Console) -> None:
    """Print the answer: figures, then whether the invariants hold."""
    console.print(f"[bold]{answer['benchmark']}[/bold] {_parameters(answer['parameters'])}")
    if answer["cases"]:
        console.print(_cases(answer["cases"]))
    if "mixes" in answer:
        console.print(_mixes(answer["mixes"]))
    if "terminals" in answer:
        console.print(_terminals(answer["terminals"]))
    for title, name in _LATENCIES.items():
        if answer.get(name) and "mixes" not in answer:
            console.print(f"{title}: {_latency(answer[name])}")
    if answer.get("ratio_to_copy_limit"):
        console.print(
            f"a job that only copies: {answer['copy_limit_txn_per_s']:,.0f} transactions/s; "
            f"the first case reaches {answer['ratio_to_copy_limit']:.2f} of it"
        )
    if "queries" in answer:
        found = answer["queries"]
        console.print(f"queries: {found['per_s']:,.0f}/s, {_latency(found)}")
    if "winner" in answer:
        console.print(f"winner: {answer['winner']}, after {answer['recorded']:,} recorded votes")
    console.print(
        f"aborted: {answer['aborted']:,} ({answer['abort_rate']:.2%}); peak memory "
        f"{answer['peak_rss_mb']:,.0f} MB; shards, cores: {answer['shards']}, {answer['cores']}"
    )
    for each in answer["invariants"]:
        mark = "[green]✓[/green]" if each["ok"] else "[red]✗[/red]"
        console.print(f"{mark} {escape(each['name'])} ({each['checked']:,} checked)")
        for problem in each["problems"]:
            console.print(f"    {escape(problem)}", soft_wrap=True)
        if each["broken"] > len(each["problems"]):
            console.print(f"    {each['broken']:,} in all")


_LATENCIES = {
    "latency of verdicts": "latency_ms",
    "latency of verdicts beside queries": "latency_beside_queries_ms",
}


def _parameters(parameters: dict[str, Any]) -> str:
    return escape(", ".join(f"{name} {value}" for name, value in parameters.items()))


def _cases(cases: dict[str, dict[str, Any]]) -> Table:
    table = Table("", "transactions/s", "µs each", "ms a batch", "aborted", "repetitions", box=None)
    for name, row in cases.items():
        runs = " ".join(f"{rate:,.0f}" for rate in row["runs"])
        table.add_row(
            name, f"{row['txn_per_s']:,.0f}", f"{row['us_per_transaction']:,.1f}",
            f"{row['ms_a_batch']:,.0f}", f"{row['abort_rate']:.2%}", runs,
        )  # fmt: skip
    return table


def _terminals(played: dict[str, Any]) -> str:
    late = played["latency_ms"]["new_order"]
    return (
        f"{played['terminals']:,} terminals of {played['warehouses']:,} warehouses for "
        f"{played['seconds']:,.0f} s: {played['tpmC']:,.1f} tpmC, efficiency "
        f"{played['efficiency']:.1%}; new-order p50 {late['p50']:,.1f} ms, p90 "
        f"{late['p90']:,.1f} ms, p99 {late['p99']:,.1f} ms"
    )


def _mixes(mixes: dict[str, dict[str, Any]]) -> Table:
    table = Table("", "transactions/s", "read-only p50, p99", "updates p50, p99", box=None)
    for name, row in mixes.items():
        late = [_latency(row[kind]) for kind in ("reads", "updates")]
        table.add_row(name, f"{row['per_s']:,.0f}", *late)
    return table


def _latency(found: dict[str, Any]) -> str:
    if found["p50"] is None:
        return "-"
    at = f" at {found['rate']:,.0f}/s" if "rate" in found else ""
    return f"p50 {found['p50']:,.1f} ms, p99 {found['p99']:,.1f} ms{at}"
