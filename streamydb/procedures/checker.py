"""Check the syntax of a module of procedures before anything of it runs.

The rule is an allow-list. Whatever could see the machine, keep something between calls, run for
ever in one step, or differ between versions of Python is refused, with line and reason.
"""

from __future__ import annotations

import ast
import builtins
from typing import Any, Final, NamedTuple, TypeGuard

from streamydb.limits import MODULE_BYTES_MAX
from streamydb.procedures.builtins import EXCEPTIONS, NAMES
from streamydb.procedures.namespaces import MATH


class Refusal(NamedTuple):
    """Something that a module must not say."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class Checked(NamedTuple):
    """A module's syntax tree, and why it is refused (nothing: it is not)."""

    tree: ast.Module
    refusals: list[Refusal]


_ALLOWED: Final = (
    ast.Module, ast.FunctionDef, ast.Lambda, ast.arguments, ast.arg, ast.Return, ast.Delete,
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Raise, ast.Try,
    ast.ExceptHandler, ast.Assert, ast.Import, ast.ImportFrom, ast.alias, ast.Nonlocal, ast.Expr,
    ast.Pass, ast.Break, ast.Continue, ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp,
    ast.IfExp, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.comprehension, ast.Compare, ast.Call, ast.keyword, ast.FormattedValue, ast.JoinedStr,
    ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple,
    ast.Slice, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip

_REASONS: Final[dict[type[ast.AST], str]] = {
    ast.ClassDef: "no classes: use dicts and functions",
    ast.AsyncFunctionDef: "no coroutines: a procedure runs from beginning to end",
    ast.Await: "no coroutines: a procedure runs from beginning to end",
    ast.Yield: "no generator functions: return a list",
    ast.YieldFrom: "no generator functions: return a list",
    ast.Global: "no global: a procedure keeps nothing between calls, but in the database",
    ast.With: "no with: there is nothing to open",
    ast.Match: "no match: use if",
    ast.MatMult: "no matrices",
    ast.TryStar: "no except*: use except",
}

_NAME_REASONS: Final[dict[str, str]] = {
    "open": "no files: what a procedure sees is in the log and the database",
    "input": "no input: what a procedure sees is in the log and the database",
    "print": "no output: return what is to be seen",
    "eval": "no code made at run time",
    "exec": "no code made at run time",
    "compile": "no code made at run time",
    "hash": "hash differs from process to process",
    "id": "id differs from process to process",
    "frozenset": "a frozenset has the order of a hash; use a tuple or a set",
    "pow": "use ** on integers; other powers differ between machines",
}

_MODULE_REASONS: Final[dict[str, str]] = {
    "time": "use db.now, the commit timestamp",
    "datetime": "use db.now, the commit timestamp in ms",
    "random": "use db.random, which follows from the seq",
    "uuid": "use db.id or db.random",
    "secrets": "use db.random; nothing in a log is secret",
    "os": "a procedure does not see the machine",
    "sys": "a procedure does not see the machine",
    "re": "a pattern can take for ever; use the methods of texts",
    "json": "values are given and stored as Python objects",
}

_OURS: Final = {"Abort", "Workflow", "procedure"}
_UNSEEN: Final = {"__future__", "typing", "collections.abc"}
"""Modules whose names are for annotations, which are not looked at."""

_DEPTH_MAX: Final = 100
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COMPREHENSIONS_MAX: Final = 4
"""Comprehensions within comprehensions: each is a frame, and the meter counts functions only."""


def check_text(text: bytes, file: str) -> Checked:
    """Parse and check a module's text; ``file`` is named in the refusals."""
    empty = ast.Module([], [])
    if len(text) > MODULE_BYTES_MAX:
        reason = f"a module has at most {MODULE_BYTES_MAX:,} bytes"
        return Checked(empty, [Refusal(file, 1, reason)])
    try:
        tree = ast.parse(text.decode(), file)
    except SyntaxError as error:
        return Checked(empty, [Refusal(file, error.lineno or 1, f"not Python: {error.msg}")])
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        return Checked(empty, [Refusal(file, line, "not UTF-8: save the file in this encoding")])
    except (ValueError, RecursionError, MemoryError) as error:
        return Checked(empty, [Refusal(file, 1, f"not Python: {type(error).__name__}")])
    checker = _Checker(file)
    checker.run(tree)
    return Checked(tree, sorted(set(checker.refusals), key=lambda found: found.line))


def is_workflow(node: ast.AST | None) -> TypeGuard[ast.Call]:
    """Return True if an expression declares a workflow."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Workflow"
    )


def literals_of(node: ast.Call) -> dict[str, Any]:
    """The arguments of a declaration. Raises ValueError: they are no named literals."""
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("names")
    try:
        return {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in node.keywords}
    except (TypeError, RecursionError, MemoryError) as error:
        raise ValueError("literals") from error


class _Checker:
    """Walks over a tree and collects refusals."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.refusals: list[Refusal] = []
        self.at_module: set[str] = set()
        self.bound: set[str] = set()
        self.workflows = 0

    def refuse(self, node: ast.AST, reason: str) -> None:
        self.refusals.append(Refusal(self.file, getattr(node, "lineno", 1), reason))

    def run(self, tree: ast.Module) -> None:
        for statement in tree.body:
            self.module_level(statement)
        self.bound = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self.bound |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self.bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        self.visit(tree, 0)

    def module_level(self, node: ast.stmt) -> None:
        """Only imports, functions and plain constants stand at the top."""
        if isinstance(node, ast.FunctionDef):
            self.decorators(node)
            self.at_module.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if not isinstance(target, ast.Name):
                    self.refuse(node, "at the top of a module only names are assigned")
                else:
                    self.at_module.add(target.id)
            if is_workflow(node.value):
                self.workflow(node.value)
            else:
                self.constant(node.value)
        elif not (
            isinstance(node, ast.Import | ast.ImportFrom)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        ):
            self.refuse(node, "at the top of a module stand imports, constants and functions only")

    def constant(self, value: ast.expr) -> None:
        """Require that a name at the top is a literal, or is made of literals."""
        kinds = (
            ast.Constant, ast.UnaryOp, ast.unaryop, ast.Name, ast.expr_context, ast.List, ast.Tuple,
            ast.Dict, ast.Set, ast.BinOp, ast.operator, ast.Lambda,
        )  # fmt: skip
        if isinstance(value, ast.Lambda):
            return
        for node in ast.walk(value):
            if not isinstance(node, kinds):
                self.refuse(value, "at the top of a module only literals are assigned")
                return

    def workflow(self, node: ast.Call) -> None:
        """A workflow is declared once, with names and literals."""
        if self.workflows:
            self.refuse(node, "a module has one Workflow")
        self.workflows += 1
        try:
            literals_of(node)
        except ValueError:
            self.refuse(node, "Workflow takes named literals")

    def decorators(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            name = decorator.func if isinstance(decorator, ast.Call) else decorator
            if not isinstance(name, ast.Name) or name.id != "procedure":
                self.refuse(decorator, "the only decorator is @procedure")
            elif isinstance(decorator, ast.Call) and (
                decorator.args or [k.arg for k in decorator.keywords] not in ([], ["keys"])
            ):
                self.refuse(decorator, "@procedure takes keys=... only")

    def visit(self, node: ast.AST, depth: int, comprehensions: int = 0) -> None:
        if isinstance(node, _COMPREHENSIONS):
            comprehensions += 1
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            comprehensions = 0
        if depth > _DEPTH_MAX or comprehensions > _COMPREHENSIONS_MAX:
            self.refuse(node, "nested too deeply")
            return
        if not isinstance(node, _ALLOWED) or type(node) in _REASONS:
            reason = _REASONS.get(type(node), f"no {type(node).__name__.lower()} here")
            self.refuse(node, reason)
            return
        method = getattr(self, "check_" + type(node).__name__.lower(), None)
        if method is not None:
            method(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child, depth + 1, comprehensions)

    def name(self, node: ast.AST, name: str) -> None:
        if name.startswith("__"):
            self.refuse(node, f"{name}: names that begin with two underscores are not to be had")
        if not name.isascii():
            self.refuse(node, "names are ASCII")

    def check_name(self, node: ast.Name) -> None:
        name = node.id
        self.name(node, name)
        if not isinstance(node.ctx, ast.Load) or name in self.bound | NAMES | {"procedure"}:
            return
        if name in _NAME_REASONS:
            self.refuse(node, f"{name}: {_NAME_REASONS[name]}")
        elif hasattr(builtins, name):
            self.refuse(node, f"{name}: procedures do not have it")

    def check_arg(self, node: ast.arg) -> None:
        self.name(node, node.arg)

    def check_keyword(self, node: ast.keyword) -> None:
        if node.arg is not None:
            self.name(node.value, node.arg)

    def check_attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("_"):
            self.refuse(node, f".{node.attr}: private attributes are not to be had")
        if not isinstance(node.ctx, ast.Load):
            self.refuse(node, f".{node.attr}: attributes are not assigned")

    def check_functiondef(self, node: ast.FunctionDef) -> None:
        self.name(node, node.name)
        if node.name in ("procedure", "Abort"):
            self.refuse(node, f"{node.name} is taken")
        if node.decorator_list and node.name not in self.at_module:
            self.refuse(node, "a function within a function has no decorators")

    def check_import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                self.name(node, alias.asname)
            if alias.name != "math" and alias.name not in _UNSEEN:
                self.refuse(node, f"import {alias.name}: {self.why(alias.name)}")

    def check_importfrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        if module in _UNSEEN:
            return
        for alias in node.names:
            what = f"from {module} import {alias.name}"
            if alias.asname:
                self.refuse(node, f"{what}: not under another name")
            elif module in {"streamydb", "streamydb.procedures"} and alias.name in _OURS:
                continue
            elif module != "math":
                self.refuse(node, f"{what}: {self.why(module)}")
            elif alias.name not in MATH.names():
                self.refuse(node, f"{what}: not exact, so it may differ between machines")

    def why(self, module: str) -> str:
        allowed = "a procedure imports math and streamydb.procedures only"
        return _MODULE_REASONS.get(module.partition(".")[0], allowed)

    def check_excepthandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self.refuse(node, "no `as`: the text of an exception differs between Python versions")
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if not all(isinstance(kind, ast.Name) and kind.id in EXCEPTIONS for kind in kinds):
            self.refuse(node, f"except names one of {', '.join(EXCEPTIONS)}")

    def check_try(self, node: ast.Try) -> None:
        if node.finalbody:
            self.refuse(node.finalbody[0], "no finally: there is nothing to give back")

    def check_compare(self, node: ast.Compare) -> None:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, ast.Is | ast.IsNot) and not any(
                isinstance(side, ast.Constant)
                and (side.value is None or side.value is True or side.value is False)
                for side in (left, right)
            ):
                self.refuse(node, "`is` compares with None, True and False only; use ==")
            left = right

    def check_constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str | int | float | bool | None):
            self.refuse(node, f"no {type(node.value).__name__}")

    def check_formattedvalue(self, node: ast.FormattedValue) -> None:
        if node.conversion == ord("a"):
            self.refuse(node, "no !a")

    def check_starred(self, node: ast.Starred) -> None:
        if isinstance(node.ctx, ast.Store):
            self.refuse(node, "no * on the left of an assignment; use slices")

    def check_subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Slice) and not isinstance(node.ctx, ast.Load):
            self.refuse(node, "slices are not assigned")
        if isinstance(node.slice, ast.Tuple) and any(
            isinstance(part, ast.Slice) for part in node.slice.elts
        ):
            self.refuse(node, "one slice at a time")
        self.kept(node, node.value, node.ctx)

    def check_call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
            self.kept(node, node.func.value, ast.Store())

    def check_augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Attribute):
            return
        if isinstance(node.target, ast.Name) and node.target.id in self.at_module:
            self.refuse(node, f"{node.target.id}: {_KEPT}")

    def kept(self, node: ast.AST, owner: ast.expr, context: ast.expr_context) -> None:
        """Refuse what looks like state that outlives a call."""
        if (
            not isinstance(context, ast.Load)
            and isinstance(owner, ast.Name)
            and owner.id in self.at_module
        ):
            self.refuse(node, f"{owner.id}: {_KEPT}")


_KEPT: Final = "what stands at the top of a module does not change; keep it in the database"
_MUTATORS: Final = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse",
    "setdefault", "sort", "update",
}  # fmt: skip
