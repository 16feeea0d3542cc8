"""Workflows: which procedure emits to which stream, and which stream calls which procedures.

A module declares its dataflow graph (S-Store: Meehan et al., VLDB 2015) with literals, so the graph
is known, and checked, before anything runs. Procedures are its nodes and streams its edges.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from streamydb.limits import (
    INTEGER_MAX,
    WINDOW_ITEMS_MAX,
    WORKFLOW_DEPTH_MAX,
    WORKFLOW_FAN_OUT_MAX,
    WORKFLOW_NAMES_MAX,
)
from streamydb.records.names import FLOWS_PREFIX, WINDOWS_PREFIX

_FIELDS: Final = {"emits", "triggers", "windows", "nested"}
_WINDOW_FIELDS: Final = ({"owner", "size", "slide"}, {"owner", "size_ms", "slide_ms"})


class Window(NamedTuple):
    """A sliding window that only ``owner`` touches.

    ``size``, ``slide``: in items, or in ms of commit time if ``timed``.
    """

    owner: str
    size: int
    slide: int
    timed: bool


class WorkflowGraph(NamedTuple):
    """A checked workflow.

    ``emits``: procedure -> streams. ``triggers``: stream -> procedures. ``windows``: by name.
    ``nested``: procedure -> the procedures that it runs within its own transaction. ``rank``: a
    procedure's place in topological order.
    """

    emits: dict[str, tuple[str, ...]]
    triggers: dict[str, tuple[str, ...]]
    windows: dict[str, Window]
    nested: dict[str, tuple[str, ...]]
    rank: dict[str, int]

    def members(self, procedure: str) -> tuple[str, ...]:
        """The procedure, and those that it runs within its transaction."""
        return procedure, *self.nested.get(procedure, ())

    def outside(self, procedure: str) -> Iterator[tuple[str, str]]:
        """(stream, procedure) of the follow-ups that a transaction of ``procedure`` may have."""
        inside = self.nested.get(procedure, ())
        for member in self.members(procedure):
            for stream in self.emits.get(member, ()):
                for target in self.triggers.get(stream, ()):
                    if member == procedure or target not in inside:
                        yield stream, target

    def reserved(self, module: str, procedure: str, *, follow_up: bool = False) -> list[str]:
        """The reserved keys that a call of ``procedure`` has to name."""
        members = self.members(procedure)
        emits = any(self.emits.get(member) for member in members)
        keys = [flow_key(module)] if emits or follow_up else []
        owned = [name for name, window in self.windows.items() if window.owner in members]
        return keys + [window_key(module, name) for name in owned]


def flow_key(module: str) -> str:
    """The key under which a module's follow-ups are counted: how many were made, how many done."""
    return FLOWS_PREFIX + module


def window_key(module: str, name: str) -> str:
    """The key under which a window lies."""
    return f"{WINDOWS_PREFIX}{module}.{name}"


def graph_of(
    told: Mapping[str, Any], procedures: Collection[str], keyed: Collection[str]
) -> WorkflowGraph:
    """Check a declaration against the procedures of its module, and those with key functions.
    Raises ValueError: it is no workflow; the message says why.
    """
    _require(told.keys() <= _FIELDS, f"Workflow takes {', '.join(sorted(_FIELDS))}")
    emits = _names("emits", told.get("emits", {}))
    triggers = _names("triggers", told.get("triggers", {}))
    nested = _names("nested", told.get("nested", {}))
    windows = _windows(told.get("windows", {}))
    streams = dict.fromkeys([*triggers, *(name for given in emits.values() for name in given)])
    for what, count in (("streams", len(streams)), ("windows", len(windows))):
        _require(count <= WORKFLOW_NAMES_MAX, f"more than {WORKFLOW_NAMES_MAX} {what}")
    targets = {name for given in triggers.values() for name in given}
    members = {name for given in nested.values() for name in given}
    used = {*emits, *targets, *nested, *members, *(window.owner for window in windows.values())}
    unknown = sorted(used - set(procedures))
    _require(not unknown, f"{', '.join(unknown)}: no such procedure in the module")
    nests = sorted(members & set(nested))
    _require(not nests, f"{', '.join(nests)}: nested in another, and has others nested")
    graph = WorkflowGraph(emits, triggers, windows, nested, {})
    for name in sorted(targets):
        known = all(each in keyed for each in nested.get(name, ())) and name in nested
        _require(name in keyed or known, f"{name} is triggered, so it needs @procedure(keys=...)")
    return graph._replace(rank=_ranks(graph, sorted({*emits, *targets, *nested})))


