"""The time of a transaction: `now()` and its like are one instant in all its statements.

The functions are macros of the workbench over a variable, which a statement that asks for the time
sets before.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

_NOW: Final = "getvariable('streamydb_now')"
_LOCAL: Final = f"cast({_NOW} as timestamp)"
_AGE: Final = f"system.main.age(date_trunc('day', {_LOCAL}), cast(x as timestamp))"
_MEANINGS: Final = {
    "now()": _NOW,
    "get_current_timestamp()": _NOW,
    "transaction_timestamp()": _NOW,
    "get_current_time()": f"cast({_NOW} as timetz)",
    "today()": f"cast({_NOW} as date)",
    "current_date()": f"cast({_NOW} as date)",
    "current_localtimestamp()": _LOCAL,
    "current_localtime()": f"cast({_LOCAL} as time)",
}

FUNCTIONS: Final = (
    *(f"create macro {function} as {sql}" for function, sql in _MEANINGS.items()),
    f"create macro age(x) as {_AGE}, (x, y) as system.main.age(x, y)",
)
"""Statements that make the functions, once a workbench."""

_ASKS: Final = re.compile(
    r"now|today|current_|localtime|transaction_timestamp|age\b", re.IGNORECASE
)


class Clock:
    """The time of one transaction, which is that of the first statement that asks for it."""

    def __init__(self) -> None:
        self._instant: dt.datetime | None = None

    @property
    def instant(self) -> dt.datetime:
        """The time, in UTC."""
        if self._instant is None:
            self._instant = dt.datetime.now(dt.UTC)
        return self._instant


def asks(sql: str) -> bool:
    """Return True if a statement of the workbench may ask for the time."""
    return _ASKS.search(sql) is not None


def setting(clock: Clock) -> str:
    """The statement that sets the time."""
    return f"set variable streamydb_now = timestamptz '{clock.instant.isoformat()}'"
