"""Nodes that are put into the tree of a module: calls of helpers, tests of kinds."""

from __future__ import annotations

import ast
from typing import Final

TYPE: Final = "__type_"
INTEGER: Final = "__int_"
"""Names under which code finds the type of a value, and the type of integers."""
LIST: Final = "__list_"
"""The type of lists, of which an item is found at once."""


def helper_call(helper: str, *args: ast.expr, at: ast.AST) -> ast.Call:
    """Return a call of the machine, in the place of a node."""
    name = ast.Name(f"__{helper}__", ast.Load())
    return ast.copy_location(ast.Call(name, list(args), []), at)


def statement(helper: str, at: ast.AST) -> ast.stmt:
    """Return a call of the machine without arguments, as a statement."""
    return ast.copy_location(ast.Expr(helper_call(helper, at=at)), at)


def is_kind(node: ast.expr, kind: str) -> ast.expr:
    """Return a test of the type of a name's value; ``kind``: the name of the type."""
    assert isinstance(node, ast.Name)  # noqa: S101 - what is read twice is a name
    read = ast.Name(node.id, ast.Load())
    found = ast.Call(ast.Name(TYPE, ast.Load()), [read], [])
    made = ast.Compare(found, [ast.Is()], [ast.Name(kind, ast.Load())])
    return ast.fix_missing_locations(ast.copy_location(made, node))
