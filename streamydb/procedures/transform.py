"""Rewrite a checked module so that every operation is charged (see `machine`).

Loops, comprehensions and functions tick; operators, methods, attributes, subscripts, comparisons
and formats become calls of the machine where they could take long. Annotations are dropped, and so
are imports, whose names the machine gives.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from streamydb.procedures.graph import BoundNames
from streamydb.procedures.meter import TEXT_PER_STEP

_OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Mod: "mod", ast.Pow: "power",
    ast.LShift: "shift", ast.BitOr: "union", ast.BitAnd: "both", ast.BitXor: "either",
}  # fmt: skip
_SMALL: Final = 1 << 64
_METHOD_OF: Final = {1: "method1", 2: "method2"}
"""The helper that calls a method, by the number of its arguments."""
_QUICK: Final = {
    ("get", 1): "get1", ("get", 2): "get2", ("put", 2): "put2", ("add", 2): "add2",
    ("append", 1): "append1",
}  # fmt: skip
"""Helpers that call one method, see `quick`."""
_AUGMENTS: Final = {"add": "grown"}
"""Helpers that augment a name; the other operators do what they do in an expression."""
_SPREAD_MOST: Final = 2
"""With more values, a helper takes a template instead of text and value by turns."""
_FILLED: Final = {1: "filled1", 2: "filled2", **dict.fromkeys(range(3, 9), "filled")}
"""The helper that makes a text, by the number of values in it."""


TYPE: Final = "__type_"
INTEGER: Final = "__int_"
"""Names under which code finds the type of a value, and the type of integers."""
_DIGITS: Final = 18
"""An integer that takes no more characters is below `quick`'s longest."""
KEYS_OF: Final = "__keys_of_"
"""Begins the names under which the key functions of procedures stand."""


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


def is_small(node: ast.expr) -> bool:
    """Return True if a node is a number that makes no other number much longer."""
    return isinstance(node, ast.Constant) and (
        type(node.value) is float or (type(node.value) is int and abs(node.value) < _SMALL)
    )


