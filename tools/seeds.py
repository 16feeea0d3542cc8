"""`make sim-long`: run the simulator over seeds that were never run, in slices, and count them.

    python -m tools.seeds --minutes 60        the next seeds of every kind, for an hour
    python -m tools.seeds --kind pair --until 20000
    python -m tools.seeds --again             run those that failed again, and note which hold now
    python -m tools.seeds --write             only write the table of docs/reliability.md

Each slice that has ended is kept in bench/results/seeds.json with its commit, so a run that is
stopped loses one slice at the most, and the next one goes on after the last seed. Exit code 3 if a
seed failed; it is named, and counted as failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from simulator import run_seed
from simulator.clients import run_clients
from simulator.election import run_election
from simulator.gear_election import run_gear_election
from streamydb.local.file_lock import file_lock
from streamydb.local.processes import end_with_parent
from streamydb.pipeline.warmup import warm_up
from tools.reliability import stamp

__all__ = ["KINDS", "added", "next_seed", "table", "tried_again"]

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "bench" / "results" / "seeds.json"
PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- seeds -->", "<!-- /seeds -->"
FIRST: Final = 10_000
"""Smaller seeds are those of `make test`."""

KINDS: Final[dict[str, str]] = {
    "one": "one pipeline, the planner and `grouping=single` by turns",
    "pair": "two pipelines over one log: kills, take-overs, two that lead at once",
    "faults": "our own code fails on some transactions, in a pipeline or two; a mended release "
    "rebuilds all",
    "gears": "two gears over one log: hand-overs, kills with outputs under way, bases that lag or "
    "are old; in every third our own code fails",
    "clients": "the client library over facades that are killed, and straight over the log",
    "election": "who leads among pipelines that die, lag and are cut off",
    "gear-election": "which gear leads, in one pipeline and in two by turns: gears and drivers are "
    "killed, links cut, the load comes and goes",
}
"""What a seed of each kind simulates."""

_SIZES: Final = {
    "one": 200, "pair": 60, "faults": 60, "gears": 60, "clients": 60, "election": 2_000,
    "gear-election": 1_000,
}  # fmt: skip
"""Seeds of a slice: a minute on one core, about."""

_FAULTS: Final = 0.03

Slice = dict[str, Any]


def next_seed(slices: list[Slice], kind: str) -> int:
    """The first seed of a kind that no slice has."""
    return max((each["last"] + 1 for each in slices if each["kind"] == kind), default=FIRST)


def added(slices: list[Slice], fresh: Slice) -> list[Slice]:
    """The slices with one more; it continues the last one of its kind if the commit is the same."""
    for each in slices:
        same = all(each[name] == fresh[name] for name in ("kind", "commit", "date"))
        if same and each["last"] + 1 == fresh["first"]:
            each["last"] = fresh["last"]
            each["failed"] = [*each["failed"], *fresh["failed"]]
            each["transactions"] += fresh["transactions"]
            each["seconds"] = round(each["seconds"] + fresh["seconds"], 1)
            return slices
    return [*slices, fresh]


def table(slices: list[Slice]) -> str:
    """The section of the page, between its marks."""
    lines = [
        BEGIN,
        "| what a seed is | seeds | first to last | transactions or calls | failed | run |",
        "|---|---|---|---|---|---|",
    ]
    for each in sorted(slices, key=lambda each: (each["kind"], each["first"])):
        count = each["last"] - each["first"] + 1
        failed = ", ".join(_shown(each, seed) for seed in each["failed"]) or "none"
        lines.append(
            f"| {KINDS[each['kind']]} | {count:,} | {each['first']} to {each['last']} | "
            f"{each['transactions']:,} | {failed} | {each['date']} {each['commit']} |"
        )
    total = sum(each["last"] - each["first"] + 1 for each in slices)
    done = sum(each["transactions"] for each in slices)
    lines.append(f"| all | {total:,} | | {done:,} | | |")
    return "\n".join([*lines, END])


def _shown(each: Slice, seed: int) -> str:
    """A seed that failed, and the run in which it did not any more."""
    run = each.get("holds", {}).get(str(seed))
    return f"{seed} (holds: {run})" if run else str(seed)


def tried_again(
    slices: list[Slice], run: str, problems: Callable[[str, int], list[str]]
) -> list[Slice]:
    """The slices, with the seeds that failed and have no ``problems`` any more in this ``run``."""
    tried = []
    for each in slices:
        holds = {str(seed): run for seed in each["failed"] if not problems(each["kind"], seed)}
        tried.append({**each, "holds": holds} if each["failed"] else each)
    return tried


def read() -> list[Slice]:
    """The slices that have been run."""
    found: list[Slice] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    return found


def _keep(change: Callable[[list[Slice]], list[Slice]]) -> None:
    """Write the slices as they are changed, and the page."""
    with file_lock(ROOT / ".reliability.lock"):
        slices = change(read())
        RESULTS.write_text(json.dumps(slices, indent=1) + "\n", "utf-8")
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(before + table(slices) + rest.partition(END)[2], "utf-8")


def _run_seed(kind: str, seed: int) -> tuple[int, list[str]]:
    """Transactions (calls, claims) of a seed, and what was wrong."""
    if kind == "clients":
        called = run_clients(seed)
        return sum(called.calls.values()), called.problems
    if kind == "election":
        found = run_election(seed)
    elif kind == "gear-election":
        found = run_gear_election(seed, 1 + seed % 2)
    elif kind == "gears":
        found = run_seed(seed, gears=True, faults=_FAULTS if seed % 3 == 0 else 0.0)
    else:
        pair = kind == "pair" or (kind == "faults" and seed % 3 == 0)
        found = run_seed(seed, pair=pair, faults=_FAULTS if kind == "faults" else 0.0)
    return found.transactions, found.problems


def _run(kind: str, first: int, count: int, pool: ProcessPoolExecutor) -> Slice:
    begun, done, failed = time.monotonic(), 0, []
    seeds = range(first, first + count)
    outcomes = pool.map(partial(_run_seed, kind), seeds, chunksize=max(1, count // 20))
    for seed, (transactions, problems) in zip(seeds, outcomes, strict=True):
        done += transactions
        if problems:
            failed.append(seed)
            print(f"{kind} seed {seed}: {problems[0]}")
    return {
        "kind": kind,
        "first": first,
        "last": first + count - 1,
        "failed": failed,
        "transactions": done,
        "seconds": round(time.monotonic() - begun, 1),
    }


def _planned(kinds: list[str], until: int) -> Iterator[tuple[str, int, int]]:
    """Slices by turns: (kind, first seed, how many)."""
    while True:
        left = [(kind, next_seed(read(), kind)) for kind in kinds]
        left = [(kind, first) for kind, first in left if first < FIRST + until]
        if not left:
            return
        for kind, first in left:
            yield kind, first, min(_SIZES[kind], FIRST + until - first)


def _again(run: str) -> int:
    """Run every seed that failed again; 3 if one still does."""
    fail = []

    def problems(kind: str, seed: int) -> list[str]:
        found = _run_seed(kind, seed)[1]
        fail.extend(found[:1])
        print(f"{kind} seed {seed}: {found[0] if found else 'holds'}", flush=True)
        return found

    _keep(lambda slices: tried_again(slices, run, problems))
    return 3 if fail else 0


def main() -> int:
    """Run slices until there are enough, or the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tools.seeds", description=__doc__)
    parser.add_argument("--until", type=int, default=100_000, help="seeds of a kind [100000]")
    parser.add_argument("--minutes", type=float, default=60.0, help="at the most [60]")
    parser.add_argument("--kind", action="append", choices=KINDS, help="[all]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="[one a core]")
    parser.add_argument("--again", action="store_true", help="only those that failed")
    parser.add_argument("--write", action="store_true", help="only write the table")
    asked = parser.parse_args()
    if asked.write:
        _keep(lambda slices: slices)
        return 0
    ends, failed = time.monotonic() + 60 * asked.minutes, 0
    run = stamp()  # once: what is kept makes the tree dirty
    # Faults that a seed injects are its subject: what goes wrong is printed, by seed.
    logging.getLogger("streamydb").setLevel(logging.CRITICAL)
    warm_up()
    if asked.again:
        return _again(f"{run['date']} {run['commit']}")
    with ProcessPoolExecutor(asked.jobs, initializer=end_with_parent) as pool:
        for kind, first, count in _planned(asked.kind or [*KINDS], asked.until):
            if time.monotonic() > ends:
                break
            fresh = {**_run(kind, first, count, pool), **run}
            _keep(partial(added, fresh=fresh))
            failed += len(fresh["failed"])
            rate = count / fresh["seconds"]
            print(f"{kind}: {first} to {fresh['last']}, {rate:.1f}/s, {failed} failed", flush=True)
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
