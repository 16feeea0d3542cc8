"""Opening night: sixty guests want a seat at once, and some bring their tickets back."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import shop
import streamydb
from streamydb.client import Client

GUESTS = [f"guest{number:02}" for number in range(60)]
RETURNS = 8


def visit(db: Client, name: str) -> None:
    """Buy any free seat, or wait for one."""
    shop.deposit(db, name, 100)
    while True:
        free = shop.free_seats(db)
        try:
            if free:
                shop.buy(db, name, random.choice(free))
            else:
                shop.wait(db, name)
        except shop.ShopError:
            continue  # somebody was faster: look again
        return


def report(db: Client) -> None:
    """Say how the evening goes, all as of one moment."""
    at = db.read([]).seq
    entries = {entry.key: entry.value for entry in db.scan("shop/", at=at)}
    tickets = [key for key in entries if key.startswith("shop/ticket/")]
    accounts = sum(v for key, v in entries.items() if key.startswith("shop/account/"))
    held, takings = entries["shop/held"], entries["shop/takings"]
    print(f"{len(tickets)} tickets sold, {len(entries['shop/waiting'])} guests wait")
    print(f"{accounts} in accounts + {held} held + {takings} taken = {accounts + held + takings}")


def main() -> None:
    """Let them in."""
    with streamydb.connect(shop.DATABASE) as db, ThreadPoolExecutor(len(GUESTS)) as crowd:
        shop.open_shop(db)
        list(crowd.map(lambda name: visit(db, name), GUESTS))
        report(db)
        first = db.get("shop/waiting")[:RETURNS]
        tickets = list(db.scan("shop/ticket/", limit=RETURNS))
        back = [(ticket.value, ticket.key.removeprefix("shop/ticket/")) for ticket in tickets]
        heirs = set(crowd.map(lambda each: shop.give_back(db, *each), back))
        print(f"{RETURNS} tickets came back; the first in line have them: {heirs == set(first)}")
        report(db)


if __name__ == "__main__":
    main()
