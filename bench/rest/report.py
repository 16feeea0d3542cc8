"""A measurement through HTTP as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from bench.rest.cases import CASES, FACADE

__all__ = ["show"]


def show(answer: dict[str, Any], console: Console) -> None:
    """Print the answer of `streamydb bench rest`."""
    if answer["cases"]:
        console.print(_cases(answer))
    machine = answer["machine"]
    console.print(
        f"\n{answer['keys']:,} keys; {machine['cores']} cores ({machine['processor']}), load "
        f"{machine['load']}. CPU: of the serving process for an answer, + that of PostgreSQL. "
        "Load: the load generator, in percent of a core. Below: p50, p99 in ms of reads of 16 keys "
        "at a fixed rate, alone and with as many writes.\n"
    )
    console.print(_mixed(answer))


def _cases(answer: dict[str, Any]) -> Table:
    titles = ("case", "clients", "server", "answers/s", "of it", "p50 ms", "p99 ms", "CPU µs",
              "load %")  # fmt: skip
    table = _table(titles, 3)
    last = None
    for row in answer["cases"]:
        place = row["case"], row["clients"]
        if row["server"] == FACADE:
            mine = row
        ratio = mine.get(f"rate_to_{row['server']}")
        first = (CASES[row["case"]].title, str(row["clients"])) if place != last else ("", "")
        last = place
        table.add_row(
            *first, row["server"], _number(row["per_s"]), "" if ratio is None else f"{ratio:.2f}",
            _number(row["p50"]), _number(row["p99"]),
            _cpu(row), f"{row['cpu_percent']:.0f}",
        )  # fmt: skip
    return table


def _mixed(answer: dict[str, Any]) -> Table:
    rate = f"{answer['mixed_rate']:,.0f}/s"
    titles = (f"reads at {rate}", "alone", "with writes", "of alone", "the writes")
    table = _table(titles, 1)
    rows = [*answer["mixed"], {**answer["past_the_facade"], "server": "past it"}]
    if constant := answer.get("constant_beside"):
        rows.append({**constant, "server": "a constant, past it"})
    for row in rows:
        table.add_row(
            row["server"], _both(row["alone"]), _both(row["with_writes"]),
            f"{row['p50_ratio']:.2f}, {row['p99_ratio']:.2f}", _both(row["writes"]),
        )  # fmt: skip
    return table


def _table(titles: tuple[str, ...], left: int) -> Table:
    table = Table(*titles, box=None, padding=(0, 2, 0, 0))
    for column in table.columns[left:]:
        column.justify = "right"
    return table


def _cpu(row: dict[str, Any]) -> str:
    store = row["store_cpu_us"]
    return f"{row['server_cpu_us']:,.0f}" + (f"+{store:,.0f}" if store else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _both(figures: dict[str, Any]) -> str:
    return f"{figures['p50']:,.1f}, {figures['p99']:,.1f}"
