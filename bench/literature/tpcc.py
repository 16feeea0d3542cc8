"""TPC-C: its five transactions, with the consistency conditions of the specification.

TPC Benchmark C, Standard Specification, Revision 5.11, 2010. Backlogs of new-order and payment, as
systems without the other three measure them, and of the whole mix, take turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.literature.driver import StudyOptions, answer, session
from bench.literature.tpcc_inputs import TWO, Inputs
from bench.literature.tpcc_judge import TpccJudge
from bench.literature.tpcc_rows import DISTRICTS, Population, Scale
from streamydb.cli.phases import Phases

__all__ = ["TpccJudge", "TpccOptions", "tpcc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TpccOptions(StudyOptions):
    """What to measure; see `streamydb bench tpcc --help`."""

    warehouses: int = 2
    items: int = 100_000
    customers: int = 3_000

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
        measured.throughput(
            {"new-order and payment": Inputs(population, options.seed, TWO), "all five": mix}
        )
        measured.latency(mix)
        found = measured.prove(judge)
        parameters = {
            "warehouses": options.warehouses, "items": options.items,
            "customers": options.customers, "districts": DISTRICTS,
        }  # fmt: skip
        given = answer("tpcc", measured, found, parameters)
        return {
            **given,
            "transactions_by_kind": dict(judge.committed),
            "rolled_back": judge.rolled_back,
            "stale": judge.stale,
        }
