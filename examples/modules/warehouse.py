"""A warehouse as stored procedures; examples/stored_procedures.py deploys and calls them."""

from __future__ import annotations

from typing import Any

from streamydb.procedures import Abort, procedure

SHIPPING = 5


@procedure(keys=lambda args: [f"warehouse/shelf/{args['item']}"])
def receive(db: Any, item: str, pieces: int, price: int) -> int:
    """Put pieces on a shelf, at this price from now on; return how many are there."""
    key = f"warehouse/shelf/{item}"
    pieces += db.get(key, {"pieces": 0})["pieces"]
    db.put(key, {"pieces": pieces, "price": price})
    return pieces


@procedure
def ship(db: Any, order: str) -> Any:
    """Take what an order names from the shelves; return it with its invoice.

    Only the order knows which shelves these are, so there is no key function: the client finds the
    keys by running this on a snapshot.
    """
    key = f"warehouse/order/{order}"
    wanted = db.get(key)
    if wanted is None or "invoice" in wanted:
        raise Abort(f"there is no open order {order}")
    total = SHIPPING
    for item, pieces in wanted["lines"].items():
        shelf = db.get(f"warehouse/shelf/{item}", {"pieces": 0, "price": 0})
        if shelf["pieces"] < pieces:
            raise Abort(f"{pieces} {item} are wanted, and {shelf['pieces']} are there")
        shelf["pieces"] -= pieces
        db.put(f"warehouse/shelf/{item}", shelf)
        total += pieces * shelf["price"]
    wanted["invoice"] = {"number": db.next_id("warehouse/invoices"), "total": total}
    db.put(key, wanted)
    return wanted
