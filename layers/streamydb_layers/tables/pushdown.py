"""Put the conditions of a query into the views that it reads, so that they narrow what is read.

A condition goes in if its column is one of the view's query itself, and if the rows of the view
with a value of it come of rows with that value alone: no window, LIMIT or DISTINCT ON is to see
fewer rows. Of a query with groups, such a column is one that it groups by. DuckDB applies the
condition outside again.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamydb_layers.tables import trees
from streamydb_layers.tables.access import Own, Parameters, comparisons
from streamydb_layers.tables.schema import View
from streamydb_layers.tables.trees import Tree, is_of
from streamydb_layers.tables.types import MISSING


def narrowed(
    query: Tree, view: View, conditions: Iterable[Tree], own: Own, values: Parameters
) -> Tree:
    """A copy of a view's query, with conditions of the query that names the view.

    Args:
        query: the tree of the view's query.
        view: whose query.
        conditions: hold for each row of the view that can come into the result.
        own: the view's column that a name means there.
        values: of parameters.
    """
    made = trees.copied(query)
    outputs = _outputs(made, view)
    for condition in conditions:
        compared = list(comparisons(condition, own, values))
        known = all(value is not MISSING for *_, constants in compared for value in constants)
        if compared and known and all(column.name in outputs for column, *_ in compared):
            inside = trees.copied(condition)
            for node in list(trees.columns(inside)):
                if (column := own(node)) is not None:
                    node.update(trees.copied(outputs[column.name]))
            made["where_clause"] = trees.both(made["where_clause"], inside)
    return made


def _outputs(query: Tree, view: View) -> dict[str, Tree]:
    """The columns of a view that are columns of its query; none if rows depend on others."""
    if not is_of(query, "SELECT_NODE") or query["sample"] or query["qualify"]:
        return {}
    if any(not is_of(each, "ORDER_MODIFIER") for each in query["modifiers"]):
        return {}
    if any(is_of(node, "WINDOW") or _is_choice(node) for node in trees.walk(query)):
        return {}
    if any(is_of(node, "BASE_TABLE") and node["sample"] for node in trees.walk(query)):
        return {}
    parts = query["select_list"]
    if any(is_of(part, "STAR") for part in parts):
        return _of_stars(parts, view)
    if len(parts) != len(view.columns):
        return {}
    made = {part["alias"].lower() for part in parts if not is_of(part, "COLUMN_REF")}
    return {
        column.name: trees.reference(*node["column_names"])
        for column, node in zip(view.columns, parts, strict=True)
        if is_of(node, "COLUMN_REF")
        and (len(node["column_names"]) > 1 or node["column_names"][0].lower() not in made)
    }


def _of_stars(parts: list[Tree], view: View) -> dict[str, Tree]:
    """The same for a query with plain stars, beside columns and names that are given."""
    for part in parts:
        if is_of(part, "STAR") and _is_changed(part):
            return {}
        if not is_of(part, "STAR") and not is_of(part, "COLUMN_REF") and not part["alias"]:
            return {}
    given = {part["alias"].lower() for part in parts if part["alias"]}
    if view.renamed:
        return {}
    return {
        column.name: trees.reference(column.name)
        for column in view.columns
        if column.name.lower() not in given
    }


def _is_choice(node: Tree) -> bool:
    """Return True for COLUMNS(...)."""
    return is_of(node, "STAR") and bool(node["columns"])


def _is_changed(star: Tree) -> bool:
    """Return True for a star with EXCLUDE, REPLACE or RENAME."""
    changes = ("exclude_list", "replace_list", "rename_list", "qualified_exclude_list", "expr")
    return any(star[name] for name in changes)
