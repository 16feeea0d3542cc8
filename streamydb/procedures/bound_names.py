"""Names that certainly have a value where they stand, so that to read one is no operation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

Function = ast.FunctionDef | ast.Lambda


class BoundNames:
    """The bound names at the place in a tree that is being visited.

    These are the arguments of the innermost function, and the targets of the loops around the
    place, unless something in the function takes a name its value: `del`, or the end of `except`.
    """

    def __init__(self) -> None:
        """Outside of all functions, no name is taken for bound."""
        self._names: frozenset[str] = frozenset()
        self._unbound: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        """Return True if the name is bound here."""
        return name in self._names

    @contextmanager
    def within(self, function: Function) -> Iterator[None]:
        """Inside of a function."""
        before = self._names, self._unbound
        self._unbound = frozenset(_unbinds(function))
        self._names = frozenset(_arguments(function.args)) - self._unbound
        try:
            yield
        finally:
            self._names, self._unbound = before

    @contextmanager
    def repeated(self, target: ast.expr) -> Iterator[None]:
        """Inside of the body of a loop with this target."""
        before = self._names
        self._names |= frozenset(_stored(target)) - self._unbound
        try:
            yield
        finally:
            self._names = before

    @contextmanager
    def comprehended(self, generators: list[ast.comprehension]) -> Iterator[None]:
        """Inside of a comprehension, whose own names have no value at its beginning."""
        before = self._names
        self._names -= {name for each in generators for name in _stored(each.target)}
        try:
            yield
        finally:
            self._names = before


def _arguments(args: ast.arguments) -> Iterator[str]:
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if arg is not None:
            yield arg.arg


def _stored(target: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(target)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))  # fmt: skip


def _unbinds(function: Function) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            yield node.name
