"""Workspaces: the namespace of a module with its machine, which calls leave to the next one.

To execute a module's code for each call anew costs as much as a short procedure. Where nothing in
its namespace can change (`keeps_nothing`), the next call finds what the first one found, and is
charged the steps of the code as if it had been executed again.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from streamydb.procedures.machine import Machine

__all__ = ["Workspace", "Workspaces", "keeps_nothing"]

_KEPT: Final = 8
"""Workspaces that a module keeps: as many calls as run at a time in one process, about."""


class Workspace:
    """A machine, and the names of a module whose helpers are its methods.

    ``names``: whole when ``loaded`` says so: the module's code has been executed in it. ``spent``:
    the steps of that.
    """

    __slots__ = ("loaded", "machine", "names", "spent")

    def __init__(self, machine: Machine) -> None:
        """Begin with no names."""
        self.machine = machine
        self.names: dict[str, Any] = {}
        self.loaded = False
        self.spent = 0


class Workspaces:
    """The workspaces of a module that no call uses at the moment."""

    __slots__ = ("_free", "_lasting")

    def __init__(self, lasting: bool) -> None:  # noqa: FBT001
        """``lasting``: nothing in the module's namespace can change."""
        self._lasting = lasting
        self._free: list[Workspace] = []

    def taken(self, steps: int) -> Workspace:
        """Return one with steps for a call, and for the module's code if it is not loaded."""
        try:
            found = self._free.pop()
        except IndexError:  # there is none, or another thread has it
            pass
        else:
            if steps >= found.spent:  # else its code ends the call, at its place
                found.machine.begin(steps - found.spent)
                return found
        machine = Machine()
        machine.left = steps
        return Workspace(machine)

    def left(self, workspace: Workspace) -> None:
        """Take back what a call has used; what is not kept is emptied, as it refers to itself."""
        if self._lasting and workspace.loaded and len(self._free) < _KEPT:
            self._free.append(workspace)
        else:
            workspace.names.clear()


def keeps_nothing(tree: ast.Module) -> bool:
    """Return True if nothing that a module's names stand for can change, nor the defaults of its
    functions: so a call can leave nothing there.
    """
    return all(map(_is_constant, tree.body))


def _is_constant(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        marks = [mark for mark in node.decorator_list if isinstance(mark, ast.Call)]
        given = [keyword.value for mark in marks for keyword in mark.keywords]
        return _are_constant(node.args) and all(map(_is_fixed, given))
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return node.value is None or _is_fixed(node.value)
    return True


def _are_constant(arguments: ast.arguments) -> bool:
    """Return True if all defaults are constant."""
    return all(map(_is_fixed, [*arguments.defaults, *filter(None, arguments.kw_defaults)]))


def _is_fixed(node: ast.expr) -> bool:
    """Return True if an expression gives something that cannot change, if its names do.

    A name stands for what another line gives, for a function, or for what is built in.
    """
    if isinstance(node, ast.Lambda):
        return _are_constant(node.args)
    if isinstance(node, ast.Tuple):
        return all(map(_is_fixed, node.elts))
    if isinstance(node, ast.BinOp):
        return _is_fixed(node.left) and _is_fixed(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_fixed(node.operand)
    return isinstance(node, ast.Constant | ast.Name)
