"""`streamydb bench recovery`: how long clients get no verdict when a pipeline dies or hands over.

A few transactions a second go on whatever happens. A pause lasts from the kill (or from the last
verdict of the old leader) to the first verdict on a transaction that was appended afterwards.

- **cold**: SIGKILL of driver, JVM and workers; the same pipeline is started again at once.
- **standby**: the same, but a warm standby takes over; a new standby is started for the next turn.
- **hand-over**: a planned one, between two pipelines, by turns.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

import msgspec
from rich.console import Console
from rich.table import Table

from bench.machine import machine, stolen_s
from streamydb import __version__
from streamydb.cli.phases import Phases
from streamydb.errors import StreamyError
from streamydb.kafka import TopicNames
from streamydb.kafka.producer import Producer
from streamydb.kafka.reader import TopicReader
from streamydb.pipeline.standby.handover import hand_over
from streamydb.settings import Settings
from streamydb.testing.database import Database, wait_for

__all__ = ["KINDS", "RecoveryOptions", "figures_of", "recovery", "show"]

KINDS: Final = ("cold", "standby", "hand-over")
"""What can be measured."""

_FIGURES: Final = {
    "cold": (
        ("runs_s", "until its query runs"), ("first_batch_s", "its first batch"),
        ("verdict_s", "until the next verdict"),
    ),
    "standby": (("verdict_s", "until the next verdict"),),
    "hand-over": (("pause_s", "longest pause between two verdicts"),),
}
_WAIT_S: Final = 120.0
_LOOK_S: Final = 0.005
_TITLES: Final = {
    "cold": "killed, started again", "standby": "killed, a standby takes over",
    "hand-over": "handed over",
}


class RecoveryError(StreamyError):
    """What was to be measured did not happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """What to measure; see `streamydb bench recovery --help`."""

    turns: int = 10
    rate: float = 50.0
    settle_s: float = 5.0
    shards: int = 1
    kinds: tuple[str, ...] = KINDS
    parent: Path | None = None


class _Load:
    """Appends transactions at a rate, and notes when each verdict was read.

    Attributes:
        appended_s: when the transaction of each number was given to Kafka's client.
        verdict_s: when its verdict was read; the first one counts.
    """

    def __init__(self, settings: Settings, rate: float) -> None:
        self._settings = settings
        self._interval_s = 1.0 / rate
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"recovery-{run.__name__}", daemon=True)
            for run in (self._append, self._read)
        ]
        self._reads = threading.Event()
        self.appended_s: list[float] = []
        self.verdict_s: dict[int, float] = {}

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _append(self) -> None:
        self._reads.wait(_WAIT_S)
        with Producer(self._settings, linger_ms=0, validate=False) as producer:
            begun_s = time.monotonic()
            while not self._stop.wait(self._due_s(begun_s)):
                number = len(self.appended_s)
                self.appended_s.append(time.monotonic())
                update = {"op": "add", "key": f"k{number % 1_000}", "by": 1}
                producer.submit({"id": f"r{number}", "updates": [update]})

    def _due_s(self, begun_s: float) -> float:
        """Seconds until the next one is due."""
        due_s = begun_s + len(self.appended_s) * self._interval_s
        return max(0.0, due_s - time.monotonic())

    def _read(self) -> None:
        topic = TopicNames(self._settings.database).results
        with TopicReader(self._settings.client_config(), topic) as reader:
            reader.assign({number: span.high for number, span in reader.spans().items()})
            self._reads.set()
            while not self._stop.is_set():
                records = reader.batch(0.05)
                now_s = time.monotonic()
                for record in records:
                    name = msgspec.json.decode(record.value() or b"{}").get("id") or ""
                    if name.startswith("r"):
                        self.verdict_s.setdefault(int(name[1:]), now_s)

    def first_after(self, since_s: float) -> float:
        """Wait for the first verdict on a transaction that was appended later; when it was read.

        Raises:
            RecoveryError: none came.
        """
        ends_s = time.monotonic() + _WAIT_S
        first = len(self.appended_s)
        while first and self.appended_s[first - 1] > since_s:
            first -= 1
        while time.monotonic() < ends_s:
            found = [at_s for number, at_s in self.verdict_s.copy().items() if number >= first]
            if found:
                return min(found)
            time.sleep(_LOOK_S)
        raise RecoveryError(f"no verdict came within {_WAIT_S:.0f} s")


