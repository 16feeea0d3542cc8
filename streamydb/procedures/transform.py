"""Rewrite a checked module so that every operation is charged (see `machine`).

Loops, comprehensions and functions tick; operators, methods, attributes, subscripts, comparisons
and formats become calls of the machine where they could take long. Annotations are dropped, and so
are imports, whose names the machine gives. Long code without a loop or a call is charged by the
nodes in it (`weigher`).
"""

from __future__ import annotations

import ast
import copy
from typing import Any, Final

from streamydb.procedures.graph import BoundNames
from streamydb.procedures.meter import SEARCHED_FREE, TEXT_PER_STEP
from streamydb.procedures.nodes import INTEGER, LIST, helper_call, is_kind, statement
from streamydb.procedures.weigher import handlers_in, may_delete, steps_of

_OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Mod: "mod", ast.Pow: "power",
    ast.FloorDiv: "floor", ast.LShift: "shift",
    ast.BitOr: "union", ast.BitAnd: "both", ast.BitXor: "either",
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

_DIGITS: Final = 18
"""An integer that takes no more characters is below `quick`'s longest."""
_ONE_DIGIT: Final = 1 << 30
_IDENTITY: Final = (ast.Is, ast.IsNot)
QUICKENS: Final = True
"""Two integers are compared without a call of the machine."""
_OWNER: Final = "__owner_"
"""Holds the owner of an item while its key is looked at."""
KEYS_OF: Final = "__keys_of_"
"""Begins the names under which the key functions of procedures stand."""


def instrument(tree: ast.Module) -> ast.Module:
    """Rewrite the tree in place."""
    return ast.fix_missing_locations(Rewriter(tree).visit(tree))  # type: ignore[no-any-return]


def is_small(node: ast.expr) -> bool:
    """Return True if a node is a number that makes no other number much longer."""
    return isinstance(node, ast.Constant) and (
        type(node.value) is float or (type(node.value) is int and abs(node.value) < _SMALL)
    )


def _is_long(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and type(node.value) is str
        and len(node.value) > TEXT_PER_STEP // 4
    )


def _is_plain(node: ast.expr) -> bool:
    """Return True for a literal with which anything is compared at once."""
    return isinstance(node, ast.Constant) and not _is_long(node)


def _parameters(args: ast.arguments) -> list[ast.arg]:
    return [*args.posonlyargs, *args.args, *args.kwonlyargs]