def _require(holds: object, reason: str) -> None:
    if not holds:
        raise ValueError(reason)


def _names(field: str, told: Any) -> dict[str, tuple[str, ...]]:
    fits = type(told) is dict and all(_is_name(name) and _is_list(told[name]) for name in told)
    _require(fits, f"{field} is a dict of lists of names")
    return {name: tuple(dict.fromkeys(given)) for name, given in told.items()}


def _is_list(value: Any) -> bool:
    return type(value) in (list, tuple) and all(map(_is_name, value))


def _is_name(value: Any) -> bool:
    return type(value) is str and value.isascii() and value.isidentifier() and len(value) <= 64


def _windows(told: Any) -> dict[str, Window]:
    _require(type(told) is dict and all(map(_is_name, told)), "windows is a dict by name")
    return {name: _window(name, given) for name, given in told.items()}


def _window(name: str, told: Any) -> Window:
    fits = type(told) is dict and set(told) in _WINDOW_FIELDS and _is_name(told["owner"])
    _require(fits, f"window {name}: owner, and size and slide, or size_ms and slide_ms")
    timed = "size_ms" in told
    size, slide = (told["size_ms"], told["slide_ms"]) if timed else (told["size"], told["slide"])
    most = INTEGER_MAX if timed else WINDOW_ITEMS_MAX // 2
    fits = type(size) is int and type(slide) is int and 1 <= slide <= size <= most
    _require(fits, f"window {name}: 1 <= slide <= size <= {most:,}")
    return Window(told["owner"], size, slide, timed)


def _ranks(graph: WorkflowGraph, nodes: list[str]) -> dict[str, int]:
    """Topological levels; every edge leads one level up.

    Follow-ups are executed first in, first out. So a batch goes through the graph level by level,
    which is topological order if no procedure lies on two levels.
    """
    edges = {(node, target) for node in nodes for _, target in graph.outside(node)}
    _inside(graph)
    order = _sorted(nodes, edges)
    level: dict[str, int] = {}
    for start in order:
        if start not in level:
            _level(start, edges, level)
    for source, target in sorted(edges):
        _require(
            level[target] == level[source] + 1,
            f"{target} is reached over paths of different lengths; put a procedure that passes "
            "records on into the shorter one",
        )
    counts: dict[str, int] = {}
    depths: dict[str, int] = {}
    for node in reversed(order):
        after = [target for _, target in graph.outside(node)]
        counts[node] = sum(1 + counts[target] for target in after)
        depths[node] = max((1 + depths[target] for target in after), default=0)
        many = f"a call of {node} may lead to {counts[node]:,} follow-ups"
        _require(counts[node] <= WORKFLOW_FAN_OUT_MAX, f"{many}, over {WORKFLOW_FAN_OUT_MAX:,}")
        _require(depths[node] <= WORKFLOW_DEPTH_MAX, f"deeper than {WORKFLOW_DEPTH_MAX} follow-ups")
    return {node: place for place, node in enumerate(order)}


def _level(start: str, edges: set[tuple[str, str]], level: dict[str, int]) -> None:
    level[start] = 0
    waiting = [start]
    while waiting:
        node = waiting.pop()
        near = [(b, level[node] + 1) for a, b in edges if a == node]
        near += [(a, level[node] - 1) for a, b in edges if b == node]
        for other, at in near:
            if other not in level:
                level[other] = at
                waiting.append(other)


def _inside(graph: WorkflowGraph) -> None:
    for members in graph.nested.values():
        edges = {
            (member, target)
            for member in members
            for stream in graph.emits.get(member, ())
            for target in graph.triggers.get(stream, ())
            if target in members
        }
        _sorted(sorted(members), edges)


def _sorted(nodes: list[str], edges: set[tuple[str, str]]) -> list[str]:
    """The nodes in topological order, by name where it leaves a choice (Kahn 1962)."""
    left = dict.fromkeys(sorted(nodes))
    found: list[str] = []
    while left:
        free = [n for n in left if not any(b == n and a in left for a, b in edges)]
        _require(free, f"a cycle of streams through {', '.join(left)}")
        for node in free:
            del left[node]
        found += free
    return found


Function = ast.FunctionDef | ast.Lambda


class BoundNames:
    """The bound names at the place in a tree that is being visited.

    These are the arguments of the innermost function, and the targets of the loops around the
    place, unless something in the function takes a name its value: `del`, or the end of `except`.
    """

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._unbound: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
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
