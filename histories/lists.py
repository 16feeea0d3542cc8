"""Infer the order of transactions from the lists that clients read.

Elements are unique and lists only grow, so a list read is the history of its key (Kingsbury and
Alvaro, "Elle: inferring isolation anomalies from experimental observations", VLDB 2020, section 4):
who wrote after whom (ww), who read from whom (wr), who read what somebody then overwrote (rw), and
who scanned a range in which somebody then made a key (prw, an anti-dependency by a predicate).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from histories.graph import DependencyGraph
from histories.records import History
from histories.views import ListWrites, View, did, missed, read
from histories.violations import Anomaly, shown

__all__ = ["Lists", "infer"]


@dataclass(slots=True)
class Lists:
    """The dependencies that were inferred from reads of lists.

    Attributes:
        graph: ww, wr, rw and prw edges between operations.
        nodes: the operations that count: committed transactions, and reads of lists.
        violations: what needs no cycle to be wrong.
    """

    graph: DependencyGraph = field(default_factory=DependencyGraph)
    nodes: set[int] = field(default_factory=set)
    violations: list[Anomaly] = field(default_factory=list)


class _Inference:
    """The inference over one history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.result = Lists()
        self.writes = ListWrites(history)
        self.writers, self.own = self.writes.writers, self.writes.own
        self.elements: dict[str, list[tuple[str, int]]] = {}
        for (key, element), writer in self.writers.items():
            self.elements.setdefault(key, []).append((element, writer))
        self.views: dict[str, list[View]] = {key: [] for key in self.writes.keys}
        for writer in self.own:
            told = history.operations[writer].told
            if told is not None and told.committed:
                self.result.nodes.add(writer)
        for key, view in self.writes.views():
            self.views[key].append(view)
            self.result.nodes.add(view.operation)

    def run(self) -> Lists:
        """Infer the order of every key."""
        for key in self.writes.keys:
            self._key(key)
        return self.result

    def _key(self, key: str) -> None:
        views = self.views[key]
        longest = max(views, key=lambda view: len(view.elements), default=View(-1, ()))
        for view in views:
            self._check_view(key, view)
            if view.elements != longest.elements[: len(view.elements)]:
                self._diverged(key, view, longest)
        order = [self.writers.get((key, element), -1) for element in longest.elements]
        self._writes(key, order, longest.elements)
        unseen = self._unseen(key, set(longest.elements))
        for view in views:
            agreed = view.elements == longest.elements[: len(view.elements)]
            self._reads(key, view, order if agreed else None, longest, unseen)

    def _unseen(self, key: str, seen: set[str]) -> list[int]:
        """Committed transactions whose elements nobody saw: they come after all that was seen."""
        return [
            writer
            for writer in sorted({w for e, w in self.elements.get(key, ()) if e not in seen})
            if writer in self.result.nodes and not seen & set(self.own[writer][key])
        ]

    def _check_view(self, key: str, view: View) -> None:
        """Find elements that should not be there, and own ones that are not."""
        counts: dict[str, int] = {}
        for element in view.elements:
            counts[element] = counts.get(element, 0) + 1
            writer = self.writers.get((key, element))
            if writer is None:
                self._report("phantom-element", key, f"nobody appended {element}", view.operation)
            elif self.history.operations[writer].refused:
                what = f"{element} was read, but its transaction was not executed"
                self._report("G1a", key, what, view.operation, writer)
            elif self.history.operations[writer].outcome == "unknown":
                self.result.nodes.add(writer)
        for element, count in counts.items():
            if count > 1:
                what = f"{element} is there {count} times"
                self._report("duplicate-element", key, what, view.operation)
        self._check_ends(key, view)

    def _check_ends(self, key: str, view: View) -> None:
        """A list ends with all that one transaction appended; for its own reads, with its own."""
        mine = self.own.get(view.operation, {}).get(key, [])
        if list(view.elements[len(view.elements) - len(mine) :]) != mine:
            self._report("internal", key, f"does not end with its own {mine}", view.operation)
        if not view.elements:
            return
        writer = self.writers.get((key, view.elements[-1]), -1)
        whole = self.own.get(writer, {}).get(key, [])
        if whole and view.elements[-1] != whole[-1]:
            what = f"ends within a transaction, which went on with {whole[-1]}"
            self._report("G1b", key, what, view.operation, writer)

    def _diverged(self, key: str, view: View, longest: View) -> None:
        """Two lists of one key of which neither begins the other."""
        at = next(i for i, (a, b) in enumerate(zip(view.elements, longest.elements, strict=False))
                  if a != b)  # fmt: skip
        one = self.writers.get((key, view.elements[at]), -1)
        other = self.writers.get((key, longest.elements[at]), -1)
        base = view.elements[at - 1] if at else "the empty list"
        name = "lost-update" if {one, other} <= self.result.nodes else "incompatible-order"
        what = f"two lists go on differently after {base}: {view.elements[at]} and "
        what += f"{longest.elements[at]}"
        places = [place for place in (one, other) if place >= 0]
        self._report(name, key, what, view.operation, longest.operation, *places)

    def _writes(self, key: str, order: list[int], elements: tuple[str, ...]) -> None:
        for (one, other), element in zip(pairwise(order), elements[1:], strict=True):
            if min(one, other) >= 0:
                why = f"{did(key, element)} right after it"
                self.result.graph.add(one, other, "ww", why)

    def _reads(
        self, key: str, view: View, order: list[int] | None, longest: View, unseen: list[int]
    ) -> None:
        """The edges of one view: from whom it read, and who wrote after."""
        graph, reader = self.result.graph, view.operation
        mine = self.own.get(reader, {}).get(key, [])
        base = len(view.elements) - len(mine)
        if base > 0:
            source = self.writers.get((key, view.elements[base - 1]), -1)
            if source >= 0:
                graph.add(source, reader, "wr", read(key, view.elements[base - 1]))
        if order is None:
            return
        kind = "prw" if view.lacking else "rw"
        after = len(view.elements)
        if after < len(order) and order[after] >= 0:
            why = missed(key, longest.elements[after], view)
            graph.add(reader, order[after], kind, why)
        for writer in unseen if after == len(order) else ():
            graph.add(reader, writer, kind, missed(key, self.own[writer][key][0], view))

    def _report(self, anomaly: str, key: str, what: str, *places: int) -> None:
        lines = [f"{key}: {what}", *(shown(self.history.operations[p]) for p in places)]
        self.result.violations.append(Anomaly(anomaly, "\n  ".join(lines), places))


def infer(history: History) -> Lists:
    """Infer the order of the transactions of a history from the lists that were read."""
    return _Inference(history).run()
