"""`streamydb bench recovery`: how long clients get no verdict when a pipeline dies or hands over.

A few transactions a second go on whatever happens. A pause lasts from the kill (or from the last
verdict of the old leader) to the first verdict on a transaction that was appended afterwards.

- **cold**: SIGKILL of driver, JVM and workers; the same pipeline is started again at once.
- **standby**: the same, but a warm standby takes over; a new standby is started for the next turn.
- **hand-over**: a planned one, between two pipelines, by turns.

With `--gear both` one gear of a pipeline dies while the other one lives (`bench.recovery_gears`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.common import GEARS
from bench.machine import machine, stolen_s
from bench.recovery_gears import GEAR_FIGURES, GEAR_KINDS, GEAR_TITLES, gear_turns, pipeline_options
from bench.recovery_load import WAIT_S, RecoveryError, RecoveryLoad, started_again
from streamydb import __version__
from streamydb.cli.phases import Phases
from streamydb.local.class_data import is_missing
from streamydb.pipeline.standby.handover import hand_over
from streamydb.testing.database import Database, wait_for

__all__ = ["GEAR_KINDS", "KINDS", "RecoveryOptions", "figures_of", "recovery", "show"]

KINDS: Final = ("cold", "standby", "hand-over")
"""What can be measured with one gear; with both: `GEAR_KINDS`."""

_FIGURES: Final = {
    "cold": (
        ("runs_s", "until its query runs"),
        ("first_batch_s", "its first batch"),
        ("verdict_s", "until the next verdict"),
    ),
    "standby": (("verdict_s", "until the next verdict"),),
    "hand-over": (("pause_s", "longest pause between two verdicts"),),
    **GEAR_FIGURES,
}
_TITLES: Final = {
    "cold": "killed, started again",
    "standby": "killed, a standby takes over",
    "hand-over": "handed over",
    **GEAR_TITLES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """What to measure; see `streamydb bench recovery --help`.

    ``gears``: the pipeline has both.
    """

    turns: int = 10
    rate: float = 50.0
    settle_s: float = 5.0
    shards: int = 1
    kinds: tuple[str, ...] = KINDS
    gears: bool = False
    parent: Path | None = None


def recovery(options: RecoveryOptions, phases: Phases) -> dict[str, Any]:
    """Measure each kind on a database of its own; returns the table as plain data."""
    rows = [_row(kind, options, phases) for kind in options.kinds]
    return {
        "streamydb": __version__, "turns": options.turns, "rate_per_s": options.rate,
        "shards": options.shards, "gear": GEARS[options.gears], "class_data": not is_missing(),
        "rows": rows, "machine": machine(),
    }  # fmt: skip


def _row(kind: str, options: RecoveryOptions, phases: Phases) -> dict[str, Any]:
    measure = gear_turns(kind) if options.gears else _MEASURES[kind]
    runs: list[dict[str, float]] = []
    stolen_before, _ = stolen_s()
    with _loaded(kind, options) as (database, load), phases.phase(_TITLES[kind]) as phase:
        for run in measure(database, load, options.turns, options.settle_s):
            runs.append(run)
            phase.note(f"{len(runs)} of {options.turns}")
        phase.outcome = f"{options.turns} turns"
    return {
        "kind": kind,
        "runs": runs,
        "stolen_s": round(stolen_s()[0] - stolen_before, 1),
        **{name: _spread([run[name] for run in runs]) for name, _ in _FIGURES[kind]},
    }


def _spread(values: list[float]) -> dict[str, float]:
    figures = {"min": min(values), "median": median(values), "max": max(values)}
    return {name: round(value, 3) for name, value in figures.items()}


@contextmanager
def _loaded(kind: str, options: RecoveryOptions) -> Iterator[tuple[Database, RecoveryLoad]]:
    """Run a database that answers under the load."""
    with tempfile.TemporaryDirectory(prefix="streamydb-recovery-", dir=options.parent) as folder:
        more = pipeline_options(kind) if options.gears else ()
        database = Database(Path(folder), shards=options.shards, options=more)
        with database, RecoveryLoad(database.settings, options.rate) as load:
            load.first_after(time.monotonic())
            yield database, load


def _cold(
    database: Database, load: RecoveryLoad, turns: int, settle_s: float
) -> Iterator[dict[str, float]]:
    for _ in range(turns):
        time.sleep(settle_s)
        killed_s = time.monotonic()
        database.kill_pipeline()
        yield started_again(database, load, killed_s)


def _standby(
    database: Database, load: RecoveryLoad, turns: int, settle_s: float
) -> Iterator[dict[str, float]]:
    leader = database
    with ExitStack() as all_of_them:
        for turn in range(turns):
            standby = all_of_them.enter_context(database.beside(f"standby-{turn}"))
            _await_ready(standby)
            time.sleep(settle_s)
            killed_s = time.monotonic()
            leader.kill_pipeline()
            yield {"verdict_s": load.first_after(killed_s) - killed_s}
            leader = standby


def _handed(
    database: Database, load: RecoveryLoad, turns: int, settle_s: float
) -> Iterator[dict[str, float]]:
    with database.beside("other") as other:
        for _ in range(turns):
            _await(lambda: "following" in (database.status().role, other.status().role))
            _await_ready(other if other.status().role == "following" else database)
            time.sleep(settle_s)
            settings = database.settings
            done = hand_over(settings.client_config(), settings.database, "", WAIT_S)
            if done.pause_s is None:
                raise RecoveryError(f"the pause is not known: {done.pause_unknown}")
            load.first_after(time.monotonic())
            yield {"pause_s": done.pause_s}


def _await_ready(standby: Database) -> None:
    _await(lambda: standby.status().role == "following" and bool(standby.status().ready))


def _await(condition: Callable[[], bool]) -> None:
    wait_for(condition, "the standby's readiness", WAIT_S)


_MEASURES: Final = {"cold": _cold, "standby": _standby, "hand-over": _handed}


def figures_of(kind: str) -> list[tuple[str, str, str]]:
    """The kind's title (once), what a figure is, and its name in a row."""
    figures = _FIGURES[kind]
    return [("" if at else _TITLES[kind], what, name) for at, (name, what) in enumerate(figures)]


def show(answer: dict[str, Any], console: Console) -> None:
    """Print the table."""
    table = Table("seconds", "", "min", "median", "max", box=None, padding=(0, 2, 0, 0))
    for column in table.columns[2:]:
        column.justify = "right"
    for row in answer["rows"]:
        for title, what, name in figures_of(row["kind"]):
            table.add_row(title, what, *(f"{row[name][at]:.2f}" for at in ("min", "median", "max")))
    console.print(table)
    about = answer["machine"]
    class_data = "with" if answer["class_data"] else "without"
    console.print(
        f"{answer['turns']} turns each, {answer['rate_per_s']:g} transactions/s, "
        f"{answer['shards']} shard(s), gear {answer['gear']}, {about['cores']} cores, "
        f"load {about['load']}; "
        f"JVMs {class_data} class data (`python -m streamydb.cli.class_data`)."
    )
