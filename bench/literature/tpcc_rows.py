"""The population of TPC-C, seeded (clause 4.3).

Text columns that no transaction looks at are left out; see docs/benchmarks.md.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np

from bench.literature.procedures.tpcc import DISTRICTS, PART, RECENT

__all__ = [
    "BALANCE", "DISTRICTS", "PAID", "Book", "Population", "Scale", "last_name", "nurand",
]  # fmt: skip

PAID: Final = 1_000
BALANCE: Final = -PAID
"""Cents of a customer at the beginning (4.3.3): there is one payment of each."""

INITIAL_QUANTITY: Final = 5
_ENTRY_MS: Final = 1_000
"""When the initial orders were entered."""

_SYLLABLES: Final = (
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
)  # fmt: skip
_NAMES: Final = 1_000
_PUTS_A_LOAD: Final = 50
_DATA: Final = "c" * 300

Puts = Iterator[tuple[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The size of a database; the specification has 100,000 items, 3,000 customers a district."""

    warehouses: int
    items: int = 100_000
    customers: int = 3_000

    @property
    def names(self) -> int:
        """How many last names there are: each is somebody's."""
        return min(_NAMES, self.customers)

    @property
    def delivered(self) -> int:
        """How many of the initial orders of a district are delivered (2,100 of 3,000)."""
        return self.customers * 7 // 10


def last_name(number: int) -> str:
    """The last name of a number of three digits (4.3.2.3)."""
    return "".join(_SYLLABLES[int(digit)] for digit in f"{number:03d}")


def nurand(rng: random.Random, a: int, c: int, low: int, high: int) -> int:
    """A number that is not drawn uniformly (2.1.6)."""
    return ((rng.randint(0, a) | rng.randint(low, high)) + c) % (high - low + 1) + low