def recovery(options: RecoveryOptions, phases: Phases) -> dict[str, Any]:
    """Measure each kind on a database of its own; returns the table as plain data."""
    rows = [_row(kind, options, phases) for kind in options.kinds]
    return {
        "streamydb": __version__, "turns": options.turns, "rate_per_s": options.rate,
        "shards": options.shards, "rows": rows, "machine": machine(),
    }  # fmt: skip


def _row(kind: str, options: RecoveryOptions, phases: Phases) -> dict[str, Any]:
    measure = {"cold": _cold, "standby": _standby, "hand-over": _handed}[kind]
    runs: list[dict[str, float]] = []
    stolen_before, _ = stolen_s()
    with _loaded(options) as (database, load), phases.phase(_TITLES[kind]) as phase:
        for run in measure(database, load, options):
            runs.append(run)
            phase.note(f"{len(runs)} of {options.turns}")
        phase.outcome = f"{options.turns} turns"
    return {
        "kind": kind, "runs": runs, "stolen_s": round(stolen_s()[0] - stolen_before, 1),
        **{name: _spread([run[name] for run in runs]) for name, _ in _FIGURES[kind]},
    }


def _spread(values: list[float]) -> dict[str, float]:
    figures = {"min": min(values), "median": median(values), "max": max(values)}
    return {name: round(value, 3) for name, value in figures.items()}


@contextmanager
def _loaded(options: RecoveryOptions) -> Iterator[tuple[Database, _Load]]:
    """Run a database that answers under the load."""
    with tempfile.TemporaryDirectory(prefix="streamydb-recovery-", dir=options.parent) as folder:
        database = Database(Path(folder), shards=options.shards)
        with database, _Load(database.settings, options.rate) as load:
            load.first_after(time.monotonic())
            yield database, load


def _cold(
    database: Database, load: _Load, options: RecoveryOptions
) -> Iterator[dict[str, float]]:
    for _ in range(options.turns):
        time.sleep(options.settle_s)
        killed_s = time.monotonic()
        database.kill_pipeline()
        database.start_pipeline()
        runs_s = time.monotonic() - killed_s
        verdict_s = load.first_after(killed_s) - killed_s
        yield {"runs_s": runs_s, "first_batch_s": verdict_s - runs_s, "verdict_s": verdict_s}


def _standby(
    database: Database, load: _Load, options: RecoveryOptions
) -> Iterator[dict[str, float]]:
    leader = database
    with ExitStack() as all_of_them:
        for turn in range(options.turns):
            standby = all_of_them.enter_context(database.beside(f"standby-{turn}"))
            _await_ready(standby)
            time.sleep(options.settle_s)
            killed_s = time.monotonic()
            leader.kill_pipeline()
            yield {"verdict_s": load.first_after(killed_s) - killed_s}
            leader = standby


def _handed(
    database: Database, load: _Load, options: RecoveryOptions
) -> Iterator[dict[str, float]]:
    with database.beside("other") as other:
        for _ in range(options.turns):
            _await(lambda: "following" in (database.status().role, other.status().role))
            _await_ready(other if other.status().role == "following" else database)
            time.sleep(options.settle_s)
            settings = database.settings
            done = hand_over(settings.client_config(), settings.database, "", _WAIT_S)
            if done.pause_s is None:
                raise RecoveryError(f"the pause is not known: {done.pause_unknown}")
            load.first_after(time.monotonic())
            yield {"pause_s": done.pause_s}


def _await_ready(standby: Database) -> None:
    _await(lambda: standby.status().role == "following" and bool(standby.status().ready))


def _await(condition: Callable[[], bool]) -> None:
    wait_for(condition, "the standby's readiness", _WAIT_S)


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
    console.print(
        f"{answer['turns']} turns each, {answer['rate_per_s']:g} transactions/s, "
        f"{answer['shards']} shard(s), {about['cores']} cores, load {about['load']}."
    )
