"""Rewrite a checked module so that what it is charged follows its work.

It adds to `transform` the charges for long literals in comparisons, keys that are found late,
divisions, and code that is long without a loop or a call.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from streamydb.procedures.meter import TEXT_PER_STEP
from streamydb.procedures.transform import Rewriter, helper_call, statement
from streamydb.procedures.work import SEARCHED_FREE

__all__ = ["LIST", "NODES_PER_STEP", "instrument"]

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
_ONE_DIGIT: Final = 1 << 30
LIST: Final = "__list_"
"""The type of lists, of which an item is found at once."""
_OWNER: Final = "__owner_"
"""Holds the owner of an item while its key is looked at."""


def instrument(tree: ast.Module) -> ast.Module:
    """Rewrite the tree in place."""
    return ast.fix_missing_locations(_Weigher(tree).visit(tree))  # type: ignore[no-any-return]


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


def _steps(*roots: ast.AST | None) -> int:
    """The steps of executing these nodes once, beyond the one that leads to them."""
    weight = 0
    nodes = [node for node in roots if node is not None]
    while nodes:
        node = nodes.pop()
        if not isinstance(node, _NO_WEIGHT):
            weight += _WEIGHTS.get(type(node), 1)
            nodes += _inside(node)
    return weight // NODES_PER_STEP


def _steps_of_comprehension(node: Any) -> int:
    """The steps of one iteration; of several loops within each other, those of all."""
    made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    loops = [part for each in node.generators for part in (each.target, each.iter, *each.ifs)]
    return _steps(*made, *loops)


def _handlers(node: ast.AST, around: int = 0) -> int:
    """The most exceptions that one function may be handling at a time."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        around = 0
    around += isinstance(node, ast.ExceptHandler)
    return max((_handlers(each, around) for each in ast.iter_child_nodes(node)), default=around)


