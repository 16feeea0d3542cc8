"""The table of docs/reliability.md: what was injected, how often, and what came of it.

    python -m tools.reliability           print the table
    python -m tools.reliability --write   put it into docs/reliability.md

The cases are the lines of the project's list of faults, by number. A test names the case that it
stands for, how it injects it and what it has shown when it passes:

    @pytest.mark.fault(4, "SIGKILL of the broker under load")

`pytest --record-faults` (`make reliability`), `make campaign` and `make histories` write what they
did into bench/results/reliability.json; the table joins that with the marks in the tests' sources.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from streamydb.local.file_lock import file_lock

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "bench" / "results" / "reliability.json"
LOCK: Final = ROOT / ".reliability.lock"
PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- reliability -->", "<!-- /reliability -->"

CASES: Final[dict[int, str]] = {
    1: "SIGKILL of the driver in every phase of a batch",
    2: "SIGKILL of a Python worker in a state function",
    3: "SIGSTOP of the driver for a minute while a second one is started",
    4: "Broker restarts: clean, kill -9, change of leader",
    5: "The network between driver and broker is cut, one way too",
    6: "A broker's clock jumps back and ahead by an hour",
    7: "One partition of the log is idle for ever",
    8: "Equal timestamps across partitions",
    9: "A producer's retries append a transaction twice",
    10: "One id with two payloads",
    11: "Feedback is lost, doubled, late, out of order",
    12: "Records that are no transactions",
    13: "Empty and doubled keys, limits and one over",
    14: "A record that is too large",
    15: "A transaction on which our own code raises",
    16: "Retention deletes what was not read",
    17: "Partitions are added while it runs",
    18: "Topics with other settings",
    19: "Checkpoint missing, truncated, corrupt, too old",
    20: "Disk full: checkpoint, broker, read model",
    21: "Upgrade and downgrade",
    22: "Other settings at a restart",
    23: "Log cleaning and gaps under a loading read model",
    24: "Overload, slow clients, many watchers, clients that leave",
    25: "No answer after the append",
    26: "Strangers, forged and oversized requests",
    27: "A facade restarts on a stale read model",
    28: "A hot key, and a transaction with 10,000 keys",
    29: "Zombie producers with fenced transactions",
    30: "Two databases on the same topics",
    31: "Another plan limit at a restart in the middle of a plan",
    32: "Upgrade and downgrade in the middle of a plan, under load",
    33: "A copy of the checkpoint is put back, hours old, or taken while it ran",
    34: "The checkpoint's newest files are lost in a power cut",
    35: "The pipeline is stopped for longer than feedback was kept",
    36: "The end of the log is lost, and it grows past where the checkpoint was",
    37: "A transaction or a plan that touches gigabytes of values",
    38: "Something is sent again after the id window has passed",
    39: "The log ends with control records of Kafka's transactions",
    40: "A log whose partitions grew is rebuilt without its founding settings",
    41: "A late Python worker reads or writes the local cache",
    42: "A cold or lagging standby is asked, or tries, to take over",
    43: "A mended release replays what a fault of ours aborted",
    44: "SIGTERM while starting, catching up, twice, in a long batch",
    45: "The broker is lost while a pipeline, facade or read model starts",
    46: "A facade restarts, slowly, within a client's timeout",
    47: "The real-time gear is killed while it leads",
    48: "The gears shift up and down under load, and are lost meanwhile",
    49: "A record of some kilobytes that unpacks to hundreds of megabytes",
    50: "Clocks of broker, facade and client are hours ahead or behind, and jump",
    51: "Power loss: pages that were not synced are gone",
    52: "A small request that costs much",
    53: "A token asks about what lies outside its scopes",
    54: "A pipeline with two gears is told to stop under load",
    55: "The process that forks the processes of `up` is killed half-way",
}
"""The numbers and short titles of the list of faults."""

EXPECTED: Final = "equal to the serial replay"
"""What a passed test has shown unless its mark says otherwise."""


class Marked(NamedTuple):
    """A mark in the source of a test.

    Attributes:
        number: of the case.
        how: how the fault is injected.
        shown: what has been shown when the test passes.
        test: `tests/faults/test_kills.py::` and its name.
    """

    number: int
    how: str
    shown: str
    test: str


@cache
def marked() -> list[Marked]:
    """All marks of all tests, by number."""
    found = [
        mark
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for mark in _marks(path)
    ]  # fmt: skip
    return sorted(found, key=lambda mark: mark.number)


def _marks(path: Path) -> Iterator[Marked]:
    """The marks of the tests in a file, those in classes too."""
    file = path.relative_to(ROOT).as_posix()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                yield from _marks_of(inner, f"{file}::{node.name}")
        else:
            yield from _marks_of(node, file)


def _marks_of(node: ast.stmt, place: str) -> Iterator[Marked]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.fault":
            number, how, *shown = [ast.literal_eval(argument) for argument in decorator.args]
            yield Marked(number, how, shown[0] if shown else EXPECTED, f"{place}::{node.name}")


def read() -> dict[str, Any]:
    """What was recorded: `tests` by their id, and `campaigns`."""
    if not RESULTS.exists():
        return {"tests": {}, "campaigns": []}
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    return found


def update(change: Callable[[dict[str, Any]], None]) -> None:
    """Change what was recorded, and the page with it; tests that are gone are forgotten."""
    with file_lock(LOCK):
        results = read()
        change(results)
        known = {mark.test for mark in marked()}
        tests = results["tests"]
        results["tests"] = {name: tests[name] for name in sorted(tests) if _function(name) in known}
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
        write(results)


def stamp() -> dict[str, str]:
    """The date and the commit of a run."""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return {"date": datetime.now(UTC).date().isoformat(), "commit": commit or "unknown"}


def table(results: dict[str, Any]) -> str:
    """The section of the page, between its marks."""
    lines = [
        BEGIN,
        "| # | case | injected by | times | outcome | run |",
        "|---|---|---|---|---|---|",
    ]
    before = 0
    for mark in marked():
        title = CASES[mark.number] if mark.number != before else ""
        before = mark.number
        lines.append(f"| {mark.number} | {title} | {_row(mark, results['tests'])} |")
    campaigns = results["campaigns"]
    if campaigns:
        lines.append(f"| all | Campaign | {_campaign_row(campaigns)} |")
        lines += ["", *_kinds(campaigns)]
    if histories := results.get("histories", []):
        lines += ["", *_histories(histories)]
    return "\n".join([*lines, END])


def write(results: dict[str, Any]) -> None:
    """Put the table into the page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(before + table(results) + rest.partition(END)[2], "utf-8")


