"""Make the tables of measured figures in README and docs: `python -m bench.table [--write]`.

The figures come from the answers of `streamydb bench ... --output`, kept in `bench/results`.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.honest import (
    FIGURES_KEPT,
    GEAR_KEPT,
    PEER_KEPT,
    copies_rows,
    cost_lines,
    gear_lines,
    latency_kept,
    machine_lines,
    peer_lines,
)
from bench.sections import (
    bank_lines,
    bank_rows,
    floor_lines,
    gears_lines,
    keys_lines,
    latency_lines,
    memory_lines,
    recovery_lines,
    scale_lines,
    serving_lines,
    shifting_lines,
)

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
PERFORMANCE = ROOT / "docs" / "performance.md"
OPERATIONS = ROOT / "docs" / "operations.md"
FIGURES = ROOT / "docs" / "figures.md"
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
REST_BEGIN, REST_END = "<!-- rest -->", "<!-- /rest -->"
LITERATURE_BEGIN, LITERATURE_END = "<!-- literature -->", "<!-- /literature -->"
SOAK_BEGIN, SOAK_END = "<!-- soak -->", "<!-- /soak -->"
CALM_PERCENT = 5.0
SOAKED = {
    "p50_ms": "latency p50, ms", "p99_ms": "latency p99, ms", "batch_ms": "micro-batch, ms",
    "cpu_percent": "processor time of its processes, % of a core",
    "rss_mb": "memory of its processes, MB", "handles": "open files of its processes",
    "state_mb": "state on disk, MB", "checkpoint_mb": "of it the checkpoint, MB",
}  # fmt: skip
LITERATURE = ("tspoon", "voter", "ycsb", "sss", "tpcc")
TERMINALS = "tpcc-terminals"
SECTIONS: dict[str, tuple[tuple[str, ...], Callable[..., list[str]]]] = {
    "four-cores": (("bank-4-cores-1-shard", "bank-4-cores-4-shards"), bank_lines),
    "floor": (("floor",), floor_lines),
    "gears": (("bank-gears",), gears_lines),
    "keys": (("sizes-1-shard",), keys_lines),
    "latency": (("latency-1-shard-gears", "latency-1-shard", "latency-2-shards"), latency_lines),
    "recovery": (("recovery",), recovery_lines),
    "recovery-gears": (("recovery-gears",), recovery_lines),
    "scale": (("scale",), scale_lines),
    "serving": (("serving",), serving_lines),
    "shifting": (("shifting",), shifting_lines),
}
"""More sections of docs/performance.md, by the name of their marks: of which answers, and how."""
OPERATIONS_SECTIONS = {"memory": (("memory", "memory-small"), memory_lines)}
"""The same of docs/operations.md."""
FIGURES_MARKS = ("machine", "copies", "costs", "postgresql")
"""The sections of docs/figures.md, in their order."""
SERVERS = ("streamydb", "postgresql", "constant")
ASKED = {
    "live": "nothing (a constant)", "get": "1 key", "strong": "1 key, strong", "read": "16 keys",
    "scan": "scan of 100", "write": "write, verdict awaited",
    "rested": "write after a second's pause",
}  # fmt: skip


def load(name: str) -> dict[str, Any]:
    """One kept answer."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return found


def table() -> str:
    """The section of the README, between its marks."""
    one, several = load("bank-1-shard"), load("bank-2-shards")
    late = load("latency-1-shard"), load("latency-2-shards")
    machine = one["machine"]
    lines = [
        BEGIN,
        "## Measured",
        "",
        f"Transfers between 100,000 accounts, all changes published, on {machine['cores']} cores",
        f"({machine['processor']}) that also run the broker and the load. `streamydb bench bank`",
        "measures the same on yours, and proves the balances at the end; `streamydb bench latency`",
        "measures the latency.",
        "",
        *bank_rows(one, several, late, load("latency-1-shard-gears")),
        *copies_section(),
        END,
    ]
    return "\n".join(lines)


