"""The population and the inputs of TPC-C's new-order and payment, seeded (clauses 2.1.6, 2.4, 4.3).

Text columns that no transaction looks at are left out, and so are the orders that the specification
loads before the run; see docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np

__all__ = ["DISTRICTS", "Inputs", "Population", "Scale", "last_name", "nurand"]

DISTRICTS: Final = 10
"""Of a warehouse."""

WAREHOUSE_YTD: Final = 30_000_000
DISTRICT_YTD: Final = 3_000_000
BALANCE: Final = -1_000
PAID: Final = 1_000
"""Cents at the beginning (4.3.3)."""

_SYLLABLES: Final = (
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
)  # fmt: skip
_NAMES: Final = 1_000
_PUTS_A_LOAD: Final = 50
_DATA: Final = "c" * 300

Puts = Iterator[tuple[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large it is; the specification has 100,000 items, and 3,000 customers of a district."""

    warehouses: int
    items: int
    customers: int

    @property
    def names(self) -> int:
        """How many last names there are: each is somebody's."""
        return min(_NAMES, self.customers)


def last_name(number: int) -> str:
    """The last name of a number of three digits (4.3.2.3)."""
    return "".join(_SYLLABLES[int(digit)] for digit in f"{number:03d}")


def nurand(rng: np.random.Generator, a: int, c: int, low: int, high: int) -> int:
    """A number that is not drawn uniformly (2.1.6)."""
    drawn = int(rng.integers(0, a + 1)) | int(rng.integers(low, high + 1))
    return (drawn + c) % (high - low + 1) + low