def _function(test: str) -> str:
    return test.partition("[")[0]


def _row(mark: Marked, tests: dict[str, Any]) -> str:
    """How it was injected, how often, the outcome, and when."""
    runs = [run for name, run in tests.items() if _function(name) == mark.test]
    where = f"{mark.how} (`{mark.test.rpartition('::')[2]}`)"
    if not runs:
        return f"{where} | 0 | not run | -"
    times = sum(run["times"].get(str(mark.number), run["times"].get("any", 1)) for run in runs)
    outcomes = {run["outcome"] for run in runs}
    outcome = mark.shown
    if "failed" in outcomes:
        outcome = "**failed**"
    elif outcomes == {"skipped"}:
        times, outcome = 0, "skipped: this machine cannot do it"
    last = max(runs, key=lambda run: run["date"])
    return f"{where} | {times:,} | {outcome} | {last['date']} {last['commit']}"


def _campaign_row(campaigns: list[dict[str, Any]]) -> str:
    """The totals of all campaigns, in the columns of the table."""

    def total(name: str) -> float:
        return float(sum(campaign[name] for campaign in campaigns))

    failed = [campaign for campaign in campaigns if campaign["outcome"] != "passed"]
    injected = sum(sum(campaign["faults"].values()) for campaign in campaigns)
    what = (
        f"random faults over a loaded database for {total('hours'):.2f} h: "
        f"{total('transactions'):,.0f} transactions, {total('histories'):,.0f} histories with "
        f"{total('operations'):,.0f} operations checked, {total('periods'):,.0f} periods of which "
        f"{total('calm'):,.0f} calm (`make campaign`)"
    )
    longest = max(campaign["liveness_s_max"] for campaign in campaigns)
    bound = max(campaign["liveness_bound_s"] for campaign in campaigns)
    outcome = (
        f"{EXPECTED}; digests agree; longest wait for a verdict after a period {longest:.1f} s "
        f"of {bound:.0f} s"
    )
    if failed:
        causes = "; ".join(sorted({campaign.get("why", "not known yet") for campaign in failed}))
        outcome = f"**{len(failed)} of {len(campaigns)} failed** ({causes}); the others: {outcome}"
    last = campaigns[-1]
    return f"{what} | {injected:,} | {outcome} | {last['date']} {last['commit']}"


def _kinds(campaigns: list[dict[str, Any]]) -> list[str]:
    """How often the campaigns injected each kind."""
    kinds: Counter[str] = Counter()
    for campaign in campaigns:
        kinds.update(campaign["faults"])
    rows = [f"| {kind} | {count:,} |" for kind, count in sorted(kinds.items())]
    return ["| fault of the campaigns | times |", "|---|---|", *rows]


def _histories(runs: list[dict[str, Any]]) -> list[str]:
    """A row for each run of histories, and their sum."""
    ways = ("rest", "run", "kafka")
    head = "histories: over REST, under `run`, straight on Kafka | operations"
    faults = "faults: pipeline, workers, broker, facade or read model"
    lines = [f"| {head} | {faults} | outcome | run |", "|---|---|---|---|---|"]
    total: dict[str, Counter[str]] = {"histories": Counter(), "operations": Counter()}
    for run in runs:
        for name, counter in total.items():
            counter.update(run[name] if run["outcome"] == "passed" else {})
        counts = ", ".join(str(run["histories"].get(way, 0)) for way in ways)
        outcome = f"all explained; {EXPECTED}; {run['transactions']:,} transactions"
        if run["outcome"] != "passed":
            outcome = f"**failed** ({run.get('why', 'not known yet')})"
        lines.append(
            f"| {counts} | {sum(run['operations'].values()):,} | {_parts(run['faults'])} | "
            f"{outcome}, {run['minutes']} min | {run['date']} {run['commit']} |"
        )
    counts = ", ".join(f"{total['histories'][way]}" for way in ways)
    count = sum(total["histories"].values())
    done = sum(total["operations"].values())
    return [*lines, f"| {counts}: {count} in all | {done:,} | | | |"]


def _parts(faults: dict[str, int]) -> str:
    """How many faults of a run of histories hit each part."""
    parts = ("a pipeline", "Python workers", "the broker", "a facade")
    return ", ".join(
        str(sum(count for name, count in faults.items() if part in name)) for part in parts
    )


def main(arguments: list[str]) -> None:
    """Print the table, or write it."""
    if arguments == ["--write"]:
        update(lambda _: None)
    else:
        print(table(read()))


if __name__ == "__main__":
    main(sys.argv[1:])
