"""Make the README's table of measured figures: `python bench/table.py [--write]`.

The figures come from the answers of `streamydb bench ... --output`, kept in `bench/results`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"


def load(name: str) -> dict[str, Any]:
    """One kept answer."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return found


def column(answer: dict[str, Any]) -> list[str]:
    """The figures of a run of `streamydb bench bank`."""
    rates = answer["distributions"]
    latency = answer["latency_ms"]
    return [
        *(f"{rates[name]['txn_per_s']:,.0f}/s" for name in ("uniform", "zipf", "hotpair")),
        f"{answer['ratio_to_copy_limit']:.2f}",
        f"{latency['p50']:.0f} ms / {latency['p99']:.0f} ms" if latency else "-",
        f"{answer['peak_rss_mb'] / 1000:.1f} GB",
    ]


def table() -> str:
    """The section of the README, between its marks."""
    one, several = load("bank-1-shard"), load("bank-4-shards")
    rows = [
        "transfers, uniform", "transfers, Zipf 0.99", "every transfer on the same two accounts",
        "of what Spark can copy", "latency at 500/s, p50 / p99", "peak memory of the pipeline",
    ]  # fmt: skip
    machine = one["machine"]
    cores, processor = machine["cores"], machine["processor"]
    lines = [
        BEGIN,
        "## Measured",
        "",
        f"Transfers between 100,000 accounts, all changes published, on {cores} cores",
        f"({processor}) that also run the broker and the load. `streamydb bench bank`",
        "measures the same on yours, and proves the balances at the end.",
        "",
        f"| | one shard (default) | {several['shards']} shards |",
        "|---|---|---|",
        *(
            f"| {row} | {left} | {right} |"
            for row, left, right in zip(rows, column(one), column(several), strict=True)
        ),
        END,
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the section, or put it into the README."""
    if "--write" not in sys.argv[1:]:
        sys.stdout.write(table() + "\n")
        return 0
    text = README.read_text("utf-8")
    begin, end = text.index(BEGIN), text.find(END)
    rest = text[end + len(END) :] if end >= 0 else text[begin + len(BEGIN) :]
    README.write_text(text[:begin] + table() + rest, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
