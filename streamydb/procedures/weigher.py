"""The work of a module's code: the steps of executing it once, by the kinds of its nodes."""

from __future__ import annotations

import ast
from typing import Final

NODES_PER_STEP: Final = 64
"""Nodes of a syntax tree, the plainest ones, that one step executes."""

_WEIGHTS: Final[dict[type[ast.AST], int]] = {
    **dict.fromkeys((ast.BinOp, ast.AugAssign, ast.Compare), 12),
    **dict.fromkeys((ast.JoinedStr, ast.FormattedValue, ast.Subscript, ast.Starred), 8),
    **dict.fromkeys((ast.For, ast.While), 8),
    **dict.fromkeys((ast.Lambda, ast.FunctionDef, ast.ListComp, ast.SetComp), 16),
    **dict.fromkeys((ast.DictComp, ast.GeneratorExp, ast.Set, ast.Raise, ast.Assert), 16),
    **dict.fromkeys((ast.Call, ast.Attribute, ast.Try, ast.Delete, ast.Dict, ast.List), 4),
    **dict.fromkeys((ast.expr_context, ast.Load, ast.Store, ast.Del), 0),
}
_NO_WEIGHT: Final = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


def _inside(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that are executed with it, not once for each iteration or call."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        return [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    if isinstance(node, ast.For):
        return [node.iter, *node.orelse]
    if isinstance(node, ast.While):
        return [node.test, *node.orelse]
    if isinstance(node, ast.arg | ast.AnnAssign):  # annotations are not executed
        return [node.target, *filter(None, [node.value])] if isinstance(node, ast.AnnAssign) else []
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return [node.generators[0].iter]
    return list(ast.iter_child_nodes(node))


def steps_of(*roots: ast.AST | None) -> int:
    """The steps of executing these nodes once, beyond the one that leads to them."""
    weight = 0
    nodes = [node for node in roots if node is not None]
    while nodes:
        node = nodes.pop()
        if not isinstance(node, _NO_WEIGHT):
            weight += _WEIGHTS.get(type(node), 1)
            nodes += _inside(node)
    return weight // NODES_PER_STEP


def handlers_in(node: ast.AST, around: int = 0) -> int:
    """The most exceptions that one function may be handling at a time."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        around = 0
    around += isinstance(node, ast.ExceptHandler)
    return max((handlers_in(each, around) for each in ast.iter_child_nodes(node)), default=around)


def may_delete(node: ast.AST) -> bool:
    """Return True if a node may leave a gap in a dict or set."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("discard", "pop", "remove")
    return isinstance(node, ast.Delete)
