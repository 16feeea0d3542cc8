"""Choose the keys that a statement must read of a table: single rows, ranges, or all.

The conditions that narrow a table are comparisons of its columns with constants that hold for each
row that can come into the result (`sources` collects them). DuckDB applies all conditions again, so
one that is not understood here costs time and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any, Final

from streamydb_layers.documents.encoding import Scalar
from streamydb_layers.tables.keys import Bounds, KeyRange, Keys, fits, fitting, part
from streamydb_layers.tables.schema import Column, Index, Table
from streamydb_layers.tables.trees import Tree, is_of
from streamydb_layers.tables.types import MISSING

EQUAL: Final = "COMPARE_EQUAL"
LESS: Final = "COMPARE_LESSTHAN"
MORE: Final = "COMPARE_GREATERTHAN"
AT_MOST: Final = "COMPARE_LESSTHANOREQUALTO"
AT_LEAST: Final = "COMPARE_GREATERTHANOREQUALTO"
"""Comparisons as DuckDB's trees name them."""

POINTS_MAX: Final = 1_000
"""Combinations of constants that are looked up one by one."""


@dataclass(frozen=True, slots=True)
class Access:
    """Ranges of rows, or of entries of an index, and single ones of them.

    Attributes:
        index: None: rows by their primary key.
        points: keys.
        ranges: ranges of keys.
    """

    index: Index | None
    points: tuple[str, ...]
    ranges: tuple[KeyRange, ...]


NOTHING: Final = Access(None, (), ())
"""No rows."""


@dataclass(slots=True)
class Narrowing:
    """The values that a column may have, as keys have them; in the order of its comparisons."""

    equal: list[Scalar] | None = None
    bounds: Bounds = field(default_factory=Bounds)

    def narrow(self, kind: str, values: list[Scalar]) -> None:
        """Add a comparison; of two that bound alike the first one counts."""
        [value, *_] = values or [None]
        bounds = self.bounds
        if kind == EQUAL:
            self.equal = values if self.equal is None else self.equal
        elif kind in {MORE, AT_LEAST} and bounds.lower is None:
            self.bounds = bounds._replace(lower=value, lower_open=kind == MORE)
        elif kind in {LESS, AT_MOST} and bounds.upper is None:
            self.bounds = bounds._replace(upper=value, upper_open=kind == LESS)


Narrowings = dict[str, Narrowing]
"""By the names of columns."""

_TURNED: Final = {
    EQUAL: EQUAL, LESS: MORE, MORE: LESS, AT_MOST: AT_LEAST, AT_LEAST: AT_MOST,
}  # fmt: skip

Own = Callable[[Tree], Column | None]
"""The column of a table that a part of a statement is; None if it could be something else."""


def narrowings(conditions: Iterable[Tree], own: Own, values: Parameters) -> Narrowings:
    """The values that the columns of a table can have where a query refers to it.

    Args:
        conditions: hold for each row of the table that can come into the result.
        own: the table's column that a name means.
        values: of parameters.
    """
    found: Narrowings = {}
    for condition in conditions:
        for column, kind, constants in comparisons(condition, own, values):
            known = [column.kind.constant(each) for each in constants]
            if not any(value is MISSING for value in known):
                keys = [column.kind.key(value) for value in known]
                found.setdefault(column.name, Narrowing()).narrow(kind, keys)
    return found


def access(keys: Keys, table: Table, known: Narrowings) -> Access:
    """The access that reads least, as far as that is known without reading."""
    best = _along(keys.rows(table), None, table.primary_key, known)
    rank = _rank(table.primary_key, known)
    for index in table.indexes:
        other = _rank(index.columns, known)
        if other > rank:
            best, rank = _along(keys.entries(index), index, index.columns, known), other
    return best


def _rank(columns: Sequence[str], known: Narrowings) -> tuple[int, bool]:
    """Count the first columns that are equal to constants; see if the next one is bounded."""
    count = len(_equal(columns, known))
    bounded = count < len(columns) and _bounds(known.get(columns[count])) is not None
    return count, bounded


def _along(prefix: str, index: Index | None, columns: Sequence[str], known: Narrowings) -> Access:
    equal = _equal(columns, known)
    ends = len(equal) < len(columns) or (index is not None and not index.unique)
    bounds = _bounds(known.get(columns[len(equal)])) if len(equal) < len(columns) else None
    ranges = [part(prefix, values, bounds) for values in product(*equal)]
    if ends or not columns:
        narrowed = [found for each in ranges if (found := fitting(each)) is not None]
        return Access(index, (), tuple(dict.fromkeys(narrowed)))
    points = [each.start for each in ranges if fits(each.start)]
    return Access(index, tuple(dict.fromkeys(points)), ())


def _equal(columns: Sequence[str], known: Narrowings) -> list[list[Scalar]]:
    """The constants of the first columns that have some; not too many combinations."""
    found: list[list[Scalar]] = []
    size = 1
    for name in columns:
        values = known[name].equal if name in known else None
        if values is None or size * len(values) > POINTS_MAX:
            break
        size *= len(values)
        found.append(values)
    return found


def _bounds(known: Narrowing | None) -> Bounds | None:
    if known is None or (known.bounds.lower is None and known.bounds.upper is None):
        return None
    return known.bounds


_Comparison = tuple[Column, str, list[Any]]

Parameters = Mapping[str, Any]
"""The values of a statement's parameters by the names that its tree has for them."""


def comparisons(node: Tree, own: Own, values: Parameters) -> Iterator[_Comparison]:
    """The comparisons of a column with constants that a condition is, if it is one."""
    if is_of(node, "COMPARISON") and node["type"] in _TURNED:
        kind = node["type"]
        for side, other, read in (("left", "right", kind), ("right", "left", _TURNED[kind])):
            if found := own(node[side]):
                yield found, read, [constant(node[other], values)]
    elif is_of(node, "BETWEEN") and (found := own(node["input"])):
        yield found, AT_LEAST, [constant(node["lower"], values)]
        yield found, AT_MOST, [constant(node["upper"], values)]
    elif is_of(node, "COMPARE_IN") and (found := own(node["children"][0])):
        yield found, EQUAL, [constant(each, values) for each in node["children"][1:]]


def constant(node: Tree, values: Parameters) -> Any:
    """The value of a part of a statement that is a constant, else `MISSING`."""
    if is_of(node, "PARAMETER"):
        return values.get(node["identifier"], MISSING)
    if not is_of(node, "CONSTANT"):
        return MISSING
    literal = node["literal"]
    made = _LITERALS.get(literal["kind"])
    try:
        return MISSING if made is None else made(literal["text"])
    except (ValueError, InvalidOperation):
        return MISSING


def _number(text: str) -> float | Decimal:
    return float(text) if "e" in text.lower() else Decimal(text)


_LITERALS: Final[dict[str, Callable[[str], Any]]] = {
    "INTEGER": int, "NUMERIC": _number, "STRING": str, "NULL_LITERAL": lambda _: None,
    "BOOLEAN": lambda text: text == "true",
}  # fmt: skip
