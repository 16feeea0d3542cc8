"""Sets whose order is that of insertion: Python's own follows a hash that differs by process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from streamydb.procedures.meter import Meter

__all__ = ["OrderedSet"]


class OrderedSet:
    """A set on a dict; every operation is charged."""

    __slots__ = ("items", "meter")
    is_set: ClassVar[bool] = True
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, meter: Meter, items: Iterable[Any] = ()) -> None:
        """Hold ``items``, which were charged for."""
        self.meter = meter
        self.items: dict[Any, None] = {}
        count = 0
        for item in items:
            self.items[self._found(item)] = None
            count += 1
        meter.charge(count // 4)

    def _found(self, item: Any) -> Any:
        """An item, which is looked for."""
        self.meter.walk(item)
        self.meter.search(len(self.items), item)
        return item

    def __contains__(self, item: Any) -> bool:
        return self._found(item) in self.items

    def __iter__(self) -> Iterator[Any]:
        self.meter.pass_gaps()
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        if type(other) is not OrderedSet:
            return NotImplemented
        self.meter.charge(len(self.items) + 1)
        self._search_all(self.items, len(other.items))
        return self.items.keys() == other.items.keys()

    def union(self, other: Any) -> OrderedSet:
        """All items of both."""
        return self._made([*self, *self._others(other)])

    def intersection(self, other: Any) -> OrderedSet:
        """The items that are in both."""
        others = self._table(other)
        return self._made(item for item in self if item in others)

    def difference(self, other: Any) -> OrderedSet:
        """The items that are not in the other."""
        others = self._table(other)
        return self._made(item for item in self if item not in others)

    def symmetric_difference(self, other: Any) -> OrderedSet:
        """The items that are in one of the two."""
        others = OrderedSet(self.meter, self._others(other))
        return self.difference(others).union(others.difference(self))

    def issubset(self, other: Any) -> bool:
        """Return True if the other has all items."""
        others = self._table(other)
        return all(item in others for item in self)

    def issuperset(self, other: Any) -> bool:
        """Return True if all items of the other are here."""
        return all(item in self.items for item in self._looked_for(other))

    def isdisjoint(self, other: Any) -> bool:
        """Return True if no item is in both."""
        return not any(item in self.items for item in self._looked_for(other))

    def add(self, item: Any) -> None:
        """Take one more item."""
        self.items[self._found(item)] = None

    def discard(self, item: Any) -> None:
        """Remove an item if it is there."""
        self.items.pop(self._found(item), None)
        self.meter.deleted += 1

    def remove(self, item: Any) -> None:
        """Remove an item.

        Raises:
            KeyError: it is not there.

        """
        del self.items[self._found(item)]
        self.meter.deleted += 1

    def update(self, other: Any) -> None:
        """Take the items of another."""
        self.items.update(dict.fromkeys(self._looked_for(other)))

    def clear(self) -> None:
        """Remove all items."""
        self.meter.charge(len(self.items) // 16)
        self.items.clear()

    def copy(self) -> OrderedSet:
        """The same items."""
        return self._made(self)

    def _made(self, items: Iterable[Any]) -> OrderedSet:
        self.meter.charge(len(self.items) // 4 + 1)
        return OrderedSet(self.meter, items)

    def _others(self, other: Any) -> list[Any]:
        if type(other) not in (OrderedSet, list, tuple, dict):
            raise TypeError("a set is combined with sets, lists, tuples and dicts")
        self.meter.charge((len(self.items) + len(other)) // 4 + 1)
        self.meter.pass_gaps()
        return [self.meter.walk(item) for item in other]

    def _table(self, other: Any) -> dict[Any, None]:
        """The items of another, among which those of this one are looked for."""
        others = self._others(other)
        self._search_all(others, len(others))
        self._search_all(self.items, len(others))
        return dict.fromkeys(others)

    def _looked_for(self, other: Any) -> list[Any]:
        """The items of another, which are looked for here, and perhaps added."""
        others = self._others(other)
        self._search_all(others, len(self.items) + len(others))
        return others

    def _search_all(self, items: Iterable[Any], size: int) -> None:
        for item in items:
            self.meter.search(size, item)
