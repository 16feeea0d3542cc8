"""A hotel whose procedures check nothing; examples/constraints.py shows what holds all the same."""

from __future__ import annotations

from typing import Any

from streamydb.procedures import procedure


@procedure(keys=lambda args: [f"hotel/room/{args['room']}", f"hotel/guest/{args['guest']}"])
def check_in(db: Any, guest: str, passport: str, room: int) -> int:
    """Give a guest a bed; return how many guests the room has."""
    place = db.get(f"hotel/room/{room}")
    place["guests"] += 1
    db.put(f"hotel/guest/{guest}", {"passport": passport, "room": room})
    db.put(f"hotel/room/{room}", place)
    return int(place["guests"])


@procedure(keys=lambda args: [f"hotel/guest/{args['guest']}", "hotel/till"])
def refund(db: Any, guest: str, amount: int) -> None:
    """Pay money back, and see the guest off."""
    db.delete(f"hotel/guest/{guest}")
    db.add("hotel/till", -amount)
