"""TPC-C's new-order and payment, with the consistency conditions of the specification.

TPC Benchmark C, Standard Specification, Revision 5.11, 2010. Neither terminals nor the other three
transactions are there, so what is measured is no tpmC and must not be compared with one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bench.literature import tpcc_inputs as inputs
from bench.literature.driver import StudyOptions, answer, session
from bench.literature.judging import (
    Answered,
    Base,
    Changed,
    Invariant,
    LastValues,
    invariant,
    number_of,
)
from streamydb.cli.phases import Phases

__all__ = ["TpccJudge", "TpccOptions", "tpcc"]

_ROLLED_BACK: Final = "item number is not valid"
_District = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TpccOptions(StudyOptions):
    """What to measure; see `streamydb bench tpcc --help`."""

    warehouses: int = 2
    items: int = 100_000
    customers: int = 3_000

    def population(self) -> inputs.Population:
        """All rows."""
        scale = inputs.Scale(
            warehouses=self.warehouses, items=self.items, customers=self.customers
        )
        return inputs.Population(scale, self.seed)


class TpccJudge(Base):
    """The consistency conditions of clause 3.3.2 that two transactions can keep or break."""

    def __init__(self, options: TpccOptions) -> None:
        """Nothing is known."""
        self._options = options
        self._tables: dict[str, LastValues] = defaultdict(LastValues)
        self._entered: dict[int, int] = {}
        self._odd: list[str] = []
        self.new_orders = self.payments = self.rolled_back = 0

    def answered(self, result: Answered) -> None:
        """Keep the number of an order; count."""
        number = number_of(result.id)
        if result.committed and isinstance(result.returned, dict):
            if "order" in result.returned:
                self.new_orders += 1
                self._entered[number] = result.returned["order"]
            else:
                self.payments += 1
        elif result.reason == _ROLLED_BACK:
            self.rolled_back += 1
        elif not result.committed:
            self._odd.append(f"{result.id} is {result.status}: {result.code} {result.reason or ''}")

    def changed(self, change: Changed) -> None:
        """Take over a row."""
        self._tables[change.key.partition("/")[0]].take(change)

    def invariants(self) -> list[Invariant]:
        """The conditions, by the numbers that the specification gives them."""
        warehouses, districts = self._options.warehouses, len(self._districts())
        orders, paid = len(self._tables["o"]), len(self._tables["h"])
        customers = districts * self._options.customers
        return [
            invariant("only orders of an invalid item abort", self.rolled_back, self._odd),
            invariant("each committed order is there", self.new_orders, self._missing()),
            invariant("condition 1: W_YTD = sum(D_YTD)", warehouses, self._ytd()),
            invariant(
                "condition 2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)", districts, self._next()
            ),
            invariant("condition 3: NO_O_IDs have no gap", districts, self._gaps()),
            invariant("condition 4: sum(O_OL_CNT) = lines", districts, self._lines()),
            invariant("condition 6: O_OL_CNT = lines of the order", orders, self._order_lines()),
            invariant("conditions 8, 9: YTD = sum(H_AMOUNT)", paid, self._history()),
            invariant("condition 10: C_BALANCE = -sum(H_AMOUNT)", customers, self._balances()),
            invariant("condition 11: as many orders as new-orders", districts, self._counts()),
            invariant("S_YTD = sum(OL_QUANTITY)", len(self._tables["s"]), self._stock()),
        ]

    def _districts(self) -> list[_District]:
        count = self._options.warehouses
        return [
            (str(w), str(d)) for w in range(1, count + 1) for d in range(1, inputs.DISTRICTS + 1)
        ]

    def _rows(self, table: str) -> Iterator[tuple[_District, str, Any]]:
        """Rows of a table of orders or history: district, number, row."""
        for key, row in self._tables[table].items():
            _, w, d, number = key.split("/")
            yield (w, d), number, row

    def _missing(self) -> Iterator[str]:
        stored = {int(number): row["id"] for _, number, row in self._rows("o")}
        for number in self._entered.keys() | stored.keys():
            found, told = stored.get(number), self._entered.get(number)
            if found != told:
                yield f"t{number} was told order {told}, and {found} is there"

    def _ytd(self) -> Iterator[str]:
        for w in range(1, self._options.warehouses + 1):
            found = self._tables["w"].get(f"w/{w}/ytd")
            districts = range(1, inputs.DISTRICTS + 1)
            total = sum(self._tables["d"].get(f"d/{w}/{d}/ytd", 0) for d in districts)
            if found != total:
                yield f"warehouse {w}: {found}, and its districts {total}"

    def _numbers(self, table: str) -> dict[_District, list[int]]:
        found: dict[_District, list[int]] = {district: [] for district in self._districts()}
        for district, _, row in self._rows(table):
            found[district].append(row["id"] if table == "o" else row)
        return found

    def _next(self) -> Iterator[str]:
        orders, new_orders = self._numbers("o"), self._numbers("no")
        for w, d in self._districts():
            following = self._tables["d"].get(f"d/{w}/{d}/next", 0)
            last = max(orders[w, d], default=0), max(new_orders[w, d], default=0)
            if (following - 1, following - 1) != last:
                yield f"district {w}/{d}: next {following}, last order and new-order {last}"

    def _gaps(self) -> Iterator[str]:
        for (w, d), numbers in self._numbers("no").items():
            if numbers and max(numbers) - min(numbers) + 1 != len(numbers):
                span = f"{min(numbers)} to {max(numbers)}"
                yield f"district {w}/{d}: {len(numbers)} new-orders numbered {span}"
            if len(set(numbers)) != len(numbers):
                yield f"district {w}/{d}: a number twice"

    def _counts(self) -> Iterator[str]:
        """None is delivered, and none was there at first (else the difference is 2,100)."""
        orders, new_orders = self._numbers("o"), self._numbers("no")
        for w, d in self._districts():
            if sorted(orders[w, d]) != sorted(new_orders[w, d]):
                counts = len(orders[w, d]), len(new_orders[w, d])
                yield f"district {w}/{d}: orders and new-orders {counts}, or other numbers"

    def _lines(self) -> Iterator[str]:
        told: Counter[_District] = Counter()
        found: Counter[_District] = Counter()
        for district, _, row in self._rows("o"):
            told[district] += row["lines"]
        for district, _, row in self._rows("ol"):
            found[district] += len(row["lines"])
        for w, d in self._districts():
            if told[w, d] != found[w, d]:
                yield f"district {w}/{d}: {told[w, d]} lines told, {found[w, d]} there"

    def _order_lines(self) -> Iterator[str]:
        lines = {(place, n): len(row["lines"]) for place, n, row in self._rows("ol")}
        for place, number, row in self._rows("o"):
            if lines.get((place, number)) != row["lines"]:
                found = lines.get((place, number))
                yield f"order {row['id']} of {place}: {row['lines']} lines told, {found} there"

    def _history(self) -> Iterator[str]:
        of_district: Counter[_District] = Counter()
        for district, _, row in self._rows("h"):
            of_district[district] += row["amount"]
        for w, d in self._districts():
            found = self._tables["d"].get(f"d/{w}/{d}/ytd", 0) - inputs.DISTRICT_YTD
            if found != of_district[w, d]:
                yield f"district {w}/{d}: {found} more than at first, {of_district[w, d]} paid"
        for w in {warehouse for warehouse, _ in self._districts()}:
            found = self._tables["w"].get(f"w/{w}/ytd", 0) - inputs.WAREHOUSE_YTD
            paid = sum(amount for (home, _), amount in of_district.items() if home == w)
            if found != paid:
                yield f"warehouse {w}: {found} more than at first, {paid} paid"

    def _balances(self) -> Iterator[str]:
        paid: Counter[str] = Counter()
        for _, _, row in self._rows("h"):
            paid[f"c/{row['cw']}/{row['cd']}/{row['c']}"] += row["amount"]
        for key, row in self._tables["c"].items():
            if key.endswith("/data"):
                continue
            expected = inputs.BALANCE - paid[key], inputs.PAID + paid[key]
            if (row["balance"], row["paid"]) != expected:
                yield f"{key}: balance and paid {row['balance'], row['paid']}, not {expected}"

    def _stock(self) -> Iterator[str]:
        taken: Counter[str] = Counter()
        for _, _, row in self._rows("ol"):
            for line in row["lines"]:
                taken[f"s/{line['supply']}/{line['item']}"] += line["quantity"]
        for key, row in self._tables["s"].items():
            if row["ytd"] != taken[key]:
                yield f"{key}: {row['ytd']} delivered, {taken[key]} ordered"


def tpcc(options: TpccOptions, phases: Phases) -> dict[str, Any]:
    """Measure new-orders and payments; check the consistency conditions.

    Raises:
        BenchError: something failed.
    """
    judge = TpccJudge(options)
    with session(options, phases) as measured:
        with phases.phase("Drawing the population"):
            population = options.population()
        workload = inputs.Inputs(population, options.seed)
        measured.deploy("tpcc")
        first = measured.run.appender.appended
        measured.append(population.transactions(first), f"Loading {options.warehouses} warehouses")
        measured.throughput({"new-order and payment": workload})
        measured.latency(workload)
        found = measured.prove(judge)
        parameters = {
            "warehouses": options.warehouses, "items": options.items,
            "customers": options.customers, "districts": inputs.DISTRICTS,
        }  # fmt: skip
        given = answer("tpcc", measured, found, parameters)
        share = judge.new_orders / max(1, judge.new_orders + judge.payments)
        return {
            **given,
            "new_orders": judge.new_orders,
            "payments": judge.payments,
            "rolled_back": judge.rolled_back,
            "new_orders_per_s": round(given["txn_per_s"] * share, 1),
        }
