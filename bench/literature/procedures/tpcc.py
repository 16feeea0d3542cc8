"""The five transactions of TPC-C (standard specification 5.11, clauses 2.4 to 2.8).

Money is in cents, taxes and discounts in hundredths of a percent. Rows are divided where the
specification allows it (clause 1.4): what every transaction writes stands under a key of its own.
The number of an order is drawn inside of the transaction, and keys must be known before, so an
order lies under the number that its terminal gave it, and holds its own. An index tells the one of
the other; its key needs only part of the order's number, so a terminal need not know it exactly.
Whoever calls names the keys (`bench/literature/tpcc_keys.py`). What it did not know of the orders
ends the transaction with `undeclared-key`, and it looks again.

- `w/<w>`, `w/<w>/ytd`: warehouse; `d/<w>/<d>`, `.../ytd`, `.../next`, `.../first`: district, the
  number of its next order, and of its oldest one that is not delivered
- `i/<i>`: item; `s/<w>/<i>`: stock, as `[quantity, ytd, orders, remote]`
- `c/<w>/<d>/<c>`, `.../data`; `n/<w>/<d>/<last name>`: numbers of customers by first name
- `o`, `no`, `ol`, `h` `/<w>/<d>/<number>`: order, new-order, its lines, history; a line is
  `[item, supplying warehouse, quantity, amount]`
- `x/<w>/<d>/<part>`: the terminals' numbers of `PART` orders; `last/<w>/<d>/<c>`: of the customer's
  last one
"""

from __future__ import annotations

from typing import Any

from streamydb.procedures import Abort

WHOLE = 10_000
DATA_CHARACTERS = 500
DISTRICTS = 10
PART = 32
RECENT = 20


def new_order(db: Any, w: int, d: int, c: int, number: int, lines: list[list[int]]) -> Any:
    """Enter an order; lines: item, supplying warehouse, quantity."""
    tax = db.get(f"w/{w}")["tax"] + db.get(f"d/{w}/{d}")["tax"]
    customer = db.get(f"c/{w}/{d}/{c}")
    order = db.add(f"d/{w}/{d}/next", 1) - 1
    entered = []
    amount, local = 0, True
    for item, supply, quantity in lines:
        found = db.get(f"i/{item}")
        if found is None:  # it rolls the order back (2.4.2.3)
            raise Abort("item number is not valid")
        key = f"s/{supply}/{item}"
        stock, ytd, orders, remote = db.get(key)
        stock -= quantity
        if stock < 10:
            stock += 91
        if supply != w:
            local = False
            remote += 1
        db.put(key, [stock, ytd + quantity, orders + 1, remote])
        price = quantity * found["price"]
        amount += price
        entered.append([item, supply, quantity, price])
    row = {
        "id": order,
        "c": c,
        "entry": db.now,
        "lines": len(lines),
        "local": local,
        "carrier": None,
    }
    db.put(f"o/{w}/{d}/{number}", row)
    db.put(f"no/{w}/{d}/{number}", order)
    db.put(f"ol/{w}/{d}/{number}", {"order": order, "lines": entered, "delivered": None})
    db.put(f"last/{w}/{d}/{c}", number)
    db.append(f"x/{w}/{d}/{(order - 1) // PART}", number)
    total = amount * (WHOLE - customer["discount"]) * (WHOLE + tax) // (WHOLE * WHOLE)
    return {"order": order, "total": total}


def payment(
    db: Any, w: int, d: int, cw: int, cd: int, c: int, last: str | None, number: int, amount: int
) -> Any:
    """Take a customer's money; by last name it is the one in the middle (2.5.2.2)."""
    if last is not None:
        c = _middle(db.get(f"n/{cw}/{cd}/{last}"))
    db.add(f"w/{w}/ytd", amount)
    db.add(f"d/{w}/{d}/ytd", amount)
    key = f"c/{cw}/{cd}/{c}"
    customer = db.get(key)
    customer["balance"] -= amount
    customer["paid"] += amount
    customer["payments"] += 1
    db.put(key, customer)
    if customer["bad"]:
        told = f"{c} {cd} {cw} {d} {w} {amount}|{db.get(key + '/data', '')}"
        db.put(key + "/data", told[:DATA_CHARACTERS])
    row = {"c": c, "cd": cd, "cw": cw, "d": d, "w": w, "date": db.now, "amount": amount}
    db.put(f"h/{w}/{d}/{number}", row)
    return {"c": c, "balance": customer["balance"]}


def _middle(same: list[int]) -> int:
    """The customer in the middle of those with one last name."""
    return same[(len(same) - 1) // 2]


def order_status(db: Any, w: int, d: int, c: int, last: str | None) -> Any:
    """Tell a customer's balance, and the last order with its lines."""
    if last is not None:
        c = _middle(db.get(f"n/{w}/{d}/{last}"))
    number = db.get(f"last/{w}/{d}/{c}")
    order, lines = db.get(f"o/{w}/{d}/{number}"), db.get(f"ol/{w}/{d}/{number}")
    return {
        "balance": db.get(f"c/{w}/{d}/{c}")["balance"],
        "number": number,
        "c": order["c"],
        "carrier": order["carrier"],
        "told": order["lines"],
        "shown": len(lines["lines"]),
        "delivered": lines["delivered"],
    }


def delivery(db: Any, w: int, carrier: int) -> Any:
    """Deliver the oldest order of each district that has one (2.7.4)."""
    delivered = []
    for d in range(1, DISTRICTS + 1):
        order = db.get(f"d/{w}/{d}/first")
        if order < db.get(f"d/{w}/{d}/next"):
            number = db.get(f"x/{w}/{d}/{(order - 1) // PART}")[(order - 1) % PART]
            _deliver(db, w, d, number, carrier)
            db.put(f"d/{w}/{d}/first", order + 1)
            delivered.append([d, order])
    return {"delivered": delivered}


def _deliver(db: Any, w: int, d: int, number: int, carrier: int) -> None:
    db.delete(f"no/{w}/{d}/{number}")
    order = db.get(f"o/{w}/{d}/{number}")
    order["carrier"] = carrier
    db.put(f"o/{w}/{d}/{number}", order)
    lines = db.get(f"ol/{w}/{d}/{number}")
    lines["delivered"] = db.now
    db.put(f"ol/{w}/{d}/{number}", lines)
    key = f"c/{w}/{d}/{order['c']}"
    customer = db.get(key)
    customer["balance"] += sum([amount for _, _, _, amount in lines["lines"]])
    customer["deliveries"] += 1
    db.put(key, customer)


def stock_level(db: Any, w: int, d: int, threshold: int) -> Any:
    """Count the items of the last orders of which there is little left (2.8.2)."""
    after = db.get(f"d/{w}/{d}/next")
    first = max(1, after - RECENT)
    index = []
    for part in range((first - 1) // PART, (after - 2) // PART + 1):
        index += db.get(f"x/{w}/{d}/{part}")
    start = (first - 1) % PART
    seen = {}
    for number in index[start : start + after - first]:
        for item, _, _, _ in db.get(f"ol/{w}/{d}/{number}")["lines"]:
            seen[f"s/{w}/{item}"] = True
    low = 0
    for key in seen:
        if db.get(key)[0] < threshold:
            low += 1
    return {"low": low, "orders": after - first, "items": len(seen)}
