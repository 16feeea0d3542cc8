"""Running a benchmark of the literature: deploy, load, measure, prove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.common import CommonOptions, Run, rate_facts, running
from bench.limit import CopyLimit
from bench.literature.evidence import STATUSES, Evidence, from_kafka
from bench.literature.judging import Base, Invariant, Judge, invariant
from bench.throughput import Rate, drain
from bench.workload import Workload
from streamydb.cli.phases import Phases
from streamydb.local.module_folder import FolderModules, load_file, publish
from streamydb.verify.check import CheckOptions, CheckProgress, check

__all__ = [
    "Cases", "Session", "StudyOptions", "answer", "complete", "deploy_record", "hold",
    "module_file", "session", "share", "told",
]  # fmt: skip

Cases = Mapping[str, Workload]
_PROCEDURES: Final = Path(__file__).parent / "procedures"
_CHECK_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions(CommonOptions):
    """Options of every benchmark of the literature.

    Attributes:
        replay: compare everything with a serial replay of the log afterwards.
    """

    copy_limit: bool = False
    replay: bool = True


class Session:
    """A benchmark under way, on an engine of its own.

    Attributes:
        run: the engine under measurement.
        rates: what was measured of each case.
        ranges: the numbers of the transactions of each case: (first, one past the last).
        latency_ms: of verdicts under an open loop, if that was measured.
        evidence: what was read back by `prove`.
    """

    def __init__(self, options: StudyOptions, run: Run) -> None:
        """Measure `run`."""
        self.options, self.run = options, run
        self.rates: dict[str, list[Rate]] = {}
        self.ranges: dict[str, list[tuple[int, int]]] = {}
        self.latency_ms: dict[str, Any] | None = None
        self.evidence = Evidence(Base())

    def deploy(self, module: str) -> None:
        """Give the pipeline a module of procedures, and append the record that names it."""
        publish(module_file(module), self.run.engine.procedures)
        self.append([deploy_record(module, self.run.appender.appended)], f"Deploying {module}")

    def append(self, payloads: Iterable[bytes], what: str) -> None:
        """Append transactions whose ids go on where the last ones ended; wait for their results."""
        with self.run.phases.phase(what) as phase:
            before = self.run.appender.appended
            self.run.appender.append_all(payloads)
            drain(self.run.engine, self.run.appender, phase.note)
            phase.outcome = f"{self.run.appender.appended - before:,} transactions"

    def feed(self, workload: Workload, count: int, what: str) -> None:
        """Append transactions of a workload that are not measured; wait for their results."""
        with self.run.phases.phase(what) as phase:
            self.run.appender.append(workload, count)
            drain(self.run.engine, self.run.appender, phase.note)
            phase.outcome = f"{count:,} transactions"

    def throughput(self, cases: Cases) -> None:
        """Warm up with the first case, then measure all in turn."""
        self.run.warm_up(next(iter(cases.values())))
        first, count = self.run.appender.appended, self.options.transactions
        self.rates = self.run.throughput(cases)
        for turn, name in enumerate(list(cases) * self.options.repetitions):
            start = first + turn * count
            self.ranges.setdefault(name, []).append((start, start + count))

    def latency(self, workload: Workload) -> None:
        """Measure the latency of verdicts while transactions are due at a rate.

        As long a load goes before, to warm up.
        """
        rate, seconds = self.options.latency_rate, self.options.latency_s
        self.latency_ms = self.run.latency(workload, rate, seconds, seconds)

    def facts(self, case: str) -> dict[str, Any]:
        """A case's throughput in figures, and which share of its transactions aborted."""
        ranges = self.ranges[case]
        aborted = sum(self.evidence.count("aborted", *each) for each in ranges)
        whole = sum(end - first for first, end in ranges)
        return {**rate_facts(self.rates[case]), "abort_rate": share(aborted, whole)}

    def prove(self, judge: Judge) -> list[Invariant]:
        """Stop the pipeline; read everything back; say what does not hold."""
        run = self.run
        run.stop()
        with run.phases.phase("Judging") as phase:
            self.evidence = from_kafka(judge, run.engine.connection, run.engine.names, phase.note)
            found = [complete(self.evidence, run.appender.appended), *judge.invariants()]
            phase.outcome = told(found)
        if self.options.replay:
            found.append(self._replayed())
        return found

    def _replayed(self) -> Invariant:
        """Everything is, byte for byte, what a serial replay of the log gives."""
        engine = self.run.engine
        with self.run.phases.phase("Replaying the log serially") as phase:
            report = check(
                CheckOptions(
                    connection=engine.connection,
                    database=engine.options.database,
                    timeout_s=_CHECK_S,
                    modules=FolderModules([engine.procedures]),
                    progress=lambda step: phase.note(_progress(step)),
                )
            )
            phase.outcome = "equal" if report.ok else "DIFFERENT"
        problems = [f"{found.kind}: {found.message}" for found in report.differences]
        if not report.ok and not problems:
            problems = ["outputs are missing: the pipeline had not written them all"]
        return invariant("equal to the serial replay", report.transactions, problems)


def complete(evidence: Evidence, expected: int) -> Invariant:
    """Every transaction up to a number has a verdict, and none was invalid."""
    missing = expected - sum(evidence.count(status) for status in STATUSES[1:])
    rejected = evidence.count("rejected")
    problems = [f"{missing:,} have none"] if missing else []
    problems += [f"{rejected:,} are rejected: they are not valid"] if rejected else []
    return invariant("every transaction has a verdict", expected, problems)


def hold(found: Iterable[Invariant]) -> bool:
    """Whether all of them hold."""
    return all(each.ok for each in found)


def told(found: Iterable[Invariant]) -> str:
    """Invariants in a few words."""
    broken = [each.name for each in found if not each.ok]
    return "BROKEN: " + "; ".join(broken) if broken else "all invariants hold"


def module_file(module: str) -> Path:
    """The file of a module of procedures."""
    return _PROCEDURES / f"{module}.py"


def deploy_record(module: str, number: int) -> bytes:
    """The transaction that deploys a module."""
    found, _ = load_file(module_file(module))
    return msgspec.json.encode({"id": f"t{number}", "deploy": found.record})


def share(part: int, whole: int) -> float:
    """A share; 0 of nothing."""
    return round(part / whole, 5) if whole else 0.0


@contextmanager
def session(options: StudyOptions, phases: Phases) -> Iterator[Session]:
    """Start an engine for a benchmark; everything has ended after the block."""
    with running(options, phases) as run:
        yield Session(options, run)


def answer(
    name: str,
    measured: Session,
    found: list[Invariant],
    parameters: Mapping[str, Any],
    limit: CopyLimit | None = None,
) -> dict[str, Any]:
    """The answer of a benchmark: rates, latencies, aborts, and whether its invariants hold.

    The rate that is held against the copy limit is that of the first case.
    """
    leading = next(iter(measured.rates.values()), None)
    median = rate_facts(leading)["txn_per_s"] if leading else 0.0
    counts = {status: measured.evidence.count(status) for status in STATUSES[1:]}
    return {
        "benchmark": name,
        "invariants_ok": hold(found),
        "invariants": [{**msgspec.to_builtins(each), "ok": each.ok} for each in found],
        **measured.run.facts(limit, median),
        "latency_ms": measured.latency_ms,
        **counts,
        "abort_rate": share(counts["aborted"], sum(counts.values())),
        "cases": {case: measured.facts(case) for case in measured.rates},
        "parameters": dict(parameters),
    }


def _progress(step: CheckProgress) -> str:
    return f"{step.name}, {step.done:,} of {step.total:,}"
