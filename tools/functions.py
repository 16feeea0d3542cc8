"""Which functions a production module has, and which kernels its kernels call.

A function is named by its module and its qualified name. What has no code of its own is none: stubs
of protocols, overloads for mypy. A lambda is part of the function around it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from streamydb.frames.kernel_cache import callees

__all__ = ["Function", "called", "functions"]

_NO_CODE: Final = {"overload", "abstractmethod"}


class Function(NamedTuple):
    """A function by its names."""

    module: str
    name: str


@cache
def functions(path: Path) -> frozenset[str]:
    """The qualified names of the functions in a file."""
    return frozenset(_within(ast.parse(path.read_text("utf-8")).body, ""))


def _within(body: Iterable[ast.AST], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _within(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not _is_stub(node):
                yield prefix + node.name
            yield from _within(node.body, f"{prefix}{node.name}.<locals>.")
        else:
            yield from _within(ast.iter_child_nodes(node), prefix)


def _is_stub(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = {ast.unparse(mark).rpartition(".")[2] for mark in function.decorator_list}
    return bool(marks & _NO_CODE) or all(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for node in function.body
    )


def called(executed: Iterable[Function]) -> set[Function]:
    """Functions that were executed, and all kernels that those which are kernels may call.

    Compiled code does not say which ones it has called.
    """
    found: set[Function] = set()
    waiting = list(executed)
    while waiting:
        function = waiting.pop()
        if function not in found:
            found.add(function)
            waiting += _kernels_of(function)
    return found


def _kernels_of(function: Function) -> Iterator[Function]:
    compiled = getattr(sys.modules.get(function.module), function.name, None)
    if (source := getattr(compiled, "py_func", None)) is not None:
        for callee in callees(source):
            yield Function(callee.__module__, callee.__qualname__)
