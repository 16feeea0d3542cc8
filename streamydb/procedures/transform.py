"""Rewrite a checked module so that every operation is charged (see `machine`).

Loops, comprehensions and functions tick; operators, methods, attributes, subscripts, comparisons
and formats become calls of the machine where they could take long. Annotations are dropped, and so
are imports, whose names the machine gives.
"""

from __future__ import annotations

import ast
from typing import Any, Final

__all__ = ["KEYS_OF", "instrument"]

_OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Mod: "mod", ast.Pow: "power",
    ast.LShift: "shift", ast.BitOr: "union", ast.BitAnd: "both", ast.BitXor: "either",
}  # fmt: skip
_SMALL: Final = 1 << 64


KEYS_OF: Final = "__keys_of_"
"""Begins the names under which the key functions of procedures stand."""


def _key_functions(node: ast.FunctionDef) -> list[ast.expr]:
    """Return the functions given by `@procedure(keys=...)`."""
    calls = [found for found in node.decorator_list if isinstance(found, ast.Call)]
    return [keyword.value for call in calls for keyword in call.keywords]


def instrument(tree: ast.Module) -> ast.Module:
    """The tree, rewritten in place."""
    made = _Rewriter().visit(tree)
    return ast.fix_missing_locations(made)  # type: ignore[no-any-return]


def _call(helper: str, *args: ast.expr, at: ast.AST) -> ast.Call:
    name = ast.Name(f"__{helper}__", ast.Load())
    return ast.copy_location(ast.Call(name, list(args), []), at)


def _statement(helper: str, at: ast.AST) -> ast.stmt:
    return ast.copy_location(ast.Expr(_call(helper, at=at)), at)


def _is_small(node: ast.expr) -> bool:
    """Return True if a node is a number that makes no other number much longer."""
    return isinstance(node, ast.Constant) and (
        type(node.value) is float or (type(node.value) is int and abs(node.value) < _SMALL)
    )


class _Rewriter(ast.NodeTransformer):
    """One rule for each kind of node."""

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)  # it may be all that a block has

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        made = ast.Assign([node.target], node.value)
        return self._visited(ast.copy_location(made, node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        keys = _key_functions(node)
        node.decorator_list = []
        self.generic_visit(node)
        body = [*node.body] or [ast.Pass()]
        guarded = ast.Try(body, [], [], [_statement("leave", node)])
        node.body = [_statement("enter", node), ast.copy_location(guarded, node)]
        named = ast.Name(KEYS_OF + node.name, ast.Store())
        told = [ast.Assign([named], self._visited(function)) for function in keys]
        return [node, *(ast.copy_location(assign, node) for assign in told)]

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        self.generic_visit(node)
        return _call("wrapped", node, at=node)

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.body.insert(0, _statement("tick", node))
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.body.insert(0, _statement("tick", node))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        node.body = [self._visited(statement) for statement in node.body]
        node.body = [_statement("caught", node), *node.body]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.ifs.insert(0, _call("tick", at=node.iter))
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        self.generic_visit(node)
        items = ast.copy_location(ast.ListComp(node.elt, node.generators), node)
        return _call("iterator", items, at=node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        self.generic_visit(node)
        node.key = _call("key", node.key, at=node)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        self.generic_visit(node)
        for place, key in enumerate(node.keys):
            if key is None:
                node.values[place] = _call("mapping", node.values[place], at=node)
            elif not isinstance(key, ast.Constant):
                node.keys[place] = _call("key", key, at=node)
        return node

    def visit_Set(self, node: ast.Set) -> ast.expr:
        self.generic_visit(node)
        items = ast.copy_location(ast.List(node.elts, ast.Load()), node)
        return _call("make_set", items, at=node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        self.generic_visit(node)
        items = ast.copy_location(ast.ListComp(node.elt, node.generators), node)
        return _call("make_set", items, at=node)

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        self.generic_visit(node)
        node.value = _call("listed", node.value, at=node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        helper = _OPERATORS.get(type(node.op))
        if helper is None:
            return node
        if helper in ("add", "sub") and (_is_small(node.left) or _is_small(node.right)):
            return node
        return _call(helper, node.left, node.right, at=node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        helper = _OPERATORS.get(type(node.op))
        value = self._visited(node.value)
        target = node.target
        if helper is None or (helper in ("add", "sub") and _is_small(value)):
            self.generic_visit(node.target)
            if isinstance(target, ast.Subscript):
                self._index(target)
            node.value = value
            return node
        name = ast.Constant(helper)
        if isinstance(target, ast.Name):
            old = ast.copy_location(ast.Name(target.id, ast.Load()), node)
            made = ast.Assign([target], _call("augment", name, old, value, at=node))
            return ast.copy_location(made, node)
        if not isinstance(target, ast.Subscript):
            return node
        owner, key = self._visited(target.value), self._visited(target.slice)
        changed = _call("augment_item", name, owner, key, value, at=node)
        return ast.copy_location(ast.Expr(changed), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        for place, op in enumerate(node.ops):
            if isinstance(op, ast.Is | ast.IsNot):
                continue
            if isinstance(op, ast.In | ast.NotIn):
                sides[place] = self._wrapped("compared", sides[place])
                sides[place + 1] = self._wrapped("searched", sides[place + 1])
            elif not any(isinstance(side, ast.Constant) for side in sides[place : place + 2]):
                sides[place] = self._wrapped("compared", sides[place])
                sides[place + 1] = self._wrapped("compared", sides[place + 1])
        node.left, node.comparators = sides[0], sides[1:]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Slice):
            parts = [node.slice.lower, node.slice.upper, node.slice.step]
            bounds = [ast.Constant(None) if part is None else part for part in parts]
            return _call("cut", node.value, *bounds, at=node)
        if isinstance(node.ctx, ast.Del):
            node.value = _call("shortened", node.value, at=node)
        self._index(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        return _call("load", node.value, ast.Constant(node.attr), at=node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self._visited(arg) for arg in node.args]
        for keyword in node.keywords:
            keyword.value = self._visited(keyword.value)
            if keyword.arg is None:
                keyword.value = _call("mapping", keyword.value, at=node)
        if not isinstance(node.func, ast.Attribute):
            node.func = self._visited(node.func)
            return node
        owner = self._visited(node.func.value)
        made = _call("method", owner, ast.Constant(node.func.attr), at=node)
        made.args += node.args
        made.keywords = node.keywords
        return made

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        parts: list[ast.expr] = []
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                shown = self._visited(value.value)
                spec: ast.expr = ast.Constant("")
                if value.format_spec is not None:
                    spec = self._visited(value.format_spec)
                conversion = ast.Constant(value.conversion)
                parts.append(_call("formatted", shown, conversion, spec, at=node))
            else:
                parts.append(value)
        return _call("joined", *parts, at=node)

    def _index(self, node: ast.Subscript) -> None:
        if not isinstance(node.slice, ast.Constant):
            node.slice = _call("key", node.slice, at=node)

    def _wrapped(self, helper: str, node: ast.expr) -> ast.expr:
        return node if isinstance(node, ast.Constant) else _call(helper, node, at=node)

    def _visited(self, node: Any) -> Any:
        return self.visit(node)
