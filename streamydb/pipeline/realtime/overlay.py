"""Values as the real-time gear sees them: what it has written since its base, then the base."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice, takewhile
from operator import itemgetter
from typing import Final, Protocol

from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import (
    KeyScan,
    Position,
    end_name,
    ends_at,
    first_name,
    key_named,
    size_of,
)

__all__ = ["OverlayValues", "ValuesSnapshot"]

_Item = tuple[bytes, bytes]


class ValuesSnapshot(Protocol):
    """The values of a base; they do not change, whatever is written to the file they are of."""

    def load(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the encoded values of keys, None where absent."""

    def items(self, start: bytes) -> Iterator[_Item]:
        """Yield keys from ``start`` on with their encoded values, in order."""

    def ends(self, after: bytes) -> Iterator[bytes]:
        """Yield the names (`frames.blobs.end_name`) behind ``after`` of what ends, in order."""

    def close(self) -> None:
        """Give the values up; they are not read again."""


_UNORDERED_MAX: Final = 4_096


class _OrderedKeys:
    """Distinct keys, in order when somebody asks. A list in order moves half of its keys, on
    average, for each that it is given; so the latest ones lie in another list.
    """

    def __init__(self) -> None:
        self._most: list[bytes] = []
        self._latest: list[bytes] = []

    def add(self, key: bytes) -> None:
        """Take a key that is not among them."""
        self._latest.append(key)
        if len(self._latest) == _UNORDERED_MAX:
            self._most += self._latest
            self._most.sort()
            self._latest.clear()

    def between(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """Yield the keys from ``start`` on that are before ``end``."""
        self._latest.sort()
        parts = self._most, self._latest
        return merge(*(keys[bisect_left(keys, start) : bisect_left(keys, end)] for keys in parts))


class OverlayValues:
    """A `ValueStore` that writes into memory and never into the base below it.

    Attributes:
        bytes: size of the keys and values that are kept, without what Python needs for them.
    """

    alone = True

    def __init__(self, below: ValuesSnapshot, at: Position) -> None:
        """Begin with the values of a base, which stand at ``at``."""
        self._below = below
        self._at = at
        self._written: dict[bytes, bytes | None] = {}
        self._keys = _OrderedKeys()
        self._names: list[bytes] = []
        self.bytes = 0

    def position(self) -> Position:
        return self._at

    def load(self, at: Position, keys: Sequence[bytes]) -> list[bytes | None] | None:
        """Return the encoded values of keys, None where absent."""
        self._require(at)
        written = self._written
        missing = [key for key in keys if key not in written]
        if not missing:
            return [written[key] for key in keys]
        found = dict(zip(missing, self._below.load(missing), strict=True))
        return [found[key] if key in found else written[key] for key in keys]

    def sizes(self, at: Position, keys: Sequence[bytes]) -> list[int] | None:
        """Return how many bytes each encoded value has, -1 where absent."""
        found = self.load(at, keys) or []
        return [-1 if item is None else size_of(item) for item in found]

    def scan(self, at: Position, wanted: KeyScan) -> list[tuple[bytes, bytes]] | None:
        """Return the keys in a range with their encoded values, in order; see `KeyScan`."""
        self._require(at)
        return wanted.taken(self._merged(wanted.start, wanted.end))

    def _merged(self, start: bytes, end: bytes) -> Iterator[_Item]:
        """Yield the items from ``start`` on; none that was written has a key at or behind
        ``end``.
        """
        written, own = self._written, self._keys.between(start, end)
        new = ((key, item) for key in own if (item := written[key]) is not None)
        old = (item for item in self._below.items(start) if item[0] not in written)
        return merge(new, old, key=itemgetter(0))

    def due(self, at: Position, until_ms: int, after: bytes, keys_max: int) -> list[bytes] | None:
        """Return the first names of what ends by ``until_ms``, behind ``after``."""
        self._require(at)
        names, behind = self._names, first_name(until_ms + 1)
        new = names[bisect_right(names, after) : bisect_left(names, behind)]
        old = takewhile(lambda name: name < behind, self._below.ends(after))
        standing = (name for name in old if key_named(name)[1] not in self._written)
        return list(islice(merge(new, standing), keys_max))

    def apply(
        self,
        expected: Position,
        reached: Position,
        puts: list[tuple[bytes, bytes]],
        deletes: list[bytes],
        ends: Sequence[bytes] = (),
    ) -> bool:
        """Keep writes, and move to ``reached``."""
        self._require(expected)
        absent: Iterable[tuple[bytes, None]] = ((key, None) for key in deletes)
        for key, item in (*puts, *absent):
            self._put(key, item)
        for name in ends:
            insort(self._names, name)
        self._at = reached
        return True

    def _put(self, key: bytes, item: bytes | None) -> None:
        written = self._written
        if key not in written:
            self._keys.add(key)
            self.bytes += len(key)
        elif (old := written[key]) is not None:
            self.bytes -= len(old)
            if self._names and ends_at(old) is not None:
                del self._names[bisect_left(self._names, end_name(key, old))]
        if item is not None:
            self.bytes += len(item)
        written[key] = item

    def clear(self, expected: Position, reached: Position) -> bool:  # noqa: ARG002 - see below
        """Refuse: there is no state from which the values could be made anew."""
        raise InvariantViolation("the values of the real-time gear do not follow from its state")

    def describe(self, at: Position, base: bytes) -> bool:  # noqa: ARG002 - nobody begins with it
        """Keep nothing: this is no base for others."""
        return False

    def _require(self, at: Position) -> None:
        if at != self._at:
            raise InvariantViolation(f"the values stand at {self._at}, the state at {at}")