def figures_kept() -> bool:
    """Whether all answers of docs/figures.md are there; `python -m bench.figures` keeps them."""
    names = (*FIGURES_KEPT, *map(latency_kept, FIGURES_KEPT), PEER_KEPT, GEAR_KEPT)
    return all((RESULTS / f"{name}.json").exists() for name in names)


def copies_section() -> list[str]:
    """How the rates depend on copies and sync; of the README. Empty unless all was kept."""
    if not figures_kept():
        return []
    answers = [load(name) for name in FIGURES_KEPT]
    latencies = [load(latency_kept(name)) for name in FIGURES_KEPT]
    return [
        "",
        "That is one copy, which the broker acknowledges from memory. One shard with copies on",
        "three brokers (two must have a record), and with each append flushed to the disk before",
        "it is acknowledged (`--replication 3`, `--sync`), all on the same machine, by turns:",
        "",
        *copies_rows(answers, latencies),
    ]


def figures_sections() -> dict[tuple[str, str], str]:
    """The sections of docs/figures.md, by their marks; a line to say so if not all was kept."""
    found = {mark: ["Not measured yet: `make figures`."] for mark in FIGURES_MARKS}
    if figures_kept():
        answers = [load(name) for name in FIGURES_KEPT]
        latencies = [load(latency_kept(name)) for name in FIGURES_KEPT]
        beside = load(PEER_KEPT)
        copies = [*copies_rows(answers, latencies), "", *gear_lines(load(GEAR_KEPT))]
        tables = (
            machine_lines(answers[0]), copies, cost_lines(answers, beside), peer_lines(beside),
        )  # fmt: skip
        found = dict(zip(FIGURES_MARKS, tables, strict=True))
    sections = {}
    for mark, lines in found.items():
        begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
        sections[begin, end] = "\n".join([begin, *lines, end])
    return sections


def cell(row: dict[str, Any] | None) -> str:
    """Rate, latency and processor time of a case on a server."""
    if row is None:
        return "-"
    times = (row["p50"], row["p99"])
    late = " / ".join(f"{ms:,.1f}" if ms < 100 else f"{ms:,.0f}" for ms in times)
    return f"{row['per_s']:,.0f}/s; {late} ms"


def cpu(rows: list[dict[str, Any] | None]) -> str:
    """Processor time for an answer, of each server: the process that serves + the store's own."""
    shown = []
    for row in rows:
        store = row["store_cpu_us"] if row else 0
        more = f"+{store:,.0f}" if store else ""
        shown.append(f"{row['server_cpu_us']:,.0f}{more}" if row else "-")
    return " / ".join(shown)


def rest_table() -> str:
    """The section of docs/performance.md, between its marks."""
    answer = load("rest")
    gears = "both gears" if answer.get("gears") == "both" else "the micro-batch gear"
    found = {(row["case"], row["clients"], row["server"]): row for row in answer["cases"]}
    machine = answer["machine"]
    told = (
        f"{answer['keys']:,} keys of {answer['value_bytes']} bytes, {machine['cores']} cores, "
        f"load {machine['load']} at the end, {gears}. Answers a second; p50 / p99."
    )
    lines = [
        REST_BEGIN,
        told,
        "",
        "| | clients | streamy-db | PostgreSQL | a constant | processor µs an answer |",
        "|---|---|---|---|---|---|",
    ]
    for case, clients in dict.fromkeys((case, clients) for case, clients, _ in found):
        rows = [found.get((case, clients, server)) for server in SERVERS]
        cells = " | ".join(map(cell, rows))
        lines.append(f"| {ASKED[case]} | {clients} | {cells} | {cpu(rows)} |")
    return "\n".join([*lines, "", *mixed(answer), REST_END])


