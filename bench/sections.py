"""Tables of kept answers that need no more than a few lines each; see `bench.table`.

Each function takes one answer of `streamydb bench` and returns the lines of its section.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from bench.floor import shown
from bench.pairs import spread
from bench.recovery import figures_of
from bench.shifting import parts_of

__all__ = [
    "bank_lines",
    "bank_rows",
    "floor_lines",
    "gears_lines",
    "keys_lines",
    "latency_lines",
    "markdown",
    "memory_lines",
    "recovery_lines",
    "scale_lines",
    "serving_lines",
    "shifting_lines",
]


def memory_lines(usual: dict[str, Any], small: dict[str, Any]) -> list[str]:
    """The memory of all processes, of `up` and of `up --small`, and what either does with it."""
    answers = (usual, small)

    def row(name: str, of: str, what: str) -> list[str]:
        found = [answer[of].get(name) for answer in answers]
        return [what, *("-" if each is None else f"{each['mb']:,.0f}" for each in found)]

    rows = [row(name, "idle", f"idle, {name}") for name in usual["idle"]]
    files = [f"{answer['idle']['all']['files_mb']:,.0f}" for answer in answers]
    rates = [f"{answer['bulk_per_s']:,}" for answer in answers]
    late = [
        f"{answer['latency_ms']['p50']:,.0f} / {answer['latency_ms']['p99']:,.0f}"
        for answer in answers
    ]
    rate = f"{usual['rate']:g}"
    rows += [
        ["of it unchanged pages of files", *files],
        row("all", "started", "after the start"),
        row("all", "most", "most under load"),
        ["transactions/s in bulk, with read model and facade", *rates],
        [f"latency at {rate}/s beside reads, p50 / p99, ms", *late],
    ]
    told = (
        f"`streamydb bench memory`, median of {len(usual['idle_mb_runs'])}: "
        f"{usual['load_s']:g} s of load (in bulk, then {rate}/s), {usual['idle_s']:g} s without; "
        f"{_where(usual)}. Proportional set size in MB:"
    )
    return [told, "", *markdown(["", "`up`", "`up --small`"], rows)]


def markdown(head: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a table."""
    return ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]


def _where(answer: dict[str, Any]) -> str:
    machine = answer["machine"]
    return f"{machine['cores']} cores ({machine['processor']}), load {machine['load']} at the end"


def _bank_figures(answer: dict[str, Any], latency: dict[str, Any] | None) -> list[str]:
    """The figures of a run of `streamydb bench bank`, and a latency."""
    rates = answer["distributions"]
    return [
        *(f"{rates[name]['txn_per_s']:,.0f}/s" for name in ("uniform", "zipf", "hotpair")),
        f"{answer['ratio_to_copy_limit']:.2f}",
        _latency(latency) if latency else "-",
        f"{answer['peak_rss_mb'] / 1000:.1f} GB",
    ]


def _latency(found: dict[str, Any]) -> str:
    return f"{found['p50']:.0f} ms / {found['p99']:.0f} ms"


def bank_rows(
    one: dict[str, Any],
    several: dict[str, Any],
    latencies: Sequence[dict[str, Any]] = (),
    gears: dict[str, Any] | None = None,
) -> list[str]:
    """One shard beside several of them.

    Args:
        one: the run with one shard.
        several: the run with several shards.
        latencies: of one gear, of both; those in the runs, if none.
        gears: the latency with one shard and two gears.
    """
    late = [answer["latency_ms"] for answer in latencies or (one, several)]
    titles = [
        "transfers, uniform", "transfers, Zipf 0.99", "every transfer on the same two accounts",
        "share of the rate at which Spark only copies the records",
        "latency at 500/s, p50 / p99" + ", in the micro-batch gear" * (gears is not None),
        "peak memory of the pipeline",
    ]  # fmt: skip
    columns = [_bank_figures(*each) for each in zip((one, several), late, strict=True)]
    figures = zip(titles, *columns, strict=True)
    head = ["", "one shard (default)", f"{several['shards']} shards"]
    rows = [list(row) for row in figures]
    if gears is not None:
        title = "latency at 500/s, p50 / p99, while the real-time gear leads (default)"
        rows.insert(-2, [title, _latency(gears["latency_ms"]), "no such gear"])
    return markdown(head, rows)


def bank_lines(one: dict[str, Any], several: dict[str, Any]) -> list[str]:
    """The same, and on which machine."""
    return [f"{_where(one)}, PySpark {one['machine']['pyspark']}:", "", *bank_rows(one, several)]


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


