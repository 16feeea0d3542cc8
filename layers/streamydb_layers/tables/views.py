"""Views: queries with a name, which the catalog keeps and a statement opens where it names them.

A view sees of each table the columns that it was defined over, so a column that is added later
changes none. What it sees is not dropped, renamed or replaced by something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp

from streamydb_layers.tables.definitions import COLUMNS_MAX, named
from streamydb_layers.tables.errors import StatementInvalidError, place_of
from streamydb_layers.tables.parsing import only, source_of, unsupported
from streamydb_layers.tables.reading import Reader
from streamydb_layers.tables.schema import Column, Relation, View, relation_of
from streamydb_layers.tables.sources import references
from streamydb_layers.tables.transaction import Overlay
from streamydb_layers.tables.trees import Tree, alias_of, is_of, query_tree, walk


class Views:
    """The views in one statement.

    Args:
        reader: of the statement.
        transaction: the statement's own overlay.
    """

    def __init__(self, reader: Reader, transaction: Overlay) -> None:
        self._reader, self._transaction = reader, transaction

    def create(self, node: exp.Create) -> None:
        """Create a view, or replace one.
        Raises StatementInvalidError: the name is taken, the query cannot be run, or its columns are
        not those that other views need; StatementUnsupportedError: the statement says more than
        tables understand.
        """
        only(node, "this", "kind", "exists", "replace", "expression")
        shape = node.this if isinstance(node.this, exp.Schema) else None
        target = node.this if shape is None else shape.this
        only(target, "this")
        there = self._reader.relation(target.name)
        if isinstance(there, View) and node.args.get("exists"):
            return
        if there is not None and not (isinstance(there, View) and node.args.get("replace")):
            raise StatementInvalidError(f"There is a {there.noun} {there.name}.", place_of(target))
        query = node.expression
        if not isinstance(query, exp.Query | exp.Values):
            raise unsupported(node, "A view is created of a query.")
        sql = source_of(query).sql
        tree = query_tree(sql)
        if tree is None:
            raise unsupported(query, "A view does not pivot by the values that there are.")
        uses = self._uses(tree, query)
        columns = self._columns(query, uses, [] if shape is None else shape.expressions)
        made = View(named(target), columns, sql, uses, renamed=shape is not None)
        if there is not None:
            self._replace(made, there, target)
        self._transaction.put(self._reader.keys.table(made.name), made.stored())

    def drop(self, target: exp.Expr, *, exists: bool) -> None:
        """Drop a view. Raises StatementInvalidError: there is none, or another one uses it."""
        found = self._reader.relation(target.name)
        if found is None and exists:
            return
        if not isinstance(found, View):
            name = target.name
            why = f"There is no view {name}." if found is None else f"{name} is a table, no view."
            raise StatementInvalidError(why, place_of(target))
        self.require_unused(found, target)
        self._transaction.delete(self._reader.keys.table(found.name))

    def require_unused(
        self, relation: Relation, place: exp.Expr, column: str | None = None
    ) -> None:
        """Raise `StatementInvalidError` if a view uses a table or view, or a column of it."""
        users = [
            view.name
            for view in self._users(relation.name)
            if column is None or column in view.uses[relation.name.lower()]
        ]
        if users:
            what = f"{relation.noun} {relation.name}"
            what = what if column is None else f"column {column} of {what}"
            raise StatementInvalidError(
                f"View {', '.join(users)} uses {what}: drop the view first.", place_of(place)
            )

    def _users(self, name: str) -> list[View]:
        """The views whose queries name a table or view."""
        found = self._transaction.scan(*self._reader.keys.tables())
        views = [each for _, stored in found if isinstance(each := relation_of(stored), View)]
        return [view for view in views if name.lower() in view.uses]

    def _replace(self, made: View, there: View, target: exp.Expr) -> None:
        users = self._users(there.name)
        if made.columns != there.columns and users:
            names = ", ".join(view.name for view in users)
            raise StatementInvalidError(
                f"View {names} uses view {there.name}: it keeps its columns.", place_of(target)
            )
        open_, seen = [*made.uses], set[str]()
        while open_:
            name = open_.pop()
            if name == there.name.lower():
                raise StatementInvalidError(
                    f"View {there.name} would use itself.", place_of(target)
                )
            found = self._reader.relation(name)
            if isinstance(found, View) and name not in seen:
                seen.add(name)
                open_ += found.uses

    def _uses(self, tree: Tree, query: exp.Expr) -> dict[str, tuple[str, ...]]:
        """The tables and views that a query names, and which of their columns it sees."""
        nodes = [each.node for each in references(tree)]
        found = {
            node["table_name"].lower(): self._reader.relation_of(node, query) for node in nodes
        }
        said = set(_names(tree))
        whole = _sees_all(tree, {alias_of(node).lower() for node in nodes})
        uses = {}
        for name, relation in found.items():
            names = [column.name for column in relation.columns]
            some = [each for each in names if each.lower() in said]
            every = whole or isinstance(relation, View)
            uses[name] = tuple(names if every else some or names[:1])
        return uses

    def _columns(
        self, query: exp.Expr, uses: Mapping[str, tuple[str, ...]], given: list[exp.Expr]
    ) -> tuple[Column, ...]:
        """The columns of a view."""
        described = self._reader.described(query, uses)
        if given and len(given) != len(described):
            raise StatementInvalidError(
                f"There are {len(given)} names for {len(described)} columns.", place_of(given[0])
            )
        if len(described) > COLUMNS_MAX:
            raise StatementInvalidError(f"A view has at most {COLUMNS_MAX} columns.")
        names = [node.name for node in given] or [name for name, _ in described]
        folded = [name.lower() for name in names]
        for number, name in enumerate(folded):
            if name in folded[:number]:
                raise StatementInvalidError(
                    f"Two columns have the name {names[number]}.",
                    place_of(given[number] if given else query),
                )
        return tuple(Column(name, kind) for name, (_, kind) in zip(names, described, strict=True))


_LISTS: Final = ("column_names", "using_columns")
"""Where the nodes of a tree have the names of columns."""

_WHOLE: Final = ("STAR", "POSITIONAL_REFERENCE", "PIVOT", "SHOW_REF")
_PLAIN: Final = ("REGULAR", "CROSS")


def _names(tree: Tree) -> Iterator[str]:
    """Yield the names of columns in a query."""
    for node in walk(tree):
        for part in _LISTS:
            yield from (name.lower() for name in node.get(part) or [])


def _sees_all(tree: Tree, sources: set[str]) -> bool:
    """Return True if a query may see columns that it does not name."""
    for node in walk(tree):
        if any(is_of(node, name) for name in _WHOLE):
            return True
        if is_of(node, "JOIN") and node["ref_type"] not in _PLAIN:
            return True
        names = node.get("column_names") or []
        if len(names) == 1 and names[0].lower() in sources:
            return True  # a whole row
    return False
