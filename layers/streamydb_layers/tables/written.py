"""A statement that writes rows: what DuckDB's parser has made of it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from streamydb_layers.tables.parsing import Source, source_of, unsupported
from streamydb_layers.tables.trees import Tree, write_tree


@dataclass(frozen=True, slots=True)
class Write:
    """An INSERT, UPDATE or DELETE.

    Attributes:
        node: for the places of errors.
        source: its text, and the values of its parameters.
        tree: of DuckDB.
        alias: what it calls its table.
    """

    node: exp.Expr
    source: Source
    tree: Tree
    alias: str


def written(node: exp.Expr) -> Write:
    """The parts of a statement, by DuckDB's parser.
    Raises StatementUnsupportedError: DuckDB has no tree of it, as of one that pivots by values.
    """
    source = source_of(node)
    tree = write_tree(source.sql)
    if tree is None:
        raise unsupported(node, "A statement that writes does not pivot: create a table of it.")
    target = node.this.this if isinstance(node.this, exp.Schema) else node.this
    return Write(node, source, tree, target.alias_or_name)