def mixed(answer: dict[str, Any]) -> list[str]:
    """The table of the mixed run."""
    rate = f"{answer['mixed_rate']:,.0f}"
    pairs = answer["mixed"][0].get("pairs", 1)  # older runs have one
    lines = [
        f"Medians of {pairs} pair(s) of runs, and of their ratios (p50 / p99):",
        "",
        f"| reads of 16 keys, {rate} a second | alone | beside {rate} writes a second | ratio |",
        "|---|---|---|---|",
    ]
    rows = list(answer["mixed"])
    if "past_the_facade" in answer:  # older runs have none
        rows.append({**answer["past_the_facade"], "server": "streamydb, writes past the facade"})
    if constant := answer.get("constant_beside"):
        rows.append({**constant, "server": "a constant, beside the same writes"})
    for row in rows:
        alone, beside = (
            f"{row[part]['p50']:,.1f} / {row[part]['p99']:,.1f} ms"
            for part in ("alone", "with_writes")
        )
        ratio = f"{row['p50_ratio']:.2f} / {row['p99_ratio']:.2f}"
        lines.append(f"| {row['server']} | {alone} | {beside} | {ratio} |")
    return lines


def soak_table() -> str:
    """The section about a long run: medians of its minutes, apart those that the host disturbed."""
    answer = load("soak-1-shard")
    sustained, machine = answer["sustained"], answer["machine"]
    minutes = sustained["intervals"]
    done = round(sum(m["done_per_s"] * (m["to_s"] - m["from_s"]) for m in minutes), -3)
    half, offered = minutes[-1]["to_s"] / 2, statistics.median(m["offered_per_s"] for m in minutes)
    told = (
        f"{minutes[-1]['to_s'] / 60:.0f} minutes at {offered:,.0f} transfers/s, "
        f"{answer['load']:.0%} of the {sustained['capacity_txn_per_s']:,.0f}/s measured "
        f"before; {done:,.0f} transfers; one shard, {machine['cores']} cores with broker and load. "
        f"Medians of minutes, apart by what the machine's host gave to others in them (most: "
        f"{max(m['stolen_percent'] for m in minutes):.0f} % of its processor time):"
    )
    calm = [m for m in minutes if m["stolen_percent"] < CALM_PERCENT]
    other = [m for m in minutes if m["stolen_percent"] >= CALM_PERCENT]
    columns = [
        [m for m in group if (m["from_s"] < half) == first]
        for group in (calm, other) for first in (True, False)
    ]  # fmt: skip
    heads = [
        f"{name} half, {what} {CALM_PERCENT:.0f} % taken"
        for what in ("under", "at least") for name in ("first", "second")
    ]  # fmt: skip
    rows = [["minutes", *(str(len(column)) for column in columns)]]
    for field, title in SOAKED.items():
        medians = [statistics.median(m[field] for m in c) if c else None for c in columns]
        rows.append([title, *("-" if m is None else f"{m:,.0f}" for m in medians)])
    table = [["", *heads], ["---"] * (len(heads) + 1), *rows]
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([SOAK_BEGIN, told, "", *lines, SOAK_END])


def literature_table() -> str | None:
    """The section of the benchmarks of the literature; None unless all have been kept."""
    if not all((RESULTS / f"literature-{name}.json").exists() for name in LITERATURE):
        return None
    kept = [
        name for name in (*LITERATURE, TERMINALS) if (RESULTS / f"literature-{name}.json").exists()
    ]
    answers = [load(f"literature-{name}") for name in kept]
    machine = answers[0]["machine"]
    told = (
        f"{machine['cores']} cores ({machine['processor']}), load {machine['load']} at the end, "
        f"{answers[0]['shards']} shard(s)."
    )
    lines = [
        LITERATURE_BEGIN,
        told,
        "",
        "| | case | transactions/s | aborted | latency p50 / p99 | invariants |",
        "|---|---|---|---|---|---|",
        *(line for answer in answers for line in literature_lines(answer)),
        LITERATURE_END,
    ]
    return "\n".join(lines)


