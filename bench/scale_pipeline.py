"""What a pipeline takes of the processor, by process: the JVM, Python, the broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, TypeAlias

import psutil

from bench.appending import Appender
from bench.engine import Engine, EngineOptions, fresh_broker
from bench.errors import BenchError
from bench.pairs import by_turns
from bench.throughput import Note, backlog, drain
from bench.workload import BALANCE, Bank, funding
from streamydb.cli.phases import Phase, Phases
from streamydb.limits import max_offsets

if TYPE_CHECKING:
    from bench.scale import ScaleOptions

__all__ = ["AROUND", "Round", "around_us", "rounds_of", "spent_s"]

_JVM: Final = "JVM"
_PYTHON: Final = "Python around our stages"
_BROKER: Final = "broker"
AROUND: Final = (_JVM, _PYTHON, _BROKER)
"""What is not ours."""

Round: TypeAlias = dict[str, float]
"""By process, µs of processor time a transfer."""

_COMPILERS: Final = ("C1 Compiler", "C2 Compiler")
"""How the names of their threads begin in Linux."""

_WARM_UPS: Final = 12
"""Backlogs before those that count, while the JVM compiles most of what they need.

More shards are more code at work there. It compiles on for minutes, but after so many backlogs the
next ones take no less.
"""

_REPETITIONS: Final = 5

_POLL_S: Final = 0.25
"""How often the results of a backlog are counted. Each time the broker takes a moment that counts.
"""

_FULL_BATCHES: Final = 2
"""Of a backlog, where full ones are largest: smaller ones cost more. All pipelines get backlogs of
the same size, as what each round costs at its beginning, after others have run, must count alike.
"""


@dataclass(frozen=True, slots=True)
class _Side:
    """A pipeline with its broker, and the load that it gets."""

    engine: Engine
    broker: int
    appender: Appender
    bank: Bank
    count: int

    def round(self, note: Note) -> Round:
        """Work off a backlog; return by process µs of processor time a transfer."""
        before = _used_s(self.engine, self.broker)
        backlog(self.engine, self.appender, self.bank, self.count, note, _POLL_S)
        after = _used_s(self.engine, self.broker)
        return {name: 1e6 * (after[name] - before[name]) / self.count for name in AROUND}


def rounds_of(options: ScaleOptions, phases: Phases) -> dict[int, list[Round]]:
    """By number of shards, µs of processor time a transfer by process, of some rounds.

    All pipelines are there at the same time, and take turns (`bench.pairs`). Python's figure has
    our stages in it.

    Raises:
        BenchError: a pipeline failed.
        BrokerError: a broker did not start.
    """
    found: dict[int, list[Round]] = {shards: [] for shards in options.shards}
    with ExitStack() as stack:
        sides = {
            shards: stack.enter_context(_side(options, shards, phases)) for shards in options.shards
        }
        with phases.phase("Pipelines, by turns") as phase:
            for number, shards in by_turns([*sides], _WARM_UPS + _REPETITIONS):
                what = f"round {number + 1}, shards {shards}: "
                found[shards].append(sides[shards].round(_told(phase, what)))
            phase.outcome = f"{_REPETITIONS} rounds after {_WARM_UPS} others"
    return {shards: rounds[_WARM_UPS:] for shards, rounds in found.items()}


def around_us(rounds: Sequence[Round], ours_us: float) -> dict[str, float]:
    """Return the medians by process; ``ours_us``: what our stages take, which Python has."""
    usual = {name: median(each[name] for each in rounds) for name in AROUND}
    usual[_PYTHON] = max(0.0, usual[_PYTHON] - ours_us)
    return usual


@contextmanager
def _side(options: ScaleOptions, shards: int, phases: Phases) -> Iterator[_Side]:
    """Run a pipeline, whose accounts have money."""
    with fresh_broker(options.parent, phases) as broker:
        folder = broker.home.parent / "pipeline"
        folder.mkdir()
        most = max_offsets(shards)
        wanted = EngineOptions(shards=shards, max_offsets=most)
        engine = Engine(wanted, folder, broker.bootstrap)
        with engine.running(phases):
            bank = Bank(options.accounts, options.distribution, seed=options.seed)
            appender = Appender(engine.connection, engine.names.transactions)
            appender.append_all(funding(0, options.accounts, b"%d" % BALANCE))
            drain(engine, appender, lambda _: None)
            count = options.backlog or _FULL_BATCHES * max(map(max_offsets, options.shards))
            yield _Side(engine, broker.record.pid, appender, bank, count)


def _told(phase: Phase, what: str) -> Note:
    return lambda text: phase.note(what + text)


def _used_s(engine: Engine, broker: int) -> dict[str, float]:
    """Seconds of processor time so far, by kind of process."""
    used = dict.fromkeys(AROUND, 0.0)
    for process in engine.processes():
        with suppress(psutil.Error):
            kind = _JVM if process.name().startswith("java") else _PYTHON
            used[kind] += spent_s(process)
    try:
        used[_BROKER] = spent_s(psutil.Process(broker))
    except psutil.Error as error:
        raise BenchError("the broker has ended") from error
    return used


def spent_s(process: psutil.Process) -> float:
    """Seconds of processor time so far, without those of Java's compilers.

    They take half a core for some minutes, and then next to nothing: no part of what a transfer
    takes.

    Raises:
        psutil.Error: the process has ended.
    """
    whole: float = sum(process.cpu_times()[:2])
    compiling: list[float] = [
        thread.user_time + thread.system_time
        for thread in process.threads()
        if _is_compiler(process.pid, thread.id)
    ]
    return whole - sum(compiling)


def _is_compiler(process: int, thread: int) -> bool:
    try:
        name = Path(f"/proc/{process}/task/{thread}/comm").read_text(encoding="utf-8")
    except OSError:  # it has ended
        return False
    return name.startswith(_COMPILERS)
