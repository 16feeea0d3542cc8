"""What a pipeline takes of the processor, by process: the JVM, Python, the broker."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import psutil

from bench.appending import Appender
from bench.engine import Engine, EngineOptions, fresh_broker
from bench.errors import BenchError
from bench.throughput import backlog, drain
from bench.workload import BALANCE, Bank, funding
from streamydb.cli.phases import Phases
from streamydb.limits import max_offsets

if TYPE_CHECKING:
    from bench.scale import ScaleOptions

__all__ = ["AROUND", "pipeline_us", "spent_s"]

_JVM: Final = "JVM"
_PYTHON: Final = "Python around our stages"
_BROKER: Final = "broker"
AROUND: Final = (_JVM, _PYTHON, _BROKER)
"""What is not ours."""

_COMPILERS: Final = ("C1 Compiler", "C2 Compiler")
"""How the names of their threads begin in Linux."""

_WARM_UPS: Final = 12
"""Backlogs before those that count, while the JVM compiles most of what they need.

More shards are more code at work there. It compiles on for minutes, but after so many backlogs the
next ones take no less.
"""

_REPETITIONS: Final = 5

_FULL_BATCHES: Final = 2
"""Of a backlog. In smaller ones what a micro-batch costs whatever is in it counts for more."""


def pipeline_us(
    options: ScaleOptions, shards: int, ours_us: float, phases: Phases
) -> dict[str, float]:
    """By process, µs of processor time a transfer; ``ours_us``: of our stages, which Python has.

    Raises:
        BenchError: the pipeline failed.
        BrokerError: the broker did not start.
    """
    with fresh_broker(options.parent, phases) as broker:
        folder = broker.home.parent / "pipeline"
        folder.mkdir()
        most = max_offsets(shards)
        count = options.backlog or _FULL_BATCHES * most
        wanted = EngineOptions(shards=shards, max_offsets=most)
        engine = Engine(wanted, folder, broker.bootstrap)
        record = broker.record
        with engine.running(phases), phases.phase(f"{shards} shards, pipeline") as phase:
            bank = Bank(options.accounts, options.distribution, seed=options.seed)
            appender = Appender(engine.connection, engine.names.transactions)
            appender.append_all(funding(0, options.accounts, b"%d" % BALANCE))
            drain(engine, appender, phase.note)
            found: list[dict[str, float]] = []
            for _ in range(_WARM_UPS + _REPETITIONS):
                before = _used_s(engine, record.pid)
                backlog(engine, appender, bank, count, phase.note)
                after = _used_s(engine, record.pid)
                found.append({name: after[name] - before[name] for name in AROUND})
            phase.outcome = f"{_REPETITIONS} backlogs after {_WARM_UPS} others"
    usual = {name: median(run[name] for run in found[_WARM_UPS:]) for name in AROUND}
    each = {name: 1e6 * spent / count for name, spent in usual.items()}
    each[_PYTHON] = max(0.0, each[_PYTHON] - ours_us)
    return each


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
