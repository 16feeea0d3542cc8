"""Put the conditions of a query into the views that it reads, so that they narrow what is read.

A condition goes in if its column is one of the view's query itself, and if the rows of the view
with a value of it come of rows with that value alone: no window, LIMIT or DISTINCT ON is to see
fewer rows. Of a query with groups, such a column is one that it groups by. DuckDB applies the
condition outside again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp, parse_one

from streamydb.layers.tables.access import comparisons, conditions
from streamydb.layers.tables.parsing import DIALECT
from streamydb.layers.tables.schema import Column, View
from streamydb.layers.tables.types import MISSING

__all__ = ["opened"]

_PLAIN: Final = {"expressions", "from_", "joins", "where", "group", "having", "order", "with_"}


def opened(
    view: View, reference: exp.Table, own: Callable[[exp.Column], Column | None]
) -> exp.Expr:
    """The query of a view, with conditions of the query that names the view.

    Args:
        view: whose query.
        reference: where another query names it.
        own: the view's column that a name means there; None if it could be that of another table.
    """
    query: exp.Expr = parse_one(view.query, dialect=DIALECT)
    outputs = _outputs(query, view)
    for condition in conditions(reference):
        compared = list(comparisons(condition, own))
        if not compared or any(value is MISSING for *_, values in compared for value in values):
            continue
        if isinstance(query, exp.Select) and all(c.name in outputs for c, *_ in compared):
            inside = condition.copy()
            for node in list(inside.find_all(exp.Column)):
                if (column := own(node)) is not None:
                    node.replace(outputs[column.name].copy())
            query.where(inside, copy=False)
    return query


def _outputs(query: exp.Expr, view: View) -> dict[str, exp.Column]:
    """The columns of a view that are columns of its query; none if rows depend on others."""
    if not isinstance(query, exp.Select) or query.find(exp.Window, exp.TableSample, exp.Columns):
        return {}
    if any(value and name not in _PLAIN for name, value in query.args.items()):
        return {}
    parts = query.expressions
    made = {part.alias.lower() for part in parts if not isinstance(part.unalias(), exp.Column)}
    if any(part.is_star for part in parts):
        return _of_stars(parts, view)
    if len(parts) != len(view.columns):
        return {}
    named = zip(view.columns, (part.unalias() for part in parts), strict=True)
    return {
        column.name: node
        for column, node in named
        if isinstance(node, exp.Column) and (node.table or node.name.lower() not in made)
    }


def _of_stars(parts: list[exp.Expr], view: View) -> dict[str, exp.Column]:
    """The same for a query with plain stars, beside columns and names that are given."""
    for part in parts:
        star = part.this if isinstance(part, exp.Column) else part
        if isinstance(star, exp.Star) and any(star.args.values()):
            return {}
        if not part.is_star and not isinstance(part, exp.Alias | exp.Column):
            return {}
    given = {part.alias.lower() for part in parts if isinstance(part, exp.Alias)}
    if view.renamed:
        return {}
    return {
        column.name: exp.column(column.name, quoted=True)
        for column in view.columns
        if column.name.lower() not in given
    }
