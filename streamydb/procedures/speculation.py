"""The speculative form of a module: code for calls in which nothing is unusual.

It expects that numbers are integers of 64 bits, that no value is a float or a set, and that a call
does not come near its limits. Guards look at that, so that the operations between them need no call
of the machine. Where a guard fails, where the steps run out, and where anything but `Abort` is
raised, the call is given up and executed once more, in the form that `transform` makes.

So whatever this form ends with must be what the other form ends with, to the byte. Two rules are
enough for that. First, it charges no fewer steps than the other form, only sooner and in one sum
for each body of a function or a loop. Second, every value that code can get hold of is a text, a
truth value, None, an integer of 64 bits, or a list, tuple or dict of such, with texts as keys: so
what is put has its canonical form at once. A module that has anything else has no such form.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection
from typing import Any, Final

from streamydb.limits import INTEGER_MAX, INTEGER_MIN
from streamydb.procedures.builtins import FUNCTIONS
from streamydb.procedures.meter import TEXT_PER_STEP
from streamydb.procedures.nodes import INTEGER, TYPE, helper_call, is_kind
from streamydb.procedures.transform import Rewriter

_NODES: Final = (
    ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign,
    ast.For, ast.While, ast.If, ast.Raise, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.BoolOp,
    ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict, ast.ListComp, ast.comprehension, ast.Compare,
    ast.Call, ast.keyword, ast.FormattedValue, ast.JoinedStr, ast.Constant, ast.Attribute,
    ast.Subscript, ast.Name, ast.List, ast.Tuple, ast.Slice, ast.expr_context, ast.boolop,
    ast.unaryop, ast.cmpop, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod,
)  # fmt: skip
"""What a function may consist of."""
_FUNCTIONS: Final = frozenset(
    "abs bool enumerate int isinstance len list max min range reversed sorted str sum tuple zip"
    .split()
)  # fmt: skip
_GROWING: Final = frozenset(("abs", "int", "sum"))
"""Functions whose result may be longer than what they get."""
_METHODS: Final = frozenset(
    "add append delete endswith exists get items keys lower put split startswith strip upper values"
    .split()
)  # fmt: skip
_ATTRIBUTES: Final = frozenset(("id", "now", "seq"))
_ARITHMETIC: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floor", ast.Mod: "mod",
}  # fmt: skip
_INTEGER_TEXT: Final = 20
"""Characters of the longest integer of 64 bits."""
_STEPS_OF_TEXT: Final = 2
"""Steps of showing an integer in a short text, at most."""
_TEMPORARY: Final = "__n{}_"
_OWNER: Final = "__changed_"


class _UnfitError(Exception):
    """The module has no speculative form."""


def speculative(tree: ast.Module) -> ast.Module | None:
    """Rewrite the tree of a checked module in place; None: it has no speculative form."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    constants = [node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    parts = [part for each in functions for part in (each.args, *each.body)]
    if not all(map(_fits, (*parts, *filter(None, constants)))):
        return None
    for function in functions:
        function.decorator_list = []  # they tell the keys of a call, which is the other form's part
    try:
        made: ast.Module = _Speculator(tree).visit(tree)
    except _UnfitError:
        return None
    return ast.fix_missing_locations(made)


def _fits(root: ast.AST) -> bool:
    """Return True if nothing in a function leads to other values than the expected ones."""
    nodes = _executed(root)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    called = [call.func for call in calls]
    kinds = [
        part for call in calls if isinstance(call.func, ast.Name) and call.func.id == "isinstance"
        for argument in call.args[1:] for part in ast.walk(argument)
    ]  # fmt: skip
    named = {id(node) for node in (*called, *kinds)}
    return all(isinstance(node, _NODES) and _is_expected(node, named) for node in nodes)


def _executed(node: ast.AST) -> list[ast.AST]:
    """The node and all in it but annotations."""
    inside = [
        child
        for name, value in ast.iter_fields(node)
        if name != "annotation"
        for child in (value if isinstance(value, list) else [value])
        if isinstance(child, ast.AST)
    ]
    return [node, *(part for child in inside for part in _executed(child))]


def _is_expected(node: ast.AST, named: Collection[int]) -> bool:
    """Return True if a node alone leads to no other values.

    ``named``: the nodes that are called, or are kinds of values; a function is nothing else.
    """
    if isinstance(node, ast.Constant):
        small = type(node.value) is not int or INTEGER_MIN <= node.value <= INTEGER_MAX
        return small and type(node.value) is not float
    if isinstance(node, ast.Name):
        return node.id not in FUNCTIONS or (node.id in _FUNCTIONS and id(node) in named)
    if isinstance(node, ast.Attribute):
        return node.attr in (_METHODS if id(node) in named else _ATTRIBUTES)
    if isinstance(node, ast.Dict):
        return all(map(_is_text, node.keys))
    if isinstance(node, ast.While):
        return not any(isinstance(part, ast.JoinedStr) for part in ast.walk(node.test))
    return not (isinstance(node, ast.keyword) and node.arg is None) and not _counts_on(node)


