"""The memory of a whole database as `up` starts it: under load, and when it has nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import msgspec
from rich.console import Console
from rich.table import Table

from bench import workload as w
from bench.appending import Appender
from bench.errors import BenchError
from bench.latency import Arrivals, summary
from bench.machine import machine
from bench.waiting import Ends, wait_until
from streamydb.cli.phases import Phases
from streamydb.kafka import TopicNames
from streamydb.local.memory import PartMemory, memory_of

__all__ = [
    "ALL", "IdleOptions", "Sampler", "Stage", "by_part", "idle", "loaded", "running_database",
    "show",
]  # fmt: skip

ALL: Final = "all"
"""The name of all parts together."""

_DATABASE: Final = "bank"
_RESULTS_S_MAX: Final = 240.0
_COMMAND_S_MAX: Final = 240.0
_SAMPLE_S: Final = 1.0
_TICK_S: Final = 0.05

Note = Callable[[str], object]
Memory = dict[str, dict[str, float]]
"""MB by part: of all its memory, and of that the unchanged pages of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A load: backlogs for half of the time, then transactions at a rate beside reads by REST."""

    seconds: float = 120.0
    rate: float = 500.0
    backlog: int = 300_000
    accounts: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleOptions:
    """What to measure; see `streamydb bench memory --help`."""

    load: Stage = Stage()
    idle_s: float = 60.0
    repetitions: int = 3
    options: tuple[str, ...] = ()
    parent: Path | None = None


class Sampler(threading.Thread):
    """Looks at the memory of all parts every second, and keeps the most.

    Attributes:
        most: of each part, and of all together; each at the moment at which it took most.
    """

    def __init__(self, home: Path) -> None:
        """Look at the database that `up` has started in this folder."""
        super().__init__(name="memory", daemon=True)
        self._home, self._ended = home, threading.Event()
        self.most: Memory = {}

    def run(self) -> None:
        """Look until the end."""
        while not self._ended.wait(_SAMPLE_S):
            for part, taken in by_part(_parts(self._home)).items():
                if taken["mb"] > self.most.get(part, {"mb": 0.0})["mb"]:
                    self.most[part] = taken

    def end(self) -> None:
        """End."""
        self._ended.set()
        self.join()


def idle(options: IdleOptions, phases: Phases) -> dict[str, Any]:
    """Start a database with `up`, load it, let it rest, again and again; the median run counts, by
    the memory that the idle database takes.

    Raises:
        BenchError: it did not start, or results did not come.
    """
    runs = [_run(options, phases) for _ in range(options.repetitions)]
    runs.sort(key=lambda run: float(run["idle"][ALL]["mb"]))
    return {
        "benchmark": "memory",
        "options": list(options.options),
        "machine": machine(),
        "load_s": options.load.seconds,
        "rate": options.load.rate,
        "idle_s": options.idle_s,
        "idle_mb_runs": [round(run["idle"][ALL]["mb"]) for run in runs],
        **runs[len(runs) // 2],
    }


def _run(options: IdleOptions, phases: Phases) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="streamydb-bench-", dir=options.parent) as folder,
        running_database(Path(folder), phases, options.options) as facts,
    ):
        home = Path(folder)
        started = by_part(_parts(home))
        sampler = Sampler(home)
        sampler.start()
        with phases.phase("Loading it") as phase:
            found = loaded(facts, options.load, phase.note)
            phase.outcome = f"{found['transactions']:,} transactions"
        sampler.end()
        with phases.phase(f"Leaving it idle for {options.idle_s:.0f} s") as phase:
            time.sleep(options.idle_s)
            left = by_part(_parts(home))
            phase.outcome = f"{left[ALL]['mb']:,.0f} MB"
        return {**found, "started": started, "most": sampler.most, "idle": left}


def by_part(parts: Sequence[PartMemory]) -> Memory:
    """Return the memory of each part, and of all together."""
    found = {part.part: {"mb": part.mb, "files_mb": part.files_mb} for part in parts}
    return {**found, ALL: {
        name: round(sum(each[name] for each in found.values()), 1) for name in ("mb", "files_mb")
    }}  # fmt: skip


def _parts(home: Path) -> list[PartMemory]:
    return memory_of(home, home / "databases" / _DATABASE)


@contextmanager
def running_database(
    home: Path, phases: Phases, options: Sequence[str] = (), before: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Run a database, which `up` starts in this folder and `down` ends with the block.

    Args:
        home: the folder.
        phases: shows what is done.
        options: of `up`.
        before: a command that starts `up`, such as one that bounds its memory.

    Returns:
        What `up --json` says of it.

    Raises:
        BenchError: it did not start.
    """
    with phases.phase("Starting the database"):
        text = _command(home, [*before], "up", "--json", *options)
    try:
        yield msgspec.json.decode(text)
    finally:
        _command(home, [], "down")


