"""Stored procedures: deployed, called, aborted, with keys that depend on data, in a second version.

    make up
    python examples/stored_procedures.py [URL]

The procedures are in modules/warehouse.py. Run this where the pipeline runs: code never travels
through the log, so the file goes into the pipeline's folder. It prints:

    deployed warehouse sha256:...
    order 1 is shipped: invoice 1, 15 to pay
    order 2 is not: 9 pears are wanted, and 3 are there; apples left: 8
    order 3 got pears meanwhile: with the keys of before it touches warehouse/shelf/pears
    order 3 is shipped: invoice 2, 12 to pay
    six want one of the two pears that are left: 2 shipped, 4 refused; pears left: 0
    deployed warehouse sha256:...
    order 4 is shipped: invoice 5, 6 to pay
    order 1 has the invoice of its time: 15
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import MODULES, clear, connect, deploy, folder
from streamydb.client import Client, ProcedureAbortedError, UndeclaredKeyError


def order(db: Client, number: str, **lines: int) -> None:
    """Write an order; that needs no procedure."""
    db.put(f"warehouse/order/{number}", {"lines": lines})


def ship(db: Client, number: str) -> None:
    """Call the procedure; an abort raises."""
    invoice = db.call("warehouse.ship", order=number).returned["invoice"]
    print(f"order {number} is shipped: invoice {invoice['number']}, {invoice['total']} to pay")


def left(db: Client, item: str) -> int:
    """Return how many pieces are on a shelf."""
    return int(db.get(f"warehouse/shelf/{item}")["pieces"])


def abort(db: Client) -> None:
    """Show that a procedure that raises `Abort` has written nothing: the apples stay."""
    order(db, "2", apples=2, pears=9)
    try:
        ship(db, "2")
    except ProcedureAbortedError as error:
        print(f"order 2 is not: {error.reason}; apples left: {left(db, 'apples')}")


def keys_depend_on_data(db: Client) -> None:
    """Call with keys that were right a moment ago; then have the client find them."""
    order(db, "3", apples=1)
    keys = ["warehouse/order/3", "warehouse/shelf/apples", "warehouse/invoices"]
    order(db, "3", apples=1, pears=1)
    try:
        db.call("warehouse.ship", order="3", keys=keys)
    except UndeclaredKeyError as error:
        print(f"order 3 got pears meanwhile: with the keys of before it touches {error.reason}")
    ship(db, "3")


def crowd(db: Client) -> None:
    """Ship orders at once: each is whole, and there are no more pears than there were."""
    names = [f"crowd-{number}" for number in range(6)]
    for name in names:
        order(db, name, pears=1)

    def shipped(name: str) -> bool:
        try:
            db.call("warehouse.ship", order=name)
        except ProcedureAbortedError:
            return False
        return True

    with ThreadPoolExecutor(len(names)) as pool:
        done = sum(pool.map(shipped, names))
    print(
        f"six want one of the two pears that are left: {done} shipped, {6 - done} refused; "
        f"pears left: {left(db, 'pears')}"
    )


def second_version(db: Client) -> None:
    """Deploy a version without shipping costs; calls before it in the log ran the first one."""
    text = (MODULES / "warehouse.py").read_text("utf-8").replace("SHIPPING = 5", "SHIPPING = 0")
    with tempfile.TemporaryDirectory() as edited:
        file = Path(edited) / "warehouse.py"
        file.write_text(text, "utf-8")
        print("deployed warehouse", deploy(db, file))
    order(db, "4", apples=2)
    ship(db, "4")
    first = db.get("warehouse/order/1")["invoice"]
    print("order 1 has the invoice of its time:", first["total"])


def main() -> None:
    """Run a day of a warehouse."""
    with connect(folder()) as db:
        clear(db, "warehouse/")
        print("deployed warehouse", deploy(db, MODULES / "warehouse.py"))
        db.call("warehouse.receive", item="apples", pieces=10, price=3)
        db.call("warehouse.receive", item="pears", pieces=4, price=4)
        order(db, "1", apples=2, pears=1)
        ship(db, "1")
        abort(db)
        keys_depend_on_data(db)
        crowd(db)
        second_version(db)


if __name__ == "__main__":
    main()