class _Rewriter(ast.NodeTransformer):
    """One rule for each kind of node; `weigher` adds to them."""

    operators = _OPERATORS
    fills = False
    """Texts are made by `quick`'s helpers; comprehensions have to tell `bound` of their names."""

    def __init__(self) -> None:
        self.bound = BoundNames()

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
        calls = [found for found in node.decorator_list if isinstance(found, ast.Call)]
        keys = [keyword.value for call in calls for keyword in call.keywords]
        node.decorator_list = []
        node.args = self._visited(node.args)
        with self.bound.within(node):
            node.body = self._each(node.body)
        body = [*node.body] or [ast.Pass()]
        guarded = ast.Try(body, [], [], [statement("leave", node)])
        node.body = [statement("enter", node), ast.copy_location(guarded, node)]
        named = ast.Name(KEYS_OF + node.name, ast.Store())
        told = [ast.Assign([named], self._visited(function)) for function in keys]
        return [node, *(ast.copy_location(assign, node) for assign in told)]

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        node.args = self._visited(node.args)
        with self.bound.within(node):
            node.body = self._visited(node.body)
        return helper_call("wrapped", node, at=node)

    def visit_For(self, node: ast.For) -> ast.For:
        node.target, node.iter = self._visited(node.target), self._visited(node.iter)
        with self.bound.repeated(node.target):
            node.body = self._each(node.body)
        node.orelse = self._each(node.orelse)
        node.body.insert(0, statement("tick", node))
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.body.insert(0, statement("tick", node))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        node.body = [self._visited(statement) for statement in node.body]
        node.body = [statement("caught", node), *node.body]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.ifs.insert(0, helper_call("tick", at=node.iter))
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        self.generic_visit(node)
        items = ast.copy_location(ast.ListComp(node.elt, node.generators), node)
        return helper_call("iterator", items, at=node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        self.generic_visit(node)
        node.key = helper_call("key", node.key, at=node)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        self.generic_visit(node)
        for place, key in enumerate(node.keys):
            if key is None:
                node.values[place] = helper_call("mapping", node.values[place], at=node)
            elif not isinstance(key, ast.Constant):
                node.keys[place] = helper_call("key", key, at=node)
        return node

    def visit_Set(self, node: ast.Set) -> ast.expr:
        self.generic_visit(node)
        items = ast.copy_location(ast.List(node.elts, ast.Load()), node)
        return helper_call("make_set", items, at=node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        self.generic_visit(node)
        items = ast.copy_location(ast.ListComp(node.elt, node.generators), node)
        return helper_call("make_set", items, at=node)

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        self.generic_visit(node)
        node.value = helper_call("listed", node.value, at=node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        helper = self.operators.get(type(node.op))
        if helper is None or self.is_free(helper, node.left, node.right):
            return node
        return helper_call(helper, node.left, node.right, at=node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        helper = self.operators.get(type(node.op))
        value = self._visited(node.value)
        target = node.target
        if helper is None or self.is_free(helper, value, value):
            self.generic_visit(node.target)
            if isinstance(target, ast.Subscript):
                self.place(target)
            node.value = value
            return node
        name = ast.Constant(helper)
        if isinstance(target, ast.Name):
            old = ast.copy_location(ast.Name(target.id, ast.Load()), node)
            changed = helper_call(_AUGMENTS.get(helper, helper), old, value, at=node)
            return ast.copy_location(ast.Assign([target], changed), node)
        if not isinstance(target, ast.Subscript):
            return node
        owner, key = self._visited(target.value), self._visited(target.slice)
        changed = helper_call("augment_item", name, owner, key, value, at=node)
        return ast.copy_location(ast.Expr(changed), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        for place, op in enumerate(node.ops):
            if isinstance(op, ast.Is | ast.IsNot):
                continue
            if isinstance(op, ast.In | ast.NotIn):
                sides[place] = self.side(op, sides[place])
                sides[place + 1] = self.side(op, sides[place + 1], searched=True)
            elif not self.is_quick(*sides[place : place + 2]):
                sides[place] = self.side(op, sides[place])
                sides[place + 1] = self.side(op, sides[place + 1])
        node.left, node.comparators = sides[0], sides[1:]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Slice):
            parts = [node.slice.lower, node.slice.upper, node.slice.step]
            bounds = [ast.Constant(None) if part is None else part for part in parts]
            return helper_call("cut", node.value, *bounds, at=node)
        if isinstance(node.ctx, ast.Del):
            node.value = helper_call("shortened", node.value, at=node)
        return self.indexed(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        return helper_call("load", node.value, ast.Constant(node.attr), at=node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self._visited(arg) for arg in node.args]
        for keyword in node.keywords:
            keyword.value = self._visited(keyword.value)
            if keyword.arg is None:
                keyword.value = helper_call("mapping", keyword.value, at=node)
        if not isinstance(node.func, ast.Attribute):
            node.func = self._visited(node.func)
            return node
        owner = self._visited(node.func.value)
        packed = node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args)
        quick = None if packed else _QUICK.get((node.func.attr, len(node.args)))
        if quick is not None:
            return helper_call(quick, owner, *node.args, at=node)
        helper = "method" if packed else _METHOD_OF.get(len(node.args), "method")
        made = helper_call(helper, owner, ast.Constant(node.func.attr), at=node)
        made.args += node.args
        made.keywords = node.keywords
        return made

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        if (filled := self._filled(node)) is not None:
            return filled
        parts: list[ast.expr] = []
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                shown = self._visited(value.value)
                spec: ast.expr = ast.Constant("")
                if value.format_spec is not None:
                    spec = self._visited(value.format_spec)
                conversion = ast.Constant(value.conversion)
                parts.append(helper_call("formatted", shown, conversion, spec, at=node))
            else:
                parts.append(value)
        return helper_call("joined", *parts, at=node)

    def _filled(self, node: ast.JoinedStr) -> ast.expr | None:
        """Rewrite an f-string with few values, and no format; None: it is another one."""
        if not self.fills:
            return None
        texts: list[str] = [""]
        values: list[ast.expr] = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                texts[-1] += str(part.value)
                continue
            if not isinstance(part, ast.FormattedValue) or part.format_spec is not None:
                return None
            at_hand = isinstance(part.value, ast.Name) and part.value.id in self.bound
            if part.conversion != -1 or (values and not at_hand):
                return None
            values.append(part.value)
            texts.append("")
        helper = _FILLED.get(len(values))
        if helper is None:
            return None
        shown = [self._visited(value) for value in values]
        if len(values) > _SPREAD_MOST:
            template = "%s".join(text.replace("%", "%%") for text in texts)
            between = ast.Tuple([ast.Constant(text) for text in texts], ast.Load())
            made: list[ast.expr] = [ast.Constant(template), between, *shown]
        else:
            pairs = zip(shown, map(ast.Constant, texts[1:]), strict=True)
            made = [ast.Constant(texts[0]), *(part for pair in pairs for part in pair)]
        filled = helper_call(helper, *made, at=node)
        most = sum(map(len, texts)) + _DIGITS
        if most >= TEXT_PER_STEP or not all(isinstance(value, ast.Name) for value in values):
            return filled
        steps = ast.Constant(1 + len(values))
        made = [is_kind(value, INTEGER) for value in values]
        made.append(helper_call("texted", node, steps, ast.Constant(most), at=node))
        quick = ast.copy_location(ast.BoolOp(ast.And(), made), node)
        return ast.copy_location(ast.BoolOp(ast.Or(), [quick, filled]), node)

    def _each(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        made = [self._visited(node) for node in nodes]
        return [one for each in made for one in (each if isinstance(each, list) else [each])]

    def side(self, op: ast.cmpop, node: ast.expr, *, searched: bool = False) -> ast.expr:
        """Rewrite a side of a comparison; ``searched``:
        the one in which the other is looked for.
        """
        del op
        return self.wrapped("searched" if searched else "compared", node)

    def is_quick(self, left: ast.expr, right: ast.expr) -> bool:
        """Return True if two values are compared at once, as one of them is a literal."""
        return isinstance(left, ast.Constant) or isinstance(right, ast.Constant)

    def is_free(self, helper: str, left: ast.expr, right: ast.expr) -> bool:
        """Return True if an operation is done at once, as one of its operands is small."""
        return helper in ("add", "sub") and (is_small(left) or is_small(right))

    def indexed(self, node: ast.Subscript) -> ast.expr:
        """Rewrite an item that is read, stored or deleted."""
        self.place(node)
        return node

    def place(self, node: ast.Subscript) -> None:
        """Rewrite the index of an item."""
        if not isinstance(node.slice, ast.Constant):
            node.slice = helper_call("key", node.slice, at=node)

    def wrapped(self, helper: str, node: ast.expr) -> ast.expr:
        """Return a call of a helper with a value; a literal needs none."""
        return node if isinstance(node, ast.Constant) else helper_call(helper, node, at=node)

    def _visited(self, node: Any) -> Any:
        return self.visit(node)


Rewriter = _Rewriter