def _counts_on(node: ast.AST) -> bool:
    """Return True for an `enumerate` that may begin with a large number."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "enumerate"
        and len(node.args) + len(node.keywords) > 1
    )


def _is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and type(node.value) is str
    )


def _is_integer(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _computed(function: ast.FunctionDef) -> frozenset[str]:
    """The names of a function that code computes with as if they were integers."""
    bound = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    found: set[str] = set()
    nodes = [node for part in function.body for node in _outside_comprehensions(part)]
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        if isinstance(node, ast.BinOp):
            sides = node.left, node.right
        elif isinstance(node, ast.AugAssign):
            sides = node.target, node.value
        else:
            if isinstance(node, ast.Assign) and _is_integer(node.value):
                found |= {each.id for each in node.targets if isinstance(each, ast.Name)}
            continue
        if not isinstance(node.op, ast.Add) or any(map(_is_integer, sides)):
            found |= {side.id for side in sides if isinstance(side, ast.Name)}
    return frozenset(found & bound)


def _outside_comprehensions(node: ast.AST) -> list[ast.AST]:
    """The node and all in it but comprehensions, which have names of their own."""
    if isinstance(node, ast.ListComp):
        return []
    inside = [each for part in ast.iter_child_nodes(node) for each in _outside_comprehensions(part)]
    return [node, *inside]


class _Speculator(Rewriter):
    """The rules that differ from those of the other form."""

    def __init__(self, tree: ast.Module) -> None:
        super().__init__(tree)
        self.blocks: list[int] = []
        """Steps of the operations in the bodies around the place, each executed once."""
        self.integers: frozenset[str] = frozenset()
        """Names of the function that have passed a guard wherever they have a value."""
        self.constants = _constants(tree)
        self.temporaries = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        arguments = [part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)]
        constants = self.constants - {*arguments, *_names(node)}
        self.integers = _computed(node) | constants
        made = super().visit_FunctionDef(node)
        node.body[1:1] = self._guard(arguments, node)
        self.integers = frozenset()
        return made

    def visit_For(self, node: ast.For) -> ast.For:
        names = _names(node.target)
        made = super().visit_For(node)
        made.body[1:1] = self._guard(names, node)
        return made

    def visit_Assign(self, node: ast.Assign) -> Any:
        names = [name for target in node.targets for name in _names(target)]
        guard = [] if self._is_known(node.value) else self._guard(names, node)
        return [super().visit_Assign(node), *guard]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        target = node.target
        if isinstance(target, ast.Name):
            read: ast.expr = ast.copy_location(ast.Name(target.id, ast.Load()), node)
            summed = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
            if self._is_known(summed):
                return ast.copy_location(ast.Assign([target], self.visit(summed)), node)
            grown = helper_call("grown", read, self.visit(node.value), at=node)
            kept = helper_call("kept", grown, at=node)
            return ast.copy_location(ast.Assign([target], kept), node)
        if not isinstance(target, ast.Subscript) or not _is_text(target.slice):
            raise _UnfitError
        owner = ast.copy_location(ast.Assign([ast.Name(_OWNER, ast.Store())], target.value), node)
        item = ast.Subscript(ast.Name(_OWNER, ast.Load()), target.slice, ast.Load())
        value = self._computing(ast.copy_location(item, node), node.op, node.value, node)
        placed = ast.Subscript(ast.Name(_OWNER, ast.Load()), target.slice, ast.Store())
        return [*self.visit_Assign(owner), ast.copy_location(ast.Assign([placed], value), node)]

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not) or _is_integer(node.operand):
            self.generic_visit(node)
            return node
        self.generic_visit(node)
        return helper_call("kept", node, at=node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if self._is_known(node):
            return self._computing(node.left, node.op, node.right, node)
        name = ast.Constant(_ARITHMETIC[type(node.op)])
        left, right = self.visit(node.left), self.visit(node.right)
        return helper_call("computed", name, left, right, at=node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        sides = [node.left, *node.comparators]
        plain = not any(isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in node.ops)
        if plain and all(map(self._is_known, sides)):
            self.generic_visit(node)
            return node
        return super().visit_Compare(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        values = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        named = [part.value for part in values if not self._is_known(part.value)]
        simple = all(part.format_spec is None and part.conversion == -1 for part in values)
        names = all(isinstance(part.value, ast.Name) for part in values)
        texts = [str(part.value) for part in node.values if isinstance(part, ast.Constant)]
        length = sum(map(len, texts)) + _INTEGER_TEXT * len(values)
        fits = length < TEXT_PER_STEP and self._in_body()
        if not (simple and fits and (names or not named)):
            return super().visit_JoinedStr(node)
        self.blocks[-1] += 1 + _STEPS_OF_TEXT * len(values)
        copied = copy.deepcopy(node)
        self.generic_visit(copied)
        if not named:
            return copied
        test = self._all_integers(
            [value.id for value in named if isinstance(value, ast.Name)], node
        )
        other = super().visit_JoinedStr(node)
        return ast.copy_location(ast.IfExp(test, copied, other), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if self._appends(node):  # nothing but a list has such a method of its own
            self.blocks[-1] += 1
            node.args = [self.visit(node.args[0])]
            return node
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        adds = isinstance(node.func, ast.Attribute) and node.func.attr == "add"
        made = super().visit_Call(node)
        return helper_call("kept", made, at=node) if adds or name in _GROWING else made

    def _appends(self, node: ast.Call) -> bool:
        """Return True for an item that is appended to a list, or to what a name stands for."""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_append = isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        alone = len(node.args) == 1 and not node.keywords
        return is_append and alone and isinstance(owner, ast.Name) and self._in_body()

    def _body(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        self.blocks.append(0)
        return super()._body(nodes)

    def _entered(self, helper: str, steps: int, at: ast.AST) -> ast.stmt:
        return super()._entered(helper, steps + self.blocks.pop(), at)

    def _in_body(self) -> bool:
        """Return True if the place is executed as often as the body around it, at most."""
        return bool(self.blocks) and not self.comprehensions

    def _is_known(self, node: ast.expr) -> bool:
        """Return True if the value of an expression is certainly an integer of 64 bits."""
        if self.comprehensions or not self.blocks:
            return False
        if isinstance(node, ast.BinOp):
            is_sum = isinstance(node.op, ast.Add)
            return not is_sum or self._is_known(node.left) or self._is_known(node.right)
        return _is_integer(node) or (isinstance(node, ast.Name) and node.id in self.integers)

    def _computing(
        self, left: ast.expr, op: ast.operator, right: ast.expr, at: ast.AST
    ) -> ast.expr:
        """Return an operation of two integers, which is given up if they or the result are not."""
        tests: list[ast.expr] = []
        sides = [self._operand(side, tests) for side in (left, right)]
        made: ast.expr = ast.BinOp(sides[0], op, sides[1])
        if not isinstance(op, ast.Mod):
            name = self._temporary()
            bounds = [ast.Constant(INTEGER_MIN), ast.Constant(INTEGER_MAX)]
            taken = ast.NamedExpr(ast.Name(name, ast.Store()), made)
            tests.append(ast.Compare(bounds[0], [ast.LtE(), ast.LtE()], [taken, bounds[1]]))
            made = ast.Name(name, ast.Load())
        if not tests:
            return ast.copy_location(made, at)
        return ast.copy_location(
            ast.IfExp(_all(tests), made, helper_call("give_up_guess", at=at)), at
        )

    def _operand(self, node: ast.expr, tests: list[ast.expr]) -> ast.expr:
        """Return an operand; a test of its kind, if it needs one, is added to the others.

        The tests evaluate the operands in their order, so what calls something is evaluated there.
        """
        calls = any(isinstance(part, ast.Call | ast.Subscript) for part in ast.walk(node))
        if self._is_known(node) and not calls:
            return self.visit(node)  # type: ignore[no-any-return]
        if isinstance(node, ast.Name):
            tests.append(is_kind(node, INTEGER))
            return node
        name = self._temporary()
        taken = ast.NamedExpr(ast.Name(name, ast.Store()), self.visit(node))
        kind = ast.Call(ast.Name(TYPE, ast.Load()), [taken], [])
        tests.append(ast.Compare(kind, [ast.Is()], [ast.Name(INTEGER, ast.Load())]))
        return ast.Name(name, ast.Load())

    def _temporary(self) -> str:
        self.temporaries += 1
        return _TEMPORARY.format(self.temporaries)

    def _guard(self, names: list[str], at: ast.AST) -> list[ast.stmt]:
        """Return a statement that gives the call up if one of the names is no integer."""
        computed = [name for name in names if name in self.integers]
        if not computed:
            return []
        other = ast.UnaryOp(ast.Not(), self._all_integers(computed, at))
        given_up = ast.Expr(helper_call("give_up_guess", at=at))
        return [ast.copy_location(ast.If(other, [given_up], []), at)]

    def _all_integers(self, names: list[str], at: ast.AST) -> ast.expr:
        """Return a test of the values of names; no other kind of integers has this type."""
        reads = [ast.copy_location(ast.Name(name, ast.Load()), at) for name in names]
        return _all([is_kind(read, INTEGER) for read in reads])


def _all(tests: list[ast.expr]) -> ast.expr:
    """Return a test that holds where all hold."""
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)


def _names(target: ast.AST) -> list[str]:
    """The names that get a value in a part of a tree."""
    return [node.id for node in ast.walk(target)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]  # fmt: skip


def _constants(tree: ast.Module) -> frozenset[str]:
    """The names at the top of a module that are integers, and are given a value once."""
    names = [name for node in tree.body if isinstance(node, ast.Assign)
             for target in node.targets for name in _names(target)]  # fmt: skip
    names += [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    names += [node.target.id for node in tree.body
              if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]  # fmt: skip
    return frozenset(
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_integer(node.value)
        for target in node.targets
        for name in _names(target)
        if names.count(name) == 1
    )