def literature_lines(answer: dict[str, Any]) -> list[str]:
    """The rows of one benchmark; its latency stands in the row of the case that it is of."""
    name = answer["benchmark"]
    whole = f"{len(answer['invariants'])} hold" if answer["invariants_ok"] else "BROKEN"
    lines: list[tuple[str, ...]] = []
    for case, row in answer["cases"].items():
        late = answer["latency_ms"] if not lines else None
        aborted = f"{row['abort_rate']:.1%}"
        lines.append((case, f"{row['txn_per_s']:,.0f}", aborted, latency_cell(late)))
    for case, row in answer.get("mixes", {}).items():
        late = f"read-only {latency_cell(row['reads'])}, updates {latency_cell(row['updates'])}"
        lines.append((case, f"{row['per_s']:,.0f}", f"{answer['abort_rate']:.1%}", late))
    if "terminals" in answer:
        lines.append(terminals_cells(answer))
    firsts = [(name, whole), *[("", "")] * len(lines)]
    return [
        f"| {first} | {' | '.join(line)} | {held} |"
        for (first, held), line in zip(firsts, lines, strict=False)
    ]


def terminals_cells(answer: dict[str, Any]) -> tuple[str, ...]:
    """The cells of TPC-C's terminals: new-orders a minute, and their latency."""
    played = answer["terminals"]
    late = played["latency_ms"]["new_order"]
    times = " / ".join(f"{late[name]:,.0f}" for name in ("p50", "p90", "p99"))
    scaled = answer["parameters"]
    case = f"{played['terminals']:,} terminals, {played['warehouses']:,} warehouses"
    if scaled["scaled_down"]:
        case += f" of {scaled['items']:,} items, {scaled['customers']:,} customers a district"
    rate = f"{played['tpmC']:,.0f} tpmC, efficiency {played['efficiency']:.1%}"
    aborted = f"{answer['abort_rate']:.1%}"
    return case, rate, aborted, f"new-orders {times} ms (p50 / p90 / p99)"


def latency_cell(found: dict[str, Any] | None) -> str:
    """p50 and p99, and the rate if there was one."""
    if not found or found["p50"] is None:
        return "-"
    at = f" at {found['rate']:,.0f}/s" if "rate" in found else ""
    return f"{found['p50']:,.0f} / {found['p99']:,.0f} ms{at}"


def write(page: Path, marks: tuple[str, str], section: str) -> None:
    """Put a section into a page, in place of what is between its marks."""
    text = page.read_text("utf-8")
    begin, end = text.index(marks[0]), text.index(marks[1]) + len(marks[1])
    page.write_text(text[:begin] + section + text[end:], "utf-8")


def sections() -> dict[tuple[str, str], str]:
    """The sections of docs/performance.md, by their marks."""
    found = {(REST_BEGIN, REST_END): rest_table(), (SOAK_BEGIN, SOAK_END): soak_table()}
    literature = literature_table()
    if literature is not None:
        found[LITERATURE_BEGIN, LITERATURE_END] = literature
    return {**found, **_marked(SECTIONS)}


def operations_sections() -> dict[tuple[str, str], str]:
    """The sections of docs/operations.md, by their marks."""
    return _marked(OPERATIONS_SECTIONS)


def _marked(
    of: Mapping[str, tuple[tuple[str, ...], Callable[..., list[str]]]],
) -> dict[tuple[str, str], str]:
    """Sections that stand between marks of their names."""
    found = {}
    for mark, (kept, lines) in of.items():
        begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
        found[begin, end] = "\n".join([begin, *lines(*map(load, kept)), end])
    return found


def main() -> int:
    """Print the sections, or put them into README and docs."""
    if "--write" not in sys.argv[1:]:
        pages = (sections(), operations_sections(), figures_sections())
        found = [table(), *(section for page in pages for section in page.values())]
        sys.stdout.write("\n\n".join(found) + "\n")
        return 0
    write_all()
    return 0


def write_all() -> None:
    """Put the sections into README and docs."""
    write(README, (BEGIN, END), table())
    for page, sections_of_page in (
        (PERFORMANCE, sections()), (OPERATIONS, operations_sections()),
        (FIGURES, figures_sections()),
    ):  # fmt: skip
        for marks, section in sections_of_page.items():
            write(page, marks, section)


if __name__ == "__main__":
    sys.exit(main())
