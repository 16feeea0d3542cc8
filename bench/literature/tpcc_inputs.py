"""The inputs of TPC-C's transactions, seeded (clauses 2.1.6, 2.4 to 2.8, 5.2.3)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bench.literature import tpcc_keys as k
from bench.literature.tpcc_rows import DISTRICTS, Population, last_name, nurand

__all__ = ["FULL_MIX", "TWO", "Draws", "Inputs", "call_record"]

Args = dict[str, Any]

FULL_MIX: Final[Mapping[str, int]] = {
    "new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4,
}  # fmt: skip
"""The share of each transaction, in percent (5.2.3)."""

TWO: Final[Mapping[str, int]] = {name: FULL_MIX[name] for name in ("new_order", "payment")}
"""The two that write most, as systems without the other three measure them."""


class Draws:
    """What people at terminals choose."""

    def __init__(self, population: Population, rng: random.Random) -> None:
        """Draw for a population."""
        self.population, self.scale, self._rng = population, population.scale, rng
        constants = random.Random(f"tpcc constants {population.seed}")  # noqa: S311
        self._c_last, self._c_id, self._c_item = (
            constants.randrange(top) for top in (256, 1024, 8192)
        )

    def below(self, low: int, high: int) -> int:
        """A number of low to high."""
        return self._rng.randint(low, high)

    def warehouse(self) -> int:
        """Any warehouse."""
        return self.below(1, self.scale.warehouses)

    def customer(self) -> int:
        """A customer's number."""
        return nurand(self._rng, 1023, self._c_id, 1, self.scale.customers)

    def named(self, w: int, d: int) -> tuple[int, str | None]:
        """A customer of a district, in 60 % by last name (2.5.1.2)."""
        if self.below(1, 100) > 60:
            return self.customer(), None
        last = last_name(nurand(self._rng, 255, self._c_last, 0, self.scale.names - 1))
        same = self.population.names[w, d, last]
        return same[(len(same) - 1) // 2], last

    def lines(self, w: int) -> list[list[int]]:
        """The lines of an order; in 1 % of all orders, the last item does not exist (2.4.1.4)."""
        lines = [self._line(w) for _ in range(self.below(5, 15))]
        if self.below(1, 100) == 1:
            lines[-1][0] = self.scale.items + 1
        return lines

    def payment(self, w: int, number: int) -> Args:
        """The arguments of a payment at a warehouse (2.5.1)."""
        d = cd = self.below(1, DISTRICTS)
        cw = w
        if self.below(1, 100) > 85:
            cw, cd = self._other(w), self.below(1, DISTRICTS)
        c, last = self.named(cw, cd)
        return {
            "w": w, "d": d, "cw": cw, "cd": cd, "c": c, "last": last, "number": number,
            "amount": self.below(100, 500_000),
        }  # fmt: skip

    def _line(self, w: int) -> list[int]:
        item = nurand(self._rng, 8191, self._c_item, 1, self.scale.items)
        supply = self._other(w) if self.below(1, 100) == 1 else w
        return [item, supply, self.below(1, 10)]

    def _other(self, w: int) -> int:
        """A warehouse that is another one, if there is one."""
        count = self.scale.warehouses
        return (w - 1 + self.below(1, count - 1)) % count + 1 if count > 1 else w


class Inputs:
    """Transactions in the proportions of a mix, for a log that executes them in this order.

    All terminals write into one log, and know what they have written: so each knows the keys of the
    orders that it is about. The procedures find out by themselves, and would abort else.
    """

    changes_each = 13.0
    """Of new-orders 16 on average (ten stocks), of payments 4 or 5, of deliveries 50."""

    def __init__(
        self, population: Population, seed: int, mix: Mapping[str, int] = FULL_MIX
    ) -> None:
        """Draw inputs for a population; several may, one after the other."""
        self._books, self._mix = population.books, mix
        self._rng = random.Random(f"tpcc inputs {seed} {sorted(mix)}")  # noqa: S311
        self._draw = Draws(population, self._rng)

    def payloads(self, first: int, count: int) -> list[bytes]:
        """Make transactions; see `Workload.payloads`."""
        names = self._rng.choices(list(self._mix), list(self._mix.values()), k=count)
        return [self._call(name, number) for number, name in enumerate(names, first)]

    def of(self, name: str, number: int, place: tuple[int, int]) -> bytes:
        """Make one transaction of a terminal, of which ``place`` is the warehouse and district."""
        w, d = place
        if name == "stock_level":  # the only one about the terminal's own district (2.8.1.1)
            return call_record(name, number, *self._stock_level_of(w, d))
        return call_record(name, number, *getattr(self, f"_{name}")(number, w))

    def _call(self, name: str, number: int) -> bytes:
        args, declared = getattr(self, f"_{name}")(number, self._draw.warehouse())
        return call_record(name, number, args, declared)

    def _new_order(self, number: int, w: int) -> tuple[Args, k.Keys]:
        draw = self._draw
        d, c = draw.below(1, DISTRICTS), draw.customer()
        lines, book = draw.lines(w), self._books[w, d]
        args = {"w": w, "d": d, "c": c, "number": number, "lines": lines}
        declared = k.new_order(args, book.following)
        if lines[-1][0] <= draw.scale.items:
            book.enter(number, c, tuple(item for item, _, _ in lines))
        return args, declared

    def _payment(self, number: int, w: int) -> tuple[Args, k.Keys]:
        args = self._draw.payment(w, number)
        return args, k.payment(args)

    def _order_status(self, _number: int, w: int) -> tuple[Args, k.Keys]:
        d = self._draw.below(1, DISTRICTS)
        c, last = self._draw.named(w, d)
        args = {"w": w, "d": d, "c": c, "last": last}
        return args, k.order_status(args, self._books[w, d].last[c])

    def _delivery(self, _number: int, w: int) -> tuple[Args, k.Keys]:
        orders = []
        args = {"w": w, "carrier": self._draw.below(1, 10)}
        for d in range(1, DISTRICTS + 1):
            taken = self._books[w, d].deliver()
            if taken is not None:
                orders.append((d, *taken))
        return args, k.delivery(args, orders)

    def _stock_level(self, _number: int, w: int) -> tuple[Args, k.Keys]:
        return self._stock_level_of(w, self._draw.below(1, DISTRICTS))

    def _stock_level_of(self, w: int, d: int) -> tuple[Args, k.Keys]:
        args = {"w": w, "d": d, "threshold": self._draw.below(10, 20)}
        book = self._books[w, d]
        numbers = [number for number, _ in book.recent]
        items = [item for _, items in book.recent for item in items]
        return args, k.stock_level(args, numbers, items, book.parts())


def call_record(name: str, number: int, args: Args, declared: k.Keys) -> bytes:
    """The transaction that calls a procedure."""
    call = {
        "procedure": f"tpcc.{name}", "args": args, "keys": declared.keys, "reads": declared.reads,
    }  # fmt: skip
    return msgspec.json.encode({"id": f"t{number}", "call": call})
