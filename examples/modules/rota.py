"""The rota of a hospital, whose procedure scans a range; examples/ranges.py calls it."""

from __future__ import annotations

from typing import Any

from streamydb.procedures import Abort, procedure


@procedure(
    keys=lambda args: {
        "keys": [f"rota/{args['day']}/{args['doctor']}"],
        "ranges": [f"rota/{args['day']}/"],
    }
)
def go_home(db: Any, day: str, doctor: str) -> int:
    """Take a doctor off duty, unless nobody would be left; return how many are."""
    if db.count(f"rota/{day}/") < 2:
        raise Abort("somebody has to stay")
    db.delete(f"rota/{day}/{doctor}")
    return int(db.count(f"rota/{day}/"))