@dataclass(slots=True)
class Population:
    """All rows, and who has which last name."""

    scale: Scale
    seed: int
    names: dict[tuple[int, int, str], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Give everybody a name: each name once, then as drawn."""
        rng, scale = np.random.default_rng([self.seed, 1]), self.scale
        for w in range(1, scale.warehouses + 1):
            for d in range(1, DISTRICTS + 1):
                firsts = rng.random(scale.customers)
                for c in (np.argsort(firsts) + 1).tolist():
                    number = c - 1 if c <= scale.names else nurand(rng, 255, 0, 0, scale.names - 1)
                    self.names.setdefault((w, d, last_name(number)), []).append(c)

    def transactions(self, first: int) -> Iterator[bytes]:
        """Transactions that put all rows, numbered from `first`."""
        rows = self._rows()
        number = first
        while part := list(islice(rows, _PUTS_A_LOAD)):
            puts = [{"op": "put", "key": key, "value": value} for key, value in part]
            yield msgspec.json.encode({"id": f"t{number}", "updates": puts})
            number += 1

    def _rows(self) -> Puts:
        rng = np.random.default_rng([self.seed, 2])
        for item, price in enumerate(rng.integers(100, 10_001, self.scale.items).tolist(), 1):
            yield f"i/{item}", {"name": f"item {item}", "price": price}
        for w in range(1, self.scale.warehouses + 1):
            yield from self._warehouse(rng, w)
        for (w, d, last), customers in self.names.items():
            yield f"n/{w}/{d}/{last}", customers

    def _warehouse(self, rng: np.random.Generator, w: int) -> Puts:
        yield f"w/{w}", {"name": f"warehouse {w}", "tax": int(rng.integers(0, 2_001))}
        yield f"w/{w}/ytd", WAREHOUSE_YTD
        for item, quantity in enumerate(rng.integers(10, 101, self.scale.items).tolist(), 1):
            yield f"s/{w}/{item}", {"quantity": quantity, "ytd": 0, "orders": 0, "remote": 0}
        for d in range(1, DISTRICTS + 1):
            yield f"d/{w}/{d}", {"tax": int(rng.integers(0, 2_001))}
            yield f"d/{w}/{d}/ytd", DISTRICT_YTD
            yield f"d/{w}/{d}/next", 1
            yield from self._customers(rng, w, d)

    def _customers(self, rng: np.random.Generator, w: int, d: int) -> Puts:
        count = self.scale.customers
        discounts, bad = rng.integers(0, 5_001, count).tolist(), (rng.random(count) < 0.1).tolist()
        for c, (discount, is_bad) in enumerate(zip(discounts, bad, strict=True), 1):
            row = {"balance": BALANCE, "paid": PAID, "payments": 1}
            yield f"c/{w}/{d}/{c}", {**row, "discount": discount, "bad": is_bad}
            if is_bad:
                yield f"c/{w}/{d}/{c}/data", _DATA


class Inputs:
    """Transactions in the proportion of the specification's mix, 45 new-orders to 43 payments."""

    changes_each = 13.0
    """Of new-orders 14 on average (ten stocks), of payments 4 or 5."""

    _NEW_ORDERS: Final = 45 / 88

    def __init__(self, population: Population, seed: int) -> None:
        """Draw inputs for a population."""
        self._population, self._scale = population, population.scale
        self._rng = np.random.default_rng([seed, 3])
        constants = self._rng.integers(0, (256, 1024, 8192)).tolist()
        self._c_last, self._c_id, self._c_item = (int(constant) for constant in constants)

    def payloads(self, first: int, count: int) -> list[bytes]:
        """Make transactions; see `Workload.payloads`."""
        new_orders = (self._rng.random(count) < self._NEW_ORDERS).tolist()
        return [
            self._new_order(number) if is_new_order else self._payment(number)
            for number, is_new_order in enumerate(new_orders, first)
        ]

    def _below(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high + 1))

    def _customer(self) -> int:
        return nurand(self._rng, 1023, self._c_id, 1, self._scale.customers)

    def _other(self, w: int) -> int:
        """A warehouse that is another one, if there is one."""
        count = self._scale.warehouses
        return (w - 1 + self._below(1, count - 1)) % count + 1 if count > 1 else w

    def _new_order(self, number: int) -> bytes:
        w, d, c = self._below(1, self._scale.warehouses), self._below(1, DISTRICTS), 0
        c = self._customer()
        lines = [self._line(w) for _ in range(self._below(5, 15))]
        if self._below(1, 100) == 1:
            lines[-1][0] = self._scale.items + 1
        args = {"w": w, "d": d, "c": c, "number": number, "lines": lines}
        items = {item for item, _, _ in lines}
        stock = {(supply, item) for item, supply, _ in lines}
        keys = [f"d/{w}/{d}/next", *(f"{table}/{w}/{d}/{number}" for table in ("o", "no", "ol"))]
        keys += [f"s/{supply}/{item}" for supply, item in sorted(stock)]
        reads = [f"w/{w}", f"d/{w}/{d}", f"c/{w}/{d}/{c}", *(f"i/{item}" for item in sorted(items))]
        return _call(number, "tpcc.new_order", args, keys, reads)

    def _line(self, w: int) -> list[int]:
        item = nurand(self._rng, 8191, self._c_item, 1, self._scale.items)
        supply = self._other(w) if self._below(1, 100) == 1 else w
        return [item, supply, self._below(1, 10)]

    def _payment(self, number: int) -> bytes:
        w, d = self._below(1, self._scale.warehouses), self._below(1, DISTRICTS)
        cw, cd, last = w, d, None
        if self._below(1, 100) > 85:
            cw, cd = self._other(w), self._below(1, DISTRICTS)
        c = self._customer()
        if self._below(1, 100) <= 60:
            last = last_name(nurand(self._rng, 255, self._c_last, 0, self._scale.names - 1))
            same = self._population.names[cw, cd, last]
            c = same[(len(same) - 1) // 2]
        args = {
            "w": w, "d": d, "cw": cw, "cd": cd, "c": c, "last": last, "number": number,
            "amount": self._below(100, 500_000),
        }  # fmt: skip
        keys = [
            f"w/{w}/ytd", f"d/{w}/{d}/ytd", f"c/{cw}/{cd}/{c}", f"c/{cw}/{cd}/{c}/data",
            f"h/{w}/{d}/{number}",
        ]  # fmt: skip
        reads = [] if last is None else [f"n/{cw}/{cd}/{last}"]
        return _call(number, "tpcc.payment", args, keys, reads)


def _call(
    number: int, procedure: str, args: dict[str, Any], keys: Iterable[str], reads: Iterable[str]
) -> bytes:
    call = {"procedure": procedure, "args": args, "keys": list(keys), "reads": list(reads)}
    return msgspec.json.encode({"id": f"t{number}", "call": call})
