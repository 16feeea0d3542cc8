"""Directed graphs with labelled edges: strongly connected components and short cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

__all__ = ["STARTS_MAX", "DependencyGraph", "Edge"]

STARTS_MAX: Final = 64
"""From how many places in a component the shortest cycle is looked for."""


class Edge(NamedTuple):
    """An edge: `kind` is what it stands for, `why` says it in words."""

    source: int
    target: int
    kind: str
    why: str


class DependencyGraph:
    """Nodes are numbers; between two of them there is at most one edge of a kind."""

    def __init__(self) -> None:
        """No edge."""
        self._out: dict[int, dict[tuple[int, str], str]] = {}

    def add(self, source: int, target: int, kind: str, why: str) -> None:
        """Add an edge; one to itself is left out, and the first of a kind stays."""
        if source != target:
            self._out.setdefault(source, {}).setdefault((target, kind), why)

    def edges(self) -> Iterator[Edge]:
        """Walk over all edges."""
        for source, targets in self._out.items():
            for (target, kind), why in targets.items():
                yield Edge(source, target, kind, why)

    def out(self, source: int, kinds: Collection[str]) -> Iterator[Edge]:
        """Walk over the edges of some kinds from a node."""
        for (target, kind), why in self._out.get(source, {}).items():
            if kind in kinds:
                yield Edge(source, target, kind, why)

    def components(self, kinds: Collection[str]) -> list[set[int]]:
        """The strongly connected components of more than one node (Tarjan 1972, no recursion)."""
        order: dict[int, int] = {}
        low: dict[int, int] = {}
        path: list[int] = []
        on_path: set[int] = set()
        found: list[set[int]] = []
        work: list[tuple[int, Iterator[Edge]]] = []

        def enter(node: int) -> None:
            order[node] = low[node] = len(order)
            path.append(node)
            on_path.add(node)
            work.append((node, self.out(node, kinds)))

        def leave(node: int) -> None:
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] != order[node]:
                return
            component = {path.pop()}
            while node not in component:
                component.add(path.pop())
            on_path.difference_update(component)
            if len(component) > 1:
                found.append(component)

        for root in self._out:
            if root not in order:
                enter(root)
            while work:
                node, edges = work[-1]
                edge = next(edges, None)
                if edge is None:
                    work.pop()
                    leave(node)
                elif edge.target not in order:
                    enter(edge.target)
                elif edge.target in on_path:
                    low[node] = min(low[node], order[edge.target])
        return found

    def path(
        self, source: int, target: int, kinds: Collection[str], within: Collection[int]
    ) -> list[Edge] | None:
        """The shortest path between two nodes of a component; None if there is none."""
        came: dict[int, Edge] = {}
        waiting = deque([source])
        while waiting:
            node = waiting.popleft()
            for edge in self.out(node, kinds):
                if edge.target not in within or edge.target in came:
                    continue
                came[edge.target] = edge
                if edge.target == target:
                    return _back(came, source, target)
                waiting.append(edge.target)
        return None

    def cycle(self, component: Collection[int], kinds: Collection[str]) -> list[Edge]:
        """A short cycle in a component of these kinds."""
        starts: Iterable[int] = sorted(component)[:STARTS_MAX]
        cycles = (self.path(node, node, kinds, component) for node in starts)
        return min((cycle for cycle in cycles if cycle), key=len)


def _back(came: dict[int, Edge], source: int, target: int) -> list[Edge]:
    """The edges that led from a node to another."""
    edges = [came[target]]
    while edges[-1].source != source:
        edges.append(came[edges[-1].source])
    return edges[::-1]
