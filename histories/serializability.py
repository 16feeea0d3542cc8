"""Strict serializability of transactions on lists: find cycles of dependencies.

After Elle (Kingsbury and Alvaro, VLDB 2020) with the names of Adya ("Weak consistency", MIT 1999,
chapter 3): G0 is a cycle of writes, G1c one with reads, G-single has one anti-dependency (read
skew), G2 several (write skew). With `-predicate`, it needs a key that a range did not have yet when
it was scanned (a phantom; write skew by a predicate). A name that ends in `-realtime` also needs
that an operation returned before another was invoked, one that ends in `-session` needs what a
session guarantees.

A snapshot read may be old, so that nothing must come before it in real time; a session read must
come after what its session has seen. Neither may show the future.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from histories.graph import STARTS_MAX, DependencyGraph, Edge
from histories.lists import Lists, infer
from histories.records import Get, History, Operation, ReadOperation, ScanOperation
from histories.violations import Anomaly, shown

__all__ = ["REALTIME", "SESSION", "add_real_time", "check_lists"]

REALTIME: Final = "realtime"
SESSION: Final = "session"

_DEPENDENCIES: Final = ("ww", "wr")
_LEVELS: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = (
    ("G0", ("ww",), ()),
    ("G1c", _DEPENDENCIES, ()),
    ("G-single", _DEPENDENCIES, ("rw",)),
    ("G2", (*_DEPENDENCIES, "rw"), ()),
    ("G-single-predicate", _DEPENDENCIES, ("rw", "prw")),
    ("G2-predicate", (*_DEPENDENCIES, "rw", "prw"), ()),
)
"""Name, kinds of edges, and kinds of anti-dependencies of which exactly one is added."""

_ORDERS: Final = (("", ()), ("-session", (SESSION,)), ("-realtime", (SESSION, REALTIME)))


def check_lists(history: History) -> list[Anomaly]:
    """Find what no strictly serial execution of the transactions and reads explains."""
    lists = infer(history)
    graph = lists.graph
    nodes = [history.operations[index] for index in sorted(lists.nodes)]
    add_real_time(graph, nodes)
    _add_sessions(graph, nodes)
    return [*lists.violations, *_cycles(history, lists)]


def add_real_time(graph: DependencyGraph, operations: Iterable[Operation]) -> None:
    """Add an edge wherever one operation returned before another was invoked.

    Only what does not follow from other edges is added: an operation that returned is forgotten as
    soon as one that came after it has returned as well.
    """
    events: list[tuple[int, int, Operation]] = []
    for operation in operations:
        events.append((operation.invoked_ns, 0, operation))
        if operation.outcome == "ok" and operation.returned_ns is not None:
            events.append((operation.returned_ns, 1, operation))
    events.sort(key=lambda event: event[:2])
    frontier: dict[int, None] = {}
    before: dict[int, list[int]] = {}
    for _, returned, operation in events:
        index = operation.index
        if returned:
            for done in before.pop(index, ()):
                frontier.pop(done, None)
            frontier[index] = None
        elif operation.is_current:
            before[index] = list(frontier)
            for done in frontier:
                graph.add(done, index, REALTIME, "was invoked after it had returned")


def _add_sessions(graph: DependencyGraph, operations: Iterable[Operation]) -> None:
    """Add an edge from what a session has seen to each read that asks for at least that."""
    sessions: dict[tuple[int, int], list[Operation]] = {}
    for operation in operations:
        earlier = sessions.setdefault((operation.client, operation.session), [])
        request = operation.request
        if (
            isinstance(request, Get | ReadOperation | ScanOperation)
            and request.min_version is not None
        ):
            for one in earlier:
                seq = None if one.told is None else one.told.seq
                if seq is not None and seq <= request.min_version:
                    graph.add(one.index, operation.index, SESSION, "came later in its session")
            if _follows_all(earlier, request.min_version):
                earlier.clear()
        if operation.outcome == "ok":
            earlier.append(operation)


def _follows_all(earlier: Iterable[Operation], min_version: int) -> bool:
    """Return True if a read comes after all these, so that what follows it follows them as well."""
    seqs = [None if one.told is None else one.told.seq for one in earlier]
    return all(seq is not None and seq <= min_version for seq in seqs)


def _cycles(history: History, lists: Lists) -> Iterator[Anomaly]:
    """One cycle of each component, under the name of the weakest guarantee that it breaks."""
    reported: set[int] = set()
    for suffix, order in _ORDERS:
        for name, kinds, single in _LEVELS:
            whole = (*kinds, *order, *single)
            for component in lists.graph.components(whole):
                if component & reported:
                    continue
                cycle = _single(lists.graph, component, (*kinds, *order), single) if single else (
                    lists.graph.cycle(component, whole)
                )  # fmt: skip
                if cycle:
                    reported |= component
                    yield _violation(history, name + suffix, cycle)


def _single(
    graph: DependencyGraph, component: set[int], kinds: tuple[str, ...], single: tuple[str, ...]
) -> list[Edge] | None:
    """A short cycle with exactly one anti-dependency."""
    edges = (edge for node in sorted(component) for edge in graph.out(node, single))
    inside = (edge for edge in edges if edge.target in component)
    paths = ((edge, graph.path(edge.target, edge.source, kinds, component)) for edge in inside)
    found = ([edge, *back] for edge, back in paths if back is not None)
    return min(islice(found, STARTS_MAX), key=len, default=None)


def _violation(history: History, name: str, cycle: list[Edge]) -> Anomaly:
    """A cycle in words: every operation, and why it must come before the next."""
    lines = ["each of these must come before the next, and the last before the first:"]
    for edge in cycle:
        lines.append(shown(history.operations[edge.source]))
        lines.append(f"  ↓ {edge.kind}: #{edge.target} {edge.why}")
    return Anomaly(name, "\n  ".join(lines), tuple(edge.source for edge in cycle))
