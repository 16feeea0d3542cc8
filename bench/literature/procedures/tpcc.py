"""New-order and payment of TPC-C (standard specification 5.11, clauses 2.4 and 2.5).

Money is in cents, taxes and discounts in hundredths of a percent. Rows are divided where the
specification allows it (clause 1.4): what every transaction writes stands under a key of its own.
The number of an order is drawn inside of the transaction, and keys must be known before, so an
order lies under the number that its terminal gave it, and holds its own.

- `w/<w>`, `w/<w>/ytd`; `d/<w>/<d>`, `.../ytd`, `.../next`; `i/<i>`; `s/<w>/<i>`
- `c/<w>/<d>/<c>`, `.../data`; `n/<w>/<d>/<last name>`: numbers of customers by first name
- `o`, `no`, `ol`, `h` `/<w>/<d>/<number>`: order, new-order, its lines, history
"""

from __future__ import annotations

from typing import Any

from streamydb.procedures import Abort, procedure

WHOLE = 10_000
DATA_CHARACTERS = 500


def new_order_keys(args: dict[str, Any]) -> dict[str, list[str]]:
    """What a new-order touches."""
    w, d, number, lines = args["w"], args["d"], args["number"], args["lines"]
    mine = [f"{table}/{w}/{d}/{number}" for table in ("o", "no", "ol")]
    stock = [f"s/{supply}/{item}" for item, supply, _ in lines]
    items = [f"i/{item}" for item, _, _ in lines]
    return {
        "keys": [f"d/{w}/{d}/next", *mine, *sorted(set(stock))],
        "reads": [f"w/{w}", f"d/{w}/{d}", f"c/{w}/{d}/{args['c']}", *sorted(set(items))],
    }


@procedure(keys=new_order_keys)
def new_order(db: Any, w: int, d: int, c: int, number: int, lines: list[list[int]]) -> Any:
    """Enter an order; lines: item, supplying warehouse, quantity."""
    tax = db.get(f"w/{w}")["tax"] + db.get(f"d/{w}/{d}")["tax"]
    customer = db.get(f"c/{w}/{d}/{c}")
    order = db.add(f"d/{w}/{d}/next", 1) - 1
    entered = [_line(db, w, item, supply, quantity) for item, supply, quantity in lines]
    local = all(supply == w for _, supply, _ in lines)
    row = {"id": order, "c": c, "entry": db.now, "lines": len(lines), "local": local}
    db.put(f"o/{w}/{d}/{number}", row)
    db.put(f"no/{w}/{d}/{number}", order)
    db.put(f"ol/{w}/{d}/{number}", {"order": order, "lines": entered})
    amount = sum([line["amount"] for line in entered])
    total = amount * (WHOLE - customer["discount"]) * (WHOLE + tax) // (WHOLE * WHOLE)
    return {"order": order, "total": total}


def _line(db: Any, w: int, item: int, supply: int, quantity: int) -> dict[str, Any]:
    """Take an item out of the stock; one that is not there rolls the order back (2.4.2.3)."""
    found = db.get(f"i/{item}")
    if found is None:
        raise Abort("item number is not valid")
    stock = db.get(f"s/{supply}/{item}")
    left = stock["quantity"] - quantity
    stock["quantity"] = left if left >= 10 else left + 91
    stock["ytd"] += quantity
    stock["orders"] += 1
    stock["remote"] += 0 if supply == w else 1
    db.put(f"s/{supply}/{item}", stock)
    return {
        "item": item, "supply": supply, "quantity": quantity, "amount": quantity * found["price"],
    }


def payment_keys(args: dict[str, Any]) -> dict[str, list[str]]:
    """What a payment touches; the customer's number is known to whoever calls."""
    w, d, cw, cd, c = args["w"], args["d"], args["cw"], args["cd"], args["c"]
    names = [] if args["last"] is None else [f"n/{cw}/{cd}/{args['last']}"]
    return {
        "keys": [
            f"w/{w}/ytd", f"d/{w}/{d}/ytd", f"c/{cw}/{cd}/{c}", f"c/{cw}/{cd}/{c}/data",
            f"h/{w}/{d}/{args['number']}",
        ],
        "reads": names,
    }


@procedure(keys=payment_keys)
def payment(
    db: Any, w: int, d: int, cw: int, cd: int, c: int, last: str | None, number: int, amount: int
) -> Any:
    """Take a customer's money; by last name it is the one in the middle (2.5.2.2)."""
    if last is not None:
        same = db.get(f"n/{cw}/{cd}/{last}")
        c = same[(len(same) - 1) // 2]
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
