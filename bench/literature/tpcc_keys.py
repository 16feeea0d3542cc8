"""The keys of TPC-C's transactions: what a call declares, from its arguments and what is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.literature.procedures.tpcc import DISTRICTS, PART

__all__ = ["Keys", "delivery", "new_order", "order_status", "payment", "stock_level"]

_AHEAD = 8
"""Orders that others may have entered since a terminal last heard of its district."""

Args = Mapping[str, Any]


class Keys(NamedTuple):
    """The keys that a call may write, and those that it only reads."""

    keys: list[str]
    reads: list[str]


def new_order(args: Args, near: int) -> Keys:
    """Of a new-order; ``near``: the number that the order has, as far as its terminal knows."""
    w, d, number, lines = args["w"], args["d"], args["number"], args["lines"]
    stock = _different(f"s/{supply}/{item}" for item, supply, _ in lines)
    items = _different(f"i/{item}" for item, _, _ in lines)
    parts = _different([(near - 1) // PART, (near + _AHEAD - 1) // PART])
    index = [f"x/{w}/{d}/{part}" for part in parts]
    mine = [f"{table}/{w}/{d}/{number}" for table in ("o", "no", "ol")]
    keys = [f"d/{w}/{d}/next", f"last/{w}/{d}/{args['c']}", *index, *mine, *stock]
    return Keys(keys, [f"w/{w}", f"d/{w}/{d}", f"c/{w}/{d}/{args['c']}", *items])


def payment(args: Args) -> Keys:
    """Of a payment; the customer's number is known to whoever calls."""
    w, d, cw, cd, c = args["w"], args["d"], args["cw"], args["cd"], args["c"]
    customer, paid = f"c/{cw}/{cd}/{c}", f"h/{w}/{d}/{args['number']}"
    keys = [f"w/{w}/ytd", f"d/{w}/{d}/ytd", customer, f"{customer}/data", paid]
    return Keys(keys, _names(cw, cd, args["last"]))


def order_status(args: Args, number: int) -> Keys:
    """Of an order-status; ``number``: what the terminal gave the customer's last order."""
    w, d, c = args["w"], args["d"], args["c"]
    own = [f"c/{w}/{d}/{c}", f"last/{w}/{d}/{c}", f"o/{w}/{d}/{number}", f"ol/{w}/{d}/{number}"]
    return Keys([], [*own, *_names(w, d, args["last"])])


def delivery(args: Args, orders: Iterable[Sequence[int]]) -> Keys:
    """Of a delivery; ``orders``: district, number and customer of each that it delivers, and the
    part of the index that has it.
    """
    w, districts = args["w"], range(1, DISTRICTS + 1)
    keys = [f"d/{w}/{d}/first" for d in districts]
    reads = [f"d/{w}/{d}/next" for d in districts]
    for d, number, c, part in orders:
        keys += [f"{table}/{w}/{d}/{number}" for table in ("no", "o", "ol")]
        keys.append(f"c/{w}/{d}/{c}")
        reads.append(f"x/{w}/{d}/{part}")
    return Keys(keys, reads)


def stock_level(
    args: Args, numbers: Iterable[int], items: Iterable[int], parts: Iterable[int]
) -> Keys:
    """Of a stock-level: of the last orders their numbers, their items, their parts of the index."""
    w, d = args["w"], args["d"]
    reads = [f"d/{w}/{d}/next", *(f"x/{w}/{d}/{part}" for part in parts)]
    reads += [f"ol/{w}/{d}/{number}" for number in numbers]
    return Keys([], [*reads, *(f"s/{w}/{item}" for item in _different(items))])


def _names(w: int, d: int, last: str | None) -> list[str]:
    return [] if last is None else [f"n/{w}/{d}/{last}"]


def _different(named: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(named))
