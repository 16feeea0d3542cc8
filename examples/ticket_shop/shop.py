"""The rules of a ticket shop, as transactions on streamy-db."""

from __future__ import annotations

import os
from typing import Any

from streamydb.client import BoundViolatedError, CheckFailedError, Client, View

DATABASE = os.environ.get("SHOP_DATABASE", "http://127.0.0.1:8080")
SEATS = [f"{row}{number}" for row in "ABC" for number in range(1, 9)]
PRICE = 30


class ShopError(Exception):
    """A customer cannot have what he wants; the text tells him why."""


def open_shop(db: Client) -> None:
    """Begin anew: all seats are free, nobody has money, nobody waits."""
    start = {"shop/left": len(SEATS), "shop/takings": 0, "shop/held": 0, "shop/waiting": []}
    updates: dict[str, dict[str, Any]] = {
        entry.key: {"op": "delete", "key": entry.key} for entry in db.scan("shop/")
    }
    for key, value in start.items():
        updates[key] = {"op": "put", "key": key, "value": value}
    db.transaction(updates=updates.values())


def deposit(db: Client, name: str, amount: int, order: str | None = None) -> None:
    """Put money into an account."""
    db.atomic(order).add(f"shop/account/{name}", amount).commit()


def free_seats(db: Client) -> list[str]:
    """Return the seats that nobody has."""
    tickets = db.read(f"shop/ticket/{seat}" for seat in SEATS)
    return [seat for seat in SEATS if tickets[f"shop/ticket/{seat}"] is None]


def buy(db: Client, buyer: str, seat: str, order: str | None = None) -> None:
    """Sell a seat; an order that is sent twice is executed once."""
    if seat not in SEATS:
        raise ShopError(f"There is no seat {seat}.")
    sale = (
        db.atomic(order)
        .check(f"shop/ticket/{seat}", exists=False)
        .add(f"shop/account/{buyer}", -PRICE, min=0)
        .add("shop/takings", PRICE)
        .add("shop/left", -1)
        .put(f"shop/ticket/{seat}", buyer)
    )
    try:
        sale.commit()
    except CheckFailedError:
        raise ShopError(f"{seat} is taken.") from None
    except BoundViolatedError:
        raise ShopError(f"{buyer} has less than {PRICE}.") from None


def wait(db: Client, buyer: str, order: str | None = None) -> None:
    """Join the end of the waiting list, when everything is sold; the price is held."""
    place = (
        db.atomic(order)
        .check("shop/left", eq=0)
        .add(f"shop/account/{buyer}", -PRICE, min=0)
        .add("shop/held", PRICE)
        .append("shop/waiting", buyer)
    )
    try:
        place.commit()
    except CheckFailedError:
        raise ShopError("There are free seats.") from None
    except BoundViolatedError:
        raise ShopError(f"{buyer} has less than {PRICE}.") from None


def give_back(db: Client, holder: str, seat: str) -> str | None:
    """Take a ticket back; return who has the seat now: the first who waits, or nobody."""
    ticket, account = f"shop/ticket/{seat}", f"shop/account/{holder}"

    def returned(view: View) -> str | None:
        if view.get(ticket) != holder:
            raise ShopError(f"{holder} does not have {seat}.")
        view.put(account, view.get(account) + PRICE)
        waiting = view.get("shop/waiting")
        if waiting:
            view.put(ticket, waiting[0])
            view.put("shop/waiting", waiting[1:])
            view.put("shop/held", view.get("shop/held") - PRICE)
            return str(waiting[0])
        view.delete(ticket)
        view.put("shop/left", view.get("shop/left") + 1)
        view.put("shop/takings", view.get("shop/takings") - PRICE)
        return None

    return db.run(returned)
