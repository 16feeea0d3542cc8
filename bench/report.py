"""A measurement's answer as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from bench.copies import copies_text, kept_copies

__all__ = ["show"]

_COLUMNS = {
    "txn_per_s": "transactions/s",
    "us_per_transaction": "µs each",
    "records_a_batch": "records a batch",
    "ms_a_batch": "ms a batch",
    "copies": "copies",
    "sync": "sync",
    "runs": "repetitions",
}
_INTERVAL = {
    "to_s": "until s",
    "offered_per_s": "offered/s",
    "done_per_s": "done/s",
    "backlog": "backlog",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "rss_mb": "memory MB",
    "state_mb": "state MB",
    "batch_ms": "batch ms",
    "handles": "open files",
    "checkpoint_mb": "checkpoint MB",
    "topics_mb": "topics MB",
    "cpu_percent": "cpu %",
    "stolen_percent": "stolen %",
}


def show(answer: dict[str, Any], console: Console) -> None:
    """Print the answer of a benchmark."""
    rates = answer.get("distributions") or {}
    if "series" in answer:
        rates = {f"{row['accounts']:,} accounts": row for row in answer["series"]}
    for name in ("throughput", "throughput_after"):
        if name in answer:
            rates = {answer["benchmark"]: answer[name]}
    if rates:
        kept = {name: answer[name] for name in ("copies", "sync") if name in answer}
        rates = {name: {**row, **kept} for name, row in rates.items()}
        console.print(_rows("", _COLUMNS, rates))
    if "sustained" in answer:
        found = answer["sustained"]
        console.print(_rows("", _INTERVAL, dict(enumerate(found["intervals"], 1))))
        minutes = {"first minute": found["first_minute"], "last minute": found["last_minute"]}
        console.print(_rows("", dict(list(_INTERVAL.items())[1:]), minutes))
    console.print(_summary(answer, rates))


def _rows(corner: str, columns: dict[str, str], rows: dict[Any, dict[str, Any]]) -> Table:
    shown = {key: title for key, title in columns.items() if key in next(iter(rows.values()))}
    table = Table(corner, *shown.values(), box=None, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in rows.items():
        table.add_row(str(name), *(_text(row[key]) for key in shown))
    return table


def _summary(answer: dict[str, Any], rates: dict[Any, dict[str, Any]]) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    late = answer["latency_ms"] or {}
    late_text = f"p50 {_text(late.get('p50'))}, p99 {_text(late.get('p99'))}"
    at = f" at {late['rate']:,.0f}/s" if "rate" in late else ""
    sustained = answer.get("sustained", {})
    drain = sustained.get("drain", {})
    for name, value in (
        ("transactions/s", answer["txn_per_s"]),
        ("copy limit, transactions/s", answer["copy_limit_txn_per_s"]),
        ("ratio to the copy limit", answer["ratio_to_copy_limit"]),
        ("zipf to uniform", answer.get("zipf_to_uniform")),
        ("hot pair to uniform", answer.get("hotpair_to_uniform")),
        ("largest to smallest database", answer.get("largest_to_smallest")),
        ("operations/s", answer.get("operations_per_s")),
        ("done to capacity", sustained.get("done_to_capacity")),
        ("backlog at the end", drain.get("transactions")),
        ("drained in, s", drain.get("seconds")),
        (f"latency{at}, ms", late_text if late else None),
        ("gear that leads", _leader(answer)),
        *_serving(answer),
        ("idle processor, % of a core", answer.get("idle_cpu_percent")),
        ("aborted", answer["aborted"]),
        ("peak memory, MB", answer["peak_rss_mb"]),
        *_costs(rates),
        ("shards, cores", f"{answer['shards']}, {answer['cores']}"),
        ("copies", copies_text(kept_copies(answer)) if "copies" in answer else None),
        ("machine", _machine(answer)),
        ("proof", _proof(answer["proof"])),
    ):
        if value is not None:
            table.add_row(name, _text(value))
    return table


def _leader(answer: dict[str, Any]) -> str | None:
    """Return which gear leads at the end, and since when."""
    return f"{answer['leads']}, for {answer['leads_s']:,.0f} s" if "leads" in answer else None


def _costs(rates: dict[Any, dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return what the parts took of the processors, in the first row that says it."""
    found = next((row for row in rates.values() if "brokers_share" in row), None)
    if found is None:
        return []
    used = found["cpu_us"]
    each = f"pipeline {_text(used['pipeline'])}, brokers {_text(used['brokers'])}"
    return [
        ("processor time of a transfer, µs", each),
        ("brokers, of all processor time", f"{found['brokers_share']:.0%}"),
    ]


def _machine(answer: dict[str, Any]) -> str | None:
    if "machine" not in answer:
        return None
    machine = answer["machine"]
    return f"{machine['processor']}, {machine['memory_gb']} GB, load {machine['load']} at the end"


def _serving(answer: dict[str, Any]) -> list[tuple[str, Any]]:
    """What `streamydb bench serving` has measured besides."""
    if "snapshots" not in answer:
        return []
    ages, quiet = answer["snapshots"], answer["quiet"]
    pairs = {name: f"p50 {ages[f'{name}_p50_s']}, p99 {ages[f'{name}_p99_s']}"
             for name in ("age", "since_commit")}  # fmt: skip
    return [
        ("strong reads, quiet, ms", f"p50 {_text(quiet['p50'])}, p99 {_text(quiet['p99'])}"),
        ("p99 of strong reads to quiet", answer["p99_ratio"]),
        ("age of snapshots, s", pairs["age"]),
        ("the same, since their last commit, s", pairs["since_commit"]),
    ]


def _proof(proof: dict[str, Any]) -> str:
    text = f"{proof['results']:,} transactions, each with its result"
    if "balances" in proof:
        text += f"; {proof['accounts']:,} balances add up to {proof['balances']:,}, as at first"
    return text


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(_text(part) for part in value)
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
