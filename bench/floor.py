"""`streamydb bench floor`: what Spark and Kafka take of a transaction's latency, without our code.

A table of latencies at one rate: of queries that do almost nothing, each in one more part of the
pipeline's form (see `floor_job`), and of the pipeline itself, all on the same broker, one after the
other. So the difference between two rows is what that part costs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.appending import Appender
from bench.common import GEARS
from bench.engine import Engine, EngineOptions, fresh_broker
from bench.latency import open_loop, summary
from bench.machine import machine
from bench.throughput import drain
from bench.workload import BALANCE, Bank, funding
from streamydb import __version__
from streamydb.cli.phases import Phases
from streamydb.records.gears import REAL_TIME

__all__ = ["FORM_NAMES", "FloorOptions", "FloorTask", "floor", "show", "shown"]

_PIPELINE: Final = "pipeline"
_PIPELINE_2: Final = "pipeline-2"
_REAL_TIME: Final = "real-time-pipeline"
_TITLES: Final = {
    "copy": "a copy in the JVM",
    "hop": "one hop through Python (mapInArrow)",
    "row": "applyInPandasWithState, one row of state, RocksDB",
    "row-hdfs": "the same, HDFS-backed state",
    "entry": "transformWithState, one map entry of state",
    "entry-hop": "the same and a hop after it",
    "hop-entry-hop": "a hop before it, too: the pipeline's form",
    _PIPELINE: "the pipeline, micro-batch gear: transfers",
    "form-2": "that form with two shards: three shuffles",
    _PIPELINE_2: "the pipeline with two shards: transfers",
    "real-time-copy": "real-time mode: a copy in the JVM",
    "real-time-hop": "real-time mode: one hop through Python, a row of nulls after each record",
    "real-time-packed": "real-time mode: one hop through Python, packed: the real-time gear's form",
    _REAL_TIME: "the pipeline while the real-time gear leads: transfers",
}
_TWO_SHARDS: Final = frozenset({"form-2", _PIPELINE_2})

FORM_NAMES: Final = tuple(_TITLES)
"""What can be measured, from the least on."""


class FloorTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a query of `floor_job` does: its form, over which database's log, in which folder."""

    form: str
    bootstrap: str
    database: str
    cores: int
    folder: str
    shards: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorOptions:
    """What to measure; see `streamydb bench floor --help`."""

    rate: float = 500.0
    warm_up_s: float = 60.0
    seconds: float = 30.0
    repetitions: int = 1
    accounts: int = 100_000
    forms: tuple[str, ...] = FORM_NAMES
    seed: int = 1
    parent: Path | None = None


class _Floor(Engine):
    """A query of `floor_job` in the place of the pipeline."""

    def __init__(self, form: str, options: EngineOptions, folder: Path, bootstrap: str) -> None:
        super().__init__(options, folder, bootstrap)
        self._task = FloorTask(
            form=form, bootstrap=bootstrap, database=options.database, cores=options.cores,
            folder=str(folder), shards=options.shards,
        )  # fmt: skip

    def _command(self) -> list[str]:
        task = msgspec.json.encode(self._task).decode()
        return [sys.executable, "-m", "bench.floor_job", task]


def _engine(form: str, folder: Path, bootstrap: str) -> Engine:
    """Make what runs a form over a log of its own."""
    folder.mkdir()
    options = EngineOptions(
        database=folder.name,
        shards=2 if form in _TWO_SHARDS else 1,
        extra=("--gear", GEARS[form == _REAL_TIME]),
    )
    if form in (_PIPELINE, _PIPELINE_2, _REAL_TIME):
        return Engine(options, folder, bootstrap)
    return _Floor(form, options, folder, bootstrap)


def floor(options: FloorOptions, phases: Phases) -> dict[str, Any]:
    """Measure each form as often as asked for, in turns.

    Raises:
        BenchError: a query failed.
        BrokerError: the broker did not start.
    """
    found: dict[str, list[dict[str, Any]]] = {form: [] for form in options.forms}
    with fresh_broker(options.parent, phases) as broker:
        for turn in range(options.repetitions):
            for form in options.forms:
                engine = _engine(form, broker.home.parent / f"{form}-{turn}", broker.bootstrap)
                with engine.running(phases):
                    found[form].append(_measured(form, engine, options, phases))
    rows = [_row(form, runs) for form, runs in found.items()]
    return {
        "benchmark": "floor", "rows": rows, "offered_per_s": options.rate,
        "warm_up_s": options.warm_up_s, "seconds": options.seconds,
        "repetitions": options.repetitions, "version": __version__, "machine": machine(),
    }  # fmt: skip


def _measured(form: str, engine: Engine, options: FloorOptions, phases: Phases) -> dict[str, Any]:
    """The latencies of a form, and the processor time that its processes took meanwhile."""
    with phases.phase(_TITLES[form]) as phase:
        appender = Appender(engine.connection, engine.names.transactions)
        appender.append_all(funding(0, options.accounts, b"%d" % BALANCE))
        drain(engine, appender, phase.note)
        if form == _REAL_TIME:
            engine.await_gear(REAL_TIME)
        begun_s = engine.cpu_s()
        latencies, _ = open_loop(
            engine, Bank(options.accounts, seed=options.seed), first=appender.appended,
            rate=options.rate, warm_up_s=options.warm_up_s, seconds=options.seconds,
            note=phase.note,
        )  # fmt: skip
        used_s = engine.cpu_s() - begun_s
        found = summary(latencies)
        found["cpu_percent"] = round(100 * used_s / (options.warm_up_s + options.seconds), 1)
        phase.outcome = f"p50 {found['p50']} ms, p99 {found['p99']} ms"
    return found


def _row(form: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of a form's runs, and the runs."""
    figures = ("p50", "p90", "p99", "max", "cpu_percent")
    medians = {name: round(median(run[name] for run in runs), 1) for name in figures}
    return {"form": form, "title": _TITLES[form], **medians, "runs": runs}


def shown(figure: float) -> str:
    """Show a figure, with a decimal if it is small."""
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:.1f}"


def show(answer: dict[str, Any], console: Console) -> None:
    """Print the table."""
    at = f"at {answer['offered_per_s']:,.0f}/s, ms"
    table = Table(at, "p50", "p90", "p99", "max", "CPU %", box=None, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in answer["rows"]:
        figures = (row[name] for name in ("p50", "p90", "p99", "max", "cpu_percent"))
        table.add_row(row["title"], *(shown(figure) for figure in figures))
    console.print(table)
    machine_ = answer["machine"]
    console.print(
        f"CPU: of the query's processes, in percent of a core. {machine_['cores']} cores, load "
        f"{machine_['load']}; {answer['warm_up_s']:.0f} s of warm-up, {answer['seconds']:.0f} s."
    )