def shifting_lines(answer: dict[str, Any]) -> list[str]:
    """Latency while the load comes and goes, by the gear that led and by the rate."""
    rows = [
        [name, f"{found['count']:,}", *(f"{found[at]:,.0f}" for at in ("p50", "p90", "p99", "max"))]
        for name, found in parts_of(answer).items()
    ]
    reached = answer["reached"]
    told = (
        f"{answer['cycles']} cycles ({' and '.join(answer['forms'])}) in "
        f"{answer['seconds']:,.0f} s, {_where(answer)}. {len(answer['shifts'])} shifts, at least "
        f"{answer['shifts_apart_s_min'] or 0:g} s apart; most in a second: "
        f"{reached['sent_per_s_max']:,} sent, {reached['answered_per_s_max']:,} answered. "
        "Milliseconds from the time of being due to the result read:"
    )
    return [told, "", *markdown(["", "transactions", "p50", "p90", "p99", "most"], rows)]


def gears_lines(answer: dict[str, Any]) -> list[str]:
    """Bulk of a pipeline with two gears beside one with one."""
    rows = [
        [
            row["gears"], f"{row['txn_per_s']:,.0f}", f"{row['first_txn_per_s']:,.0f}",
            f"{row['memory_mb']:,}",
        ]
        for row in answer["rows"]
    ]  # fmt: skip
    told = (
        f"Backlogs of {answer['transactions']:,} transfers, {answer['repetitions']} in a turn, by "
        f"turns, {_where(answer)}. Both gears give {answer['ratio']:.2f} of the bulk of one"
        f"{spread(answer, 'turns')}, and {answer['first_ratio']:.2f} in the first backlog of a "
        "turn, which finds the real-time gear in the lead and the caches full of the other's:"
    )
    return [told, "", *markdown(["gears", "transfers/s", "first of a turn", "memory, MB"], rows)]


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


def floor_lines(answer: dict[str, Any]) -> list[str]:
    """Latencies of queries that do almost nothing, and of the pipeline."""
    rows = [
        [row["title"], *(shown(row[name]) for name in ("p50", "p99", "cpu_percent"))]
        for row in answer["rows"]
    ]
    told = (
        f"{answer['offered_per_s']:,.0f} transactions/s, each query for {answer['seconds']:.0f} s "
        f"after a warm-up of {answer['warm_up_s']:.0f}, {_where(answer)}:"
    )
    head = ["", "p50, ms", "p99, ms", "processor, % of a core"]
    return [told, "", *markdown(head, rows)]


def latency_lines(*answers: dict[str, Any]) -> list[str]:
    """Latencies under little load, by the number of shards."""
    rows = [
        [
            str(answer["shards"]) + (" and both gears (default)" * (answer.get("gears") == "both")),
            *(f"{answer['latency_ms'][name]:,.1f}" for name in ("p50", "p90", "p99", "max")),
            f"{answer['idle_cpu_percent']:.1f}",
        ]
        for answer in answers
    ]
    first = answers[0]
    rise_s = first.get("rise_s")
    rises = f", in which the rate rises for {rise_s:.0f}" if rise_s else ""
    told = (
        f"{first['offered_per_s']:,.0f} transfers/s for {first['seconds']:.0f} s after a warm-up "
        f"of {first['warm_up_s']:.0f}{rises}, {_where(first)}:"
    )
    head = ["shards", "p50, ms", "p90, ms", "p99, ms", "most, ms", "idle, % of a core"]
    return [told, "", *markdown(head, rows)]


def scale_lines(answer: dict[str, Any]) -> list[str]:
    """Processor time of a transfer by stage, for several numbers of shards."""
    shards = [str(number) for number in answer["shards"]]
    rows = [
        [
            row["stage"],
            *(f"{row['total_us'][number]:.2f}" for number in shards),
            f"{row['divided_us']:.2f}",
            f"{row['repeated_us']:.2f}",
            f"{row['serial_us']:.2f}" if row["ours"] else "-",
        ]
        for row in answer["rows"]
    ]
    rows.append(["all", *(f"{answer['total_us'][number]:.2f}" for number in shards), "", "", ""])
    heads = [f"{number} shards" if number != "1" else "1 shard" for number in shards]
    parts = ["divided", "repeated on every shard", "longest task, however many shards"]
    rates = ", ".join(f"{rate:,} for {n}" for n, rate in answer["capacity"].items())
    told = f"{_where(answer)}. Processor time in µs a transfer:"
    then = (
        f"{heads[-1]} take {answer['ratio']:.2f} of what {heads[0]} takes{spread(answer)}. "
        "Capacities computed from this, with as many shards as cores, in transfers/s by cores: "
        f"{rates}."
    )
    return [told, "", *markdown(["", *heads, *parts], rows), "", then]


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
