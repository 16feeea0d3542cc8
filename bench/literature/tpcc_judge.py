"""The consistency conditions of TPC-C (standard specification 5.11, clause 3.3.2)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

from bench.literature.judging import (
    Answered,
    Base,
    Changed,
    Invariant,
    LastValues,
    invariant,
    number_of,
)
from bench.literature.procedures.tpcc import PART
from bench.literature.tpcc_rows import DISTRICTS, Scale

__all__ = ["TpccJudge"]

_ROLLED_BACK: Final = "item number is not valid"
_RETURNED: Final = {
    "total": "new_order", "shown": "order_status", "delivered": "delivery", "low": "stock_level",
    "balance": "payment",
}  # fmt: skip
"""What a transaction returns tells which one it is: the first of these."""

_District = tuple[str, str]


class TpccJudge(Base):
    """All twelve conditions, and what else must hold of orders that were answered.

    Attributes:
        committed: how many of each transaction have committed.
        rolled_back: how many new-orders had an item that does not exist.
        stale: how many were aborted, because their terminal knew too little of the orders.
    """

    def __init__(self, scale: Scale) -> None:
        """Nothing is known of a database of this size."""
        self._scale = scale
        self._tables: dict[str, LastValues] = defaultdict(LastValues)
        self._entered: dict[int, int] = {}
        self._delivered = 0
        self._shown: list[dict[str, Any]] = []
        self._odd: list[str] = []
        self.committed: Counter[str] = Counter()
        self.rolled_back = self.stale = 0

    def answered(self, result: Answered) -> None:
        """Keep the number of an order; count."""
        if result.committed:
            if isinstance(result.returned, dict):
                self._committed(number_of(result.id), result.returned)
        elif result.reason == _ROLLED_BACK:
            self.rolled_back += 1
        elif result.code == "undeclared-key":
            self.stale += 1
        else:
            self._odd.append(f"{result.id} is {result.status}: {result.code} {result.reason or ''}")

    def _committed(self, number: int, told: dict[str, Any]) -> None:
        name = next(name for field, name in _RETURNED.items() if field in told)
        self.committed[name] += 1
        if name == "new_order":
            self._entered[number] = told["order"]
        elif name == "delivery":
            self._delivered += len(told["delivered"])
        elif name == "order_status":
            self._shown.append(told)

    def changed(self, change: Changed) -> None:
        """Take over a row."""
        self._tables[change.key.partition("/")[0]].take(change)

    def invariants(self) -> list[Invariant]:
        """The conditions, by the numbers that the specification gives them."""
        warehouses, districts = self._scale.warehouses, len(self._districts())
        orders, paid = len(self._tables["o"]), len(self._tables["h"])
        customers = districts * self._scale.customers
        return [
            invariant("only orders of an invalid item abort", self.rolled_back, self._odd),
            invariant("each committed order is there", len(self._entered), self._missing()),
            invariant("condition 1: W_YTD = sum(D_YTD)", warehouses, self._ytd()),
            invariant(
                "condition 2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)", districts, self._next()
            ),
            invariant("condition 3: NO_O_IDs have no gap", districts, self._gaps()),
            invariant("condition 4: sum(O_OL_CNT) = lines", districts, self._lines()),
            invariant("condition 5: no carrier if and only if a new-order", orders, self._open()),
            invariant("condition 6: O_OL_CNT = lines of the order", orders, self._order_lines()),
            invariant("condition 7: no delivery if and only if no carrier", orders, self._dates()),
            invariant("conditions 8, 9: YTD = sum(H_AMOUNT)", paid, self._history()),
            invariant(
                "condition 10: C_BALANCE = sum(delivered OL_AMOUNT) - sum(H_AMOUNT)", customers,
                self._balances(),
            ),
            invariant("condition 11: orders - new-orders = delivered", districts, self._counts()),
            invariant(
                "condition 12: C_BALANCE + C_YTD_PAYMENT = sum(delivered OL_AMOUNT)", customers,
                self._worth(),
            ),
            invariant("S_YTD = sum(OL_QUANTITY)", len(self._tables["s"]), self._stock()),
            invariant("the index has each order", orders, self._indexed()),
            invariant("an order-status shows whole orders", len(self._shown), self._halves()),
        ]  # fmt: skip

    def _districts(self) -> list[_District]:
        count = self._scale.warehouses
        return [(str(w), str(d)) for w in range(1, count + 1) for d in range(1, DISTRICTS + 1)]

    def _rows(self, table: str) -> Iterator[tuple[_District, str, Any]]:
        """Rows of a table of orders or history: district, number, row."""
        for key, row in self._tables[table].items():
            _, w, d, number = key.split("/")
            yield (w, d), number, row

    def _missing(self) -> Iterator[str]:
        stored = {int(number): row["id"] for _, number, row in self._rows("o") if number[0] != "-"}
        for number in self._entered.keys() | stored.keys():
            found, told = stored.get(number), self._entered.get(number)
            if found != told:
                yield f"t{number} was told order {told}, and {found} is there"

    def _ytd(self) -> Iterator[str]:
        for w in range(1, self._scale.warehouses + 1):
            found = self._tables["w"].get(f"w/{w}/ytd")
            total = sum(self._tables["d"].get(f"d/{w}/{d}/ytd", 0) for d in range(1, DISTRICTS + 1))
            if found != total:
                yield f"warehouse {w}: {found}, and its districts {total}"

    def _numbers(self, table: str) -> dict[_District, list[int]]:
        found: dict[_District, list[int]] = {district: [] for district in self._districts()}
        for district, _, row in self._rows(table):
            found[district].append(row["id"] if table == "o" else row)
        return found

    def _next(self) -> Iterator[str]:
        """Where all is delivered, there is no new-order to compare with."""
        orders, new_orders = self._numbers("o"), self._numbers("no")
        for w, d in self._districts():
            following = self._tables["d"].get(f"d/{w}/{d}/next", 0)
            last = max(orders[w, d], default=0)
            if (following - 1, following - 1) != (last, max(new_orders[w, d], default=last)):
                yield f"district {w}/{d}: next {following}, last order {last}, or new-order"

    def _gaps(self) -> Iterator[str]:
        for (w, d), numbers in self._numbers("no").items():
            if numbers and max(numbers) - min(numbers) + 1 != len(numbers):
                span = f"{min(numbers)} to {max(numbers)}"
                yield f"district {w}/{d}: {len(numbers)} new-orders numbered {span}"
            if len(set(numbers)) != len(numbers):
                yield f"district {w}/{d}: a number twice"

    def _counts(self) -> Iterator[str]:
        """At first the difference is 2,100 (of 3,000 orders); deliveries tell what they add."""
        orders, new_orders = self._numbers("o"), self._numbers("no")
        delivered = 0
        for w, d in self._districts():
            more = len(orders[w, d]) - len(new_orders[w, d]) - self._scale.delivered
            first = self._tables["d"].get(f"d/{w}/{d}/first", 0)
            if more != first - 1 - self._scale.delivered:
                yield f"district {w}/{d}: {more} more are delivered, and {first} is the next"
            delivered += more
        if delivered != self._delivered:
            yield f"{delivered} are delivered, and deliveries told of {self._delivered}"

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

    def _open(self) -> Iterator[str]:
        waiting = {(place, number) for place, number, _ in self._rows("no")}
        for place, number, row in self._rows("o"):
            if (row["carrier"] is None) != ((place, number) in waiting):
                yield f"order {row['id']} of {place}: carrier {row['carrier']}"

    def _order_lines(self) -> Iterator[str]:
        lines = {(place, n): len(row["lines"]) for place, n, row in self._rows("ol")}
        for place, number, row in self._rows("o"):
            if lines.get((place, number)) != row["lines"]:
                found = lines.get((place, number))
                yield f"order {row['id']} of {place}: {row['lines']} lines told, {found} there"

    def _dates(self) -> Iterator[str]:
        carriers = {(place, n): row["carrier"] for place, n, row in self._rows("o")}
        for place, number, row in self._rows("ol"):
            if (row["delivered"] is None) != (carriers.get((place, number)) is None):
                yield f"order {row['order']} of {place}: delivered {row['delivered']}"

    def _history(self) -> Iterator[str]:
        of_district: Counter[_District] = Counter()
        for district, _, row in self._rows("h"):
            of_district[district] += row["amount"]
        for w, d in self._districts():
            found = self._tables["d"].get(f"d/{w}/{d}/ytd", 0)
            if found != of_district[w, d]:
                yield f"district {w}/{d}: {found}, and {of_district[w, d]} paid"
        for w in {warehouse for warehouse, _ in self._districts()}:
            found = self._tables["w"].get(f"w/{w}/ytd", 0)
            paid = sum(amount for (home, _), amount in of_district.items() if home == w)
            if found != paid:
                yield f"warehouse {w}: {found}, and {paid} paid"

    def _customers(self) -> Iterator[tuple[str, Any]]:
        rows = self._tables["c"].items()
        return ((key, row) for key, row in rows if not key.endswith("/data"))

    def _paid(self) -> Counter[str]:
        """What each customer has paid."""
        paid: Counter[str] = Counter()
        for _, _, row in self._rows("h"):
            paid[f"c/{row['cw']}/{row['cd']}/{row['c']}"] += row["amount"]
        return paid

    def _owed(self) -> Counter[str]:
        """What has been delivered to each customer, by its price."""
        customers = {(place, n): row["c"] for place, n, row in self._rows("o")}
        owed: Counter[str] = Counter()
        for place, number, row in self._rows("ol"):
            if row["delivered"] is not None:
                key = f"c/{place[0]}/{place[1]}/{customers.get((place, number))}"
                owed[key] += sum(amount for *_, amount in row["lines"])
        return owed

    def _balances(self) -> Iterator[str]:
        paid, owed = self._paid(), self._owed()
        for key, row in self._customers():
            if row["balance"] != owed[key] - paid[key]:
                yield f"{key}: balance {row['balance']}, not {owed[key]} less {paid[key]}"

    def _worth(self) -> Iterator[str]:
        owed = self._owed()
        for key, row in self._customers():
            if row["balance"] + row["paid"] != owed[key]:
                yield f"{key}: balance and paid {row['balance'], row['paid']}, not {owed[key]}"

    def _stock(self) -> Iterator[str]:
        """What the initial orders took was not counted."""
        taken: Counter[str] = Counter()
        for _, number, row in self._rows("ol"):
            if number[0] != "-":
                for item, supply, quantity, _ in row["lines"]:
                    taken[f"s/{supply}/{item}"] += quantity
        for key, (_, ytd, *_) in self._tables["s"].items():
            if ytd != taken[key]:
                yield f"{key}: {ytd} delivered, {taken[key]} ordered"

    def _indexed(self) -> Iterator[str]:
        index = {(place, int(part)): row for place, part, row in self._rows("x")}
        for place, number, row in self._rows("o"):
            part, at = divmod(row["id"] - 1, PART)
            found = index.get((place, part), [])[at : at + 1]
            if found != [int(number)]:
                yield f"order {row['id']} of {place}: its number is {number}, the index has {found}"

    def _halves(self) -> Iterator[str]:
        for told in self._shown:
            undelivered = told["delivered"] is None
            if told["told"] != told["shown"] or (told["carrier"] is None) != undelivered:
                yield f"order {told['number']} of customer {told['c']} was shown as {told}"
