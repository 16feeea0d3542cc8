"""Types of columns: what a value is in Python and DuckDB, in a stored row, and in a key.

| type | stored as | in a key |
|---|---|---|
| boolean | boolean | boolean |
| smallint, integer, bigint | number | number |
| double | number | number |
| decimal(p, s), p <= 18 | text, as `12.50` | the number of its last places |
| text | text | text |
| date, timestamp | text, ISO 8601 | the same text, which sorts by time |
| json | the JSON value | not at all |

NULL is not stored; the value of JSON that is `null` is.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from streamydb.client import UNREADABLE, canonical, decode_value
from streamydb.errors import ValueRejected
from streamydb.limits import INTEGER_MAX, INTEGER_MIN
from streamydb_layers.documents.encoding import Scalar
from streamydb_layers.tables.errors import DataRefusedError

DECIMAL_DIGITS_MAX: Final = 18
"""Digits of a decimal: as many as an integer of 64 bits has without fail."""

INTEGERS: Final = {"SMALLINT": 2**15 - 1, "INTEGER": 2**31 - 1, "BIGINT": INTEGER_MAX}
"""The types of integers, and the largest number of each."""

FINITE: Final = "streamydb_finite"
"""A function of the workbench: refuses infinite times, which Python has as the last or first day.
"""

MISSING: Final[Any] = object()
"""No value of the column's type compares with a constant as the constant says."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type as DuckDB names it.

    Attributes:
        name: `BIGINT`, `DECIMAL(10,2)`, ...
        places: of a decimal, after the point.
    """

    name: str
    places: int = 0

    @property
    def kind(self) -> str:
        """The name without digits."""
        return self.name.partition("(")[0]

    @property
    def is_time(self) -> bool:
        """True for a date or a timestamp."""
        return self.name in {"DATE", "TIMESTAMP"}

    def stored(self, value: Any) -> Any:
        """A value that DuckDB gave, not None, as the row keeps it.
        Raises DataRefusedError: the store cannot keep it.
        """
        kind = self.kind
        if kind == "DOUBLE" and not math.isfinite(value):
            raise DataRefusedError(f"{value} is no number that can be stored.")
        if kind == "DECIMAL":
            return format(value, "f")
        if kind == "DATE" and type(value) is dt.date:
            return value.isoformat()
        if kind == "TIMESTAMP" and isinstance(value, dt.datetime):
            return _timestamp(value)
        if self.is_time:
            raise DataRefusedError(f"The time {value} is not within the years 1 to 9999.")
        return _json(value) if kind == "JSON" else value

    def cast(self, sql: str) -> str:
        """The SQL of an expression's value as one of this type, as a row may have it."""
        made = f"cast({sql} as {self.name})"
        return f"{FINITE}({made})" if self.is_time else made

    def loaded(self, stored: Any) -> Any:
        """A value that is stored, as DuckDB takes it."""
        return _LOADED.get(self.kind, _same)(stored)

    def key(self, value: Any) -> Scalar:
        """A value as keys have it."""
        if value is None:
            return None
        if self.kind == "DECIMAL":
            return int(Decimal(value).scaleb(self.places))
        return self.stored(value)  # type: ignore[no-any-return]

    def constant(self, value: Any) -> Any:
        """A constant of a statement that is compared with the column, as a value of this type.

        `MISSING`, if the comparison could mean anything else than that of the two values.
        """
        try:
            return _CONSTANTS[self.kind](self, value)
        except (ValueError, InvalidOperation, OverflowError):
            return MISSING


@lru_cache(maxsize=256)
def column_type(name: str) -> ColumnType:
    """The type that a stored column names."""
    places = int(name.rstrip(")").rpartition(",")[2]) if name.startswith("DECIMAL") else 0
    return ColumnType(name, places)


def _timestamp(value: dt.datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return value.isoformat(timespec="microseconds")


def _json(text: str) -> Any:
    try:
        value = decode_value(text.encode())
        canonical(value)
    except (*UNREADABLE, ValueRejected) as fault:
        raise DataRefusedError(f"JSON that cannot be stored: {fault}") from None
    return value


def _same(value: Any) -> Any:
    return value


_LOADED: Final[dict[str, Callable[[Any], Any]]] = {
    "DECIMAL": Decimal,
    "DOUBLE": float,
    "DATE": dt.date.fromisoformat,
    "TIMESTAMP": dt.datetime.fromisoformat,
    "JSON": lambda value: canonical(value).decode(),
}


def _integer(_: ColumnType, value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and INTEGER_MIN <= value <= INTEGER_MAX else MISSING


def _double(_: ColumnType, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return MISSING
    found = float(value)
    return found if math.isfinite(found) else MISSING


_EXACT: Final = Context(prec=1_000)
"""More digits than a constant of DuckDB's decimals has: nothing is rounded."""


def _decimal(kind: ColumnType, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return MISSING
    scaled = Decimal(value).scaleb(kind.places, _EXACT)
    whole = scaled == scaled.to_integral_value() and abs(scaled) < 10**DECIMAL_DIGITS_MAX
    return Decimal(value) if whole else MISSING


def _of(*kinds: type) -> Callable[[ColumnType, Any], Any]:
    return lambda _, value: value if type(value) in kinds else MISSING


def _date(_: ColumnType, value: Any) -> Any:
    if isinstance(value, str) and len(value) == len("2026-01-01"):
        return dt.date.fromisoformat(value)
    return value if type(value) is dt.date else MISSING


def _time(_: ColumnType, value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value if value.tzinfo is None else MISSING
    return dt.datetime.combine(value, dt.time()) if type(value) is dt.date else MISSING


_CONSTANTS: Final[dict[str, Callable[[ColumnType, Any], Any]]] = {
    **dict.fromkeys(INTEGERS, _integer),
    "BOOLEAN": _of(bool), "VARCHAR": _of(str), "DOUBLE": _double, "DECIMAL": _decimal,
    "DATE": _date, "TIMESTAMP": _time, "JSON": lambda *_: MISSING,
}  # fmt: skip
