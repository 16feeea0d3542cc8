"""The places where a query names tables, each with the conditions that its rows must fulfil.

The conditions are those of WHERE, and those of ON of a join that keeps no other rows of the table.
Each is a comparison that NULL does not fulfil, so a row that an outer join fills with NULL in the
place of one that was left out is dropped as that one is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from streamydb_layers.tables.trees import Tree, is_of

_PLAIN: Final = frozenset({"REGULAR", "CROSS", "NATURAL"})
"""Joins that pair rows by conditions alone; ASOF and POSITIONAL see which others there are."""

_LEFT: Final = frozenset({"INNER", "RIGHT", "SEMI"})
_RIGHT: Final = frozenset({"INNER", "LEFT", "SEMI", "ANTI"})
"""Joins that drop the rows of a side that do not fulfil their condition."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A place in a query that names a table or view.

    Attributes:
        node: of the query's tree.
        conditions: hold for each row of it that can come into the result.
        beside: the tables in the same FROM; None if something else is there.
    """

    node: Tree
    conditions: tuple[Tree, ...] = ()
    beside: tuple[Tree, ...] | None = None


def references(tree: Any) -> list[Reference]:
    """The places of a tree that name tables: not those that name a part of a WITH."""
    return list(_within(tree, frozenset()))


def conjuncts(condition: Tree | None) -> Iterator[Tree]:
    """Yield the conditions that AND joins."""
    if condition is None:
        return
    if is_of(condition, "CONJUNCTION_AND"):
        for each in condition["children"]:
            yield from conjuncts(each)
    else:
        yield condition


def is_renamed(node: Tree) -> bool:
    """Return True if a query gives the columns of a table other names: `t as x(a, b)`."""
    return bool(node["column_name_alias"])


def _within(node: Any, names: frozenset[str]) -> Iterator[Reference]:
    if isinstance(node, list):
        for each in node:
            yield from _within(each, names)
    if not isinstance(node, dict):
        return
    parts = dict(node)
    if "cte_map" in node:
        for part in parts.pop("cte_map")["map"]:
            yield from _within(part["value"], names)
            names |= {part["key"].lower()}
    if is_of(node, "RECURSIVE_CTE_NODE"):
        names |= {node["cte_name"].lower()}
    if is_of(node, "BASE_TABLE") and _is_stored(node, names):
        yield Reference(node)
    if is_of(node, "SELECT_NODE"):
        yield from _from(parts.pop("from_table"), node["where_clause"], names)
    for value in parts.values():
        yield from _within(value, names)


def _from(source: Tree, where: Tree | None, names: frozenset[str]) -> Iterator[Reference]:
    """Yield the tables of a FROM, and those of the queries and conditions in it."""
    found = list(_leaves(source, tuple(conjuncts(where))))
    plain = all(
        is_of(leaf, "BASE_TABLE") and _is_stored(leaf, names) and not is_renamed(leaf)
        for leaf, _ in found
    )
    for number, (leaf, conditions) in enumerate(found):
        if is_of(leaf, "BASE_TABLE") and _is_stored(leaf, names):
            others = (other for place, (other, _) in enumerate(found) if place != number)
            alone = len(found) == 1
            yield Reference(leaf, conditions, tuple(others) if plain or alone else None)
        elif not is_of(leaf, "BASE_TABLE"):
            yield from _within(leaf, names)
    for join in _joins(source):
        yield from _within({**join, "left": None, "right": None}, names)


def _leaves(source: Tree, conditions: tuple[Tree, ...]) -> Iterator[tuple[Tree, tuple[Tree, ...]]]:
    """Yield what joins put together, with the conditions of each."""
    if not is_of(source, "JOIN"):
        yield source, conditions
        return
    kind, plain = source["join_type"], source["ref_type"] in _PLAIN
    own = tuple(conjuncts(source["condition"])) if plain else ()
    above = conditions if plain else ()
    yield from _leaves(source["left"], above + (own if kind in _LEFT else ()))
    seen = () if kind in {"SEMI", "ANTI"} else above
    yield from _leaves(source["right"], seen + (own if kind in _RIGHT else ()))


def _joins(source: Tree) -> Iterator[Tree]:
    if is_of(source, "JOIN"):
        yield source
        yield from _joins(source["left"])
        yield from _joins(source["right"])


def _is_stored(node: Tree, names: frozenset[str]) -> bool:
    schema = node["schema_name"] or node["catalog_name"]
    return bool(schema) or node["table_name"].lower() not in names