def _deletes(node: ast.AST) -> bool:
    """Return True if a node may leave a gap in a dict or set."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("discard", "pop", "remove")
    return isinstance(node, ast.Delete)


def _is_long(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and type(node.value) is str
        and len(node.value) > TEXT_PER_STEP // 4
    )


def _is_plain(node: ast.expr) -> bool:
    """Return True for a literal with which anything is compared at once."""
    return isinstance(node, ast.Constant) and not _is_long(node)


class _Weigher(Rewriter):
    """The rules that charge for the work of each construct."""

    operators = Rewriter.operators | {ast.FloorDiv: "floor"}
    fills = True

    def __init__(self, tree: ast.Module) -> None:
        """Rewrite this module."""
        super().__init__()
        self.handlers = _handlers(tree)
        self.deletes = any(map(_deletes, ast.walk(tree)))
        self.comprehensions: list[int] = []
        """The steps of an iteration of each comprehension that is being rewritten."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        steps = _steps(*node.body)
        self.generic_visit(node)
        if steps:
            node.body.insert(0, self._charged(steps, node))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        steps = _steps(*node.body, *node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        made = super().visit_FunctionDef(node)
        if steps:
            node.body[0] = self._statement("enter", steps + 1, node)
        return made

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        steps = _steps(node.body, *node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        made = super().visit_Lambda(node)
        assert isinstance(made, ast.Call)  # noqa: S101 - as lambdas are rewritten
        if steps:
            made.args.append(ast.Constant(steps + 1))
        return made

    def visit_For(self, node: ast.For) -> ast.For:
        steps = _steps(node.target, *node.body)
        super().visit_For(node)
        node.iter = self._iterated(node.iter)
        if steps:
            node.body[0] = self._charged(steps + 1, node)
        if self.deletes and isinstance(node.target, ast.Tuple | ast.List):
            node.body.insert(0, statement("pass_gaps", node))
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        unpacks = any(isinstance(target, ast.Tuple | ast.List) for target in node.targets)
        self.generic_visit(node)
        if unpacks and not isinstance(node.value, ast.Tuple | ast.List):
            node.value = self._iterated(node.value)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        if len(node.keys) <= SEARCHED_FREE:
            return super().visit_Dict(node)
        if None in node.keys:
            return helper_call("mapping", super().visit_Dict(node), at=node)
        items = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key]
        pairs: list[ast.expr] = [
            ast.Tuple([self._visited(key), self._visited(value)], ast.Load())
            for key, value in items
        ]
        return helper_call("make_dict", ast.List(pairs, ast.Load()), at=node)

    def visit_While(self, node: ast.While) -> ast.While:
        steps = _steps(node.test, *node.body)
        super().visit_While(node)
        if steps:
            node.body[0] = self._charged(steps + 1, node)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        made = super().visit_ExceptHandler(node)
        made.body[0] = self._statement("caught", self.handlers, node)
        return made

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        super().visit_comprehension(node)
        node.iter = self._iterated(node.iter)
        steps = self.comprehensions[-1]
        unpacks = self.deletes and isinstance(node.target, ast.Tuple | ast.List)
        if steps or unpacks:
            more = [ast.Constant(True)] if unpacks else []
            node.ifs[0] = helper_call("spent", ast.Constant(steps + 1), *more, at=node.iter)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self._comprehended(node, super().generic_visit)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        return self._comprehended(node, super().visit_SetComp)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        return self._comprehended(node, super().visit_GeneratorExp)

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        pair = ast.copy_location(ast.Tuple([node.key, node.value], ast.Load()), node)
        pairs = ast.copy_location(ast.ListComp(pair, node.generators), node)
        return helper_call("make_dict", self.visit_ListComp(pairs), at=node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.In | ast.NotIn):
            return super().visit_Compare(node)
        self.generic_visit(node)
        item, container = node.left, node.comparators[0]
        if _is_plain(container):
            node.left = self.wrapped("compared", item)
            return node
        held = helper_call("held", item, container, at=node)
        if isinstance(node.ops[0], ast.In):
            return held
        return ast.copy_location(ast.UnaryOp(ast.Not(), held), node)

    def side(self, op: ast.cmpop, node: ast.expr, *, searched: bool = False) -> ast.expr:
        """Rewrite a side of a comparison."""
        if searched:
            return node if _is_plain(node) else helper_call("delved", node, at=node)
        ranks = isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        return self.wrapped("ranked" if ranks else "compared", node)

    def is_quick(self, left: ast.expr, right: ast.expr) -> bool:
        """Return True if two values are compared at once, as one of them is a literal."""
        return _is_plain(left) or _is_plain(right)

    def is_free(self, helper: str, left: ast.expr, right: ast.expr) -> bool:
        """As `Rewriter.is_free`; a division by a number of one digit takes no time, either."""
        if helper != "floor":
            return super().is_free(helper, left, right)
        value = right.value if isinstance(right, ast.Constant) else None
        return type(value) is int and -_ONE_DIGIT < value < _ONE_DIGIT

    def indexed(self, node: ast.Subscript) -> ast.expr:
        """Rewrite an item that is read, stored or deleted, with the owner beside its key."""
        key = node.slice
        if isinstance(key, ast.Constant) and type(key.value) is str and not _is_long(key):
            return node
        if isinstance(node.ctx, ast.Load):
            item = helper_call("item", node.value, key, at=node)
            return self._at_once(node, item) if isinstance(key, ast.Constant) else item
        self.place(node)
        return node

    def place(self, node: ast.Subscript) -> None:
        """Rewrite the index of an item that is stored or deleted."""
        key = node.slice
        if isinstance(key, ast.Constant) and type(key.value) is str and not _is_long(key):
            return
        if self.comprehensions:  # no name is bound in the head of a comprehension
            node.value = helper_call("owner", node.value, at=node)
            node.slice = helper_call("key", key, at=node)
            return
        owner = node.value
        if not isinstance(owner, ast.Name):
            node.value = ast.copy_location(
                ast.NamedExpr(ast.Name(_OWNER, ast.Store()), owner), owner
            )
            owner = ast.Name(_OWNER, ast.Load())
        node.slice = helper_call("placed", ast.Name(owner.id, ast.Load()), key, at=node)

    def _comprehended(self, node: Any, visit: Any) -> ast.expr:
        self.comprehensions.append(_steps_of_comprehension(node))
        with self.bound.comprehended(node.generators):
            made: ast.expr = visit(node)
        self.comprehensions.pop()
        return made

    def _at_once(self, node: ast.Subscript, item: ast.Call) -> ast.expr:
        """Rewrite an item with a literal index: in a list, it needs no call of the machine."""
        owner, name = node.value, node.value
        if not isinstance(owner, ast.Name):
            if self.comprehensions:  # no name is bound in the head of a comprehension
                return item
            name = ast.Name(_OWNER, ast.Load())
            owner = ast.NamedExpr(ast.Name(_OWNER, ast.Store()), owner)
        kind = ast.Attribute(owner, "__class__", ast.Load())
        is_list = ast.Compare(kind, [ast.Is()], [ast.Name(LIST, ast.Load())])
        node.value = item.args[0] = name
        return ast.copy_location(ast.IfExp(is_list, node, item), node)

    def _iterated(self, node: ast.expr) -> ast.expr:
        """Rewrite what is gone through, which has gaps only if the module deletes something."""
        return helper_call("iterated", node, at=node) if self.deletes else node

    def _charged(self, steps: int, at: ast.AST) -> ast.stmt:
        return self._statement("charge", steps, at)

    def _statement(self, helper: str, number: int, at: ast.AST) -> ast.stmt:
        call = helper_call(helper, ast.Constant(number), at=at)
        return ast.copy_location(ast.Expr(call), at)
