"""Lists as operations saw them, element by element, and who wrote which element.

A list that was removed is absent, as one that nobody has made yet. Nobody makes it again, so its
removal counts as one more element, the last: an absent list has no element, or all of them. Of a
range, an operation saw every key that anybody ever wrote in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from histories.records import (
    AppendOperation,
    Get,
    History,
    Operation,
    ReadOperation,
    ScanOperation,
    Seen,
    frozen,
)

__all__ = ["ListWrites", "View", "did", "missed", "read"]

_REMOVED: Final = "removed by #"
"""Begins an element that stands for the removal of a list; values are JSON."""


class View(NamedTuple):
    """A list as an operation saw it.

    ``lacking``: it saw a range which the key is in, and which did not have it yet.
    """

    operation: int
    elements: tuple[str, ...]
    lacking: bool = False


class ListWrites:
    """The writes of a history to lists.

    Attributes:
        writers: the operation that wrote an element of a key.
        own: the elements that an operation wrote, by key.
        keys: of all lists.
    """

    def __init__(self, history: History) -> None:
        """Take note of all transactions."""
        self.writers: dict[tuple[str, str], int] = {}
        self.own: dict[int, dict[str, list[str]]] = {}
        self._history = history
        self._made: dict[str, list[int]] = {}
        self._removers: dict[str, list[Operation]] = {}
        for operation in history.operations:
            if isinstance(operation.request, AppendOperation):
                self._note(operation, operation.request)
        self.keys = sorted({key for key, _ in self.writers})

    def views(self) -> Iterator[tuple[str, View]]:
        """Walk over all that committed operations saw of lists."""
        for operation in self._history.operations:
            told, request = operation.told, operation.request
            if told is None or not told.committed:
                continue
            for key, value, ranged in self._seen(operation):
                elements = self._elements(operation, key, value)
                if elements is not None:
                    yield key, View(operation.index, elements, ranged and not elements)
            if isinstance(request, AppendOperation):
                yield from self._checked(operation, request)

    def _note(self, operation: Operation, request: AppendOperation) -> None:
        mine = {key: [str(frozen(e)) for e in new] for key, new in request.appends.items()}
        for key in request.removes:
            mine[key] = [f"{_REMOVED}{operation.index}"]
            self._removers.setdefault(key, []).append(operation)
        self.own[operation.index] = mine
        for key, elements in mine.items():
            self.writers.update(((key, element), operation.index) for element in elements)
            if key in request.appends:
                self._made.setdefault(key, []).append(operation.index)

    def _under(self, prefix: str) -> Iterator[str]:
        """The keys of lists that begin with a prefix."""
        for at in range(bisect_left(self.keys, prefix), len(self.keys)):
            if not self.keys[at].startswith(prefix):
                return
            yield self.keys[at]

    def _seen(self, operation: Operation) -> Iterator[tuple[str, Any, bool]]:
        """The lists that an answer shows, and whether that is by a range; None: absent."""
        answer, request = operation.told, operation.request
        if answer is None:
            return
        ranges: dict[str, dict[str, Seen]] = {}
        about = set(answer.seen)
        match request:
            case ScanOperation(prefix=prefix):
                ranges, about = {prefix: answer.seen}, set()
            case Get() | ReadOperation():
                pass
            case AppendOperation(reads=reads):
                ranges, about = answer.ranges, about | set(reads)
            case _:
                return
        for key in sorted(about):
            at = bisect_left(self.keys, key)
            if self.keys[at : at + 1] == [key]:
                yield key, answer.seen.get(key, Seen()).value, False
        for prefix, entries in ranges.items():
            for key in self._under(prefix):
                yield key, entries.get(key, Seen()).value, True

    def _checked(
        self, operation: Operation, request: AppendOperation
    ) -> Iterator[tuple[str, View]]:
        """The lists that a transaction saw because its checks held."""
        for key in request.removes:
            elements = (*self._all_of(key), *self.own[operation.index][key])
            yield key, View(operation.index, elements)
        for key in request.touches:
            yield key, View(operation.index, tuple(self._all_of(key)))
        for prefix, known in request.unchanged.items():
            for key in self._under(prefix):
                mine = self.own[operation.index].get(key, [])
                value = known.seen.get(key, Seen()).value
                before: tuple[str, ...] | None = ()
                if not mine or value is not None:
                    before = self._elements(operation, key, value)
                if before is not None:
                    yield key, View(operation.index, (*before, *mine), not before)

    def _elements(self, operation: Operation, key: str, value: Any) -> tuple[str, ...] | None:
        """The elements of a list that was seen; None: nobody can tell."""
        if value is None:
            return self._of_absent(operation, key)
        return tuple(str(frozen(e)) for e in (value if isinstance(value, list) else [value]))

    def _of_absent(self, reader: Operation, key: str) -> tuple[str, ...] | None:
        """The elements of an absent list: none, or all with a removal; None: nobody can tell.

        It was removed before if it was made before, in real time; so it was by the only one who may
        have done so.
        """
        request = reader.request
        if isinstance(request, AppendOperation) and key in request.removes:
            return (*self._all_of(key), *self.own[reader.index][key])
        end = reader.returned_ns
        removers = [
            each for each in self._removers.get(key, ())
            if not each.refused and (end is None or each.invoked_ns <= end)
        ]  # fmt: skip
        if not removers:
            return ()
        surely = [each for each in removers if each.outcome == "ok"] or removers
        makers = [self._history.operations[place] for place in self._made.get(key, ())]
        made = any(
            each.outcome == "ok" and each.returned_ns is not None
            and each.returned_ns < reader.invoked_ns
            for each in makers if not each.refused
        )  # fmt: skip
        if not made or not reader.is_current or len(surely) > 1:
            return None
        return (*self._all_of(key), *self.own[surely[0].index][key])

    def _all_of(self, key: str) -> list[str]:
        """The elements of a list that is removed at some time."""
        makers = self._made.get(key, ())
        return [element for place in makers for element in self.own[place][key]]


def did(key: str, element: str) -> str:
    """Return what the writer of an element did, in words."""
    return f"removed {key}" if element.startswith(_REMOVED) else f"appended {element} to {key}"


def read(key: str, element: str) -> str:
    """Return what who read an element saw, in words."""
    return f"found {key} removed" if element.startswith(_REMOVED) else f"read {element} in {key}"


def missed(key: str, element: str, view: View) -> str:
    """Return what the writer of an element did after a view, in words."""
    when = "which was not there when read"
    if view.lacking:
        when = "a key that was not in the range when scanned"
    elif element.startswith(_REMOVED):
        when = "which was there when read"
    return f"{did(key, element)}, {when}"
