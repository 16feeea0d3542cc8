"""Integrity constraints: declared once, kept by whatever writes: clients, races, procedures.

    streamydb up --database hotel
    STREAMYDB_DATABASE=hotel python examples/constraints.py [URL that `up` has named]

The procedures are in modules/hotel.py. Run this where the pipeline runs. It prints:

    guests in words: no, room at hotel/room/101: schema type "integer" at /guests
    a room is torn down: no, room at hotel/room/101: required
    more than the till has: no, till at hotel/till: min 0
    that, and something good with it: no, till at hotel/till: min 0
    one passport shown at three desks at once: 1 guest
    its holder leaves, and another comes with it: yes
    four bookings of one guest at once: 2 are made
    a procedure gives out a bed: yes
    a procedure gives out a bed too many: no, room at hotel/room/101: schema maximum 2 at /guests
    a procedure takes a passport twice: no, passport at hotel/guest/dan: unique
    a procedure pays out what is not there: no, till at hotel/till: min 0
    the till has 100, room 101 has 2 guests, ann is still here: True
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from common import MODULES, clear, connect, deploy, folder
from streamydb.client import Client, ConstraintRefusedError, ConstraintViolatedError

CONSTRAINTS: list[dict[str, Any]] = [
    {"name": "till", "prefix": "hotel/till", "type": "integer", "min": 0},
    {"name": "passport", "prefix": "hotel/guest/", "unique": "$.passport"},
    {"name": "bookings", "prefix": "hotel/booking/", "keys": {"max": 2, "each": "/"}},
    {
        "name": "room", "prefix": "hotel/room/", "required": True,
        "schema": {
            "type": "object",
            "properties": {"guests": {"type": "integer", "minimum": 0, "maximum": 2}},
            "required": ["guests"],
        },
    },
]  # fmt: skip


def declare(db: Client) -> None:
    """Declare them; each is a transaction, and holds for those after it in the log."""
    for constraint in CONSTRAINTS:
        db.transaction(constrain={"declare": constraint})


def drop(db: Client) -> None:
    """Drop those that are declared."""
    for constraint in CONSTRAINTS:
        with suppress(ConstraintRefusedError):
            db.transaction(constrain={"drop": constraint["name"]})


def tell(what: str, write: Callable[[], object]) -> bool:
    """Try to write, and print what came of it: a violation names constraint, key and rule."""
    try:
        write()
    except ConstraintViolatedError as error:
        print(f"{what}: no, {error.constraint} at {error.key}: {error.violated}")
        return False
    print(f"{what}: yes")
    return True


def writes_of_clients(db: Client) -> None:
    """Break a rule in each way; one bad write undoes the good ones of its transaction."""
    tell("guests in words", lambda: db.put("hotel/room/101", {"guests": "two"}))
    tell("a room is torn down", lambda: db.delete("hotel/room/101"))
    tell("more than the till has", lambda: db.atomic().add("hotel/till", -101).commit())
    both = db.atomic().put("hotel/room/101", {"guests": 2}).add("hotel/till", -101)
    tell("that, and something good with it", both.commit)


def one_passport(db: Client) -> None:
    """Register one passport three times at once; the database lets one through."""

    def register(guest: str) -> str | None:
        with suppress(ConstraintViolatedError):
            db.put(f"hotel/guest/{guest}", {"passport": "P1", "room": 102})
            return guest
        return None

    with ThreadPoolExecutor(3) as desks:
        holders = [guest for guest in desks.map(register, ["eve", "flo", "gil"]) if guest]
    print(f"one passport shown at three desks at once: {len(holders)} guest")
    db.delete(f"hotel/guest/{holders[0]}")
    hal = {"passport": "P1", "room": 102}
    tell("its holder leaves, and another comes with it", lambda: db.put("hotel/guest/hal", hal))


def few_bookings(db: Client) -> None:
    """Book four rooms for one guest at once; the database lets two through."""

    def book(room: int) -> bool:
        with suppress(ConstraintViolatedError):
            db.put(f"hotel/booking/ida/{room}", {"nights": 1})
            return True
        return False

    with ThreadPoolExecutor(4) as desks:
        made = sum(desks.map(book, [101, 102, 103, 104]))
    print(f"four bookings of one guest at once: {made} are made")


def procedures(db: Client) -> None:
    """Call procedures that check nothing: what they may not write, they do not write."""

    def check_in(guest: str, passport: str, room: int = 101) -> object:
        return db.call("hotel.check_in", guest=guest, passport=passport, room=room)

    check_in("ann", "P2")
    tell("a procedure gives out a bed", lambda: check_in("bob", "P3"))
    tell("a procedure gives out a bed too many", lambda: check_in("cid", "P4"))
    tell("a procedure takes a passport twice", lambda: check_in("dan", "P1", 102))
    refund = {"guest": "ann", "amount": 1000}
    tell("a procedure pays out what is not there", lambda: db.call("hotel.refund", refund))


def main() -> None:
    """Open a hotel that nobody can bring into disorder."""
    with connect(folder()) as db:
        drop(db)
        clear(db, "hotel/")
        deploy(db, MODULES / "hotel.py")
        declare(db)
        db.put("hotel/till", 100)
        db.put("hotel/room/101", {"guests": 0})
        db.put("hotel/room/102", {"guests": 0})
        writes_of_clients(db)
        one_passport(db)
        few_bookings(db)
        procedures(db)
        till, room, ann = db.read(["hotel/till", "hotel/room/101", "hotel/guest/ann"]).values()
        print(f"the till has {till}, room 101 has {room['guests']} guests, ", end="")
        print(f"ann is still here: {ann is not None}")
        drop(db)


if __name__ == "__main__":
    main()