class Rewriter(ast.NodeTransformer):
    """One rule for each kind of node."""

    def __init__(self, tree: ast.Module) -> None:
        """Rewrite this module."""
        self.bound = BoundNames()
        self.handlers = handlers_in(tree)
        self.deletes = any(map(may_delete, ast.walk(tree)))
        self.comprehensions: list[int] = []
        """The steps of an iteration of each comprehension that is being rewritten."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        steps = steps_of(*node.body)
        self.generic_visit(node)
        if steps:
            node.body.insert(0, self._statement("charge", steps, node))
        return node

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
        steps = steps_of(*node.body, *_parameters(node.args))
        node.returns = None
        calls = [found for found in node.decorator_list if isinstance(found, ast.Call)]
        keys = [keyword.value for call in calls for keyword in call.keywords]
        node.decorator_list = []
        node.args = self._visited(node.args)
        with self.bound.within(node):
            node.body = self._body(node.body)
        body = [*node.body] or [ast.Pass()]
        guarded = ast.Try(body, [], [], [statement("leave", node)])
        node.body = [self._entered("enter", steps, node), ast.copy_location(guarded, node)]
        named = ast.Name(KEYS_OF + node.name, ast.Store())
        told = [ast.Assign([named], self._visited(function)) for function in keys]
        return [node, *(ast.copy_location(assign, node) for assign in told)]

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        steps = steps_of(node.body, *_parameters(node.args))
        node.args = self._visited(node.args)
        with self.bound.within(node):
            node.body = self._visited(node.body)
        made = helper_call("wrapped", node, at=node)
        if steps:
            made.args.append(ast.Constant(steps + 1))
        return made

    def visit_For(self, node: ast.For) -> ast.For:
        steps = steps_of(node.target, *node.body)
        node.target, node.iter = self._visited(node.target), self._visited(node.iter)
        with self.bound.repeated(node.target):
            node.body = self._body(node.body)
        node.orelse = self._each(node.orelse)
        node.iter = self._iterated(node.iter)
        node.body.insert(0, self._entered("tick", steps, node))
        if self.deletes and isinstance(node.target, ast.Tuple | ast.List):
            node.body.insert(0, statement("pass_gaps", node))
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        unpacks = any(isinstance(target, ast.Tuple | ast.List) for target in node.targets)
        self.generic_visit(node)
        if unpacks and not isinstance(node.value, ast.Tuple | ast.List):
            node.value = self._iterated(node.value)
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        steps = steps_of(node.test, *node.body)
        node.test, node.body = self._visited(node.test), self._body(node.body)
        node.orelse = self._each(node.orelse)
        node.body.insert(0, self._entered("tick", steps, node))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        node.body = [self._visited(each) for each in node.body]
        node.body = [self._statement("caught", self.handlers, node), *node.body]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.iter = self._iterated(node.iter)
        steps = self.comprehensions[-1]
        unpacks = self.deletes and isinstance(node.target, ast.Tuple | ast.List)
        if steps or unpacks:
            more = [ast.Constant(True)] if unpacks else []
            test = helper_call("spent", ast.Constant(steps + 1), *more, at=node.iter)
        else:
            test = helper_call("tick", at=node.iter)
        node.ifs.insert(0, test)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self._comprehended(node)
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        self._comprehended(node)
        items = ast.copy_location(ast.ListComp(node.elt, node.generators), node)
        return helper_call("iterator", items, at=node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        pair = ast.copy_location(ast.Tuple([node.key, node.value], ast.Load()), node)
        pairs = ast.copy_location(ast.ListComp(pair, node.generators), node)
        return helper_call("make_dict", self.visit_ListComp(pairs), at=node)

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        is_long = len(node.keys) > SEARCHED_FREE
        items = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key]
        if is_long and len(items) == len(node.keys):
            pairs: list[ast.expr] = [
                ast.Tuple([self._visited(key), self._visited(value)], ast.Load())
                for key, value in items
            ]
            return helper_call("make_dict", ast.List(pairs, ast.Load()), at=node)
        self.generic_visit(node)
        for place, key in enumerate(node.keys):
            if key is None:
                node.values[place] = helper_call("mapping", node.values[place], at=node)
            elif not isinstance(key, ast.Constant):
                node.keys[place] = helper_call("key", key, at=node)
        return helper_call("mapping", node, at=node) if is_long else node

    def visit_Set(self, node: ast.Set) -> ast.expr:
        self.generic_visit(node)
        items = ast.copy_location(ast.List(node.elts, ast.Load()), node)
        return helper_call("make_set", items, at=node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        self._comprehended(node)
        items = ast.copy_location(ast.ListComp(node.elt, node.generators), node)
        return helper_call("make_set", items, at=node)

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        self.generic_visit(node)
        node.value = helper_call("listed", node.value, at=node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        helper = _OPERATORS.get(type(node.op))
        if helper is None or self.is_free(helper, node.left, node.right):
            return node
        return helper_call(helper, node.left, node.right, at=node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        helper = _OPERATORS.get(type(node.op))
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
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.In | ast.NotIn):
            return self._of_integers(node) or self._compared(node)
        self.generic_visit(node)
        item, container = node.left, node.comparators[0]
        if _is_plain(container):
            node.left = self.wrapped("compared", item)
            return node
        held = helper_call("held", item, container, at=node)
        if isinstance(node.ops[0], ast.In):
            return held
        return ast.copy_location(ast.UnaryOp(ast.Not(), held), node)

    def _of_integers(self, node: ast.Compare) -> ast.expr | None:
        """Rewrite a comparison of two names, which costs nothing if both are integers."""
        left, right = node.left, node.comparators[0]
        names = isinstance(left, ast.Name) and isinstance(right, ast.Name)
        if len(node.ops) > 1 or not names or not QUICKENS or isinstance(node.ops[0], _IDENTITY):
            return None
        test = ast.BoolOp(ast.And(), [is_kind(left, INTEGER), is_kind(right, INTEGER)])
        free = ast.Compare(left, node.ops, [right])
        made = ast.IfExp(test, free, self._compared(copy.deepcopy(node)))
        return ast.copy_location(made, node)

    def _compared(self, node: ast.Compare) -> ast.expr:
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

    def _body(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        """Rewrite the body of a function or a loop, whose charge `_entered` makes."""
        return self._each(nodes)

    def _each(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        made = map(self._visited, nodes)
        return [one for each in made for one in (each if isinstance(each, list) else [each])]

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
        """Return True if an operation is done at once, as an operand is small."""
        if helper != "floor":
            return helper in ("add", "sub") and (is_small(left) or is_small(right))
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

    def wrapped(self, helper: str, node: ast.expr) -> ast.expr:
        """Return a call of a helper with a value; a literal needs none."""
        return node if isinstance(node, ast.Constant) else helper_call(helper, node, at=node)

    def _visited(self, node: Any) -> Any:
        return self.visit(node)

    def _comprehended(self, node: Any) -> None:
        """Rewrite the parts of a comprehension, which has names of its own."""
        loops = [part for each in node.generators for part in (each.target, each.iter, *each.ifs)]
        self.comprehensions.append(steps_of(node.elt, *loops))
        with self.bound.comprehended(node.generators):
            self.generic_visit(node)
        self.comprehensions.pop()

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

    def _entered(self, helper: str, steps: int, at: ast.AST) -> ast.stmt:
        """Return the charge for one way through a body of so many ``steps``."""
        return (
            statement(helper, at)
            if not steps
            else self._statement("charge" if helper == "tick" else helper, steps + 1, at)
        )

    def _statement(self, helper: str, number: int, at: ast.AST) -> ast.stmt:
        call = helper_call(helper, ast.Constant(number), at=at)
        return ast.copy_location(ast.Expr(call), at)