class Book:
    """The knowledge of a district's terminals: orders that later transactions are about.

    Attributes:
        following: the number of the next order.
        first: that of the oldest one that is not delivered.
        undelivered: terminal's number and customer of each order from ``first`` on.
        recent: terminal's number and items of the last orders.
        last: the terminal's number of each customer's last order.
    """

    __slots__ = ("first", "following", "last", "recent", "undelivered")

    def __init__(self) -> None:
        """There is no order yet."""
        self.following = self.first = 1
        self.undelivered: deque[tuple[int, int]] = deque()
        self.recent: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=RECENT)
        self.last: dict[int, int] = {}

    def enter(self, number: int, c: int, items: tuple[int, ...]) -> None:
        """Note an order."""
        self.following += 1
        self.undelivered.append((number, c))
        self.recent.append((number, items))
        self.last[c] = number

    def deliver(self) -> tuple[int, int, int] | None:
        """Take the oldest order: its terminal's number, its customer, and its part of the index."""
        if not self.undelivered:
            return None
        part = (self.first - 1) // PART
        self.first += 1
        return (*self.undelivered.popleft(), part)

    def parts(self) -> list[int]:
        """The parts of the index that have the recent orders."""
        first = max(1, self.following - RECENT)
        return list(range((first - 1) // PART, (self.following - 2) // PART + 1))


@dataclass(slots=True)
class Population:
    """All rows, who has which last name, and what terminals know of the orders."""

    scale: Scale
    seed: int
    names: dict[tuple[int, int, str], list[int]] = field(default_factory=dict)
    books: dict[tuple[int, int], Book] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Give everybody a name, each name once, then as drawn; and an order."""
        rng, scale = np.random.default_rng([self.seed, 1]), self.scale
        drawn = random.Random(f"tpcc names {self.seed}")  # noqa: S311
        for w, d in self._districts():
            firsts = rng.random(scale.customers)
            for c in (np.argsort(firsts) + 1).tolist():
                number = c - 1 if c <= scale.names else nurand(drawn, 255, 0, 0, scale.names - 1)
                self.names.setdefault((w, d, last_name(number)), []).append(c)
            self.books[w, d], _ = self._orders(w, d)

    def transactions(self, first: int) -> Iterator[bytes]:
        """Transactions that put all rows, numbered from `first`."""
        rows = self._rows()
        number = first
        while part := list(islice(rows, _PUTS_A_LOAD)):
            puts = [{"op": "put", "key": key, "value": value} for key, value in part]
            yield msgspec.json.encode({"id": f"t{number}", "updates": puts})
            number += 1

    def _districts(self) -> Iterator[tuple[int, int]]:
        for w in range(1, self.scale.warehouses + 1):
            yield from ((w, d) for d in range(1, DISTRICTS + 1))

    def _rows(self) -> Puts:
        rng = np.random.default_rng([self.seed, 2])
        for item, price in enumerate(rng.integers(100, 10_001, self.scale.items).tolist(), 1):
            yield f"i/{item}", {"name": f"item {item}", "price": price}
        for w in range(1, self.scale.warehouses + 1):
            yield from self._warehouse(rng, w)
        for (w, d, last), customers in self.names.items():
            yield f"n/{w}/{d}/{last}", customers

    def _warehouse(self, rng: np.random.Generator, w: int) -> Puts:
        paid = PAID * self.scale.customers
        yield f"w/{w}", {"name": f"warehouse {w}", "tax": int(rng.integers(0, 2_001))}
        yield f"w/{w}/ytd", paid * DISTRICTS
        for item, quantity in enumerate(rng.integers(10, 101, self.scale.items).tolist(), 1):
            yield f"s/{w}/{item}", [quantity, 0, 0, 0]
        for d in range(1, DISTRICTS + 1):
            yield f"d/{w}/{d}", {"tax": int(rng.integers(0, 2_001))}
            yield f"d/{w}/{d}/ytd", paid
            yield f"d/{w}/{d}/next", self.scale.customers + 1
            yield f"d/{w}/{d}/first", self.scale.delivered + 1
            yield from self._customers(rng, w, d)
            for table, key, value in self._orders(w, d)[1]:
                yield f"{table}/{w}/{d}/{key}", value

    def _customers(self, rng: np.random.Generator, w: int, d: int) -> Puts:
        count = self.scale.customers
        discounts, bad = rng.integers(0, 5_001, count).tolist(), (rng.random(count) < 0.1).tolist()
        row = {"balance": BALANCE, "paid": PAID, "payments": 1, "deliveries": 0}
        paid = {"cd": d, "cw": w, "d": d, "w": w, "date": _ENTRY_MS, "amount": PAID}
        for c, (discount, is_bad) in enumerate(zip(discounts, bad, strict=True), 1):
            yield f"c/{w}/{d}/{c}", {**row, "discount": discount, "bad": is_bad}
            if is_bad:
                yield f"c/{w}/{d}/{c}/data", _DATA
            yield f"h/{w}/{d}/{-c}", {"c": c, **paid}

    def _orders(self, w: int, d: int) -> tuple[Book, list[tuple[str, int, Any]]]:
        """The initial orders of a district, one of each customer, in an order that is drawn, and
        what its terminals know of them. Their numbers, as terminals give them, are negative.
        """
        rng, scale = np.random.default_rng([self.seed, 3, w, d]), self.scale
        customers = (rng.permutation(scale.customers) + 1).tolist()
        counts = rng.integers(5, 16, scale.customers).tolist()
        carriers = rng.integers(1, 11, scale.customers).tolist()
        items = iter(rng.integers(1, scale.items + 1, sum(counts)).tolist())
        amounts = iter(rng.integers(1, 1_000_000, sum(counts)).tolist())
        book, rows = Book(), []
        for order, (c, count) in enumerate(zip(customers, counts, strict=True), 1):
            done = order <= scale.delivered
            lines = [
                [item, w, INITIAL_QUANTITY, 0 if done else amount]
                for item, amount in zip(islice(items, count), islice(amounts, count), strict=True)
            ]
            row = {
                "id": order, "c": c, "entry": _ENTRY_MS, "lines": count, "local": True,
                "carrier": carriers[order - 1] if done else None,
            }  # fmt: skip
            told = {"order": order, "lines": lines, "delivered": _ENTRY_MS if done else None}
            rows += [("o", -order, row), ("ol", -order, told), ("last", c, -order)]
            if not done:
                rows.append(("no", -order, order))
            book.enter(-order, c, tuple(item for item, *_ in lines))
        for _ in range(scale.delivered):
            book.deliver()
        for part in range((scale.customers - 1) // PART + 1):
            entered = range(part * PART + 1, min((part + 1) * PART, scale.customers) + 1)
            rows.append(("x", part, [-order for order in entered]))
        return book, rows
