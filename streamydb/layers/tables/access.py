"""Choose the keys that a statement must read of a table: single rows, ranges, or all.

The conditions that narrow a table are comparisons of its columns with constants that hold for each
row that can come into the result: those of WHERE, and those of ON of a join that keeps no other
rows of the table. DuckDB applies all conditions again, so one that is not understood here costs
time and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from sqlglot import exp

from streamydb.layers.documents.encoding import Scalar
from streamydb.layers.tables.keys import Bounds, KeyRange, Keys, fits, fitting, part
from streamydb.layers.tables.parsing import constant
from streamydb.layers.tables.schema import Column, Index, Table
from streamydb.layers.tables.types import MISSING

__all__ = ["NOTHING", "Access", "Narrowing", "access", "comparisons", "conditions", "narrowings"]

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

    def narrow(self, kind: type[exp.Expr], values: list[Scalar]) -> None:
        """Add a comparison; of two that bound alike the first one counts."""
        [value, *_] = values or [None]
        bounds = self.bounds
        if kind in {exp.EQ, exp.In}:
            self.equal = values if self.equal is None else self.equal
        elif kind in {exp.GT, exp.GTE} and bounds.lower is None:
            self.bounds = bounds._replace(lower=value, lower_open=kind is exp.GT)
        elif kind in {exp.LT, exp.LTE} and bounds.upper is None:
            self.bounds = bounds._replace(upper=value, upper_open=kind is exp.LT)


Narrowings = dict[str, Narrowing]
"""By the names of columns."""

_TURNED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.EQ: exp.EQ, exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE,
}  # fmt: skip


def narrowings(reference: exp.Table, own: Callable[[exp.Column], Column | None]) -> Narrowings:
    """The values that the columns of a table can have where a query refers to it.

    Args:
        reference: the table in FROM or JOIN.
        own: the table's column that a name means; None if it could be that of another table.
    """
    found: Narrowings = {}
    for condition in conditions(reference):
        for column, kind, constants in comparisons(condition, own):
            values = [column.kind.constant(each) for each in constants]
            if not any(value is MISSING for value in values):
                keys = [column.kind.key(value) for value in values]
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


def conditions(reference: exp.Table) -> Iterator[exp.Expr]:
    """The conditions that hold for each row of the table that can come into the result."""
    place = reference.parent
    select = place.parent if isinstance(place, exp.From | exp.Join) else None
    if not isinstance(select, exp.Select):
        return
    joins: list[exp.Join] = select.args.get("joins") or []
    if any(join.args.get("method") for join in joins):
        return  # ASOF and POSITIONAL pair rows by what else there is
    where = select.args.get("where")
    if where is not None:
        yield from _conjuncts(where.this)
    behind = place is select.args.get("from_")
    for join in joins:
        mine = join is place
        if join.args.get("on") and _keeps_no_other(join, mine=mine, left=behind):
            yield from _conjuncts(join.args["on"])
        behind = behind or mine


def _keeps_no_other(join: exp.Join, *, mine: bool, left: bool) -> bool:
    """Return True if the join drops the rows of the table that do not fulfil its condition."""
    if join.kind not in {"", "INNER", "OUTER", "CROSS"}:
        return False
    if join.side == "":
        return mine or left
    return (join.side == "LEFT" and mine) or (join.side == "RIGHT" and left)


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(condition, exp.And):
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    elif isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this)
    else:
        yield condition


_Comparison = tuple[Column, type[exp.Expr], list[Any]]


def comparisons(
    node: exp.Expr, own: Callable[[exp.Column], Column | None]
) -> Iterator[_Comparison]:
    """The comparisons of a column with constants that a condition is, if it is one."""

    def column(side: exp.Expr) -> Column | None:
        return own(side) if isinstance(side, exp.Column) else None

    if type(node) in _TURNED:
        left, right = node.this, node.expression
        for side, other, kind in ((left, right, type(node)), (right, left, _TURNED[type(node)])):
            if found := column(side):
                yield found, kind, [constant(other)]
    elif isinstance(node, exp.Between) and (found := column(node.this)):
        if not node.args.get("symmetric"):
            yield found, exp.GTE, [constant(node.args["low"])]
            yield found, exp.LTE, [constant(node.args["high"])]
    elif isinstance(node, exp.In) and node.expressions and (found := column(node.this)):
        yield found, exp.In, [constant(each) for each in node.expressions]
