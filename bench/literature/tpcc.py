"""TPC-C: its five transactions, with the consistency conditions of the specification.

TPC Benchmark C, Standard Specification, Revision 5.11, 2010. Backlogs of new-order and payment, as
systems without the other three measure them, and of the whole mix, take turns. Or terminals key in
and think, ten for each warehouse.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from bench.appending import Appender
from bench.literature.driver import Session, StudyOptions, answer, session
from bench.literature.terminals import Span, Terminals, play
from bench.literature.tpcc_inputs import TWO, Inputs
from bench.literature.tpcc_judge import TpccJudge
from bench.literature.tpcc_rows import DISTRICTS, Population, Scale
from streamydb.cli.phases import Phases

__all__ = ["TpccJudge", "TpccOptions", "tpcc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TpccOptions(StudyOptions):
    """What to measure; see `streamydb bench tpcc --help`.

    Attributes:
        terminals: play terminals instead of backlogs, for ``terminals_s`` after ``ramp_s``.
    """

    warehouses: int = 2
    items: int = 100_000
    customers: int = 3_000
    terminals: bool = False
    terminals_s: float = 120.0
    ramp_s: float = 30.0

    def scale(self) -> Scale:
        """The size of the database."""
        return Scale(warehouses=self.warehouses, items=self.items, customers=self.customers)

    def population(self) -> Population:
        """All rows."""
        return Population(self.scale(), self.seed)


def tpcc(options: TpccOptions, phases: Phases) -> dict[str, Any]:
    """Measure two of the transactions, and all five; check the consistency conditions.

    Raises:
        BenchError: something failed.
    """
    judge = TpccJudge(options.scale())
    with session(options, phases) as measured:
        with phases.phase("Drawing the population"):
            population = options.population()
        mix = Inputs(population, options.seed)
        measured.deploy("tpcc")
        first = measured.run.appender.appended
        measured.append(population.transactions(first), f"Loading {options.warehouses} warehouses")
        told: dict[str, Any] = {}
        if options.terminals:
            told["terminals"] = _played(measured, options, mix)
        else:
            measured.throughput(
                {"new-order and payment": Inputs(population, options.seed, TWO), "all five": mix}
            )
            measured.latency(mix)
        found = measured.prove(judge)
        parameters = {
            "warehouses": options.warehouses, "items": options.items,
            "customers": options.customers, "districts": DISTRICTS,
            "scaled_down": options.scale() != Scale(warehouses=options.warehouses),
        }  # fmt: skip
        given = answer("tpcc", measured, found, parameters)
        return {
            **given,
            **told,
            "transactions_by_kind": dict(judge.committed),
            "rolled_back": judge.rolled_back,
            "stale": judge.stale,
        }


def _played(measured: Session, options: TpccOptions, mix: Inputs) -> dict[str, Any]:
    """Play the terminals; what they measured."""
    run = measured.run
    appender = Appender(run.engine.connection, run.engine.names.transactions, linger_ms=0)
    appender.appended = run.appender.appended
    begin_s = time.monotonic() + 0.5
    span = Span(begin_s + options.ramp_s, begin_s + options.ramp_s + options.terminals_s)
    terminals = Terminals(options.warehouses, options.seed, begin_s)
    with run.phases.phase(f"Playing {options.warehouses * DISTRICTS:,} terminals") as phase:
        play(run.engine, appender, mix, terminals, span, phase.note)
        found = terminals.facts(span)
        phase.outcome = f"{found['tpmC']:,.1f} tpmC, efficiency {found['efficiency']:.1%}"
    run.appender.appended = appender.appended
    return found