def _command(home: Path, before: list[str], *words: str) -> bytes:
    done = subprocess.run(
        [*before, sys.executable, "-m", "streamydb.cli", *words, "--database", _DATABASE],
        env={**os.environ, "STREAMYDB_HOME": str(home)}, capture_output=True, check=False,
        timeout=_COMMAND_S_MAX,
    )  # fmt: skip
    if done.returncode:
        raise BenchError(f"`streamydb {words[0]}` failed: {done.stderr.decode(errors='replace')}")
    return done.stdout


def loaded(facts: Mapping[str, Any], stage: Stage, note: Note) -> dict[str, Any]:
    """Load a database; return how many transactions there were, the median rate of the backlogs,
    and the latency at the fixed rate in milliseconds.

    Raises:
        BenchError: results did not come.
    """
    return _Load(facts, stage, note).run()


class _Load:
    """A load under way."""

    def __init__(self, facts: Mapping[str, Any], stage: Stage, note: Note) -> None:
        self._connection = {"bootstrap.servers": facts["bootstrap"]}
        self._url, self._stage, self._note = str(facts["http"]), stage, note
        names = TopicNames(_DATABASE)
        self._results = Ends(self._connection, names.results)
        self._before = self._results.count()
        self._appender = Appender(self._connection, names.transactions, linger_ms=0)
        self._bank = w.Bank(stage.accounts)

    def run(self) -> dict[str, Any]:
        stage, begun = self._stage, time.monotonic()
        balance = b"%d" % w.BALANCE
        self._appender.append_all(w.funding(0, stage.accounts, balance))
        self._drain()
        rates: list[float] = []
        while not rates or time.monotonic() - begun < stage.seconds / 2:
            first = time.monotonic()
            self._appender.append(self._bank, stage.backlog)
            self._drain()
            rates.append(stage.backlog / (time.monotonic() - first))
        late = self._at_rate(max(1, int(stage.rate * stage.seconds / 2)))
        return {
            "transactions": self._appender.appended,
            "bulk_per_s": round(median(rates)),
            "latency_ms": {name: late[name] for name in ("p50", "p99", "max", "count")},
        }

    def _drain(self) -> None:
        self._appender.flush()
        self._note(f"{self._appender.appended:,} transactions")
        wait_until(
            lambda: self._results.count() - self._before >= self._appender.appended,
            "all results were there", _RESULTS_S_MAX,
        )  # fmt: skip

    def _at_rate(self, count: int) -> dict[str, Any]:
        appender, rate = self._appender, self._stage.rate
        first, sent = appender.appended, 0
        payloads = self._bank.payloads(first, count)
        with (
            Arrivals(self._connection, self._results, first, count) as arrivals,
            httpx.Client(base_url=self._url) as client,
        ):
            begun = time.monotonic()
            while sent < count:
                due = min(count, int((time.monotonic() - begun) * rate) + 1)
                if due > sent:
                    appender.send(payloads[sent:due])
                    sent = due
                    client.get(f"/v1/kv/acct/{sent % self._stage.accounts}").raise_for_status()
                appender.poll()
                time.sleep(_TICK_S)
            appender.flush()
            wait_until(lambda: arrivals.missing == 0, "all results were there", _RESULTS_S_MAX)
            due_s = [begun + number / rate for number in range(count)]
            return summary(arrivals.at - due_s)


def show(answer: dict[str, Any], console: Console) -> None:
    """Print an answer as a table."""
    table = Table("", "started, MB", "under load", "idle", "of it files")
    for part, taken in answer["idle"].items():
        started, most = (answer[name].get(part, {"mb": 0.0}) for name in ("started", "most"))
        row = (started["mb"], most["mb"], taken["mb"], taken["files_mb"])
        table.add_row(part, *(f"{mb:,.0f}" for mb in row))
    console.print(table)
    late = answer["latency_ms"]
    console.print(
        f"{answer['bulk_per_s']:,}/s in bulk; p50 {late['p50']:.0f} ms and p99 {late['p99']:.0f} "
        f"ms at {answer['rate']:g}/s"
    )
